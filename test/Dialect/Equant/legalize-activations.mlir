// RUN: easyquant-opt %s -equant-legalize-activations | FileCheck %s

// Linears that read the same codes share one; int8 codes are multiplied as they are.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>
// CHECK:         %[[S:.*]] = equant.fake_quantize %[[X]] {scale = 2.500000e-01 : f32, scheme = #equant.scheme<f8E4M3FN, tensor>} : tensor<?x8xf32>
// CHECK:         %[[Q:.*]] = equant.fake_quantize %[[X]] {scheme = #equant.scheme<f8E4M3FN, token, dynamic>} : tensor<?x8xf32>
// CHECK-NOT:     fake_quantize
// CHECK:         equant.linear %[[Q]], %{{.*}} {sites = ["gate"], weight_scheme = #equant.scheme<f8E4M3FN, channel>}
// CHECK:         equant.linear %[[Q]], %{{.*}} {sites = ["up"],
// CHECK:         equant.linear %[[S]], %{{.*}} {sites = ["static"], weight_scheme
// CHECK:         equant.linear %[[X]], %{{.*}} {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["integer"]
func.func @forward(%x: tensor<?x8xf32>, %w: tensor<16x8xf8E4M3FN>, %s: tensor<16x1xf32>, %i: tensor<16x8xi8>) {
  %g = equant.linear %x, %w scale(%s) {sites = ["gate"], input_scheme = #equant.scheme<f8E4M3FN, token, dynamic>, weight_scheme = #equant.scheme<f8E4M3FN, channel>}
    : (tensor<?x8xf32>, tensor<16x8xf8E4M3FN>, tensor<16x1xf32>) -> tensor<?x16xf32>
  %u = equant.linear %x, %w scale(%s) {sites = ["up"], input_scheme = #equant.scheme<f8E4M3FN, token, dynamic>, weight_scheme = #equant.scheme<f8E4M3FN, channel>}
    : (tensor<?x8xf32>, tensor<16x8xf8E4M3FN>, tensor<16x1xf32>) -> tensor<?x16xf32>
  %t = equant.linear %x, %w scale(%s) {sites = ["static"], input_scale = 2.5e-01 : f32, input_scheme = #equant.scheme<f8E4M3FN, tensor>, weight_scheme = #equant.scheme<f8E4M3FN, channel>}
    : (tensor<?x8xf32>, tensor<16x8xf8E4M3FN>, tensor<16x1xf32>) -> tensor<?x16xf32>
  %j = equant.linear %x, %i scale(%s) {sites = ["integer"], input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, weight_scheme = #equant.scheme<i8, symmetric, channel>}
    : (tensor<?x8xf32>, tensor<16x8xi8>, tensor<16x1xf32>) -> tensor<?x16xf32>
  return
}
