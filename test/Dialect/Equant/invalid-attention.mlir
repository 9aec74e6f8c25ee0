// RUN: easyquant-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{KV cache of 3 bits: expected 2, 4 or 8}}
#three = #equant.kv_scheme<code = i3, group = 16, residual = 32, sinks = 1, keys = channel>

// -----

// expected-error @below {{codes must be i2, i4 or i8, found 'si4'}}
#signed = #equant.kv_scheme<code = si4, group = 16, residual = 32, sinks = 1, keys = channel>

// -----

// expected-error @below {{KV residual of 40 tokens: expected a positive multiple of the group of 16}}
#residual = #equant.kv_scheme<code = i4, group = 16, residual = 40, sinks = 1, keys = channel>

// -----

// expected-error @below {{keys are quantized per channel or per token, found tensor}}
#keys = #equant.kv_scheme<code = i4, group = 16, residual = 32, sinks = 1, keys = tensor>

// -----

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 12>

func.func @head(%q: tensor<?x12xf32>, %p: !lm.batch, %cache: !cache) {
  // expected-error @below {{heads of 12 dimensions: a quantized KV cache needs a multiple of 8}}
  %y = equant.attention %q, %q, %q, %cache, %p
    {layer = 0, num_heads = 1, num_kv_heads = 1, head_dim = 12, scale = 0.5 : f64,
     kv_scheme = #equant.kv_scheme<code = i4, group = 16, residual = 32, sinks = 1, keys = channel>}
    : tensor<?x12xf32>, tensor<?x12xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 16>

func.func @part(%q: tensor<?x16xf32>, %p: !lm.batch, %table: tensor<40x6x2xf32>, %cache: !cache) {
  // expected-error @below {{12 dimensions of a head are rotated: a quantized KV cache of keys before their rotation needs a multiple of 8; keep keys behind it}}
  %y = equant.attention %q, %q, %q, %cache, %p rope(%table : tensor<40x6x2xf32>)
    {layer = 0, num_heads = 1, num_kv_heads = 1, head_dim = 16, scale = 0.5 : f64,
     kv_scheme = #equant.kv_scheme<code = i4, group = 16, residual = 32, sinks = 1, keys = channel>}
    : tensor<?x16xf32>, tensor<?x16xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 8>

func.func @table(%q: tensor<?x8xf32>, %p: !lm.batch, %table: tensor<40x8x2xf32>, %cache: !cache) {
  // expected-error @below {{table must be tensor<PxHx2xf32>, H from 1 to 4 for head_dim 8}}
  %y = equant.attention %q, %q, %q, %cache, %p rope(%table : tensor<40x8x2xf32>)
    {layer = 0, num_heads = 1, num_kv_heads = 1, head_dim = 8, scale = 0.5 : f64,
     kv_scheme = #equant.kv_scheme<code = i4, group = 16, residual = 32, sinks = 1, keys = channel>}
    : tensor<?x8xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 8>

func.func @layer(%q: tensor<?x8xf32>, %p: !lm.batch, %cache: !cache) {
  // expected-error @below {{layer 3 is not in a cache of 1 layers}}
  %y = equant.attention %q, %q, %q, %cache, %p
    {layer = 3, num_heads = 1, num_kv_heads = 1, head_dim = 8, scale = 0.5 : f64,
     kv_scheme = #equant.kv_scheme<code = i4, group = 16, residual = 32, sinks = 1, keys = channel>}
    : tensor<?x8xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 48>

func.func @block(%q: tensor<?x48xf32>, %p: !lm.batch, %cache: !cache) {
  // expected-error @below {{heads of 48 dimensions whose keys are rotated in blocks of 32: expected a power of two from 16 to 512 that divides them}}
  %y = equant.attention %q, %q, %q, %cache, %p
    {layer = 0, num_heads = 1, num_kv_heads = 1, head_dim = 48, scale = 0.5 : f64,
     kv_scheme = #equant.kv_scheme<code = i4, group = 16, residual = 32, sinks = 1, keys = token, hadamard = 32>}
    : tensor<?x48xf32>, tensor<?x48xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 16>

func.func @table(%q: tensor<?x16xf32>, %p: !lm.batch, %cache: !cache, %table: tensor<40x8x2xf32>) {
  // expected-error @below {{keys that are rotated in blocks of 16 dimensions come behind their rotary rotation; found a table of its angles}}
  %y = equant.attention %q, %q, %q, %cache, %p rope(%table : tensor<40x8x2xf32>)
    {layer = 0, num_heads = 1, num_kv_heads = 1, head_dim = 16, scale = 0.5 : f64,
     kv_scheme = #equant.kv_scheme<code = i4, group = 16, residual = 32, sinks = 1, keys = token, hadamard = 16>}
    : tensor<?x16xf32>, tensor<?x16xf32>, !cache
  return
}

// -----

// expected-error @below {{keys that are rotated in blocks of 16 dimensions have scales per token, found scales per channel}}
func.func private @channels() attributes {a = #equant.kv_scheme<code = i4, group = 16, residual = 32, sinks = 1, keys = channel, hadamard = 16>}
