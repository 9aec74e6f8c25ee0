// RUN: easyquant-opt %s --equant-fuse-shared-input | FileCheck %s

#w8 = #equant.scheme<i8, symmetric, channel>
#a8 = #equant.scheme<i8, symmetric, token, dynamic>

// The weights of the second linear are made after the first one; they move up.
// CHECK-LABEL: func.func @two(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[V:[^:]*]]: tensor<16x8xf32>, %[[W:[^:]*]]: tensor<24x8xf32>)
// CHECK-DAG:     %[[QV:.*]] = equant.quantize %[[V]]
// CHECK-DAG:     %[[QW:.*]] = equant.quantize %[[W]]
// CHECK:         %[[Q:.*]] = equant.concat %[[QV]], %[[QW]] : (!equant.weight<16x8, {{.*}}>, !equant.weight<24x8, {{.*}}>) -> !equant.weight<40x8, #equant.scheme<i8, symmetric, channel>>
// CHECK:         %[[Y:.*]] = equant.linear %[[X]], %[[Q]]
// CHECK-SAME:      {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["gate", "up"]}
// CHECK-SAME:      -> tensor<?x40xf32>
// CHECK:         %[[R:.*]]:2 = lm.split %[[Y]] : tensor<?x40xf32> -> tensor<?x16xf32>, tensor<?x24xf32>
// CHECK:         %[[G:.*]] = lm.gelu %[[R]]#0
// CHECK:         return %[[G]], %[[R]]#1
func.func @two(%x: tensor<?x8xf32>, %v: tensor<16x8xf32>, %w: tensor<24x8xf32>) -> (tensor<?x16xf32>, tensor<?x24xf32>) {
  %qv = equant.quantize %v rule absmax : (tensor<16x8xf32>) -> !equant.weight<16x8, #w8>
  %y = equant.linear %x, %qv {sites = ["gate"], input_scheme = #a8} : (tensor<?x8xf32>, !equant.weight<16x8, #w8>) -> tensor<?x16xf32>
  %g = lm.gelu %y approximate tanh : tensor<?x16xf32>
  %qw = equant.quantize %w rule absmax : (tensor<24x8xf32>) -> !equant.weight<24x8, #w8>
  %z = equant.linear %x, %qw {sites = ["up"], input_scheme = #a8} : (tensor<?x8xf32>, !equant.weight<24x8, #w8>) -> tensor<?x24xf32>
  return %g, %z : tensor<?x16xf32>, tensor<?x24xf32>
}

// CHECK-LABEL: func.func @three_with_biases(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[Q:[^:]*]]: !equant.weight<4x8, #equant.scheme<i8, symmetric, channel>>, %[[B:[^:]*]]: tensor<4xf32>)
// CHECK:         equant.concat %[[Q]], %[[Q]], %[[Q]]
// CHECK:         %[[BIAS:.*]] = equant.concat %[[B]], %[[B]], %[[B]] : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<12xf32>
// CHECK:         equant.linear %[[X]], {{.*}} bias(%[[BIAS]]) {sites = ["q", "k", "v"]
// CHECK:         lm.split {{.*}} : tensor<?x12xf32> -> tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>
func.func @three_with_biases(%x: tensor<?x8xf32>, %q: !equant.weight<4x8, #w8>, %b: tensor<4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) {
  %0 = equant.linear %x, %q bias(%b) {sites = ["q"]} : (tensor<?x8xf32>, !equant.weight<4x8, #w8>, tensor<4xf32>) -> tensor<?x4xf32>
  %1 = equant.linear %x, %q bias(%b) {sites = ["k"]} : (tensor<?x8xf32>, !equant.weight<4x8, #w8>, tensor<4xf32>) -> tensor<?x4xf32>
  %2 = equant.linear %x, %q bias(%b) {sites = ["v"]} : (tensor<?x8xf32>, !equant.weight<4x8, #w8>, tensor<4xf32>) -> tensor<?x4xf32>
  return %0, %1, %2 : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>
}
