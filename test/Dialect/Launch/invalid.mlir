// RUN: easyquant-opt %s --split-input-file --verify-diagnostics

func.func @forward(%rows: index) {
  // expected-error @below {{expected a memref of any number of rows, contiguous, found 'memref<4x16xf32>'}}
  %a = launch.buffer(%rows) : memref<4x16xf32>
  return
}

// -----

func.func private @k(memref<?x16xf32>)
func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{expected a phase of load, quantize, gemm, attention, comm, sync, other, found 'matmul'}}
  launch.kernel @k(%x) {phase = "matmul", site = "a", writes = array<i64: 0>} : memref<?x16xf32>
  return
}

// -----

func.func private @k(index)
func.func @forward(%rows: index) {
  // expected-error @below {{writes operand 0, which is no memory of its own}}
  launch.kernel @k(%rows) {phase = "gemm", site = "a", writes = array<i64: 0>} : index
  return
}

// -----

func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{expected a kernel named @k}}
  launch.kernel @k(%x) {phase = "gemm", site = "a", writes = array<i64: 0>} : memref<?x16xf32>
  return
}

// -----

func.func private @k(memref<?x16xf32>)
func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{expected rows from 1 on, and 0 for no limit}}
  launch.kernel @k(%x) {phase = "gemm", site = "a", writes = array<i64: 0>, rows = array<i64: 0, 4>} : memref<?x16xf32>
  return
}
