// The example of docs/guide/symmetric.md.

// RUN: easyquant-opt %s "--equant-symmetric=scheme=W8A8 activation-basis=plain" | FileCheck %s --check-prefix=PLAN
// RUN: easyquant-opt %s "--equant-symmetric=scheme=W8A8 activation-basis=plain" --equant-quantize | FileCheck %s

// PLAN: lm.linear {{.*}} {equant.plan = #equant.plan<methods = [], rule = symmetric, weight = <i8, symmetric, full, channel>, input = <i8, symmetric, token, dynamic>>, site = "up_proj"}

// CHECK: %[[Q:.*]] = equant.quantize %{{.*}} rule symmetric : (tensor<1536x576xf32>) -> !equant.weight<1536x576, #equant.scheme<i8, symmetric, full, channel>>
// CHECK: equant.linear %{{.*}}, %[[Q]] {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["up_proj"]}
// CHECK-SAME: (tensor<?x576xf32>, !equant.weight<1536x576, #equant.scheme<i8, symmetric, full, channel>>) -> tensor<?x1536xf32>
ml_program.global private @up_proj.weight(#ml_program.extern : tensor<1536x576xf32>) : tensor<1536x576xf32>
func.func @forward(%x: tensor<?x576xf32>) -> tensor<?x1536xf32> {
  %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
  %y = lm.linear %x, %w {site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
  return %y : tensor<?x1536xf32>
}
