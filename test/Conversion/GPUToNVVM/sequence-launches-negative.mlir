// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --easyquant-emit-gpu-program="output=%t target=sm_80 max-rows=4"

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
