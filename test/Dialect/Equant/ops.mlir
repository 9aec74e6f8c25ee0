// RUN: easyquant-opt %s | easyquant-opt | FileCheck %s
// RUN: easyquant-opt %s --mlir-print-op-generic | easyquant-opt | FileCheck %s

#w8 = #equant.scheme<i8, symmetric, channel>
#w4 = #equant.scheme<i4, symmetric, group = 16>
#a8 = #equant.scheme<i8, symmetric, token, dynamic>
#z4 = #equant.scheme<i4, asymmetric, group = 16>
#panel = #equant.layout<panel, rows = 32, depth = 4>

// CHECK-LABEL: func.func @weight(
// CHECK-SAME:    %[[W:.*]]: tensor<40x24xf32>)
func.func @weight(%w: tensor<40x24xf32>) -> tensor<40x24xi4> {
  // CHECK: %[[S:.*]] = equant.choose_qparams %[[W]] rule absmax {scheme = #equant.scheme<i4, symmetric, group = 16>} : (tensor<40x24xf32>) -> tensor<40x2xf32>
  %s = equant.choose_qparams %w rule absmax {scheme = #w4} : (tensor<40x24xf32>) -> tensor<40x2xf32>
  // CHECK: %[[Q:.*]] = equant.quantize %[[W]] scale(%[[S]]) {scheme = #equant.scheme<i4, symmetric, group = 16>} : (tensor<40x24xf32>, tensor<40x2xf32>) -> tensor<40x24xi4>
  %q = equant.quantize %w scale(%s) {scheme = #w4} : (tensor<40x24xf32>, tensor<40x2xf32>) -> tensor<40x24xi4>
  return %q : tensor<40x24xi4>
}

// CHECK-LABEL: func.func @asymmetric_activations(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x24xf32>, %[[S:[^:]*]]: tensor<?x2xf32>, %[[Z:[^:]*]]: tensor<?x2xi32>)
func.func @asymmetric_activations(%x: tensor<?x24xf32>, %s: tensor<?x2xf32>, %z: tensor<?x2xi32>) -> tensor<?x24xi4> {
  // CHECK: %[[Q:.*]] = equant.quantize %[[X]] scale(%[[S]]) zero_point(%[[Z]]) {scheme = #equant.scheme<i4, asymmetric, group = 16>}
  %q = equant.quantize %x scale(%s) zero_point(%z) {scheme = #z4}
         : (tensor<?x24xf32>, tensor<?x2xf32>, tensor<?x2xi32>) -> tensor<?x24xi4>
  return %q : tensor<?x24xi4>
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
// CHECK:         equant.linear {{.*}}layout = #equant.layout<mma_sync, order = m16n8k32>
// CHECK:         equant.linear {{.*}}layout = #equant.layout<mma_sync, order = m16n8k16>
func.func @fragments(%x: tensor<?x40xf32>, %q: tensor<3x2x32x16xi8>, %s: tensor<3x2x64xf32>, %z: tensor<3x2x32xi8>,
                     %q3: tensor<2x2x48x16xi8>) -> (tensor<?x70xf32>, tensor<?x70xf32>) {
  %y = equant.linear %x, %q scale(%s) zero_point(%z)
         {sites = ["a"], weight_scheme = #z4, input_scheme = #a8, layout = #equant.layout<mma_sync, order = m16n8k32>}
         : (tensor<?x40xf32>, tensor<3x2x32x16xi8>, tensor<3x2x64xf32>, tensor<3x2x32xi8>) -> tensor<?x70xf32>
  %w = equant.linear %x, %q3 scale(%s)
         {sites = ["a"], weight_scheme = #equant.scheme<i3, symmetric, group = 16>, layout = #equant.layout<mma_sync, order = m16n8k16>}
         : (tensor<?x40xf32>, tensor<2x2x48x16xi8>, tensor<3x2x64xf32>) -> tensor<?x70xf32>
  return %y, %w : tensor<?x70xf32>, tensor<?x70xf32>
}

#nvfp4 = #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>
#nvfp4_input = #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>

// CHECK-LABEL: func.func @outer(
// CHECK:         %[[O:.*]] = equant.outer_scale %[[W:.*]] {scheme = {{.*}}} : (tensor<40x32xf32>) -> tensor<40x1xf32>
// CHECK:         %[[S:.*]] = equant.choose_qparams %[[W]] outer(%[[O]]) rule absmax {{.*}} : (tensor<40x32xf32>, tensor<40x1xf32>) -> tensor<40x2xf8E4M3FN>
// CHECK:         %[[Q:.*]] = equant.quantize %[[W]] scale(%[[S]]) outer(%[[O]])
// CHECK:         equant.linear %{{.*}}, %[[Q]] scale(%[[S]]) outer(%[[O]]) {input_scale = 1.250000e-01 : f32
// CHECK:         equant.embedding %{{.*}}, %[[Q]] scale(%[[S]]) outer(%[[O]])
// CHECK:         equant.fake_quantize %{{.*}} {scale = 1.250000e-01 : f32, scheme = #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>}
func.func @outer(%w: tensor<40x32xf32>, %x: tensor<?x32xf32>, %tokens: tensor<?xi32>) -> (tensor<?x40xf32>, tensor<?x32xf32>) {
  %o = equant.outer_scale %w {scheme = #nvfp4} : (tensor<40x32xf32>) -> tensor<40x1xf32>
  %s = equant.choose_qparams %w outer(%o) rule absmax {scheme = #nvfp4} : (tensor<40x32xf32>, tensor<40x1xf32>) -> tensor<40x2xf8E4M3FN>
  %q = equant.quantize %w scale(%s) outer(%o) {scheme = #nvfp4}
         : (tensor<40x32xf32>, tensor<40x2xf8E4M3FN>, tensor<40x1xf32>) -> tensor<40x32xf4E2M1FN>
  %y = equant.linear %x, %q scale(%s) outer(%o)
         {sites = ["a"], weight_scheme = #nvfp4, input_scheme = #nvfp4_input, input_scale = 1.25e-01 : f32}
         : (tensor<?x32xf32>, tensor<40x32xf4E2M1FN>, tensor<40x2xf8E4M3FN>, tensor<40x1xf32>) -> tensor<?x40xf32>
  %e = equant.embedding %tokens, %q scale(%s) outer(%o) {vocab_size = 40, weight_scheme = #nvfp4}
         : (tensor<?xi32>, tensor<40x32xf4E2M1FN>, tensor<40x2xf8E4M3FN>, tensor<40x1xf32>) -> tensor<?x32xf32>
  %f = equant.fake_quantize %e {scheme = #nvfp4_input, scale = 1.25e-01 : f32} : tensor<?x32xf32>
  return %y, %f : tensor<?x40xf32>, tensor<?x32xf32>
}
