// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --easyquant-emit-gpu-program="output=%t target=sm_80 max-rows=4"

// Rows of a sequence are parts of buffers: the logits of a step are not all its rows.
!cache = !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 16>
ml_program.global private @e(#ml_program.extern : tensor<40x64xf32>) : tensor<40x64xf32> {equant.offset = 0 : i64}
func.func @forward(%tokens: tensor<?xi32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x64xf32> {
  %e = ml_program.global_load_const @e : tensor<40x64xf32>
  %x = lm.embedding %tokens, %e : tensor<?xi32>, tensor<40x64xf32> -> tensor<?x64xf32>
  %q, %k = lm.split %x : tensor<?x64xf32> -> tensor<?x32xf32>, tensor<?x32xf32>
  // expected-error @below {{is launched for each sequence, whose rows can only be those of a buffer; found 'memref<?x64xf32>' of the step's arguments}}
  %a = lm.attention %x, %k, %q, %cache, %batch
         {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 16, scale = 0.25} : tensor<?x64xf32>, tensor<?x32xf32>, !cache
  return %a : tensor<?x64xf32>
}

// -----

// Rows that are some of a sequence's have no positions one behind the other.
ml_program.global private @e(#ml_program.extern : tensor<40x64xf32>) : tensor<40x64xf32> {equant.offset = 0 : i64}
func.func @forward(%tokens: tensor<?xi32>, %batch: !lm.batch, %rows: tensor<?xi32>) -> tensor<?x64xf32> {
  %e = ml_program.global_load_const @e : tensor<40x64xf32>
  %x = lm.embedding %tokens, %e : tensor<?xi32>, tensor<40x64xf32> -> tensor<?x64xf32>
  %some = lm.rows %x at %rows : tensor<?x64xf32>, tensor<?xi32>
  // expected-error @below {{takes a batch, but reads only some of its rows}}
  %y = lm.position_embedding %some, %e, %batch : tensor<?x64xf32>, tensor<40x64xf32>
  return %y : tensor<?x64xf32>
}
