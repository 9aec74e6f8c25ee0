// RUN: easyquant-opt %s --launch-place-buffers | FileCheck %s

// %b begins when %a has ended with the launch that reads it, so that both are alive there; %c takes the place of %a, and what nothing
// uses has none. Scratch is as much as the largest, counters too.

// CHECK-LABEL: func.func @forward(
// CHECK-SAME: launch.arena_bytes = 512 : i64, launch.counter_bytes = 64 : i64, launch.max_rows = 4 : i64, launch.scratch_bytes = 192 : i64
// CHECK: %[[A:.*]] = launch.buffer(%{{.*}}) {offset = 0 : i64} : memref<?x16xf32>
// CHECK: launch.buffer(%{{.*}}) {offset = 256 : i64} : memref<?x16xf32>
// CHECK: launch.buffer(%{{.*}}) {offset = 0 : i64} : memref<?x16xf32>
// CHECK: launch.buffer(%{{.*}}) : memref<?x999xf32>
func.func @forward(%x: memref<?x16xf32>, %rows: index) attributes {launch.max_rows = 4 : i64} {
  %a = launch.buffer(%rows) : memref<?x16xf32>
  launch.kernel other @k(%x, %a) {site = "a", writes = array<i64: 1>} : memref<?x16xf32>, memref<?x16xf32>
  %b = launch.buffer(%rows) : memref<?x16xf32>
  %half = memref.subview %a[0, 8] [%rows, 8] [1, 1] : memref<?x16xf32> to memref<?x8xf32, strided<[16, 1], offset: 8>>
  %s = launch.scratch 100 : memref<?xi8>
  %n = launch.counters : memref<3xi32>
  launch.kernel gemm @half(%half, %b, %s, %n) {site = "b", writes = array<i64: 1, 2, 3>}
    : memref<?x8xf32, strided<[16, 1], offset: 8>>, memref<?x16xf32>, memref<?xi8>, memref<3xi32>
  %c = launch.buffer(%rows) : memref<?x16xf32>
  %t = launch.scratch 150 : memref<?xi8>
  launch.kernel other @k(%b, %c) {site = "c", writes = array<i64: 1>} : memref<?x16xf32>, memref<?x16xf32>
  %d = launch.buffer(%rows) : memref<?x999xf32>
  return
}
func.func private @k(memref<?x16xf32>, memref<?x16xf32>, !llvm.ptr, index, index)
func.func private @half(memref<?x8xf32, strided<[16, 1], offset: 8>>, memref<?x16xf32>, memref<?xi8>, memref<3xi32>, !llvm.ptr, index, index)
