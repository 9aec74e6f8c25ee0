// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --easyquant-launches

// A weight without a place in an artifact.
ml_program.global private @w(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32>
func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{constant @w has no place in the weights for this target: run equant-materialize-weights first}}
  %w = ml_program.global_load_const @w : tensor<8x8xf32>
  %y = lm.linear %x, %w {site = "q"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// What is left of weights that have not been materialized.
func.func @forward(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{is evaluated on constant weights: run equant-materialize-weights before}}
  %q = equant.quantize %w rule absmax : (tensor<8x8xf32>) -> !equant.weight<8x8, #equant.scheme<i8, symmetric, channel>>
  %y = equant.linear %x, %q {sites = ["q"]} : (tensor<?x8xf32>, !equant.weight<8x8, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// An op that is no part of a model.
func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{has no kernel, nor has any op outside of lm and equant}}
  %y = math.exp %x : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// expected-error @below {{takes several caches; expected one for all layers}}
func.func @forward(%x: tensor<?x8xf32>, %a: !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 8>,
                   %b: !lm.kv_cache<layers = 9, kv_heads = 1, head_dim = 8>) -> tensor<?x8xf32> {
  return %x : tensor<?x8xf32>
}

// -----

// Only what ops of a model make is within the limits by their verifiers.
// expected-error @below {{takes dimensions of at most 2147483647, found 'tensor<?x9223372036854775807xf32>'}}
func.func @forward(%x: tensor<?x9223372036854775807xf32>) -> tensor<?x9223372036854775807xf32> {
  %y = call @layer_0(%x) : (tensor<?x9223372036854775807xf32>) -> tensor<?x9223372036854775807xf32>
  return %y : tensor<?x9223372036854775807xf32>
}
func.func private @layer_0(%x: tensor<?x9223372036854775807xf32>) -> tensor<?x9223372036854775807xf32> {
  return %x : tensor<?x9223372036854775807xf32>
}

// -----

func.func @forward(%q: tensor<?x2147483640xf32>, %cache: !lm.kv_cache<layers = 4096, kv_heads = 268435455, head_dim = 8>,
                   %batch: !lm.batch) -> tensor<?x2147483640xf32> {
  // expected-error @below {{for 4096 layers; at most 140737488355328 can be addressed}}
  %y = equant.attention %q, %q, %q, %cache, %batch
         {layer = 0, num_heads = 268435455, num_kv_heads = 268435455, head_dim = 8, scale = 0.25,
          kv_scheme = #equant.kv_scheme<code = i8, group = 16, residual = 65536, sinks = 65536, keys = channel>}
         : tensor<?x2147483640xf32>, tensor<?x2147483640xf32>, !lm.kv_cache<layers = 4096, kv_heads = 268435455, head_dim = 8>
  return %y : tensor<?x2147483640xf32>
}
