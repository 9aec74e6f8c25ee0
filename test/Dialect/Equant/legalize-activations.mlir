// RUN: easyquant-opt %s -equant-legalize-activations | FileCheck %s
// RUN: easyquant-opt %s -equant-legalize-activations=target=gpu | FileCheck %s --check-prefix=GPU
// RUN: easyquant-opt %s -equant-legalize-activations=target=sm_120a | FileCheck %s --check-prefix=BLOCKS

// Linears that read the same codes share one. A GPU needs no sums of codes where weights have no zero points, and reads bf16 elsewhere.
// GPU-LABEL: func.func @forward(
// GPU-SAME:    %[[X:.*]]: tensor<?x8xf32>
// GPU:           %[[R:.*]] = equant.quantize_rows %[[X]] : tensor<?x8xf32> -> !equant.rows<?x8, #equant.scheme<f8E4M3FN, token, dynamic>>
// GPU:           equant.packed_linear %[[R]], %{{.*}} {sites = ["gate"]}
// GPU:           equant.packed_linear %[[R]], %{{.*}} {sites = ["up"]}
// GPU:           equant.quantize_rows %[[X]] {scale = 2.500000e-01 : f32} : tensor<?x8xf32> -> !equant.rows<?x8, #equant.scheme<f8E4M3FN, tensor>>
// GPU:           %[[C:.*]] = equant.quantize_rows %[[X]] : tensor<?x8xf32> -> !equant.rows<?x8, #equant.scheme<i8, symmetric, token, dynamic>>
// GPU:           equant.packed_linear %[[C]], %{{.*}} {sites = ["integer"]}
// GPU:           %[[H:.*]] = arith.truncf %[[X]] : tensor<?x8xf32> to tensor<?x8xbf16>
// GPU:           lm.linear %[[H]],
// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>
// CHECK:         %[[Q:.*]] = equant.fake_quantize %[[X]] {scheme = #equant.scheme<f8E4M3FN, token, dynamic>} : tensor<?x8xf32>
// CHECK:         equant.packed_linear %[[Q]], %{{.*}} {sites = ["gate"]}
// CHECK:         equant.packed_linear %[[Q]], %{{.*}} {sites = ["up"]}
// CHECK:         %[[S:.*]] = equant.fake_quantize %[[X]] {scale = 2.500000e-01 : f32, scheme = #equant.scheme<f8E4M3FN, tensor>} : tensor<?x8xf32>
// CHECK:         equant.packed_linear %[[S]], %{{.*}} {sites = ["static"]}
// CHECK:         %[[C:.*]] = equant.quantize_rows %[[X]] : tensor<?x8xf32> -> !equant.rows<?x8, #equant.scheme<i8, symmetric, token, dynamic>, sums = 0>
// CHECK:         equant.packed_linear %[[C]], %{{.*}} {sites = ["integer"]}
#panel = #equant.layout<panel>
#f8 = #equant.scheme<f8E4M3FN, token, dynamic>
!f8 = !equant.weight<16x8, #equant.scheme<f8E4M3FN, channel>, #panel>
!i8 = !equant.weight<16x8, #equant.scheme<i8, symmetric, channel>, #panel>
func.func @forward(%x: tensor<?x8xf32>, %w: !f8, %i: !i8, %f: tensor<16x8xf32>) {
  %g = equant.packed_linear %x, %w {sites = ["gate"], input_scheme = #f8} : (tensor<?x8xf32>, !f8) -> tensor<?x16xf32>
  %u = equant.packed_linear %x, %w {sites = ["up"], input_scheme = #f8} : (tensor<?x8xf32>, !f8) -> tensor<?x16xf32>
  %t = equant.packed_linear %x, %w {sites = ["static"], input_scale = 2.5e-01 : f32, input_scheme = #equant.scheme<f8E4M3FN, tensor>}
    : (tensor<?x8xf32>, !f8) -> tensor<?x16xf32>
  %j = equant.packed_linear %x, %i {sites = ["integer"], input_scheme = #equant.scheme<i8, symmetric, token, dynamic>}
    : (tensor<?x8xf32>, !i8) -> tensor<?x16xf32>
  %l = lm.linear %x, %f {site = "float"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  return
}

// GPUs multiply FP4 as bf16.
// GPU-LABEL: func.func @fp4(
// GPU:           %[[F:.*]] = equant.fake_quantize %{{.*}} {scheme = #equant.scheme<f8E4M3FN, token, dynamic>}
// GPU:           %[[R:.*]] = arith.truncf %[[F]]
// GPU:           equant.packed_linear %[[R]], %{{.*}} {sites = ["fp4"]}
// CHECK-LABEL: func.func @fp4(
!f4 = !equant.weight<16x32, #equant.scheme<f4E2M1FN, group = 32, scale = f8E8M0FNU>, #panel>
func.func @fp4(%x: tensor<?x32xf32>, %w: !f4) {
  %y = equant.packed_linear %x, %w {sites = ["fp4"], input_scheme = #f8} : (tensor<?x32xf32>, !f4) -> tensor<?x16xf32>
  return
}

// NVFP4 on NVFP4 is multiplied as codes where a chip can; a family's name says nothing of chips.
// GPU-LABEL: func.func @nvfp4(
// GPU:           %[[F:.*]] = equant.fake_quantize %{{.*}} {scale = 2.500000e-03 : f32, scheme = #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>}
// GPU:           %[[R:.*]] = arith.truncf %[[F]]
// GPU:           equant.packed_linear %[[R]], %{{.*}} {sites = ["nvfp4"]}
// BLOCKS-LABEL: func.func @nvfp4(
// BLOCKS:        %[[R:.*]] = equant.quantize_rows %{{.*}} {scale = 2.500000e-03 : f32} : tensor<?x64xf32> -> !equant.rows<?x64, #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>>
// BLOCKS:        equant.packed_linear %[[R]], %{{.*}} {sites = ["nvfp4"]}
// CHECK-LABEL: func.func @nvfp4(
#x4 = #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>
!n4 = !equant.weight<64x64, #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>, #equant.layout<m16n8k16>>
func.func @nvfp4(%x: tensor<?x64xf32>, %w: !n4) {
  %y = equant.packed_linear %x, %w {sites = ["nvfp4"], input_scale = 2.5e-03 : f32, input_scheme = #x4} : (tensor<?x64xf32>, !n4) -> tensor<?x64xf32>
  return
}

// Codes that several linears read have sums where one of them needs these.
// GPU-LABEL: func.func @shared(
// GPU:           %[[C:.*]] = equant.quantize_rows %{{.*}} -> !equant.rows<?x32, {{.*}}, sums = 32>
// GPU:           equant.packed_linear %[[C]], %{{.*}} {sites = ["plain"]}
// GPU:           equant.packed_linear %[[C]], %{{.*}} {sites = ["zero_points"]}
// GPU-NOT:       quantize_rows
// CHECK-LABEL: func.func @shared(
#k32 = #equant.layout<m16n8k32>
#token = #equant.scheme<i8, symmetric, token, dynamic>
!s4 = !equant.weight<16x32, #equant.scheme<i4, symmetric, group = 32>, #k32>
!z4 = !equant.weight<16x32, #equant.scheme<i4, asymmetric, group = 32>, #k32>
func.func @shared(%x: tensor<?x32xf32>, %s: !s4, %z: !z4) {
  %a = equant.packed_linear %x, %s {sites = ["plain"], input_scheme = #token} : (tensor<?x32xf32>, !s4) -> tensor<?x16xf32>
  %b = equant.packed_linear %x, %z {sites = ["zero_points"], input_scheme = #token} : (tensor<?x32xf32>, !z4) -> tensor<?x16xf32>
  return
}
