// The example of docs/guide/zeropoint.md.

// RUN: easyquant-opt %s --equant-zeropoint=scheme=W4A16 | FileCheck %s --check-prefix=PLAN
// RUN: easyquant-opt %s --equant-zeropoint=scheme=W4A16 --equant-quantize | FileCheck %s

// PLAN: lm.linear {{.*}} {equant.plan = #equant.plan<methods = [], rule = zeropoint, weight = <i4, asymmetric, group = 128, scale = f16>>, site = "up_proj"}

// CHECK: %[[Q:.*]] = equant.quantize %{{.*}} rule zeropoint : (tensor<1536x576xf32>) -> !equant.weight<1536x576, #equant.scheme<i4, asymmetric, group = 128, scale = f16>>
// CHECK: equant.linear %{{.*}}, %[[Q]] {sites = ["up_proj"]}
// CHECK-SAME: (tensor<?x576xf32>, !equant.weight<1536x576, #equant.scheme<i4, asymmetric, group = 128, scale = f16>>) -> tensor<?x1536xf32>
ml_program.global private @up_proj.weight(#ml_program.extern : tensor<1536x576xf32>) : tensor<1536x576xf32>
func.func @forward(%x: tensor<?x576xf32>) -> tensor<?x1536xf32> {
  %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
  %y = lm.linear %x, %w {site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
  return %y : tensor<?x1536xf32>
}
