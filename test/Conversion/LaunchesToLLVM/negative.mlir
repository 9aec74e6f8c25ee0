// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --convert-launches-to-llvm

// A step for a GPU.
// expected-error @below {{is for 'sm_80', which is no instruction set of a CPU: convert to launches for one}}
module attributes {launch.target = "sm_80"} {
  func.func @forward(%rows: index) attributes {launch.max_rows = 4 : i64, launch.arena_bytes = 256 : i64, launch.scratch_bytes = 0 : i64,
      launch.cache = {sizes = {page_tokens = 64 : i64, page_bytes = 0 : i64, window_bytes = 0 : i64}, scheme, type = "f16"}} {
    return
  }
}

// -----

// A kernel for a GPU.
module attributes {launch.target = "avx2"} {
  gpu.module @kernels {
    gpu.func @k(%x: !llvm.ptr) kernel {
      gpu.return
    }
  }
  func.func @forward(%rows: index) attributes {launch.max_rows = 4 : i64, launch.arena_bytes = 256 : i64, launch.scratch_bytes = 0 : i64,
      launch.cache = {sizes = {page_tokens = 64 : i64, page_bytes = 0 : i64, window_bytes = 0 : i64}, scheme, type = "f16"}} {
    %x = launch.buffer(%rows) {offset = 0 : i64} : memref<?x16xf32>
    // expected-error @below {{of site 'a' launches @kernels::@k on a GPU; expected a func.func: convert to launches for a CPU}}
    launch.kernel gemm @kernels::@k(%x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32>
    return
  }
}

// -----

module attributes {launch.target = "avx2"} {
  // expected-error @below {{expected launch.cache, which convert-equant-to-launches and launch-place-buffers give a step}}
  func.func @forward(%rows: index) attributes {launch.max_rows = 4 : i64, launch.arena_bytes = 256 : i64, launch.scratch_bytes = 0 : i64} {
    return
  }
}

// -----

module attributes {launch.target = "avx2"} {
  func.func private @k(memref<?x16xf32>, !llvm.ptr, index, index)
  func.func @forward(%rows: index) attributes {launch.max_rows = 4 : i64, launch.arena_bytes = 256 : i64, launch.scratch_bytes = 0 : i64,
      launch.cache = {sizes = {page_tokens = 64 : i64, page_bytes = 0 : i64, window_bytes = 0 : i64}, scheme, type = "f32"}} {
    // expected-error @below {{has no place: run launch-place-buffers first}}
    %x = launch.buffer(%rows) : memref<?x16xf32>
    launch.kernel gemm @k(%x) {site = "a", writes = array<i64: 0>} : memref<?x16xf32>
    return
  }
}

// -----

module attributes {launch.target = "avx2"} {
  // expected-error @below {{argument 0 is the cache, of 'memref<?xf32>'; expected 'memref<?xi8>'}}
  func.func @forward(%cache: memref<?xf32> {launch.argument = "cache"}) attributes {launch.max_rows = 4 : i64, launch.arena_bytes = 256 : i64,
      launch.scratch_bytes = 0 : i64,
      launch.cache = {sizes = {page_tokens = 64 : i64, page_bytes = 0 : i64, window_bytes = 0 : i64}, scheme, type = "f32"}} {
    return
  }
}

// -----

module attributes {launch.target = "avx2"} {
  func.func @forward(%x: memref<?x16xf32>) attributes {launch.max_rows = 4 : i64, launch.arena_bytes = 256 : i64, launch.scratch_bytes = 0 : i64,
      launch.cache = {sizes = {page_tokens = 64 : i64, page_bytes = 0 : i64, window_bytes = 0 : i64}, scheme, type = "f32"}} {
    // expected-error @below {{of site 'a' is number 1; expected 0}}
    launch.collective 1 all_reduce sum(%x) {site = "a"} : memref<?x16xf32>
    launch.wait 1(%x) {site = "a"} : memref<?x16xf32>
    return
  }
}
