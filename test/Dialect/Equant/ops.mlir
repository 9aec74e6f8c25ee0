// RUN: easyquant-opt %s | easyquant-opt | FileCheck %s
// RUN: easyquant-opt %s --mlir-print-op-generic | easyquant-opt | FileCheck %s

#w8 = #equant.scheme<i8, symmetric, channel>
#w4 = #equant.scheme<i4, symmetric, group = 16>
#a8 = #equant.scheme<i8, symmetric, token, dynamic>
#z4 = #equant.scheme<i4, asymmetric, group = 16>
#panel = #equant.layout<panel, rows = 32, depth = 4>

// CHECK-LABEL: func.func @weight(
// CHECK-SAME:    %[[W:.*]]: tensor<40x24xf32>)
func.func @weight(%w: tensor<40x24xf32>) -> tensor<40x24xf32> {
  // CHECK: %[[S:.*]] = equant.choose_qparams %[[W]] rule absmax {scheme = #equant.scheme<i4, symmetric, group = 16>} : (tensor<40x24xf32>) -> tensor<40x2xf32>
  %s = equant.choose_qparams %w rule absmax {scheme = #w4} : (tensor<40x24xf32>) -> tensor<40x2xf32>
  // CHECK: %[[Q:.*]] = equant.quantize %[[W]] scale(%[[S]]) {scheme = #equant.scheme<i4, symmetric, group = 16>} : (tensor<40x24xf32>, tensor<40x2xf32>) -> tensor<40x24xi4>
  %q = equant.quantize %w scale(%s) {scheme = #w4} : (tensor<40x24xf32>, tensor<40x2xf32>) -> tensor<40x24xi4>
  // CHECK: equant.dequantize %[[Q]] scale(%[[S]]) {scheme = #equant.scheme<i4, symmetric, group = 16>} : (tensor<40x24xi4>, tensor<40x2xf32>) -> tensor<40x24xf32>
  %d = equant.dequantize %q scale(%s) {scheme = #w4} : (tensor<40x24xi4>, tensor<40x2xf32>) -> tensor<40x24xf32>
  return %d : tensor<40x24xf32>
}

// CHECK-LABEL: func.func @asymmetric_activations(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x24xf32>, %[[S:[^:]*]]: tensor<?x2xf32>, %[[Z:[^:]*]]: tensor<?x2xi32>)
func.func @asymmetric_activations(%x: tensor<?x24xf32>, %s: tensor<?x2xf32>, %z: tensor<?x2xi32>) -> tensor<?x24xf32> {
  // CHECK: %[[Q:.*]] = equant.quantize %[[X]] scale(%[[S]]) zero_point(%[[Z]]) {scheme = #equant.scheme<i4, asymmetric, group = 16>}
  %q = equant.quantize %x scale(%s) zero_point(%z) {scheme = #z4}
         : (tensor<?x24xf32>, tensor<?x2xf32>, tensor<?x2xi32>) -> tensor<?x24xi4>
  // CHECK: equant.dequantize %[[Q]] scale(%[[S]]) zero_point(%[[Z]]) {scheme = #equant.scheme<i4, asymmetric, group = 16>}
  %y = equant.dequantize %q scale(%s) zero_point(%z) {scheme = #z4}
         : (tensor<?x24xi4>, tensor<?x2xf32>, tensor<?x2xi32>) -> tensor<?x24xf32>
  return %y : tensor<?x24xf32>
}

// CHECK-LABEL: func.func @concat(
// CHECK:         equant.concat %{{.*}}, %{{.*}} : (tensor<2x8xi4>, tensor<3x8xi4>) -> tensor<5x8xi4>
// CHECK:         equant.concat %{{.*}}, %{{.*}} : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
func.func @concat(%a: tensor<2x8xi4>, %b: tensor<3x8xi4>, %c: tensor<2xf32>, %d: tensor<3xf32>)
    -> (tensor<5x8xi4>, tensor<5xf32>) {
  %e = equant.concat %a, %b : (tensor<2x8xi4>, tensor<3x8xi4>) -> tensor<5x8xi4>
  %f = equant.concat %c, %d : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
  return %e, %f : tensor<5x8xi4>, tensor<5xf32>
}

// CHECK-LABEL: func.func @linear(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x24xf32>, %[[Q:[^:]*]]: tensor<40x24xi8>, %[[S:[^:]*]]: tensor<40x1xf32>, %[[B:[^:]*]]: tensor<40xf32>)
func.func @linear(%x: tensor<?x24xf32>, %q: tensor<40x24xi8>, %s: tensor<40x1xf32>, %b: tensor<40xf32>)
    -> (tensor<?x40xf32>, tensor<?x40xf32>) {
  // CHECK: equant.linear %[[X]], %[[Q]] scale(%[[S]]) {sites = ["up"], weight_scheme = #equant.scheme<i8, symmetric, channel>}
  // CHECK-SAME: : (tensor<?x24xf32>, tensor<40x24xi8>, tensor<40x1xf32>) -> tensor<?x40xf32>
  %y = equant.linear %x, %q scale(%s) {sites = ["up"], weight_scheme = #w8}
         : (tensor<?x24xf32>, tensor<40x24xi8>, tensor<40x1xf32>) -> tensor<?x40xf32>
  // CHECK: equant.linear %[[X]], %[[Q]] scale(%[[S]]) bias(%[[B]])
  // CHECK-SAME: {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["q", "k"], weight_scheme
  %z = equant.linear %x, %q scale(%s) bias(%b) {sites = ["q", "k"], weight_scheme = #w8, input_scheme = #a8}
         : (tensor<?x24xf32>, tensor<40x24xi8>, tensor<40x1xf32>, tensor<40xf32>) -> tensor<?x40xf32>
  return %y, %z : tensor<?x40xf32>, tensor<?x40xf32>
}

// CHECK-LABEL: func.func @packed(
// CHECK:         equant.embedding %{{.*}}, %{{.*}} scale(%{{.*}}) {layout = #equant.layout<panel, rows = 32, depth = 4>, vocab_size = 40 : i64, weight_scheme = #equant.scheme<i8, symmetric, channel>}
// CHECK:         equant.linear %{{.*}}, %{{.*}} scale(%{{.*}}) {layout = #equant.layout<panel, rows = 32, depth = 4>, sites = ["lm_head"], weight_scheme = #equant.scheme<i8, symmetric, channel>}
func.func @packed(%tokens: tensor<?xi32>, %q: tensor<2x6x32x4xi8>, %s: tensor<2x1x32xf32>) -> tensor<?x40xf32> {
  %x = equant.embedding %tokens, %q scale(%s) {vocab_size = 40, weight_scheme = #w8, layout = #panel}
         : (tensor<?xi32>, tensor<2x6x32x4xi8>, tensor<2x1x32xf32>) -> tensor<?x21xf32>
  %y = equant.linear %x, %q scale(%s) {sites = ["lm_head"], weight_scheme = #w8, layout = #panel}
         : (tensor<?x21xf32>, tensor<2x6x32x4xi8>, tensor<2x1x32xf32>) -> tensor<?x40xf32>
  return %y : tensor<?x40xf32>
}

// CHECK-LABEL: func.func @fragments(
// CHECK:         equant.linear {{.*}}layout = #equant.layout<mma_sync, order = bytes>
// CHECK:         equant.linear {{.*}}layout = #equant.layout<mma_sync, order = halves>
func.func @fragments(%x: tensor<?x40xf32>, %q: tensor<3x2x32x16xi8>, %s: tensor<3x2x64xf32>, %z: tensor<3x2x32xi8>,
                     %q3: tensor<2x2x48x16xi8>) -> (tensor<?x70xf32>, tensor<?x70xf32>) {
  %y = equant.linear %x, %q scale(%s) zero_point(%z)
         {sites = ["a"], weight_scheme = #z4, input_scheme = #a8, layout = #equant.layout<mma_sync, order = bytes>}
         : (tensor<?x40xf32>, tensor<3x2x32x16xi8>, tensor<3x2x64xf32>, tensor<3x2x32xi8>) -> tensor<?x70xf32>
  %w = equant.linear %x, %q3 scale(%s)
         {sites = ["a"], weight_scheme = #equant.scheme<i3, symmetric, group = 16>, layout = #equant.layout<mma_sync, order = halves>}
         : (tensor<?x40xf32>, tensor<2x2x48x16xi8>, tensor<3x2x64xf32>) -> tensor<?x70xf32>
  return %y, %w : tensor<?x70xf32>, tensor<?x70xf32>
}
