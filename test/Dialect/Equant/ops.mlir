// RUN: easyquant-opt %s | easyquant-opt | FileCheck %s
// RUN: easyquant-opt %s --mlir-print-op-generic | easyquant-opt | FileCheck %s

#w8 = #equant.scheme<i8, symmetric, channel>
#w4 = #equant.scheme<i4, symmetric, group = 16>
#a8 = #equant.scheme<i8, symmetric, token, dynamic>
#z4 = #equant.scheme<i4, asymmetric, group = 16>
#m4 = #equant.scheme<i4, asymmetric, minima, group = 16>
#panel = #equant.layout<panel>

// CHECK-LABEL: func.func @weight(
// CHECK-SAME:    %[[W:[^:]*]]: tensor<40x24xf32>, %[[S:[^:]*]]: tensor<40x2xf32>, %[[Z:[^:]*]]: tensor<40x2xi32>, %[[C:[^:]*]]: tensor<40x24xi4>)
func.func @weight(%w: tensor<40x24xf32>, %s: tensor<40x2xf32>, %z: tensor<40x2xi32>, %c: tensor<40x24xi4>) {
  // CHECK: equant.quantize %[[W]] rule percentile {percentile = 9.950000e+01 : f64} : (tensor<40x24xf32>) -> !equant.weight<40x24, #equant.scheme<i4, symmetric, group = 16>>
  equant.quantize %w rule percentile {percentile = 99.5 : f64} : (tensor<40x24xf32>) -> !equant.weight<40x24, #w4>
  // CHECK: %[[Q:.*]] = equant.quantize %[[W]] scale(%[[S]]) zero_point(%[[Z]]) rounded(%[[C]]) : ({{.*}}) -> !equant.weight<40x24, #equant.scheme<i4, asymmetric, group = 16>>
  %q = equant.quantize %w scale(%s) zero_point(%z) rounded(%c)
         : (tensor<40x24xf32>, tensor<40x2xf32>, tensor<40x2xi32>, tensor<40x24xi4>) -> !equant.weight<40x24, #z4>
  // CHECK: equant.from_codes %[[C]] scale(%[[S]]) : (tensor<40x24xi4>, tensor<40x2xf32>) -> !equant.weight<40x24, #equant.scheme<i4, symmetric, group = 16>>
  equant.from_codes %c scale(%s) : (tensor<40x24xi4>, tensor<40x2xf32>) -> !equant.weight<40x24, #w4>
  // CHECK: equant.dequantize %[[Q]] : !equant.weight<40x24, #equant.scheme<i4, asymmetric, group = 16>> -> tensor<40x24xf32>
  equant.dequantize %q : !equant.weight<40x24, #z4> -> tensor<40x24xf32>
  // CHECK: equant.quantize %[[W]] scale(%[[S]]) minimum(%[[S]]) rounded(%[[C]]) : ({{.*}}) -> !equant.weight<40x24, #equant.scheme<i4, asymmetric, minima, group = 16>>
  equant.quantize %w scale(%s) minimum(%s) rounded(%c)
         : (tensor<40x24xf32>, tensor<40x2xf32>, tensor<40x2xf32>, tensor<40x24xi4>) -> !equant.weight<40x24, #m4>
  // CHECK: equant.from_codes %[[C]] scale(%[[S]]) minimum(%[[S]]) : ({{.*}}) -> !equant.weight<40x24, #equant.scheme<i4, asymmetric, minima, group = 16>>
  equant.from_codes %c scale(%s) minimum(%s) : (tensor<40x24xi4>, tensor<40x2xf32>, tensor<40x2xf32>) -> !equant.weight<40x24, #m4>
  // CHECK: equant.slice %[[Q]] [8, 16] [32, 8] : !equant.weight<40x24, #equant.scheme<i4, asymmetric, group = 16>> -> !equant.weight<32x8, #equant.scheme<i4, asymmetric, group = 16>>
  equant.slice %q [8, 16] [32, 8] : !equant.weight<40x24, #z4> -> !equant.weight<32x8, #z4>
  // CHECK: equant.all_slice %[[Q]] on @tensor_parallel axis 0 : !equant.weight<40x24, #equant.scheme<i4, asymmetric, group = 16>> -> !equant.weight<20x24, #equant.scheme<i4, asymmetric, group = 16>>
  equant.all_slice %q on @tensor_parallel axis 0 : !equant.weight<40x24, #z4> -> !equant.weight<20x24, #z4>
  // CHECK: equant.all_slice %[[W]] on @tensor_parallel axis 0 parts [8, 8, 8, 8, 8] : tensor<40x24xf32> -> tensor<20x24xf32>
  equant.all_slice %w on @tensor_parallel axis 0 parts [8, 8, 8, 8, 8] : tensor<40x24xf32> -> tensor<20x24xf32>
  return
}

