// The example of docs/guide/absmax.md.

// RUN: easyquant-opt %s --equant-absmax=scheme=W8A8 | FileCheck %s --check-prefix=PLAN
// RUN: easyquant-opt %s --equant-absmax=scheme=W8A8 --equant-rotate --equant-quantize | FileCheck %s

// PLAN: lm.linear {{.*}} {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel, hadamard = 64>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "up_proj"}

// CHECK-DAG: %[[R:.*]] = equant.hadamard %arg0 {block = 64 : i64} : tensor<?x576xf32>
// CHECK-DAG: %[[V:.*]] = equant.hadamard %{{.*}} {block = 64 : i64} : tensor<1536x576xf32>
// CHECK: %[[Q:.*]] = equant.quantize %[[V]] rule absmax : (tensor<1536x576xf32>) -> !equant.weight<1536x576, #equant.scheme<i8, symmetric, channel, hadamard = 64>>
// CHECK: equant.linear %[[R]], %[[Q]] {input_scheme = #equant.scheme<i8, symmetric, token, dynamic, hadamard = 64>, sites = ["up_proj"]}
// CHECK-SAME: (tensor<?x576xf32>, !equant.weight<1536x576, #equant.scheme<i8, symmetric, channel, hadamard = 64>>) -> tensor<?x1536xf32>
ml_program.global private @up_proj.weight(#ml_program.extern : tensor<1536x576xf32>) : tensor<1536x576xf32>
func.func @forward(%x: tensor<?x576xf32>) -> tensor<?x1536xf32> {
  %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
  %y = lm.linear %x, %w {site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
  return %y : tensor<?x1536xf32>
}
