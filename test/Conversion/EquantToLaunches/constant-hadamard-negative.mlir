// A constant is rotated when weights are materialized, not by a kernel.
// RUN: not easyquant-opt %s --pass-pipeline="builtin.module(easyquant-launches{target=avx2})" 2>&1 | FileCheck %s
// CHECK: error: 'equant.hadamard' op rotates a constant: run equant-materialize-weights before, which evaluates it
ml_program.global private @w(#ml_program.extern : tensor<16x32xf32>) : tensor<16x32xf32>
func.func @forward(%x: tensor<?x32xf32>) -> tensor<?x16xf32> {
  %w = ml_program.global_load_const @w : tensor<16x32xf32>
  %v = equant.hadamard %w {axis = 0 : i64, block = 16 : i64} : tensor<16x32xf32>
  %y = lm.linear %x, %v {site = "down"} : (tensor<?x32xf32>, tensor<16x32xf32>) -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}
