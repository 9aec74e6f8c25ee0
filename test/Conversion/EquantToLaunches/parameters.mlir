// Kernels say the names of their parameters and which they write, and so does every launch, whatever it is for: rows that are returned
// twice are copied to where the second result goes.

// RUN: easyquant-opt %s --easyquant-launches=target=avx2 | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 | FileCheck %s --check-prefix=GPU

// CHECK-LABEL: func.func @forward(
// CHECK:         launch.kernel other @add_8(%[[X:.*]], %[[X]], %[[Y:.*]]) {{{.*}}writes = array<i64: 2>}
// CHECK:         launch.kernel other @copy_8(%[[Y]], %{{.*}}) {{{.*}}writes = array<i64: 1>}
// CHECK:       func.func private @add_8({{.*}}launch.parameters = ["a", "b", "y"], launch.writes = array<i64: 2>
// CHECK:       func.func private @copy_8({{.*}}launch.parameters = ["x", "y"], launch.writes = array<i64: 1>

// GPU:           gpu.func @copy_8{{.*}}launch.parameters = ["x", "x_stride", "y", "y_stride", "rows"]{{.*}}launch.writes = array<i64: 2>
// GPU:           launch.kernel other @kernels::@copy_8{{.*}}writes = array<i64: 2>}
func.func @forward(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %y = lm.add %x, %x : tensor<?x8xf32>
  return %y, %y : tensor<?x8xf32>, tensor<?x8xf32>
}
