#!/usr/bin/env python3
"""Write a tiny random checkpoint for tests, with nothing but the standard library.

    make_checkpoint.py OUT --arch llama                     a Hugging Face folder
    make_checkpoint.py OUT.gguf --arch gpt2 --format gguf   the same weights as a GGUF file
    make_checkpoint.py OUT --arch llama --defect NAME       a folder with one thing wrong (see DEFECTS)

Equal --arch, --seed and --dtype mean equal weights, whatever the format.
"""

import argparse
import json
import math
import random
import struct
from pathlib import Path

from gemma4_checkpoint import as_gemma4, gemma4_shapes
from qwen35_checkpoint import as_qwen35, qwen35_shapes

LLAMA = {
    "model_type": "llama", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
    "bos_token_id": 1, "eos_token_id": [2, 3],
}
GPT2 = {
    "model_type": "gpt2", "vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32,
    "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "bos_token_id": 1, "eos_token_id": 2,
}
MISTRAL = LLAMA | {"model_type": "mistral", "sliding_window": 5}
QWEN2 = LLAMA | {"model_type": "qwen2", "use_sliding_window": False}
QWEN3 = LLAMA | {"model_type": "qwen3", "head_dim": 6, "attention_bias": False}
OLMO2 = LLAMA | {"model_type": "olmo2", "attention_bias": False}
SMOLLM3 = LLAMA | {"model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}  # a GGUF file cannot say others
GEMMA2 = LLAMA | {"model_type": "gemma2", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 5, "query_pre_attn_scalar": 4,
                  "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
GEMMA3 = LLAMA | {"model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 5, "query_pre_attn_scalar": 4,
                  "num_hidden_layers": 6, "rope_theta": 1000000.0}
# Heads of both kinds of layers differ in size and number.
GEMMA4 = LLAMA | {"model_type": "gemma4_text", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 5, "num_hidden_layers": 3,
                  "layer_types": ["sliding_attention", "full_attention", "full_attention"], "global_head_dim": 8, "attention_k_eq_v": True,
                  "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0, "final_logit_softcapping": 30.0}
# As E2B: last layers read the keys and values of others and have wider MLPs, and all layers have embeddings.
GEMMA4_E = GEMMA4 | {"num_hidden_layers": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
                     "attention_k_eq_v": False, "num_global_key_value_heads": None, "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 4,
                     "vocab_size_per_layer_input": 40}
# As 26B-A4B: experts beside MLPs.
GEMMA4_MOE = GEMMA4 | {"hidden_size": 32, "head_dim": 8, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
GRANITE = LLAMA | {"model_type": "granite", "embedding_multiplier": 12.0, "residual_multiplier": 0.25, "attention_multiplier": 0.125,
                   "logits_scaling": 8.0}
PHI3 = LLAMA | {
    "model_type": "phi3", "head_dim": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": None, "partial_rotary_factor": 0.75,
    "original_max_position_embeddings": 16,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.25, 1.5], "long_factor": [1.5, 2.0, 4.0], "attention_factor": 1.25},
}
# The default of every fourth layer that sees all tokens, which alone scales its positions.
OLMO3 = OLMO2 | {"model_type": "olmo3", "num_hidden_layers": 4, "sliding_window": 5, "rope_theta": 500000.0,
                 "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16, "attention_factor": 0.1 * math.log(2) + 1,
                                  "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}}
MINISTRAL = MISTRAL | {"model_type": "ministral", "layer_types": ["full_attention", "sliding_attention"]}
MINISTRAL3 = MISTRAL | {
    "model_type": "ministral3", "sliding_window": None, "rope_theta": 1000000.0,
    "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16, "attention_factor": 1.0, "beta_fast": 32.0,
                     "beta_slow": 1.0, "truncate": True, "llama_4_scaling_beta": 0.125},
}
# Experts of 32 columns, which a panel of packed weights has.
QWEN3_MOE = QWEN3 | {"model_type": "qwen3_moe", "hidden_size": 32, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                     "norm_topk_prob": True}
MIXTRAL = LLAMA | {"model_type": "mixtral", "hidden_size": 32, "head_dim": 8, "intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2,
                   "sliding_window": None}
QWEN2_MOE = QWEN3_MOE | {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 32, "norm_topk_prob": False}
# GGUF cannot say that YaRN's ends are truncated.
GPT_OSS = LLAMA | {
    "model_type": "gpt_oss", "hidden_size": 32, "head_dim": 8, "intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "attention_bias": True,
    "sliding_window": 5, "tie_word_embeddings": False, "rope_scaling": {
        "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16, "attention_factor": 0.1 * math.log(2) + 1, "beta_fast": 32.0,
        "beta_slow": 1.0, "truncate": False}}
LFM2 = {key: value for key, value in LLAMA.items() if key not in ("rms_norm_eps", "hidden_act")} | {
    "model_type": "lfm2", "norm_eps": 1e-5, "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3,
    "conv_bias": False, "block_auto_adjust_ff_dim": False}
LFM2_MOE = LFM2 | {
    "model_type": "lfm2_moe", "hidden_size": 32, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "num_dense_layers": 1, "use_expert_bias": True, "norm_topk_prob": True}
# More value heads than key heads, values of other sizes than keys, and half of each head rotated.
QWEN35 = QWEN3 | {
    "model_type": "qwen3_5_text", "num_hidden_layers": 4, "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
    "head_dim": 8, "partial_rotary_factor": 0.5, "linear_conv_kernel_dim": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_num_value_heads": 4, "linear_value_head_dim": 8}
QWEN35_MOE = {key: value for key, value in QWEN35.items() if key != "intermediate_size"} | {
    "model_type": "qwen3_5_moe_text", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24}
CONFIGS = {config["model_type"]: config for config in (
    LLAMA, GPT2, MISTRAL, QWEN2, QWEN3, OLMO2, SMOLLM3, GEMMA2, GEMMA3, GEMMA4, GRANITE, PHI3, OLMO3, MINISTRAL, MINISTRAL3, QWEN3_MOE, MIXTRAL, QWEN2_MOE,
    GPT_OSS, LFM2, LFM2_MOE, QWEN35, QWEN35_MOE)} | {"gemma4_e": GEMMA4_E, "gemma4_moe": GEMMA4_MOE}
DEFECTS = {
    "missing-tensor": "one weight is not in the file",
    "extra-tensor": "a bias that the configuration does not speak of",
    "wrong-shape": "a weight has its dimensions exchanged",
    "integer-dtype": "a weight is stored as I32",
    "nan": "a weight is not a number",
    "unknown-architecture": "model_type is bert",
    "rope-scaling": "rope_scaling is mrope",
    "wrong-norm-shape": "q_norm has an element too many",
    "quantized": "config.json has a quantization_config",
    "missing-shard": "the index names a file that is not there",
    "escaping-shard": "the index names a file outside the folder",
    "truncated": "the weight file ends early",
}
GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "wte": "token_embd",
    "wpe": "position_embd", "ln_f": "output_norm", "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    "post_feedforward_layernorm": "post_ffw_norm", "pre_feedforward_layernorm": "ffn_norm", "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
    "operator_norm": "attn_norm", "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj", "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down", "feed_forward.gate": "ffn_gate_inp",
    "ffn_norm": "ffn_norm", "model.embedding_norm": "token_embd_norm",
    "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
    "model.embed_tokens_per_layer": "per_layer_token_embd", "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "mlp.router": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
# What a model of experts has in place of an MLP: the router, and gate, up and down of an expert; and GGUF's names of the stacks.
EXPERTS = {"qwen3_moe": ("mlp.gate", "mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj", "mlp.experts.{}.down_proj"),
           "mixtral": ("block_sparse_moe.gate", "block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3", "block_sparse_moe.experts.{}.w2")}
EXPERTS["qwen2_moe"] = EXPERTS["qwen3_moe"]
EXPERTS["lfm2_moe"] = ("feed_forward.gate", "feed_forward.experts.{}.w1", "feed_forward.experts.{}.w3", "feed_forward.experts.{}.w2")
STACKS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
# Key of config.json to key of GGUF, where they are not sizes.
GGUF_KEYS = {
    "sliding_window": "attention.sliding_window", "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping", "embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
    "attention_multiplier": "attention.scale", "logits_scaling": "logit_scale", "num_experts": "expert_count", "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length", "num_dense_layers": "leading_dense_block_count",
}
# Architectures whose q and k rows llama.cpp permutes.
PERMUTED = ("llama", "mistral", "ministral3", "smollm3", "granite", "mixtral")
CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


def lfm2_shapes(config):
    d, inner = config["hidden_size"], config["intermediate_size"]
    q, kv = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    mixers = {
        "conv": {"conv.in_proj": (3 * d, d), "conv.conv": (d, 1, config["conv_L_cache"]), "conv.out_proj": (d, d)},
        "full_attention": {"self_attn.q_proj": (q, d), "self_attn.k_proj": (kv, d), "self_attn.v_proj": (kv, d),
                           "self_attn.q_layernorm": (config["head_dim"],), "self_attn.k_layernorm": (config["head_dim"],),
                           "self_attn.out_proj": (d, q)},
    }
    result = {"model.embed_tokens.weight": (config["vocab_size"], d)}
    mlp = {"feed_forward.w1.weight": (inner, d), "feed_forward.w3.weight": (inner, d), "feed_forward.w2.weight": (d, inner)}
    for layer, kind in enumerate(config["layer_types"]):
        at = f"model.layers.{layer}."
        for part, shape in ({"operator_norm": (d,)} | mixers[kind] | {"ffn_norm": (d,)}).items():
            result[f"{at}{part}.weight"] = shape
            if kind == "conv" and part.startswith("conv.") and config["conv_bias"]:
                result[f"{at}{part}.bias"] = shape[:1]
        with_experts = config["model_type"] == "lfm2_moe" and layer >= config["num_dense_layers"]
        result |= {at + part: shape for part, shape in (expert_shapes(config) if with_experts else mlp).items()}
        if with_experts and config["use_expert_bias"]:
            result[f"{at}feed_forward.expert_bias"] = (config["num_experts"],)
    result["model.embedding_norm.weight"] = (d,)
    if not config["tie_word_embeddings"]:
        result["lm_head.weight"] = (config["vocab_size"], d)
    return result


def shapes(config):
    """Name to shape as N x K, in the order of execution."""
    if config["model_type"] in ("lfm2", "lfm2_moe"):
        return lfm2_shapes(config)
    if config["model_type"] in ("qwen3_5_text", "qwen3_5_moe_text"):
        return qwen35_shapes(config)
    if config["model_type"] == "gemma4_text":
        return gemma4_shapes(config)
    result = {}
    if config["model_type"] == "gpt2":
        d = config["n_embd"]
        inner = config.get("n_inner") or 4 * d
        result["wte.weight"], result["wpe.weight"] = (config["vocab_size"], d), (config["n_positions"], d)
        for layer in range(config["n_layer"]):
            for part, rows, columns in (("ln_1", d, 0), ("attn.c_attn", 3 * d, d), ("attn.c_proj", d, d),
                                        ("ln_2", d, 0), ("mlp.c_fc", inner, d), ("mlp.c_proj", d, inner)):
                result[f"h.{layer}.{part}.weight"] = (rows, columns) if columns else (rows,)
                result[f"h.{layer}.{part}.bias"] = (rows,)
        result["ln_f.weight"] = result["ln_f.bias"] = (d,)
    else:
        d, inner = config["hidden_size"], config["intermediate_size"]
        q, kv = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
        result["model.embed_tokens.weight"] = (config["vocab_size"], d)
        kind = config["model_type"]
        joined = {"self_attn.q_proj": ("self_attn.qkv_proj", (q + 2 * kv, d)), "mlp.gate_proj": ("mlp.gate_up_proj", (2 * inner, d))}
        qk_norms = {**dict.fromkeys(("qwen3", "qwen3_moe"), (config["head_dim"],) * 2), "gemma3_text": (config["head_dim"],) * 2, "olmo2": (q, kv), "olmo3": (q, kv)}.get(kind)
        left_out = {**dict.fromkeys(("olmo2", "olmo3"), ("input_layernorm", "pre_feedforward_layernorm")), "gemma2": (), "gemma3_text": ()}.get(
            kind, ("pre_feedforward_layernorm", "post_feedforward_layernorm"))
        for layer in range(config["num_hidden_layers"]):
            for part, shape in (("input_layernorm", (d,)), ("self_attn.q_proj", (q, d)), ("self_attn.k_proj", (kv, d)),
                                ("self_attn.v_proj", (kv, d)), ("self_attn.o_proj", (d, q)),
                                ("post_attention_layernorm", (d,)), ("pre_feedforward_layernorm", (d,)), ("mlp.gate_proj", (inner, d)),
                                ("mlp.up_proj", (inner, d)), ("mlp.down_proj", (d, inner)), ("post_feedforward_layernorm", (d,))):
                if part in left_out or has_experts(config) and part in ("mlp.gate_proj", "mlp.up_proj"):
                    continue
                if has_experts(config) and part == "mlp.down_proj":
                    result |= {f"model.layers.{layer}.{name}": shape for name, shape in expert_shapes(config).items()}
                    continue
                if kind == "phi3":
                    if part in ("self_attn.k_proj", "self_attn.v_proj", "mlp.up_proj"):
                        continue
                    part, shape = joined.get(part, (part, shape))
                result[f"model.layers.{layer}.{part}.weight"] = shape
                if "self_attn" in part and (config.get("attention_bias") or kind in ("qwen2", "qwen2_moe") and "o_proj" not in part):
                    result[f"model.layers.{layer}.{part}.bias"] = shape[:1]
                if kind == "gpt_oss" and part == "self_attn.v_proj":
                    result[f"model.layers.{layer}.self_attn.sinks"] = (config["num_attention_heads"],)
                if qk_norms and part == "self_attn.v_proj":
                    for norm, width in zip(("q_norm", "k_norm"), qk_norms):
                        result[f"model.layers.{layer}.self_attn.{norm}.weight"] = (width,)
        result["model.norm.weight"] = (d,)
    if not config.get("tie_word_embeddings", config["model_type"] == "gpt2"):
        result["lm_head.weight"] = (config["vocab_size"], d)
    return result


def has_experts(config):
    return config["model_type"] in (*EXPERTS, "gpt_oss")


def expert_shapes(config):
    """The same of the experts of a layer, behind its prefix."""
    if config["model_type"] == "gpt_oss":  # E x K x N, gate and up column by column side by side
        count, d, inner = config["num_local_experts"], config["hidden_size"], config["intermediate_size"]
        return {"mlp.router.weight": (count, d), "mlp.router.bias": (count,), "mlp.experts.gate_up_proj": (count, d, 2 * inner),
                "mlp.experts.gate_up_proj_bias": (count, 2 * inner), "mlp.experts.down_proj": (count, inner, d), "mlp.experts.down_proj_bias": (count, d)}
    router, *modules = EXPERTS[config["model_type"]]
    count = config.get("num_experts") or config["num_local_experts"]
    d, inner = config["hidden_size"], config.get("moe_intermediate_size") or config["intermediate_size"]
    result = {f"{router}.weight": (count, d)}
    for expert in range(count):
        for module, shape in zip(modules, ((inner, d), (inner, d), (d, inner))):
            result[f"{module.format(expert)}.weight"] = shape
    if shared := config.get("shared_expert_intermediate_size"):
        result |= {"mlp.shared_expert_gate.weight": (1, d), "mlp.shared_expert.gate_proj.weight": (shared, d),
                   "mlp.shared_expert.up_proj.weight": (shared, d), "mlp.shared_expert.down_proj.weight": (d, shared)}
    return result


def size(shape):
    return math.prod(shape)


def random_weights(config, seed):
    """Name to (shape, values). The values are multiples of 1/64 below 2, so that every float type holds them."""
    rng = random.Random(seed)
    def values(name, shape):
        least = 1 if name.endswith("layer_scalar") else -127  # a factor is positive
        return [rng.randrange(least, 128) / 64 for _ in range(size(shape))]

    return {name: (shape, values(name, shape)) for name, shape in shapes(config).items()}


def encode(values, dtype):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{ {'F32': 'f', 'F16': 'e', 'I32': 'i'}[dtype] }", *map(int, values) if dtype == "I32" else values)


def transpose(shape, values):
    rows, columns = shape
    return (columns, rows), [values[r * columns + c] for c in range(columns) for r in range(rows)]


def permute(heads, shape, values):
    """llama.cpp's row order of q_proj and k_proj: the dimensions i and i + D/2 of a head side by side."""
    rows, width = shape[0], size(shape) // shape[0]
    head = rows // heads
    order = [h * head + half * (head // 2) + i for h in range(heads) for i in range(head // 2) for half in range(2)]
    return shape, [v for row in order for v in values[row * width:(row + 1) * width]]


def write_safetensors(path, tensors):
    """`tensors`: name to (dtype, shape, bytes)."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def write_folder(out, config, weights, dtype, shards, defect):
    tensors = {}
    for name, (shape, values) in weights.items():
        if name.endswith(CONV1D):
            shape, values = transpose(shape, values)
        tensors[name] = (dtype, shape, encode(values, dtype))
    victim = {"gpt_oss": "model.layers.1.mlp.router.weight", "qwen3_5_moe_text": "model.layers.1.mlp.shared_expert.up_proj.weight", "qwen2_moe": "model.layers.1.mlp.experts.2.up_proj.weight", "qwen3_moe": "model.layers.1.mlp.experts.2.up_proj.weight", "mixtral": "model.layers.1.block_sparse_moe.experts.2.w3.weight",
              "gpt2": "h.1.mlp.c_fc.weight", "phi3": "model.layers.1.mlp.gate_up_proj.weight",
              "lfm2": "model.layers.1.feed_forward.w3.weight", "lfm2_moe": "model.layers.1.feed_forward.experts.2.w3.weight"}.get(config["model_type"], "model.layers.1.mlp.up_proj.weight")
    shape = tensors[victim][1]
    if defect == "missing-tensor":
        del tensors[victim]
    elif defect == "extra-tensor":
        tensors[victim.replace(".weight", ".unknown_bias")] = (dtype, (4,), encode([0.0] * 4, dtype))
    elif defect == "wrong-shape":
        tensors[victim] = (dtype, shape[::-1], tensors[victim][2])
    elif defect == "integer-dtype":
        tensors[victim] = ("I32", shape, encode([0.0] * size(shape), "I32"))
    elif defect == "nan":
        tensors[victim] = (dtype, shape, encode([0.0] * 5 + [float("nan")] + [0.0] * (size(shape) - 6), dtype))
    elif defect == "unknown-architecture":
        config = config | {"model_type": "bert"}
    elif defect == "rope-scaling":
        config = config | {"rope_scaling": {"rope_type": "mrope", "factor": 4.0}}
    elif defect == "wrong-norm-shape":
        tensors["model.layers.1.self_attn.q_norm.weight"] = (dtype, (7,), encode([1.0] * 7, dtype))
    elif defect == "quantized":
        config = config | {"quantization_config": {"quant_method": "gptq", "bits": 4}}

    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if shards == 1:
        write_safetensors(out / "model.safetensors", tensors)
        if defect == "truncated":
            data = (out / "model.safetensors").read_bytes()
            (out / "model.safetensors").write_bytes(data[:-10])
        return
    files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    names = list(tensors)
    for i, file in enumerate(files):
        write_safetensors(out / file, {name: tensors[name] for name in names[i::shards]})
    index = {name: files[i % shards] for i, name in enumerate(names)}
    if defect == "missing-shard":
        (out / files[-1]).unlink()
    elif defect == "escaping-shard":
        index[victim] = "../" + files[0]
    (out / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}, indent=2))


def gguf_name(name, arch):
    module, _, kind = name.rpartition(".")
    if arch in ("olmo2", "olmo3", "gemma2", "gemma3_text", "gemma4_text", "gpt_oss") and module.endswith("post_attention_layernorm"):  # behind the attention, not before the MLP
        return f"blk.{module.split('.')[2]}.post_attention_norm.{kind}"
    if module in GGUF_NAMES:
        return f"{GGUF_NAMES[module]}.{kind}"
    layer, part = module.removeprefix("model.layers.").removeprefix("h.").split(".", 1)
    return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"


def rope_factors(config):
    """What llama.cpp's converter puts into rope_freqs.weight for the scaling "llama3": divisors of the frequencies."""
    scaling, head = config["rope_scaling"], config["head_dim"]
    low, high, original = (scaling[key] for key in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings"))
    factors = []
    for i in range(head // 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (2 * i / head)
        smooth = min(max((original / wavelength - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return factors


def unstacked(config, weights):
    """The stacks of gpt_oss, E x K x N, as GGUF has them: gate and up apart, E x N x K; and what has other names there."""
    count, d, inner = config["num_local_experts"], config["hidden_size"], config["intermediate_size"]
    result = {}
    for name, (shape, values) in weights.items():
        block = f"blk.{name.split('.')[2]}." if name.startswith("model.layers.") else ""
        if name.endswith(".sinks"):
            result[f"{block}attn_sinks.weight"] = (shape, values)
        elif ".experts." not in name:
            result[name] = (shape, values)
        else:
            parts = ("ffn_down_exps",) if "down_proj" in name else ("ffn_gate_exps", "ffn_up_exps")
            step, wide = len(parts), shape[-1]
            for part, stack in enumerate(parts):
                if name.endswith("_bias"):
                    result[f"{block}{stack}.bias"] = ((count, wide // step), values[part::step])
                    continue
                rows = [values[(expert * shape[1] + k) * wide + column] for expert in range(count) for column in range(part, wide, step)
                        for k in range(shape[1])]
                result[f"{block}{stack}.weight"] = ((count, wide // step, shape[1]), rows)
    return result


def stacked(config, weights):
    """The weights of all experts of a module as one, E x N x K, under GGUF's name."""
    if config["model_type"] == "gpt_oss":
        return unstacked(config, weights)
    if config["model_type"] not in EXPERTS:
        return weights
    modules, count = EXPERTS[config["model_type"]][1:], config.get("num_experts") or config["num_local_experts"]
    result = {}
    for name, weight in weights.items():
        layer = ".".join(name.split(".")[:3])
        for module, stack in zip(modules, STACKS):
            if name == f"{layer}.{module.format(0)}.weight":
                parts = [weights[f"{layer}.{module.format(expert)}.weight"] for expert in range(count)]
                result[f"blk.{layer.split('.')[2]}.{stack}.weight"] = ((count, *weight[0]), [value for _, values in parts for value in values])
        if name.endswith("shared_expert_gate.weight"):  # a vector
            weight = (weight[0][1:], weight[1])
        if name.endswith("expert_bias"):
            result[f"blk.{layer.split('.')[2]}.exp_probs_b.bias"] = weight
        elif ".experts." not in name:
            result[name] = weight
    return result


def write_gguf(out, config, weights, dtype):
    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()

    def value(v):
        if isinstance(v, str):
            return struct.pack("<I", 8) + string(v)
        if isinstance(v, list) and isinstance(v[0], bool):
            return struct.pack("<IIQ", 9, 7, len(v)) + bytes(v)
        if isinstance(v, list):
            return struct.pack(f"<IIQ{len(v)}i", 9, 5, len(v), *v)
        return struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v)

    arch = config["model_type"]
    permuted = arch in PERMUTED
    weights = stacked(config, weights)
    if arch == "gpt2":
        pairs = {"context_length": config["n_positions"], "embedding_length": config["n_embd"],
                 "feed_forward_length": 4 * config["n_embd"], "block_count": config["n_layer"],
                 "attention.head_count": config["n_head"], "attention.layer_norm_epsilon": config["layer_norm_epsilon"]}
        eos = [config["eos_token_id"]]
    else:
        pairs = {"context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
                 "feed_forward_length": config["intermediate_size"], "block_count": config["num_hidden_layers"],
                 "attention.head_count": config["num_attention_heads"],
                 "attention.head_count_kv": config["num_key_value_heads"], "rope.freq_base": config.get("rope_theta", 10000.0),
                 "attention.layer_norm_rms_epsilon": config.get("rms_norm_eps") or config["norm_eps"],
                 "rope.dimension_count": int(config["head_dim"] * config.get("partial_rotary_factor", 1))}
        if config["head_dim"] * config["num_attention_heads"] != config["hidden_size"]:
            pairs |= {"attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"]}
        if arch == "gpt_oss":
            pairs["expert_feed_forward_length"] = config["intermediate_size"]
        if arch in ("mistral", "ministral", "gemma2", "gemma3_text", "gemma4_text", "granite", "olmo3", "gpt_oss", *EXPERTS):
            pairs |= {gguf: config[key] for key, gguf in GGUF_KEYS.items() if config.get(key) is not None}
        if arch in ("gemma2", "gemma3_text"):  # the file has norms as they are
            weights = {name: (shape, [value + 1 for value in values] if "norm" in name else values) for name, (shape, values) in weights.items()}
        arch = {"mistral": "llama", "ministral": "llama", "ministral3": "mistral3", "mixtral": "llama", "qwen3_moe": "qwen3moe", "gemma3_text": "gemma3",
                "gemma4_text": "gemma4", "qwen2_moe": "qwen2moe", "gpt_oss": "gpt-oss", "lfm2_moe": "lfm2moe",
                "olmo3": "olmo2"}.get(arch, arch)  # llama.cpp's names
        if arch in ("lfm2", "lfm2moe"):  # a layer that convolves has no key-value heads, and the size of the MLP is the one that it has
            pairs |= {"attention.head_count_kv": [0 if kind == "conv" else config["num_key_value_heads"] for kind in config["layer_types"]],
                      "shortconv.l_cache": config["conv_L_cache"], **({"expert_gating_func": 2} if arch == "lfm2moe" else {}),  # sigmoid
                      "feed_forward_length": weights.get("model.layers.0.feed_forward.w1.weight", ((config["intermediate_size"],), ()))[0][0]}
            weights = {name: ((shape[0], shape[2]) if name.endswith("conv.conv.weight") else shape, values) for name, (shape, values) in weights.items()}
        if arch == "qwen3_5_text":
            more = int("mtp.fc.weight" in weights)
            pairs["block_count"] += more
            arch, weights = "qwen35", as_qwen35(config, weights)
            sizes = {"ssm.conv_kernel": "linear_conv_kernel_dim", "ssm.state_size": "linear_key_head_dim", "ssm.group_count": "linear_num_key_heads",
                     "ssm.time_step_rank": "linear_num_value_heads"}
            pairs |= {key: config[field] for key, field in sizes.items()} | {
                "ssm.inner_size": config["linear_num_value_heads"] * config["linear_value_head_dim"], "rope.dimension_sections": [11, 11, 10, 0],
                "nextn_predict_layers": config.get("mtp_num_hidden_layers", 0), "attention.recurrent_layers": [int(kind == "linear_attention") for kind in config["layer_types"]] + [0] * more}
        if arch == "gemma4":
            more, weights = as_gemma4(config, weights)
            pairs |= more
        if arch == "phi3":
            pairs["attention.sliding_window"] = config.get("sliding_window") or 0
        scaling = config.get("rope_scaling") or {}
        kind = scaling.get("rope_type", scaling.get("type"))
        if kind == "llama3":  # the metadata say nothing of it
            factors = rope_factors(config)
            weights = {"rope_freqs.weight": ((len(factors),), factors)} | weights
        elif kind == "longrope":  # nor, but for the factor of rotations
            original = config["original_max_position_embeddings"]
            longer = config["max_position_embeddings"] / original
            pairs |= {"rope.scaling.original_context_length": original,
                      "rope.scaling.attn_factor": scaling.get("attention_factor", math.sqrt(1 + math.log(longer) / math.log(original)))}
            for which in ("long", "short"):
                factors = scaling[f"{which}_factor"]
                weights = {f"rope_factors_{which}.weight": ((len(factors),), factors)} | weights
        elif scaling and kind != "default":
            pairs |= {"rope.scaling.type": kind, "rope.scaling.factor": float(scaling["factor"])}
            if "original_max_position_embeddings" in scaling:
                pairs["rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
            if "llama_4_scaling_beta" in scaling:
                pairs |= {"rope.scaling.yarn_beta_fast": float(scaling["beta_fast"]), "rope.scaling.yarn_beta_slow": float(scaling["beta_slow"]),
                          "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": scaling["llama_4_scaling_beta"]}
        eos = config["eos_token_id"]
    pairs = {"general.architecture": arch} | {f"{arch}.{key}": v for key, v in pairs.items()}
    pairs["tokenizer.ggml.bos_token_id"] = config["bos_token_id"]
    for key, token in zip(("eos", "eot"), eos):
        pairs[f"tokenizer.ggml.{key}_token_id"] = token

    header = b"".join(string(key) + value(v) for key, v in pairs.items())
    data = b""
    for name, (shape, values) in weights.items():
        if permuted and ".q_proj." in name:
            shape, values = permute(config["num_attention_heads"], shape, values)
        elif permuted and ".k_proj." in name:
            shape, values = permute(config["num_key_value_heads"], shape, values)
        stored = dtype if len(shape) > 1 and not name.endswith("_exps.bias") else "F32"
        header += string(name if name.startswith(("rope_f", "blk.")) else gguf_name(name, config["model_type"])) + struct.pack("<I", len(shape))
        header += b"".join(struct.pack("<Q", n) for n in reversed(shape))
        header += struct.pack("<IQ", {"F32": 0, "F16": 1, "BF16": 30}[stored], len(data))
        data += encode(values, stored)
        data += b"\0" * (-len(data) % 32)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(weights), len(pairs)) + header
    out.write_bytes(header + b"\0" * (-len(header) % 32) + data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", choices=CONFIGS, required=True)
    parser.add_argument("--format", choices=("hf", "gguf"), default="hf")
    parser.add_argument("--dtype", choices=("F32", "F16", "BF16"), default="F32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="override a field of config.json")
    parser.add_argument("--defect", choices=DEFECTS)
    args = parser.parse_args()

    config = dict(CONFIGS[args.arch])
    for assignment in args.set:
        key, _, text = assignment.partition("=")
        config[key] = json.loads(text)
    weights = random_weights(config, args.seed)
    if args.format == "gguf":
        write_gguf(args.out, config, weights, args.dtype)
    else:
        write_folder(args.out, config, weights, args.dtype, args.shards, args.defect)


if __name__ == "__main__":
    main()
