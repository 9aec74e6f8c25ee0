// RUN: easyquant-opt %s --lm-build-gradients=weights=w,table -split-input-file -verify-diagnostics

ml_program.global private @table(#ml_program.extern : tensor<10x2x2xf32>) : tensor<10x2x2xf32>
func.func private @rotation(%x: tensor<?x8xf32>, %batch: !lm.batch) -> tensor<?x8xf32> {
  %table = ml_program.global_load_const @table : tensor<10x2x2xf32>
  // expected-error @below {{'lm.rope' op has no gradient of operand #1, 'tensor<10x2x2xf32>'}}
  %y = lm.rope %x, %table, %batch {head_dim = 4} : tensor<?x8xf32>, tensor<10x2x2xf32>
  return %y : tensor<?x8xf32>
}

// -----

ml_program.global private @w(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32>
func.func private @two_readers(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %w = ml_program.global_load_const @w : tensor<8x8xf32>
  // expected-error @below {{is not the only reader of operand #1, whose gradient is wanted: expected a weight to have one}}
  %y = lm.linear %x, %w {site = "a"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %z = lm.linear %y, %w {site = "b"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// -----

ml_program.global private @w(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32>
func.func private @no_path(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{the result does not depend on}}
  %w = ml_program.global_load_const @w : tensor<8x8xf32>
  %y = lm.linear %x, %w {site = "a"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  return %x : tensor<?x8xf32>
}

// -----

ml_program.global private @w(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32>
func.func private @half_a_split(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %w = ml_program.global_load_const @w : tensor<8x8xf32>
  %y = lm.linear %x, %w {site = "a"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  // expected-error @below {{has no gradient, since nothing depends on its result #1}}
  %a, %b = lm.split %y : tensor<?x8xf32> -> tensor<?x4xf32>, tensor<?x4xf32>
  %v = arith.constant dense<1.0> : tensor<8x4xf32>
  %z = lm.linear %a, %v {site = "b"} : (tensor<?x4xf32>, tensor<8x4xf32>) -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// -----

ml_program.global private @w(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32>
func.func private @other_layer(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  return %x : tensor<?x8xf32>
}
func.func private @call(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %w = ml_program.global_load_const @w : tensor<8x8xf32>
  %y = lm.linear %x, %w {site = "a"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  // expected-error @below {{has no gradient, and a weight whose gradient is wanted goes into it}}
  %z = call @other_layer(%y) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// -----

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 8>
ml_program.global private @w(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
func.func private @sink_logits(%x: tensor<?x16xf32>, %k: tensor<?x8xf32>, %s: tensor<2xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x16xf32> {
  %w = ml_program.global_load_const @w : tensor<16x16xf32>
  %q = lm.linear %x, %w {site = "a"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  // expected-error @below {{of layer 0 has sink logits, of which there are no gradients yet}}
  %y = lm.attention %q, %k, %k, %cache, %batch sink_logits(%s : tensor<2xf32>)
         {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 8, scale = 0.5 : f64} : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  return %y : tensor<?x16xf32>
}

// -----

ml_program.global private @w(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32>
func.func private @clamped(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %w = ml_program.global_load_const @w : tensor<8x8xf32>
  %g = lm.linear %x, %w {site = "a"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  // expected-error @below {{has a clamped gate, of which there are no gradients yet}}
  %y = lm.glu clamped %g, %x : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

ml_program.global private @w(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32>
func.func private @who_chose(%x: tensor<?x8xf32>, %places: tensor<?x2xi32>, %weights: tensor<?x2xf32>) -> tensor<?x8xf32> {
  %w = ml_program.global_load_const @w : tensor<8x8xf32>
  %d = lm.linear %x, %w {site = "a"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  // expected-error @below {{has no gradient: no lm.route gives the places of its choices}}
  %y = lm.combine %d, %places, %weights : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  return %y : tensor<?x8xf32>
}
