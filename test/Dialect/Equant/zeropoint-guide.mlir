// The example of docs/guide/zeropoint.md.

// RUN: easyquant-opt %s --equant-zeropoint=scheme=W4A16 | FileCheck %s --check-prefix=PLAN
// RUN: easyquant-opt %s --equant-zeropoint=scheme=W4A16 --equant-quantize | FileCheck %s

// PLAN: lm.linear {{.*}} {equant.plan = #equant.plan<methods = [], rule = zeropoint, weight = <i4, asymmetric, group = 128, scale = f16>>, site = "up_proj"}

// CHECK:      %[[SCALE:.*]], %[[ZERO:.*]] = equant.choose_qparams %[[W:.*]] rule zeropoint {scheme = #equant.scheme<i4, asymmetric, group = 128, scale = f16>}
// CHECK-SAME:   : (tensor<1536x576xf32>) -> (tensor<1536x5xf16>, tensor<1536x5xi32>)
// CHECK:      %[[CODES:.*]] = equant.quantize %[[W]] scale(%[[SCALE]]) zero_point(%[[ZERO]]) {scheme = #equant.scheme<i4, asymmetric, group = 128, scale = f16>}
// CHECK-SAME:   : (tensor<1536x576xf32>, tensor<1536x5xf16>, tensor<1536x5xi32>) -> tensor<1536x576xi4>
// CHECK:      equant.linear %{{.*}}, %[[CODES]] scale(%[[SCALE]]) zero_point(%[[ZERO]])
// CHECK-SAME:   {sites = ["up_proj"], weight_scheme = #equant.scheme<i4, asymmetric, group = 128, scale = f16>}
// CHECK-SAME:   : (tensor<?x576xf32>, tensor<1536x576xi4>, tensor<1536x5xf16>, tensor<1536x5xi32>) -> tensor<?x1536xf32>
ml_program.global private @up_proj.weight(#ml_program.extern : tensor<1536x576xf32>) : tensor<1536x576xf32>
func.func @forward(%x: tensor<?x576xf32>) -> tensor<?x1536xf32> {
  %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
  %y = lm.linear %x, %w {site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
  return %y : tensor<?x1536xf32>
}
