// RUN: easyquant-opt %s --cse --canonicalize --sccp | FileCheck %s

// What launches do to memory is known to passes of MLIR: two buffers stay two, and what anybody writes, or somebody outside may see, stays.

func.func private @k(memref<?x16xf32>, memref<?x16xf32>, !llvm.ptr, index, index)

// CHECK-LABEL: func.func @forward(
func.func @forward(%x: memref<?x16xf32>, %cache: memref<?xi8>, %rows: index) attributes {launch.max_rows = 4 : i64} {
  // CHECK: %[[A:.*]] = launch.buffer
  // CHECK: %[[B:.*]] = launch.buffer
  // CHECK-NOT: launch.buffer
  %a = launch.buffer(%rows) : memref<?x16xf32>
  %b = launch.buffer(%rows) : memref<?x16xf32>
  %unused = launch.buffer(%rows) : memref<?x16xf32>
  // CHECK: launch.kernel other @k(%arg0, %[[A]])
  launch.kernel other @k(%x, %a) {site = "a", writes = array<i64: 1>} : memref<?x16xf32>, memref<?x16xf32>
  // CHECK: launch.kernel other @k(%[[A]], %[[B]])
  launch.kernel other @k(%a, %b) {site = "b", writes = array<i64: 1>} : memref<?x16xf32>, memref<?x16xf32>
  // The same once more: it may have been changed in between, for all that is known here.
  // CHECK: launch.kernel other @k(%[[A]], %[[B]])
  launch.kernel other @k(%a, %b) {site = "b", writes = array<i64: 1>} : memref<?x16xf32>, memref<?x16xf32>
  // Nothing is written, so that nobody misses it.
  // CHECK-NOT: site = "nothing"
  launch.kernel other @k(%a, %b) {site = "nothing", writes = array<i64>} : memref<?x16xf32>, memref<?x16xf32>
  // The caller sees what it is given, twice.
  // CHECK: launch.host 0(%[[B]])
  // CHECK: launch.host 0(%[[B]])
  launch.host 0(%b) {site = "c", writes = array<i64>} : memref<?x16xf32>
  launch.host 0(%b) {site = "c", writes = array<i64>} : memref<?x16xf32>
  // CHECK: launch.collective 0
  // CHECK: launch.wait 0
  launch.collective 0 all_reduce sum(%b) {site = "d"} : memref<?x16xf32>
  launch.wait 0(%b) {site = "d"} : memref<?x16xf32>
  // One place, however often it is named.
  // CHECK: %[[S:.*]] = launch.scratch 64 : memref<?xi8>
  // CHECK: %[[C:.*]] = launch.cache %{{.*}} from 64 : memref<?xi8>
  // CHECK: launch.kernel other @bytes(%[[S]], %[[C]])
  // CHECK-NEXT: launch.kernel other @bytes(%[[S]], %[[C]])
  %s = launch.scratch 64 : memref<?xi8>
  %c = launch.cache %cache from 64 : memref<?xi8>
  launch.kernel other @bytes(%s, %c) {site = "e", writes = array<i64: 0, 1>} : memref<?xi8>, memref<?xi8>
  %t = launch.scratch 64 : memref<?xi8>
  %d = launch.cache %cache from 64 : memref<?xi8>
  launch.kernel other @bytes(%t, %d) {site = "f", writes = array<i64: 0, 1>} : memref<?xi8>, memref<?xi8>
  return
}

func.func private @bytes(memref<?xi8>, memref<?xi8>, !llvm.ptr, index, index)
