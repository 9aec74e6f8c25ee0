// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --convert-equant-to-kernels

// A weight without a place in an artifact.
ml_program.global private @w(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32>
func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{has no place in the artifact: run equant-materialize-weights first}}
  %w = ml_program.global_load_const @w : tensor<8x8xf32>
  %y = lm.linear %x, %w {site = "q"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// expected-error @below {{expected a function @forward that returns activations, such as the logits}}
module {}

// -----

// An op that is no part of a model.
func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{has no kernel; it must be lowered to lm or equant ops first}}
  %y = math.exp %x : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
