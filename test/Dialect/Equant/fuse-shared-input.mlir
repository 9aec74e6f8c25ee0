// RUN: easyquant-opt %s --equant-fuse-shared-input | FileCheck %s

#w8 = #equant.scheme<i8, symmetric, channel>
#a8 = #equant.scheme<i8, symmetric, token, dynamic>

// The weights of the second linear are made after the first one; they move up.
// CHECK-LABEL: func.func @two(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[V:[^:]*]]: tensor<16x8xf32>, %[[W:[^:]*]]: tensor<24x8xf32>)
// CHECK-DAG:     %[[SV:.*]] = equant.choose_qparams %[[V]]
// CHECK-DAG:     %[[QV:.*]] = equant.quantize %[[V]]
// CHECK-DAG:     %[[SW:.*]] = equant.choose_qparams %[[W]]
// CHECK-DAG:     %[[QW:.*]] = equant.quantize %[[W]]
// CHECK:         %[[Q:.*]] = equant.concat %[[QV]], %[[QW]] : (tensor<16x8xi8>, tensor<24x8xi8>) -> tensor<40x8xi8>
// CHECK:         %[[S:.*]] = equant.concat %[[SV]], %[[SW]] : (tensor<16x1xf32>, tensor<24x1xf32>) -> tensor<40x1xf32>
// CHECK:         %[[Y:.*]] = equant.linear %[[X]], %[[Q]] scale(%[[S]])
// CHECK-SAME:      {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["gate", "up"], weight_scheme = #equant.scheme<i8, symmetric, channel>}
// CHECK-SAME:      : (tensor<?x8xf32>, tensor<40x8xi8>, tensor<40x1xf32>) -> tensor<?x40xf32>
// CHECK:         %[[R:.*]]:2 = lm.split %[[Y]] : tensor<?x40xf32> -> tensor<?x16xf32>, tensor<?x24xf32>
// CHECK:         %[[G:.*]] = lm.gelu %[[R]]#0
// CHECK:         return %[[G]], %[[R]]#1
func.func @two(%x: tensor<?x8xf32>, %v: tensor<16x8xf32>, %w: tensor<24x8xf32>) -> (tensor<?x16xf32>, tensor<?x24xf32>) {
  %sv = equant.choose_qparams %v rule absmax {scheme = #w8} : (tensor<16x8xf32>) -> tensor<16x1xf32>
  %qv = equant.quantize %v scale(%sv) {scheme = #w8} : (tensor<16x8xf32>, tensor<16x1xf32>) -> tensor<16x8xi8>
  %y = equant.linear %x, %qv scale(%sv) {sites = ["gate"], weight_scheme = #w8, input_scheme = #a8}
         : (tensor<?x8xf32>, tensor<16x8xi8>, tensor<16x1xf32>) -> tensor<?x16xf32>
  %g = lm.gelu %y approximate tanh : tensor<?x16xf32>
  %sw = equant.choose_qparams %w rule absmax {scheme = #w8} : (tensor<24x8xf32>) -> tensor<24x1xf32>
  %qw = equant.quantize %w scale(%sw) {scheme = #w8} : (tensor<24x8xf32>, tensor<24x1xf32>) -> tensor<24x8xi8>
  %z = equant.linear %x, %qw scale(%sw) {sites = ["up"], weight_scheme = #w8, input_scheme = #a8}
         : (tensor<?x8xf32>, tensor<24x8xi8>, tensor<24x1xf32>) -> tensor<?x24xf32>
  return %g, %z : tensor<?x16xf32>, tensor<?x24xf32>
}

// CHECK-LABEL: func.func @three_with_biases(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[Q:[^:]*]]: tensor<4x8xi8>, %[[S:[^:]*]]: tensor<4x1xf32>, %[[B:[^:]*]]: tensor<4xf32>)
// CHECK:         equant.concat %[[Q]], %[[Q]], %[[Q]]
// CHECK:         equant.concat %[[S]], %[[S]], %[[S]]
// CHECK:         %[[BIAS:.*]] = equant.concat %[[B]], %[[B]], %[[B]] : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<12xf32>
// CHECK:         equant.linear %[[X]], {{.*}} bias(%[[BIAS]]) {sites = ["q", "k", "v"]
// CHECK:         lm.split {{.*}} : tensor<?x12xf32> -> tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>
func.func @three_with_biases(%x: tensor<?x8xf32>, %q: tensor<4x8xi8>, %s: tensor<4x1xf32>, %b: tensor<4xf32>)
    -> (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) {
  %0 = equant.linear %x, %q scale(%s) bias(%b) {sites = ["q"], weight_scheme = #w8}
         : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<4x1xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %1 = equant.linear %x, %q scale(%s) bias(%b) {sites = ["k"], weight_scheme = #w8}
         : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<4x1xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %2 = equant.linear %x, %q scale(%s) bias(%b) {sites = ["v"], weight_scheme = #w8}
         : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<4x1xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  return %0, %1, %2 : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>
}
