// RUN: easyquant-opt %s | easyquant-opt | FileCheck %s
// RUN: easyquant-opt %s --mlir-print-op-generic | easyquant-opt | FileCheck %s

// Every op as it is printed and read again.

// CHECK-LABEL: func.func @forward(
// CHECK-SAME: %[[CACHE:[a-z0-9]+]]: memref<?xi8> {launch.argument = "cache"}
func.func @forward(%rows: index, %cache: memref<?xi8> {launch.argument = "cache"}, %w: memref<16x16xf32>) attributes {
    launch.arena_bytes = 512 : i64, launch.counter_bytes = 64 : i64, launch.max_rows = 4 : i64, launch.scratch_bytes = 128 : i64,
    launch.cache = {sizes = {page_bytes = 0 : i64, page_tokens = 64 : i64, window_bytes = 0 : i64}, scheme, type = "f32"}} {
  // CHECK: %[[X:.*]] = launch.buffer(%{{.*}}) {offset = 0 : i64} : memref<?x16xf32>
  %x = launch.buffer(%rows) {offset = 0 : i64} : memref<?x16xf32>
  // CHECK: %[[Y:.*]] = launch.buffer(%{{.*}}) : memref<?x16xf32>
  %y = launch.buffer(%rows) : memref<?x16xf32>
  // CHECK: %[[S:.*]] = launch.scratch 128 per_thread : memref<?xi8>
  %s = launch.scratch 128 per_thread : memref<?xi8>
  // CHECK: %[[T:.*]] = launch.scratch 64 : memref<?xi8>
  %t = launch.scratch 64 : memref<?xi8>
  // CHECK: %[[N:.*]] = launch.counters : memref<3xi32>
  %n = launch.counters : memref<3xi32>
  // CHECK: %[[LAYER:.*]] = launch.cache %[[CACHE]] from 4096 : memref<?xi8>
  %layer = launch.cache %cache from 4096 : memref<?xi8>
  // CHECK: launch.pieces {max_rows = 8 : i64, min_rows = 1 : i64, origin = -28 : i64, rows = 5 : i64, tokens = 256 : i64, window = 0 : i64} : memref<?x8xi32>
  %p = launch.pieces {min_rows = 1 : i64, max_rows = 8 : i64, rows = 5 : i64, tokens = 256 : i64, origin = -28 : i64, window = 0 : i64} : memref<?x8xi32>
  // CHECK: launch.partials 2176 : memref<?xi8>
  %sums = launch.partials 2176 : memref<?xi8>
  // CHECK: launch.partial_counters 3 : memref<?xi32>
  %parts = launch.partial_counters 3 : memref<?xi32>
  // CHECK: launch.kernel gemm @linear(%[[X]], %{{.*}}, %[[Y]], %[[S]]) {meets, shares = array<i64: 3>, site = "a", writes = array<i64: 2, 3>}
  // CHECK-SAME: : memref<?x16xf32>, memref<16x16xf32>, memref<?x16xf32>, memref<?xi8>
  launch.kernel gemm @linear(%x, %w, %y, %s) {meets, shares = array<i64: 3>, site = "a", writes = array<i64: 2, 3>}
    : memref<?x16xf32>, memref<16x16xf32>, memref<?x16xf32>, memref<?xi8>
  // CHECK: launch.kernel attention @kernels::@attend(%[[LAYER]], %[[T]], %[[N]], %{{.*}}, %{{.*}})
  // CHECK-SAME: {rows = array<i64: 9, 0>, site = "b", writes = array<i64: 0, 1, 2>}
  // CHECK-SAME: : memref<?xi8>, memref<?xi8>, memref<3xi32>, index, f32
  %scale = arith.constant 0.5 : f32
  launch.kernel attention @kernels::@attend(%layer, %t, %n, %rows, %scale)
    {rows = array<i64: 9, 0>, site = "b", writes = array<i64: 0, 1, 2>} : memref<?xi8>, memref<?xi8>, memref<3xi32>, index, f32
  // CHECK: launch.host 0(%[[X]], %[[Y]]) {site = "c", writes = array<i64: 1>} : memref<?x16xf32>, memref<?x16xf32>
  launch.host 0(%x, %y) {site = "c", writes = array<i64: 1>} : memref<?x16xf32>, memref<?x16xf32>
  // CHECK: launch.collective 0 all_reduce max(%[[X]]) {site = "d"} : memref<?x16xf32>
  launch.collective 0 all_reduce max(%x) {site = "d"} : memref<?x16xf32>
  // CHECK: launch.collective 1 all_gather(%[[Y]]) {site = "e"} : memref<?x16xf32>
  launch.collective 1 all_gather(%y) {site = "e"} : memref<?x16xf32>
  // CHECK: launch.wait 1(%[[Y]]) {site = "e"} : memref<?x16xf32>
  launch.wait 1(%y) {site = "e"} : memref<?x16xf32>
  // CHECK: launch.wait 0(%[[X]]) {site = "d"} : memref<?x16xf32>
  launch.wait 0(%x) {site = "d"} : memref<?x16xf32>
  return
}

func.func private @linear(memref<?x16xf32, strided<[?, 1], offset: ?>>, memref<16x16xf32>, memref<?x16xf32, strided<[?, 1], offset: ?>>,
                          memref<?xi8>, !llvm.ptr, index, index)
gpu.module @kernels {
  // A number may be given for a pointer to it, as the last is here.
  gpu.func @attend(%cache: !llvm.ptr, %scratch: !llvm.ptr, %counters: !llvm.ptr, %rows: i32, %scale: !llvm.ptr) kernel
      attributes {launch.grid = array<i64: 1, 4, 1, 0, 1, 0>, launch.shared_bytes = 0 : i64, launch.threads = 128 : i64} {
    gpu.return
  }
}
