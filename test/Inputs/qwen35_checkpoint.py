"""What checkpoints of Qwen3.5 hold, for make_checkpoint.py: in Hugging Face's order, and as llama.cpp's converter writes it."""

import math

# The head of Qwen3.5 that drafts.
NEXTN = {"mtp.fc.weight": "{}nextn.eh_proj.weight", "mtp.pre_fc_norm_embedding.weight": "{}nextn.enorm.weight",
         "mtp.pre_fc_norm_hidden.weight": "{}nextn.hnorm.weight", "mtp.norm.weight": "{}nextn.shared_head_norm.weight"}


def qwen35_shapes(config):
    d, head = config["hidden_size"], config["head_dim"]
    q, kv = (config[key] * head for key in ("num_attention_heads", "num_key_value_heads"))
    if config["model_type"] == "qwen3_5_moe_text":  # E x N x K, the rows of gate before those of up
        count, inner, shared = (config[key] for key in ("num_experts", "moe_intermediate_size", "shared_expert_intermediate_size"))
        mlp = {"gate.weight": (count, d), "experts.gate_up_proj": (count, 2 * inner, d), "experts.down_proj": (count, d, inner),
               "shared_expert_gate.weight": (1, d), "shared_expert.gate_proj.weight": (shared, d), "shared_expert.up_proj.weight": (shared, d),
               "shared_expert.down_proj.weight": (d, shared)}
    else:
        inner = config["intermediate_size"]
        mlp = {"gate_proj.weight": (inner, d), "up_proj.weight": (inner, d), "down_proj.weight": (d, inner)}
    key_heads, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    values = heads * config["linear_value_head_dim"]
    columns = 2 * key_heads * config["linear_key_head_dim"] + values
    mixers = {
        "linear_attention": {"in_proj_qkv.weight": (columns, d), "in_proj_z.weight": (values, d), "in_proj_b.weight": (heads, d),
                             "in_proj_a.weight": (heads, d), "conv1d.weight": (columns, 1, config["linear_conv_kernel_dim"]), "A_log": (heads,),
                             "dt_bias": (heads,), "norm.weight": (config["linear_value_head_dim"],), "out_proj.weight": (d, values)},
        "full_attention": {"q_proj.weight": (2 * q, d), "k_proj.weight": (kv, d), "v_proj.weight": (kv, d), "q_norm.weight": (head,),
                           "k_norm.weight": (head,), "o_proj.weight": (d, q)},
    }
    result = {"model.embed_tokens.weight": (config["vocab_size"], d)}
    heads_that_draft = config.get("mtp_num_hidden_layers", 0)
    layers = [(f"model.layers.{layer}.", kind) for layer, kind in enumerate(config["layer_types"])]
    for at, kind in layers + [(f"mtp.layers.{layer}.", "full_attention") for layer in range(heads_that_draft)]:
        mixer = at + ("linear_attn." if kind == "linear_attention" else "self_attn.")
        result[at + "input_layernorm.weight"] = (d,)
        for part, shape in mixers[kind].items():
            result[mixer + part] = shape
            if "_proj" in part and kind == "full_attention" and config.get("attention_bias"):
                result[mixer + part.replace("weight", "bias")] = shape[:1]
        result |= {at + "post_attention_layernorm.weight": (d,)} | {f"{at}mlp.{part}": shape for part, shape in mlp.items()}
    result["model.norm.weight"] = (d,)
    if heads_that_draft:
        result |= {"mtp.fc.weight": (d, 2 * d), "mtp.pre_fc_norm_embedding.weight": (d,), "mtp.pre_fc_norm_hidden.weight": (d,), "mtp.norm.weight": (d,)}
    if not config["tie_word_embeddings"]:
        result["lm_head.weight"] = (config["vocab_size"], d)
    return result


def tiled(config, name, shape, values):
    """llama.cpp's order of value heads, those of a key head not side by side but in turns: rows of what makes them, columns of what reads them."""
    part = name.split("linear_attn.")[-1]
    key_heads, heads, size_of_value = (config[f"linear_{key}"] for key in ("num_key_heads", "num_value_heads", "value_head_dim"))
    order = [g * (heads // key_heads) + r for r in range(heads // key_heads) for g in range(key_heads)]
    if part == "out_proj.weight":
        columns = [h * size_of_value + i for h in order for i in range(size_of_value)]
        return shape, [values[row * shape[1] + c] for row in range(shape[0]) for c in columns]
    unit = {"in_proj_qkv.weight": size_of_value, "conv1d.weight": size_of_value, "in_proj_z.weight": size_of_value, "norm.weight": 0}.get(part, 1)
    if not unit:
        return shape, values
    kept, width = shape[0] - heads * unit, math.prod(shape[1:])
    rows = [*range(kept), *(kept + h * unit + i for h in order for i in range(unit))]
    return shape, [v for row in rows for v in values[row * width:(row + 1) * width]]


def as_qwen35(config, weights):
    """The weights as llama.cpp's converter has them, under GGUF's names where they have others than modules."""
    result = {}
    for name, (shape, values) in weights.items():
        if "linear_attn." in name:
            shape, values = tiled(config, name, shape, values)
        elif "norm" in name:
            values = [value + 1 for value in values]
        layer = f"blk.{name.split('.')[2]}." if "layers" in name else ""
        if name.startswith("mtp."):  # behind the other layers
            layer = f"blk.{config['num_hidden_layers']}."
            name = NEXTN[name] if name in NEXTN else name.replace("mtp.layers.0", f"model.layers.{config['num_hidden_layers']}")
            name = name.format(layer)
        if name.endswith("A_log"):
            name, values = layer + "ssm_a", [-math.exp(value) for value in values]
        elif name.endswith("dt_bias"):
            name = layer + "ssm_dt.bias"
        elif "post_attention_layernorm" in name:
            name = layer + "post_attention_norm.weight"
        result[name] = ((shape[0], shape[2]) if len(shape) == 3 else shape, values)
    return result
