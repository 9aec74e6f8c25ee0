// RUN: easyquant-opt %s | easyquant-opt | FileCheck %s
// RUN: easyquant-opt %s --canonicalize --cse | FileCheck %s
// Roundings of different numbers may have different schemes; those of one number are one.

// CHECK-LABEL: func.func @rounded(
func.func @rounded(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  // CHECK-DAG: equant.round_activation %{{.*}} {number = 0 : i64} : tensor<?x8xf32>
  // CHECK-DAG: equant.round_activation %{{.*}} {number = 1 : i64} : tensor<?x8xf32>
  %0 = equant.round_activation %x {number = 0 : i64} : tensor<?x8xf32>
  %1 = equant.round_activation %x {number = 1 : i64} : tensor<?x8xf32>
  return %0, %1 : tensor<?x8xf32>, tensor<?x8xf32>
}
