// RUN: easyquant-opt %s --equant-quantize | FileCheck %s

// CHECK: module attributes {equant.fallbacks = []}
module {
  ml_program.global private @up.weight(#ml_program.extern : tensor<16x100xf32>) : tensor<16x100xf32>
  ml_program.global private @up.weight_codes(#ml_program.extern : tensor<16x100xi4>) : tensor<16x100xi4> {equant.file = "layer_0.safetensors"}
  ml_program.global private @up.weight_scale(#ml_program.extern : tensor<16x13xf32>) : tensor<16x13xf32> {equant.file = "layer_0.safetensors"}
  ml_program.global private @up.weight_zero_point(#ml_program.extern : tensor<16x13xi32>) : tensor<16x13xi32> {equant.file = "layer_0.safetensors"}

  // Round to nearest by the rule; without a plan a site stays float.
  // CHECK-LABEL: func.func @rule(
  // CHECK-SAME:    %[[X:[^:]*]]: tensor<?x100xf32>, %[[B:[^:]*]]: tensor<16xf32>)
  func.func @rule(%x: tensor<?x100xf32>, %b: tensor<16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
    // CHECK: %[[W:.*]] = ml_program.global_load_const @up.weight
    %w = ml_program.global_load_const @up.weight : tensor<16x100xf32>
    // CHECK: %[[Q:.*]] = equant.quantize %[[W]] rule percentile {percentile = 9.950000e+01 : f64} : (tensor<16x100xf32>) -> !equant.weight<16x100, #equant.scheme<i8, symmetric, channel>>
    // CHECK: %[[Y:.*]] = equant.linear %[[X]], %[[Q]] bias(%[[B]])
    // CHECK-SAME: {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["up"]}
    %y = lm.linear %x, %w bias(%b) {site = "up", equant.plan = #equant.plan<methods = [], rule = percentile, percentile = 99.5 : f64,
           weight = <i8, symmetric, channel>, input = <i8, symmetric, token, dynamic>>}
           : (tensor<?x100xf32>, tensor<16x100xf32>, tensor<16xf32>) -> tensor<?x16xf32>
    // CHECK: lm.linear %[[X]], %[[W]] {site = "float"}
    %z = lm.linear %x, %w {site = "float"} : (tensor<?x100xf32>, tensor<16x100xf32>) -> tensor<?x16xf32>
    // CHECK: return %[[Y]]
    return %y, %z : tensor<?x16xf32>, tensor<?x16xf32>
  }

  // CHECK-LABEL: func.func @asymmetric(
  func.func @asymmetric(%x: tensor<?x100xf32>, %w: tensor<16x100xf32>) {
    // CHECK: %[[Q:.*]] = equant.quantize %{{.*}} rule zeropoint : {{.*}} -> !equant.weight<16x100, #equant.scheme<i4, asymmetric, group = 8>>
    // CHECK: equant.linear %{{.*}}, %[[Q]] {
    lm.linear %x, %w {site = "up", equant.plan = #equant.plan<methods = [], rule = zeropoint, weight = <i4, asymmetric, group = 8>>}
      : (tensor<?x100xf32>, tensor<16x100xf32>) -> tensor<?x16xf32>
    return
  }

  // What a method has computed takes the place of the rule, and of rounding to nearest.
  // CHECK-LABEL: func.func @computed(
  func.func @computed(%x: tensor<?x100xf32>, %w: tensor<16x100xf32>) {
    // CHECK: %[[S:.*]] = ml_program.global_load_const @up.weight_scale : tensor<16x13xf32>
    // CHECK: %[[C:.*]] = ml_program.global_load_const @up.weight_codes : tensor<16x100xi4>
    // CHECK: %[[Q:.*]] = equant.quantize %{{.*}} scale(%[[S]]) rounded(%[[C]])
    // CHECK: equant.linear %{{.*}}, %[[Q]] {
    lm.linear %x, %w {site = "up", equant.plan = #equant.plan<methods = ["gptq"], rule = absmax, weight = <i4, symmetric, group = 8>,
        codes = @up.weight_codes, scale = @up.weight_scale>} : (tensor<?x100xf32>, tensor<16x100xf32>) -> tensor<?x16xf32>
    // CHECK: %[[S:.*]] = ml_program.global_load_const @up.weight_scale : tensor<16x13xf32>
    // CHECK: %[[Z:.*]] = ml_program.global_load_const @up.weight_zero_point : tensor<16x13xi32>
    // CHECK: equant.quantize %{{.*}} scale(%[[S]]) zero_point(%[[Z]]) :
    lm.linear %x, %w {site = "up", equant.plan = #equant.plan<methods = ["awq"], rule = zeropoint, weight = <i4, asymmetric, group = 8>,
        scale = @up.weight_scale, zero_point = @up.weight_zero_point>} : (tensor<?x100xf32>, tensor<16x100xf32>) -> tensor<?x16xf32>
    return
  }
}
