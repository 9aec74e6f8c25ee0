// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --convert-launches-to-llvm | FileCheck %s

// A float model: views of the three byte buffers, in-place RoPE and residual, one kernel a spec.

ml_program.global private @table(#ml_program.extern : tensor<10x8xf32>) : tensor<10x8xf32> {equant.offset = 0 : i64}
ml_program.global private @norm(#ml_program.extern : tensor<8xf32>) : tensor<8xf32> {equant.offset = 320 : i64}
ml_program.global private @w(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32> {equant.offset = 352 : i64}
ml_program.global private @rope(#ml_program.extern : tensor<16x2x2xf32>) : tensor<16x2x2xf32> {equant.offset = 608 : i64}

// CHECK: module attributes {equant.program = {abi = {{[0-9]+}} : i64, arena_bytes = {{[0-9]+}} : i64, arena_bytes_per_thread = {{[0-9]+}} : i64,
// CHECK-SAME: cache = {page_bytes = 4096 : i64, page_tokens = 64 : i64, window_bytes = 0 : i64}, cache_scheme, cache_type = "f32", entries = {avx2 = "easyquant_forward_avx2"}, max_rows = 4 : i64}
// CHECK-NOT: ml_program.global

func.func private @layer_0(%x: tensor<?x8xf32>, %batch: !lm.batch,
                           %cache: !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>) -> tensor<?x8xf32> {
  %norm = ml_program.global_load_const @norm : tensor<8xf32>
  %w = ml_program.global_load_const @w : tensor<8x8xf32>
  %rope = ml_program.global_load_const @rope : tensor<16x2x2xf32>
  %h = lm.rms_norm %x, %norm {epsilon = 1.0e-05 : f64} : tensor<?x8xf32>
  %q = lm.linear %h, %w {site = "q"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %k = lm.linear %h, %w {site = "k"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %qr = lm.rope %q, %rope, %batch {head_dim = 4 : i64} : tensor<?x8xf32>, tensor<16x2x2xf32>
  %y = lm.attention %qr, %k, %h, %cache, %batch
         {layer = 0 : i64, num_heads = 2 : i64, num_kv_heads = 2 : i64, head_dim = 4 : i64, scale = 5.0e-01 : f64}
         : tensor<?x8xf32>, tensor<?x8xf32>, !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>
  %o = lm.linear %y, %w {site = "o"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %z = lm.add %x, %o : tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

func.func @forward(%tokens: tensor<?xi32>, %batch: !lm.batch, %rows: tensor<?xi32>,
                   %cache: !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>) -> tensor<?x10xf32> {
  %table = ml_program.global_load_const @table : tensor<10x8xf32>
  %x = lm.embedding %tokens, %table : tensor<?xi32>, tensor<10x8xf32> -> tensor<?x8xf32>
  %y = call @layer_0(%x, %batch, %cache)
         : (tensor<?x8xf32>, !lm.batch, !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>) -> tensor<?x8xf32>
  %last = lm.rows %y at %rows : tensor<?x8xf32>, tensor<?xi32>
  %logits = lm.linear %last, %table {site = "lm_head"} : (tensor<?x8xf32>, tensor<10x8xf32>) -> tensor<?x10xf32>
  return %logits : tensor<?x10xf32>
}

// CHECK-LABEL: func.func private @forward.kernels(
// CHECK-SAME: %[[WEIGHTS:[^:]*]]: memref<?xi8>, %[[ARENA:[^:]*]]: memref<?xi8>, %[[CACHE:[^:]*]]: memref<?xi8>,
// CHECK-SAME: memref<?xi32>, %[[BATCH:[^:]*]]: memref<?x9xi32>, %[[ROWS:[^:]*]]: memref<?xi32>,
// CHECK-SAME: %[[STATE:[^:]*]]: !llvm.ptr, %[[THREAD:[^:]*]]: index, %[[THREADS:[^:]*]]: index,
// CHECK-SAME: %[[LOGITS:[^:]*]]: memref<?x10xf32, strided<[?, 1], offset: ?>>)
// CHECK: call @embedding
// CHECK-DAG: %[[OFFSET:.*]] = arith.constant 352 : index
// CHECK-DAG: %[[W:.*]] = memref.view %[[WEIGHTS]][%[[OFFSET]]][] : memref<?xi8> to memref<8x8xf32>
// The rotation overwrites q, and the last linear adds into the residual stream.
// CHECK: call @[[LINEAR:linear_[a-z0-9_]*]](%{{.*}}, %[[W]], %[[Q:[^,]*]],
// CHECK: call @[[LINEAR]](
// CHECK: call @rope{{.*}}(%{{.*}}, %{{.*}}, %[[BATCH]],
// CHECK: call @attention{{.*}}, %[[STATE]], %[[THREAD]], %[[THREADS]])
// CHECK: call @linear_{{.*}}acc(%{{.*}}, %[[W]],
// CHECK: call @gather_8(%[[ROWS]],
// CHECK: call @linear{{.*}}(%{{.*}}, %{{.*}}, %[[LOGITS]],

// All threads run it, in one region; one thread without.
// CHECK-LABEL: func.func @easyquant_forward_avx2(
// CHECK-SAME: memref<?xi32>, %{{[^:]*}}: memref<?x9xi32>, %{{[^:]*}}: memref<?xi32>, %[[COUNT:[^:]*]]: index,
// CHECK-SAME: memref<?x10xf32, strided<[?, 1], offset: ?>>) attributes {llvm.emit_c_interface}
// CHECK: %[[STATE:.*]] = llvm.alloca
// CHECK: scf.if
// CHECK: func.call @forward.kernels({{.*}}, %[[STATE]], %c0{{[_0-9]*}}, %c1{{[_0-9]*}}, %{{[^,]*}})
// CHECK: omp.parallel num_threads(%{{.*}} : i32)
// CHECK: llvm.call @omp_get_thread_num()
// CHECK: llvm.call @omp_get_num_threads()
// CHECK: func.call @forward.kernels({{.*}}, %[[STATE]],
// CHECK: omp.terminator
