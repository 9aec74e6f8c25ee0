// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --launch-print -o /dev/null | FileCheck %s
// RUN: easyquant-opt %s "--easyquant-launches=target=sm_80 max-rows=4" --launch-print -o /dev/null | FileCheck %s --check-prefix=GPU

// Each launch is printed with the bytes of constants, the bytes of rows read and written, and the launches that it waits for. Where several
// kernels share an op by the number of rows, all are printed.

// CHECK:      0 other     lm.rms_norm  @rms_norm_32_eps3727c5ac  reads 128 + 128/row, writes 128/row{{$}}
// CHECK-NEXT: 1 gemm      q  @linear_32x32_f32  reads 4096 + 128/row, writes 128/row  after 0{{$}}
// CHECK-NEXT: 2 gemm      k  @linear_32x32_f32  reads 4096 + 128/row, writes 128/row  after 1{{$}}
// CHECK-NEXT: 3 other     lm.glu  @silu_mul_32  reads 0 + 256/row, writes 128/row  after 2{{$}}
// GPU:      0 quantize  lm.rms_norm  @kernels::@rms_norm_32_{{.*}}_to_bf16  reads 128 + 128/row, writes 64/row{{$}}
// GPU-NEXT: 1 gemm      q  @kernels::@linear_32x32_bf16_bf16_f32_stream_1 for 1 to 1 rows  reads 4096 + 64/row, writes 128/row  after 0{{$}}
ml_program.global private @n(#ml_program.extern : tensor<32xf32>) : tensor<32xf32> {equant.offset = 0 : i64}
ml_program.global private @w(#ml_program.extern : tensor<32x32xf32>) : tensor<32x32xf32> {equant.offset = 128 : i64, equant.bf16_offset = 8192 : i64}
func.func @forward(%x: tensor<?x32xf32>) -> tensor<?x32xf32> {
  %n = ml_program.global_load_const @n : tensor<32xf32>
  %w = ml_program.global_load_const @w : tensor<32x32xf32>
  %h = lm.rms_norm %x, %n {epsilon = 1.0e-05 : f64} : tensor<?x32xf32>
  %q = lm.linear %h, %w {site = "q"} : (tensor<?x32xf32>, tensor<32x32xf32>) -> tensor<?x32xf32>
  %k = lm.linear %h, %w {site = "k"} : (tensor<?x32xf32>, tensor<32x32xf32>) -> tensor<?x32xf32>
  %y = lm.glu silu %q, %k : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
