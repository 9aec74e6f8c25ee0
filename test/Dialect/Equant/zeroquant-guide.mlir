// The example of docs/guide/zeroquant.md.

// RUN: easyquant-opt %s --equant-zeroquant=scheme=W8A8 | FileCheck %s --check-prefix=PLAN
// RUN: easyquant-opt %s --equant-zeroquant=scheme=W8A8 --equant-quantize | FileCheck %s

// PLAN: lm.linear {{.*}} {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, group = 128, scale = f16>, input = <i8, symmetric, token, dynamic>>, site = "up_proj"}

// CHECK:      %[[SCALE:.*]] = equant.choose_qparams %[[W:.*]] rule absmax {scheme = #equant.scheme<i8, symmetric, group = 128, scale = f16>}
// CHECK-SAME:   : (tensor<1536x576xf32>) -> tensor<1536x5xf16>
// CHECK:      %[[CODES:.*]] = equant.quantize %[[W]] scale(%[[SCALE]]) {scheme = #equant.scheme<i8, symmetric, group = 128, scale = f16>}
// CHECK-SAME:   : (tensor<1536x576xf32>, tensor<1536x5xf16>) -> tensor<1536x576xi8>
// CHECK:      equant.linear %{{.*}}, %[[CODES]] scale(%[[SCALE]])
// CHECK-SAME:   {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["up_proj"], weight_scheme = #equant.scheme<i8, symmetric, group = 128, scale = f16>}
// CHECK-SAME:   : (tensor<?x576xf32>, tensor<1536x576xi8>, tensor<1536x5xf16>) -> tensor<?x1536xf32>
ml_program.global private @up_proj.weight(#ml_program.extern : tensor<1536x576xf32>) : tensor<1536x576xf32>
func.func @forward(%x: tensor<?x576xf32>) -> tensor<?x1536xf32> {
  %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
  %y = lm.linear %x, %w {site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
  return %y : tensor<?x1536xf32>
}
