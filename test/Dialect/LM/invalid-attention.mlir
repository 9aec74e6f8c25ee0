// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

!cache = !lm.kv_cache<layers = 2, kv_heads = 2, head_dim = 4>

func.func @grouped(%q: tensor<?x12xf32>, %k: tensor<?x8xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{num_heads 3 is no multiple of num_kv_heads 2}}
  lm.attention %q, %k, %k, %cache, %batch
    {layer = 0, num_heads = 3, num_kv_heads = 2, head_dim = 4, scale = 0.5 : f64} : tensor<?x12xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 2, kv_heads = 2, head_dim = 4>

func.func @query(%q: tensor<?x12xf32>, %k: tensor<?x8xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{query has 12 columns, expected 4 heads of 4 dimensions}}
  lm.attention %q, %k, %k, %cache, %batch
    {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 4, scale = 0.5 : f64} : tensor<?x12xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 2, kv_heads = 2, head_dim = 4>

func.func @key(%q: tensor<?x16xf32>, %k: tensor<?x4xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{key and value have 4 columns, expected 2 heads of 4 dimensions}}
  lm.attention %q, %k, %k, %cache, %batch
    {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 4, scale = 0.5 : f64} : tensor<?x16xf32>, tensor<?x4xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 2, kv_heads = 2, head_dim = 4>

func.func @layer(%q: tensor<?x16xf32>, %k: tensor<?x8xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{layer 2 is not in a cache of 2 layers}}
  lm.attention %q, %k, %k, %cache, %batch
    {layer = 2, num_heads = 4, num_kv_heads = 2, head_dim = 4, scale = 0.5 : f64} : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 2, kv_heads = 1, head_dim = 8>

func.func @cache(%q: tensor<?x16xf32>, %k: tensor<?x8xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{cache has 1 heads of 8 dimensions, expected 2 of 4}}
  lm.attention %q, %k, %k, %cache, %batch
    {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 4, scale = 0.5 : f64} : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 2, kv_heads = 2, head_dim = 4>

func.func @scale(%q: tensor<?x16xf32>, %k: tensor<?x8xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{scale must be finite and positive, found 0}}
  lm.attention %q, %k, %k, %cache, %batch
    {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 4, scale = 0.0 : f64} : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 2, kv_heads = 2, head_dim = 4>

func.func @bound(%q: tensor<?x16xf32>, %k: tensor<?x8xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{bound must be a positive number that f32 holds, found -1}}
  lm.attention %q, %k, %k, %cache, %batch {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 4, scale = 0.5 : f64, bound = -1.0 : f64}
    : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 2, kv_heads = 2, head_dim = 4>

func.func @sink_logits(%q: tensor<?x16xf32>, %k: tensor<?x8xf32>, %s: tensor<3xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{sink_logits have one number for each of 4 heads, found 3}}
  lm.attention %q, %k, %k, %cache, %batch sink_logits(%s : tensor<3xf32>)
    {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 4, scale = 0.5 : f64} : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 2, kv_heads = [2, 1], head_dim = [4, 8]>

func.func @heads_of_layer(%q: tensor<?x8xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{cache has 1 heads of 8 dimensions, expected 2 of 4}}
  lm.attention %q, %q, %q, %cache, %batch {layer = 1, num_heads = 2, num_kv_heads = 2, head_dim = 4, scale = 0.5}
    : tensor<?x8xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 2, kv_heads = 2, head_dim = 4, window = [8, 0]>

func.func @window_beyond_what_is_kept(%q: tensor<?x8xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{reads a window of 9, but the cache keeps the newest 8 of layer 0}}
  lm.attention %q, %q, %q, %cache, %batch {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 4, scale = 0.5, window = 9}
    : tensor<?x8xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 2, kv_heads = [2, 1], head_dim = [4, 8]>

func.func @cached_heads_of_layer(%q: tensor<?x8xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{cache has 1 heads of 8 dimensions, expected 2 of 4}}
  lm.cached_attention %q, %cache, %batch {layer = 1, num_heads = 2, num_kv_heads = 2, head_dim = 4, scale = 0.5} : tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 2, kv_heads = 2, head_dim = 4, window = [8, 0]>

func.func @all_tokens_of_a_window(%q: tensor<?x8xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{reads all tokens, but the cache keeps the newest 8 of layer 0}}
  lm.attention %q, %q, %q, %cache, %batch {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 4, scale = 0.5}
    : tensor<?x8xf32>, tensor<?x8xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>

func.func @cached_query(%q: tensor<?x12xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{query has 12 columns, expected 2 heads of 4 dimensions}}
  lm.cached_attention %q, %cache, %batch {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 4, scale = 0.5} : tensor<?x12xf32>, !cache
  return
}

// -----

!cache = !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>

func.func @window_of_nothing(%q: tensor<?x8xf32>, %cache: !cache, %batch: !lm.batch) {
  // expected-error @below {{has a window of one token, in which no row sees any: it does not see itself}}
  lm.cached_attention %q, %cache, %batch {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 4, scale = 0.5, window = 1} : tensor<?x8xf32>, !cache
  return
}
