// RUN: easyquant-opt %s --split-input-file --verify-diagnostics

func.func @forward(%rows: index) {
  // expected-error @below {{expected a memref of any number of rows, contiguous, found 'memref<4x16xf32>'}}
  %a = launch.buffer(%rows) : memref<4x16xf32>
  return
}

// -----

func.func @forward(%rows: index) {
  // expected-error @below {{expected a memref of any number of rows, contiguous, found 'memref<?x4611686018427387904x4xf32>'}}
  %a = launch.buffer(%rows) : memref<?x4611686018427387904x4xf32>
  return
}

// -----

func.func @forward(%rows: index) {
  // expected-error @below {{has a place in a function without launch.max_rows}}
  %a = launch.buffer(%rows) {offset = 0 : i64} : memref<?x16xf32>
  return
}

// -----

func.func @forward() {
  // expected-error @below {{expected a number of counters, found 'memref<?xi32>'}}
  %c = launch.counters : memref<?xi32>
  return
}

// -----

func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{expected string or keyword containing one of the following enum values for attribute 'phase' [load, quantize, gemm, attention, comm, sync, other]}}
  launch.kernel matmul @k(%x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32>
  return
}

// -----

func.func private @k(index, !llvm.ptr, index, index)
func.func @forward(%rows: index) {
  // expected-error @below {{of site 'a' writes operand 0, which is no memory}}
  launch.kernel gemm @k(%rows) {site = "a", writes = array<i64: 0>} : index
  return
}

// -----

func.func private @k(memref<?x16xf32>, !llvm.ptr, index, index)
func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' shares operand 1, which is no memory}}
  launch.kernel gemm @k(%x) {shares = array<i64: 1>, site = "a", writes = array<i64: 0>} : memref<?x16xf32>
  return
}

// -----

func.func private @k(memref<?xindex>, !llvm.ptr, index, index)
func.func @forward(%x: memref<?xindex>) {
  // expected-error @below {{of site 'a' has operand 0 of 'memref<?xindex>'; expected memory of integers or floats}}
  launch.kernel gemm @k(%x) {site = "a", writes = array<i64: 0>} : memref<?xindex>
  return
}

// -----

func.func private @k(memref<?x16xf32>, !llvm.ptr, index, index)
func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{expected rows from 1 on, and 0 for no limit}}
  launch.kernel gemm @k(%x) {site = "a", writes = array<i64: 0>, rows = array<i64: 0, 4>} : memref<?x16xf32>
  return
}

// -----

func.func @forward(%x: memref<f32>) {
  // expected-error @below {{of site 'a' has operand 0 of 'memref<f32>'; expected a vector or a matrix}}
  launch.host 0(%x) {site = "a", writes = array<i64>} : memref<f32>
  return
}

// -----

// expected-error @below {{launch.max_rows is of steps; expected a func.func of one block}}
func.func private @forward() attributes {launch.max_rows = 4 : i64}

// -----

// expected-error @below {{launch.max_rows is "many"; expected an i64 from 1 to 1048576}}
func.func @forward() attributes {launch.max_rows = "many"} {
  return
}

// -----

// expected-error @below {{launch.arena_bytes is -1 : i64; expected bytes, an i64 from 0 to}}
func.func @forward() attributes {launch.arena_bytes = -1 : i64} {
  return
}

// -----

// expected-error @below {{launch.cache is {sizes = {page_tokens = 64 : i64}, type = "f32"}; expected a dictionary of sizes, scheme and type}}
func.func @forward() attributes {launch.cache = {sizes = {page_tokens = 64 : i64}, type = "f32"}} {
  return
}

// -----

// expected-error @below {{expected a dictionary of sizes, scheme and type}}
func.func @forward() attributes {launch.cache = {sizes = {page_bytes = 0 : i64, page_tokens = 64 : i64, window_bytes = 0 : i64},
                                                 scheme = {bits = 4 : i64}, type = "f16"}} {
  return
}

// -----

// expected-error @below {{argument 0 has launch.argument = 3 : i64; expected launch.argument, the name of what is given}}
func.func private @forward(index {launch.argument = 3})

// -----

// expected-error @below {{launch.grid is array<i64: 1, 0>; expected factor and rows of a block, three times}}
func.func private @k() attributes {launch.grid = array<i64: 1, 0>}

// -----

// expected-error @below {{has an unknown attribute launch.maxrows}}
func.func private @forward() attributes {launch.maxrows = 4 : i64}
