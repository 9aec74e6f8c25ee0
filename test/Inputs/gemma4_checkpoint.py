"""The tensors of Gemma 4, whose layers are of two kinds, for make_checkpoint.py."""


# Names of what is no module, and of modules that other architectures have not.
OTHER_NAMES = {"layer_scalar": "layer_output_scale.weight", "router.proj.weight": "ffn_gate_inp.weight", "router.scale": "ffn_gate_inp.scale",
               "router.per_expert_scale": "ffn_down_exps.scale", "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
               "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight", "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
               "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight"}


def is_full(config, layer):
    """Does a layer of gemma4_text see all tokens?"""
    types = config.get("layer_types") or ["full_attention" if at % 6 == 5 else "sliding_attention" for at in range(config["num_hidden_layers"])]
    return types[layer] == "full_attention" or layer == config["num_hidden_layers"] - 1


def shares_kv(config, layer):
    """Does a layer read the keys and values of another one?"""
    return layer >= config["num_hidden_layers"] - config.get("num_kv_shared_layers", 0)


def inner_size(config, layer):
    wide = config.get("use_double_wide_mlp") and shares_kv(config, layer)
    return config["intermediate_size"] * (2 if wide else 1)


def gemma4_shapes(config):
    d, heads, inputs = config["hidden_size"], config["num_attention_heads"], config.get("hidden_size_per_layer_input", 256)
    layers = config["num_hidden_layers"]
    result = {"model.embed_tokens.weight": (config["vocab_size"], d)}
    if inputs:
        result |= {"model.embed_tokens_per_layer.weight": (config["vocab_size"], layers * inputs),
                   "model.per_layer_model_projection.weight": (layers * inputs, d), "model.per_layer_projection_norm.weight": (inputs,)}
    for layer in range(layers):
        at, full, inner = f"model.layers.{layer}.", is_full(config, layer), inner_size(config, layer)
        head = config.get("global_head_dim", 512) if full else config["head_dim"]
        shares = full and config.get("attention_k_eq_v")
        kv = ((config.get("num_global_key_value_heads") if shares else None) or config["num_key_value_heads"]) * head
        linears = {"q_proj": (heads * head, d), "k_proj": (kv, d), "v_proj": (kv, d), "o_proj": (d, heads * head)}
        for part, shape in linears.items():
            if shares and part == "v_proj" or shares_kv(config, layer) and part in ("k_proj", "v_proj"):
                continue
            result[f"{at}self_attn.{part}.weight"] = shape
            if config.get("attention_bias"):
                result[f"{at}self_attn.{part}.bias"] = shape[:1]
        result |= {f"{at}self_attn.{part}.weight": (head,) for part in ("q_norm", "k_norm") if part == "q_norm" or not shares_kv(config, layer)}
        result |= {f"{at}mlp.{part}.weight": shape for part, shape in
                   {"gate_proj": (inner, d), "up_proj": (inner, d), "down_proj": (d, inner)}.items()}
        result |= {f"{at}{part}_layernorm.weight": (d,) for part in ("input", "post_attention", "pre_feedforward", "post_feedforward")}
        if config.get("enable_moe_block"):
            count, size = config["num_experts"], config["moe_intermediate_size"]
            result |= {f"{at}{part}.weight": (d,) for part in ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")}
            result |= {at + "router.proj.weight": (count, d), at + "router.scale": (d,), at + "router.per_expert_scale": (count,),
                       at + "experts.gate_up_proj": (count, 2 * size, d), at + "experts.down_proj": (count, d, size)}
        if inputs:
            result |= {at + "per_layer_input_gate.weight": (inputs, d), at + "per_layer_projection.weight": (d, inputs),
                       at + "post_per_layer_input_norm.weight": (d,)}
        result[at + "layer_scalar"] = (1,)
    result["model.norm.weight"] = (d,)
    if not config["tie_word_embeddings"]:
        result["lm_head.weight"] = (config["vocab_size"], d)
    return result


def as_gemma4(config, weights):
    """What llama.cpp's converter says of both kinds of layers, and the weights with the pairs that do not turn, under GGUF's names where they have
    others than modules."""
    full = [is_full(config, layer) for layer in range(config["num_hidden_layers"])]
    heads, head = config["num_key_value_heads"], config.get("global_head_dim", 512)
    of_full = (config.get("num_global_key_value_heads") if config.get("attention_k_eq_v") else None) or heads
    kinds = config.get("rope_parameters") or {"sliding_attention": {}, "full_attention": {"partial_rotary_factor": 0.25}}
    turned = int(kinds["full_attention"].get("partial_rotary_factor", 1.0) * head // 2)
    pairs = {"attention.head_count_kv": [of_full if is_full else heads for is_full in full] if of_full != heads else heads,
             "attention.sliding_window_pattern": [not is_full for is_full in full], "attention.shared_kv_layers": config.get("num_kv_shared_layers", 0),
             "embedding_length_per_layer_input": config.get("hidden_size_per_layer_input", 256),
             "rope.freq_base": float(kinds["full_attention"].get("rope_theta", 1e6)),
             "rope.freq_base_swa": float(kinds["sliding_attention"].get("rope_theta", 1e4)),
             "rope.dimension_count": head, "rope.dimension_count_swa": config["head_dim"]}
    pairs |= {f"attention.{part}_length{kind}": size for part in ("key", "value") for kind, size in (("", head), ("_swa", config["head_dim"]))}
    if config.get("use_double_wide_mlp"):
        pairs["feed_forward_length"] = [inner_size(config, layer) for layer in range(config["num_hidden_layers"])]
    if config.get("enable_moe_block"):
        pairs |= {"expert_count": config["num_experts"], "expert_used_count": config["top_k_experts"],
                  "expert_feed_forward_length": config["moe_intermediate_size"]}
    factors = [1.0] * turned + [1e30] * (head // 2 - turned)
    named = {}
    for name, weight in weights.items():
        part = name.split(".", 3)[-1]
        named[f"blk.{name.split('.')[2]}.{OTHER_NAMES[part]}" if part in OTHER_NAMES else name] = weight
    return pairs, {"rope_freqs.weight": ((len(factors),), factors)} | named
