// RUN: easyquant-opt %s --split-input-file --verify-diagnostics

// The operands of a launch are those of the kernel that it launches, in number, types and kinds.

func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' launches @k; expected a func.func or a gpu.func, found nothing of that name}}
  launch.kernel gemm @k(%x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32>
  return
}

// -----

memref.global "private" @k : memref<4xf32>
func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' launches @k; expected a func.func or a gpu.func, found memref.global}}
  launch.kernel gemm @k(%x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32>
  return
}

// -----

func.func private @k(memref<?x16xf32>)
func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' launches @k; expected a function that takes a team of threads last, !llvm.ptr, index, index, and returns nothing, found '(memref<?x16xf32>) -> ()'}}
  launch.kernel gemm @k(%x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32>
  return
}

// -----

func.func private @k(memref<?x16xf32>, memref<?x16xf32>, !llvm.ptr, index, index)
func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' gives @k 1 operands; expected 2}}
  launch.kernel gemm @k(%x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32>
  return
}

// -----

func.func private @k(memref<?x16xf32>, memref<?x32xf32>, !llvm.ptr, index, index)
func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' gives @k operand 1 of 'memref<?x16xf32>'; expected 'memref<?x32xf32>'}}
  launch.kernel gemm @k(%x, %x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32>, memref<?x16xf32>
  return
}

// -----

// A kernel that was made for 16 rows is not given any number of them.
func.func private @k(memref<16x16xf32>, !llvm.ptr, index, index)
func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' gives @k operand 0 of 'memref<?x16xf32>'; expected 'memref<16x16xf32>'}}
  launch.kernel gemm @k(%x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32>
  return
}

// -----

// Nor rows that lie apart, where they are to lie one behind the other.
func.func private @k(memref<?x16xf32>, !llvm.ptr, index, index)
func.func @forward(%x: memref<?x16xf32, strided<[32, 1]>>) {
  // expected-error @below {{of site 'a' gives @k operand 0 of 'memref<?x16xf32, strided<[32, 1]>>'; expected 'memref<?x16xf32>'}}
  launch.kernel gemm @k(%x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32, strided<[32, 1]>>
  return
}

// -----

func.func private @k(index, !llvm.ptr, index, index)
func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' gives @k operand 0 of 'memref<?x16xf32>'; expected 'index'}}
  launch.kernel gemm @k(%x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32>
  return
}

// -----

gpu.module @kernels {
  gpu.func @k(%x: !llvm.ptr, %rows: i32) kernel {
    gpu.return
  }
}
func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' gives @kernels::@k operand 1 of 'memref<?x16xf32>'; expected 'i32'}}
  launch.kernel gemm @kernels::@k(%x, %x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32>, memref<?x16xf32>
  return
}

// -----

gpu.module @kernels {
  gpu.func @k(%x: !llvm.ptr) kernel {
    gpu.return
  }
}
func.func @forward(%rows: index) {
  // expected-error @below {{of site 'a' gives @kernels::@k operand 0 of 'index'; expected '!llvm.ptr'}}
  launch.kernel gemm @kernels::@k(%rows) {site = "a", writes = array<i64>} : index
  return
}

// -----

// A kernel that names its parameters and says which it writes.
func.func private @k(memref<?xf32>, memref<?xf32>, !llvm.ptr, index, index) attributes {launch.parameters = ["x", "y"], launch.writes = array<i64: 1>}
func.func @forward(%x: memref<?xf32>) {
  // expected-error @below {{of site 'a' does not say that it writes operand 1 'y', which @k writes}}
  launch.kernel gemm @k(%x, %x) {site = "a", writes = array<i64>} : memref<?xf32>, memref<?xf32>
  return
}

// -----

func.func private @k(memref<?xf32>, memref<?xf32>, !llvm.ptr, index, index) attributes {launch.parameters = ["x", "y"], launch.writes = array<i64: 1>}
func.func @forward(%x: memref<?xf32>) {
  // expected-error @below {{of site 'a' says that it writes operand 0 'x', which @k only reads}}
  launch.kernel gemm @k(%x, %x) {site = "a", writes = array<i64: 0, 1>} : memref<?xf32>, memref<?xf32>
  return
}

// -----

func.func private @k(memref<?xf32>, memref<?xf32>, !llvm.ptr, index, index) attributes {launch.parameters = ["x", "y"], launch.writes = array<i64: 1>}
func.func @forward(%x: memref<?xf32>, %n: index) {
  // expected-error @below {{of site 'a' gives @k operand 1 'y' of 'index'; expected 'memref<?xf32>'}}
  launch.kernel gemm @k(%x, %n) {site = "a", writes = array<i64>} : memref<?xf32>, index
  return
}

// -----

// expected-error @below {{launch.parameters is 3 : i64; expected names of parameters}}
func.func private @k(!llvm.ptr, index, index) attributes {launch.parameters = 3 : i64}

// -----

// expected-error @below {{launch.writes is "y"; expected numbers of parameters, an array of i64s}}
func.func private @k(!llvm.ptr, index, index) attributes {launch.writes = "y"}
