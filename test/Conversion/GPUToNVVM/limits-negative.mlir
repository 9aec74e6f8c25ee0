// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --easyquant-emit-gpu-program="output=%t target=sm_80 max-rows=1"

// What does not fit the parameter of a kernel.
ml_program.global private @t(#ml_program.extern : tensor<4x2147483647xf32>) : tensor<4x2147483647xf32> {equant.offset = 0 : i64}
ml_program.global private @w(#ml_program.extern : tensor<8x2147483647xf32>) : tensor<8x2147483647xf32> {equant.bf16_offset = 0 : i64}
func.func @forward(%tokens: tensor<?xi32>) -> tensor<?x8xf32> {
  %t = ml_program.global_load_const @t : tensor<4x2147483647xf32>
  %w = ml_program.global_load_const @w : tensor<8x2147483647xf32>
  %x = lm.embedding %tokens, %t : tensor<?xi32>, tensor<4x2147483647xf32> -> tensor<?x2147483647xf32>
  // expected-error @below {{passes 2147483648, which is no i32}}
  %y = lm.linear %x, %w {site = "q"} : (tensor<?x2147483647xf32>, tensor<8x2147483647xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

ml_program.global private @w(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32> {equant.bf16_offset = 0 : i64}
func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %w = ml_program.global_load_const @w : tensor<8x8xf32>
  // expected-error @below {{reads argument 0 of the step, 'memref<?x8xf32>', which nobody can give it}}
  %y = lm.linear %x, %w {site = "q"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
