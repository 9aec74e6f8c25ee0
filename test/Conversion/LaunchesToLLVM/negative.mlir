// RUN: easyquant-opt %s --verify-diagnostics --convert-launches-to-llvm

module attributes {launch.target = "avx2"} {
  func.func private @k(memref<?x16xf32>)
  func.func @forward(%rows: index) attributes {launch.max_rows = 4 : i64, launch.arena_bytes = 256 : i64, launch.scratch_bytes = 0 : i64,
      launch.cache = {sizes = {page_tokens = 64 : i64, page_bytes = 0 : i64, window_bytes = 0 : i64}, scheme, type = "f32"}} {
    %x = launch.buffer(%rows) {offset = 0 : i64} : memref<?x16xf32>
    // expected-error @below {{kernels on CPUs take all sequences of a step}}
    launch.kernel @k(%x) {each_sequence, phase = "gemm", site = "a", writes = array<i64: 0>} : memref<?x16xf32>
    return
  }
}
