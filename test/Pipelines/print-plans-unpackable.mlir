// The bytes of a weight that a layout cannot hold are those of its rows as they are, for each of the targets.
// RUN: easyquant-opt %s --easyquant-print-plans="target=cpu,gpu" -o %t.out | FileCheck %s
// CHECK: "bytes": 256,
ml_program.global private @w(#ml_program.extern : tensor<8x16xf32>) : tensor<8x16xf32>
func.func @forward(%x: tensor<?x16xf32>) -> tensor<?x8xf32> {
  %w = ml_program.global_load_const @w : tensor<8x16xf32>
  %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i4, symmetric, group = 12>>, site = "q"} : (tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
