!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 513>

func.func @forward(%q: tensor<?x513xf32>, %cache: !cache, %batch: !lm.batch) -> tensor<?x513xf32> {
  %a = lm.attention %q, %q, %q, %cache, %batch {layer = 0, num_heads = 1, num_kv_heads = 1, head_dim = 513, scale = 0.05}
         : tensor<?x513xf32>, tensor<?x513xf32>, !cache loc("model.layers.0.self_attn")
  return %a : tensor<?x513xf32>
}
