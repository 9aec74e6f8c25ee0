// The road of a linear: op -> kernels -> gpu.func -> NVVM -> PTX.

// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches=target=sm_90a --equant-lower-to-nvvm="target=sm_90a" -o %t.nvvm
// RUN: FileCheck %s --check-prefix=NVVM < %t.nvvm
// RUN: easyquant-opt %s --easyquant-gpu-pipeline="target=sm_90a" | FileCheck %s --check-prefix=NVVM
// RUN: easyquant-opt %t.nvvm --equant-emit-gpu-binary="ptx=%t.ptx" -o /dev/null
// RUN: FileCheck %s --check-prefix=PTX < %t.ptx

// CHECK: gpu.module @kernels {
// CHECK: gpu.func @rms_norm_64_eps{{[0-9a-f]+}}_f32_quantize(%{{.*}}: !llvm.ptr<1> {{.*}}, %{{.*}}: i32, {{.*}}) kernel attributes {known_block_size = array<i32: 128, 1, 1>, {{.*}}nvvm.minctasm = 8 : i32}
// CHECK: gpu.func @linear_96x64_i8_q_f32_dot_1(
// CHECK: nvvm.dot.accumulate.4way
// CHECK: gpu.func @linear_96x64_i8_q_f32_dot_16(
// CHECK: nvvm.mma.sync
// CHECK: gpu.func @linear_96x64_i8_q_f32_mma_32x32x128(
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache = {{ *}}cg
// CHECK: scf.for
// CHECK: nvvm.cp.async.wait.group 2
// CHECK: nvvm.barrier0
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.mma.sync

// NVVM: gpu.module @kernels [#nvvm.target<chip = "sm_90a">] {
// NVVM-NOT: scf.
// NVVM-NOT: arith.
// NVVM: llvm.func @linear_96x64_i8_q_f32_mma_32x32x128({{.*}}nvvm.kernel

// Weights nobody writes: they may be read at any time, before the launch before this one has ended, too. All else is read behind it.
// PTX: .target sm_90a
// PTX-LABEL: .visible .entry rms_norm_64_eps
// PTX: .minnctapersm 8
// PTX: griddepcontrol.launch_dependents;
// PTX-NOT: ld.global
// PTX: griddepcontrol.wait;
// PTX: ld.global.v
// PTX: ld.global.nc
// PTX-LABEL: .visible .entry linear_96x64_i8_q_f32_dot_1(
// PTX: griddepcontrol.launch_dependents;
// PTX: griddepcontrol.wait;
// PTX: ld.global.nc.v4
// PTX: dp4a.s32.s32
// PTX-LABEL: .visible .entry linear_96x64_i8_q_f32_mma_32x32x128(
// PTX-NOT: launch_dependents
// PTX: cp.async.cg.shared.global [{{.*}}], [{{.*}}], 16
// PTX: cp.async.wait_group 2;
// PTX: bar.sync 0;
// PTX: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// PTX: mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32
// PTX-LABEL: .visible .entry linear_96x64_i4_g32_q_f32_mma_32x32x32(
// PTX: mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32

// Weights of 4 bits and floats, on bf16.
// PTX-LABEL: .visible .entry linear_96x64_i4_g32_bf16_f32_stream_1(
// PTX: ld.global.nc.v4
// PTX: lop3.b32
// PTX: add.rn.bf16x2
// PTX: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// PTX-LABEL: .visible .entry linear_96x64_i4_g32_bf16_f32_mma_32x32x32(
// PTX: cp.async.cg.shared.global
// PTX: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// PTX: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// PTX-LABEL: .visible .entry linear_96x64_bf16_bf16_f32_stream_1(
// PTX-NOT: fma.rn.bf16x2
// PTX: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32

#token = #equant.scheme<i8, symmetric, token, dynamic>
#k32 = #equant.layout<m16n8k32>
#k16 = #equant.layout<m16n8k16>
!w8 = !equant.weight<96x64, #equant.scheme<i8, symmetric, channel>, #k32>
!w4 = !equant.weight<96x64, #equant.scheme<i4, symmetric, group = 32>, #k32>
!w4a16 = !equant.weight<96x64, #equant.scheme<i4, symmetric, group = 32>, #k16>
ml_program.global private @w8(#ml_program.extern : !w8) : !w8 {equant.offset = array<i64: 0, 8192>}
ml_program.global private @w4(#ml_program.extern : !w4) : !w4 {equant.offset = array<i64: 16384, 20480>}
ml_program.global private @w4a16(#ml_program.extern : !w4a16) : !w4a16 {equant.offset = array<i64: 24576, 28672>}

// CHECK-LABEL: func.func @block(
// CHECK: launch.kernel quantize @kernels::@rms_norm_64_eps{{[0-9a-f]+}}_f32_quantize(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x64_i8_q_f32_dot_1({{.*}}rows = array<i64: 1, 1>, {{.*}}site = "a"
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x64_i8_q_f32_dot_4({{.*}}rows = array<i64: 2, 4>
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x64_i8_q_f32_mma_128x128x64({{.*}}, 0>
// CHECK: launch.kernel {{[a-z]+}} @kernels::@quantize_64_f32({{.*}}site = "b"
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x64_i4_g32_q_f32_dot_1(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@copy_64_f32_to_bf16({{.*}}site = "c"
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x64_i4_g32_bf16_f32_stream_1(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x64_bf16_bf16_f32_stream_1({{.*}}site = "d"
func.func @block(%x: tensor<?x64xf32>, %norm: tensor<64xf32>, %float: tensor<96x64xf32>)
    -> (tensor<?x96xf32>, tensor<?x96xf32>, tensor<?x96xf32>, tensor<?x96xf32>) {
  %h = lm.rms_norm %x, %norm {epsilon = 1.0e-05 : f64} : tensor<?x64xf32>
  %w8 = ml_program.global_load_const @w8 : !w8
  %y = equant.packed_linear %h, %w8 {sites = ["a"], input_scheme = #token} : (tensor<?x64xf32>, !w8) -> tensor<?x96xf32>
  %w4 = ml_program.global_load_const @w4 : !w4
  %z = equant.packed_linear %x, %w4 {sites = ["b"], input_scheme = #token} : (tensor<?x64xf32>, !w4) -> tensor<?x96xf32>
  %w4a16 = ml_program.global_load_const @w4a16 : !w4a16
  %u = equant.packed_linear %x, %w4a16 {sites = ["c"]} : (tensor<?x64xf32>, !w4a16) -> tensor<?x96xf32>
  %v = lm.linear %x, %float {site = "d"} : (tensor<?x64xf32>, tensor<96x64xf32>) -> tensor<?x96xf32>
  return %y, %z, %u, %v : tensor<?x96xf32>, tensor<?x96xf32>, tensor<?x96xf32>, tensor<?x96xf32>
}