// CHECK-LABEL: func.func @biases(
// CHECK:         %[[B:.*]] = equant.first_rank %{{.*}} on @tensor_parallel : tensor<24xf32>
// CHECK:         equant.add_bias %{{.*}}, %[[B]] : tensor<?x24xf32>, tensor<24xf32>
func.func @biases(%x: tensor<?x24xf32>, %b: tensor<24xf32>) -> tensor<?x24xf32> {
  %f = equant.first_rank %b on @tensor_parallel : tensor<24xf32>
  %y = equant.add_bias %x, %f : tensor<?x24xf32>, tensor<24xf32>
  return %y : tensor<?x24xf32>
}

// CHECK-LABEL: func.func @concat(
// CHECK:         equant.concat %{{.*}}, %{{.*}} : (!equant.weight<2x8, #equant.scheme<i8, symmetric, channel>>, !equant.weight<3x8, #equant.scheme<i8, symmetric, channel>>) -> !equant.weight<5x8, #equant.scheme<i8, symmetric, channel>>
// CHECK:         equant.concat %{{.*}}, %{{.*}} : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
func.func @concat(%a: !equant.weight<2x8, #w8>, %b: !equant.weight<3x8, #w8>, %c: tensor<2xf32>, %d: tensor<3xf32>) {
  %e = equant.concat %a, %b : (!equant.weight<2x8, #w8>, !equant.weight<3x8, #w8>) -> !equant.weight<5x8, #w8>
  %f = equant.concat %c, %d : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
  return
}

// CHECK-LABEL: func.func @linear(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x24xf32>, %[[Q:[^:]*]]: !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>, %[[B:[^:]*]]: tensor<40xf32>)
// CHECK: equant.linear %[[X]], %[[Q]] {sites = ["up"]} : (tensor<?x24xf32>, !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x40xf32>
// CHECK: equant.linear %[[X]], %[[Q]] bias(%[[B]]) {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["q", "k"]}
func.func @linear(%x: tensor<?x24xf32>, %q: !equant.weight<40x24, #w8>, %b: tensor<40xf32>) -> (tensor<?x40xf32>, tensor<?x40xf32>) {
  %y = equant.linear %x, %q {sites = ["up"]} : (tensor<?x24xf32>, !equant.weight<40x24, #w8>) -> tensor<?x40xf32>
  %z = equant.linear %x, %q bias(%b) {sites = ["q", "k"], input_scheme = #a8} : (tensor<?x24xf32>, !equant.weight<40x24, #w8>, tensor<40xf32>) -> tensor<?x40xf32>
  return %y, %z : tensor<?x40xf32>, tensor<?x40xf32>
}

// CHECK-LABEL: func.func @packed(
// CHECK-SAME:    %[[W:[^:]*]]: !equant.weight<40x21, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>)
// CHECK:         equant.embedding %{{.*}}, %[[W]] : (tensor<?xi32>, !equant.weight<{{.*}}>) -> tensor<?x21xf32>
// CHECK:         equant.packed_linear %{{.*}}, %[[W]] {sites = ["lm_head"]}
func.func @packed(%tokens: tensor<?xi32>, %q: !equant.weight<40x21, #w8, #panel>) -> tensor<?x40xf32> {
  %x = equant.embedding %tokens, %q : (tensor<?xi32>, !equant.weight<40x21, #w8, #panel>) -> tensor<?x21xf32>
  %y = equant.packed_linear %x, %q {sites = ["lm_head"]} : (tensor<?x21xf32>, !equant.weight<40x21, #w8, #panel>) -> tensor<?x40xf32>
  return %y : tensor<?x40xf32>
}

!summed = !equant.weight<40x24, #w8, #panel, sums>
!rows = !equant.rows<?x24, #equant.scheme<i8, asymmetric, tensor>, sums = 0>

// CHECK-LABEL: func.func @rows(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x24xf32>, %[[W:[^:]*]]: !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>, sums>
// CHECK:         %[[Q:.*]] = equant.quantize_rows %[[X]] {scale = 5.000000e-01 : f32, zero_point = 3 : i32} : tensor<?x24xf32> -> !equant.rows<?x24, #equant.scheme<i8, asymmetric, tensor>, sums = 0>
// CHECK:         equant.packed_linear %[[Q]], %[[W]] bias(%[[B:.*]]) {sites = ["a"]} :
// CHECK:         %[[P:.*]] = equant.packed_linear %[[Q]], %[[W]] {sites = ["a"]} : {{.*}} -> tensor<?x40xi32>
// CHECK:         equant.rescale %[[P]] of %[[Q]], %[[W]] bias(%[[B]]) {sites = ["a"]}
func.func @rows(%x: tensor<?x24xf32>, %w: !summed, %b: tensor<40xf32>) {
  %q = equant.quantize_rows %x {scale = 0.5 : f32, zero_point = 3 : i32} : tensor<?x24xf32> -> !rows
  equant.packed_linear %q, %w bias(%b) {sites = ["a"]} : (!rows, !summed, tensor<40xf32>) -> tensor<?x40xf32>
  %p = equant.packed_linear %q, %w {sites = ["a"]} : (!rows, !summed) -> tensor<?x40xi32>
  equant.rescale %p of %q, %w bias(%b) {sites = ["a"]} : (tensor<?x40xi32>, !rows, !summed, tensor<40xf32>) -> tensor<?x40xf32>
  return
}

#nvfp4 = #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>
#nvfp4_input = #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>

// CHECK-LABEL: func.func @outer(
// CHECK:         %[[Q:.*]] = equant.quantize %[[W:.*]] rule absmax : (tensor<40x32xf32>) -> !equant.weight<40x32, #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>>
// CHECK:         equant.linear %{{.*}}, %[[Q]] {input_scale = 1.250000e-01 : f32
// CHECK:         equant.embedding %{{.*}}, %[[Q]] :
// CHECK:         equant.fake_quantize %{{.*}} {scale = 1.250000e-01 : f32, scheme = #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>}
func.func @outer(%w: tensor<40x32xf32>, %x: tensor<?x32xf32>, %tokens: tensor<?xi32>) -> (tensor<?x40xf32>, tensor<?x32xf32>) {
  %q = equant.quantize %w rule absmax : (tensor<40x32xf32>) -> !equant.weight<40x32, #nvfp4>
  %y = equant.linear %x, %q {sites = ["a"], input_scheme = #nvfp4_input, input_scale = 1.25e-01 : f32} : (tensor<?x32xf32>, !equant.weight<40x32, #nvfp4>) -> tensor<?x40xf32>
  %e = equant.embedding %tokens, %q : (tensor<?xi32>, !equant.weight<40x32, #nvfp4>) -> tensor<?x32xf32>
  %f = equant.fake_quantize %e {scheme = #nvfp4_input, scale = 1.25e-01 : f32} : tensor<?x32xf32>
  return %y, %f : tensor<?x40xf32>, tensor<?x32xf32>
}
