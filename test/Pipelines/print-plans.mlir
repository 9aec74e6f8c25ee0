// A global that is no tensor is no weight.
// RUN: easyquant-opt %s --easyquant-print-plans -o %t.out | FileCheck %s
// CHECK: "sites"
ml_program.global private @n(1 : index) : index
func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %n = ml_program.global_load_const @n : index
  return %x : tensor<?x8xf32>
}
