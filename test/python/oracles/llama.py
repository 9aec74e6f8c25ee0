# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The llama architecture: RMSNorm, rotary positions (a dimension pairs with the one half a head away), grouped-query
attention, SwiGLU, optionally tied head; and its descendants mistral (attention in a window), qwen2 (biases on q, k and v),
qwen3 (RMSNorm of every head of q and k), olmo2 (RMSNorm of all of q and of all of k; norms behind attention and MLP, none
before), smollm3 (layers whose q and k are not rotated), gemma2 and gemma3_text (norms of 1 + w before and behind attention and MLP, GeGLU,
scaled embeddings, windows by a pattern, another scale and soft caps of attention, or norms of heads and angles of their own where there is
a window), granite (multipliers), phi3 (one matrix for q, k and v and one for gate and up; the first part of each head rotated), ministral
(windows by layer_types), ministral3 (queries scaled behind YaRN's original context) and olmo3 (olmo2 with windows by layer_types or in three
of four layers, whose positions are not scaled), gemma4_text (gemma3_text with norms of w, a norm of every head of v, heads of another size
and number in layers without a window, whose values may be what k gives, a factor of each layer's result, last layers that read the keys and
values of the last layer of their kind before them, embeddings of layers, and experts beside the MLP); qwen3_moe, qwen2_moe and mixtral are qwen3, qwen2 and mistral with mixtures of experts
(experts.py), and so is gpt_oss (windows in every second layer, a learned logit in the softmax of each head). Tensor names and layouts are those of a Hugging Face checkpoint."""

import numpy as np

from .experts import Experts, unstacked
from .experts import apart as apart_experts
from .gates import gelu, silu
from .rope import rotated_dims, rotations
from .schemes import FLOAT, rotate


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(epsilon)) * weight


def soft_cap(x, bound):
    return x if bound is None else bound * np.tanh(x / bound)


def causal_attention(q, k, v, window=None, rows=256, first=0, scale=None, bound=None, sink=None):
    """softmax(q k^T scale) v of one head, each token seeing itself and what came before; all are (tokens, d), and the scale is 1 / sqrt(d) if
    none is given. With a bound, products are soft_cap of what they are. A sink is one more product of each row, without a value.

    With a window, only so many tokens, itself included. Rows before `first` are not computed. Blocks of rows meet only the
    keys that they may see, which halves the work and bounds the memory.
    """
    q = q * q.dtype.type(scale or q.shape[-1] ** -0.5)
    out = np.empty_like(v, shape=(len(q), v.shape[-1]))
    for start in range(first, len(q), rows):
        stop = min(start + rows, len(q))
        oldest = max(0, start + 1 - window) if window else 0
        scores = soft_cap(q[start:stop] @ k[oldest:stop].T, bound)
        age = np.arange(start, stop)[:, None] - np.arange(oldest, stop)
        scores[(age < 0) | (age >= (window or stop))] = -np.inf
        if sink is not None:
            scores = np.concatenate([scores, np.full((stop - start, 1), sink, scores.dtype)], axis=1)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        total = scores.sum(axis=-1, keepdims=True)
        out[start:stop] = (scores[:, : stop - oldest] @ v[oldest:stop]) / total
    return out


def is_gemma(config):
    return config["model_type"].startswith("gemma")


GEMMA4_ROPE = {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
               "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}}


def window_of(config, layer):
    """Tokens that a layer's attention sees, itself included; None: all."""
    kind = config["model_type"]
    if kind in ("mistral", "ministral3", "mixtral", "phi3"):
        return config.get("sliding_window")
    if kind == "ministral" and "layer_types" not in config:
        return config["sliding_window"]
    if is_gemma(config) or kind in ("olmo3", "ministral", "gpt_oss"):
        pattern = config.get("sliding_window_pattern", {"gemma2": 2, "gpt_oss": 2, "olmo3": 4}.get(kind, 6))
        types = config.get("layer_types") or ["full_attention" if (at + 1) % pattern == 0 else "sliding_attention" for at in range(layer + 1)]
        if kind == "gemma4_text" and layer == config["num_hidden_layers"] - 1:
            return None
        return config["sliding_window"] if types[layer] == "sliding_attention" else None
    if not kind.startswith("qwen") or not config.get("use_sliding_window"):
        return None
    if types := config.get("layer_types"):
        return config["sliding_window"] if types[layer] == "sliding_attention" else None
    return config["sliding_window"] if layer >= config["max_window_layers"] else None


def late_gain(config, positions):
    """What queries at the positions are multiplied by."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not (beta := scaling.get("llama_4_scaling_beta")):
        return np.ones(len(positions))
    return 1 + beta * np.log(1 + np.floor(positions / scaling["original_max_position_embeddings"]))


def is_rotated(config, layer):
    if config["model_type"] != "smollm3":
        return True
    if listed := config.get("no_rope_layers"):
        return listed[layer] == 1
    return (layer + 1) % config.get("no_rope_layer_interval", 4) != 0


def apart(config, tensors, head_dim):
    """The tensors of phi3 as those of llama: rows of joined matrices one behind the other."""
    q = config["num_attention_heads"] * head_dim
    cuts = {"self_attn.qkv_proj": ([q, q + config["num_key_value_heads"] * head_dim], ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
            "mlp.gate_up_proj": ([config["intermediate_size"]], ("mlp.gate_proj", "mlp.up_proj"))}
    result = dict(tensors)
    for index in range(config["num_hidden_layers"]):
        for joined, (rows, parts) in cuts.items():
            whole = np.asarray(result.pop(f"model.layers.{index}.{joined}.weight"))
            result |= {f"model.layers.{index}.{part}.weight": piece for part, piece in zip(parts, np.split(whole, rows))}
    return result


class Llama:
    """config: as in config.json. tensors: name to array. dtype: that of all arithmetic (float32 or float64). context: the longest
    sequence that the model is for, which longrope heeds; without it, that of the configuration."""

    def __init__(self, config, tensors, scheme=FLOAT, dtype=np.float32, context=None):
        self.dtype = np.dtype(dtype)
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads
        self.epsilon = config["rms_norm_eps"]
        self.config, self.context = config, context
        self.rotated = rotated_dims(config, self.head_dim)
        if config["model_type"] == "phi3":
            tensors = apart(config, tensors, self.head_dim)
        if config["model_type"] == "gpt_oss":
            tensors = unstacked(config, tensors)
        if config.get("enable_moe_block"):
            tensors = apart_experts(tensors)
        self.vocab_size = config["vocab_size"]

        def vector(name):
            return np.asarray(tensors[name], self.dtype)

        def norm(name):
            weight = vector(name + ".weight") + self.dtype.type(is_gemma(config) and config["model_type"] != "gemma4_text")
            return lambda rows: rms_norm(rows, weight, self.epsilon)

        def same(rows):
            return rows

        block = scheme.value_block(self.head_dim)

        def linear(name):
            makes_values, reads_values = block and name.endswith("v_proj"), block and name.endswith("o_proj")
            basis = {"out_block": block} if makes_values else {"hadamard": block, "rotated": True} if reads_values else {}
            apply = scheme.linear(tensors[name + ".weight"], self.dtype, **basis)
            if name + ".bias" not in tensors:
                return apply
            bias = vector(name + ".bias")
            if makes_values:
                bias = rotate(bias, block)
            return lambda x: apply(x) + bias

        embedding = tensors["model.embed_tokens.weight"]
        tied = config.get("tie_word_embeddings", "lm_head.weight" not in tensors)
        self.head = scheme.head(embedding if tied else tensors["lm_head.weight"], self.dtype)
        self.embedding = self.head if tied else scheme.table(embedding, self.dtype)
        self.norm = norm("model.norm")
        self.activation = gelu if is_gemma(config) else silu
        self.embedding_factor = config["hidden_size"] ** 0.5 if is_gemma(config) else config.get("embedding_multiplier", 1.0)
        self.scale = (1.0 if config["model_type"] == "gemma4_text" else config["query_pre_attn_scalar"] ** -0.5 if is_gemma(config)
                      else config.get("attention_multiplier"))
        self.inputs = config.get("hidden_size_per_layer_input", 256) if config["model_type"] == "gemma4_text" else 0
        if self.inputs:
            self.input_table = scheme.table(tensors["model.embed_tokens_per_layer.weight"], self.dtype)
            self.input_projection = FLOAT.linear(tensors["model.per_layer_model_projection.weight"], self.dtype)
            self.input_norm = norm("model.per_layer_projection_norm")
        self.layers = []
        for index in range(config["num_hidden_layers"]):
            at = f"model.layers.{index}."
            kind, window = config["model_type"], window_of(config, index)
            layer = {"window": window, "heads_of": (self.kv_heads, self.head_dim), "v_norm": same, "scalar": 1.0}
            parts = ["q_proj", "k_proj", "v_proj", "o_proj"]
            if kind == "gemma4_text":
                layer["v_norm"] = lambda rows: rms_norm(rows, 1, self.epsilon)
                layer["scalar"] = vector(at + "layer_scalar")[0]
                shares = not window and config.get("attention_k_eq_v")
                if not window:
                    layer["heads_of"] = ((config.get("num_global_key_value_heads") if shares else None) or self.kv_heads,
                                         config.get("global_head_dim", 512))
                if shares:
                    parts.remove("v_proj")
                first = config["num_hidden_layers"] - config.get("num_kv_shared_layers", 0)
                if index >= first:
                    layer["source"] = next(source for source in reversed(self.layers[:first]) if bool(source["window"]) == bool(window))
                    parts = ["q_proj", "o_proj"]
                if self.inputs:
                    layer["number"] = index
                    layer |= {name: linear(at + name) for name in ("per_layer_input_gate", "per_layer_projection")}
                    layer["input_norm_behind"] = norm(at + "post_per_layer_input_norm")
            layer |= {name: linear(at + "self_attn." + name) for name in parts}
            if kind == "gpt_oss":
                layer["sinks"] = vector(at + "self_attn.sinks")
            besides = bool(config.get("enable_moe_block"))  # experts and an MLP
            if besides or kind in ("qwen3_moe", "qwen2_moe", "mixtral", "gpt_oss"):
                layer["experts"] = Experts(config, at, linear, vector)
            if besides:
                layer["router_scale"] = vector(at + "router.scale") * self.dtype.type(config["hidden_size"] ** -0.5)
                layer |= {role: norm(at + name) for role, name in (("dense_norm", "post_feedforward_layernorm_1"),
                          ("expert_norm", "pre_feedforward_layernorm_2"), ("expert_output_norm", "post_feedforward_layernorm_2"))}
            if besides or "experts" not in layer:
                layer |= {name: linear(at + "mlp." + name) for name in ("gate_proj", "up_proj", "down_proj")}
            names = {"input_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
            if kind in ("olmo2", "olmo3"):
                names = {"attention_output_norm": "post_attention_layernorm", "mlp_output_norm": "post_feedforward_layernorm"}
            if is_gemma(config):
                names = {"input_norm": "input_layernorm", "attention_output_norm": "post_attention_layernorm",
                         "mlp_norm": "pre_feedforward_layernorm", "mlp_output_norm": "post_feedforward_layernorm"}
            if kind in ("qwen3", "qwen3_moe", "olmo2", "olmo3", "gemma3_text", "gemma4_text"):
                names |= {name: f"self_attn.{name}" for name in ("q_norm", "k_norm")}
            layer |= dict.fromkeys(("input_norm", "attention_output_norm", "mlp_norm", "mlp_output_norm", "q_norm", "k_norm"), same)
            if "source" in layer:
                del names["k_norm"]
            layer |= {role: norm(at + name) for role, name in names.items()}
            layer["rotated"] = is_rotated(config, index)
            self.layers.append(layer)

    def mlp(self, layer, x):
        rows = layer["mlp_norm"](x)
        if "experts" in layer and "down_proj" not in layer:
            return layer["experts"](rows)
        dense = layer["down_proj"](self.activation(layer["gate_proj"](rows)) * layer["up_proj"](rows))
        if "experts" not in layer:
            return dense
        mixed = layer["experts"](layer["expert_norm"](x), rms_norm(x, layer["router_scale"], self.epsilon))
        return layer["dense_norm"](dense) + layer["expert_output_norm"](mixed)

    def rope(self, x, position, window=None):
        """x: (tokens, heads, head_dim)."""
        config, dims = self.config, self.rotated
        kind = config["model_type"]
        if kind == "gemma4_text":
            kinds, dims = config.get("rope_parameters") or GEMMA4_ROPE, x.shape[-1]
            config = {"rope_parameters": kinds["sliding_attention" if window else "full_attention"], "max_position_embeddings": 0}
        half = dims // 2
        if kind == "gemma3_text" and window:
            config = {"rope_theta": config.get("rope_local_base_freq", 10000.0), "max_position_embeddings": 0}
        if kind == "olmo3":
            kinds = config.get("rope_parameters")
            if window:
                config = {"rope_theta": (kinds["sliding_attention"] if kinds else config)["rope_theta"], "max_position_embeddings": 0}
            elif kinds:
                config = config | {"rope_parameters": kinds["full_attention"]}
        angles = rotations(config, dims, position, len(x), self.context)
        cos, sin = (part.astype(self.dtype)[:, None] for part in angles)
        a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)

    def projections(self, layer, x):
        """q, k and v of each head, normed and not rotated; q alone of a layer that reads what another one has kept."""
        count = len(x)
        kv_heads, head_dim = layer["heads_of"]
        if "source" in layer:
            return layer["q_norm"](layer["q_proj"](x).reshape(count, self.heads, head_dim)), None, None
        q, k = layer["q_proj"](x), layer["k_proj"](x)
        v = (layer["v_proj"](x) if "v_proj" in layer else k).reshape(count, kv_heads, head_dim)
        if self.config["model_type"] in ("olmo2", "olmo3"):
            q, k = layer["q_norm"](q), layer["k_norm"](k)
        q, k = q.reshape(count, self.heads, head_dim), k.reshape(count, kv_heads, head_dim)
        if self.config["model_type"] not in ("olmo2", "olmo3"):
            q, k = layer["q_norm"](q), layer["k_norm"](k)
        return q, k, layer["v_norm"](v)

    def attention(self, layer, x, first=0):
        """Attention of the rows from `first` on."""
        q, k, v = self.projections(layer, x)
        count, (kv_heads, head_dim) = len(x), layer["heads_of"]
        if layer["rotated"]:
            q = self.rope(q, 0, layer["window"])
        if "source" in layer:
            k, v = layer["source"]["kept"]
        elif layer["rotated"]:
            k = self.rope(k, 0, layer["window"])
        layer["kept"] = k, v
        q = q * late_gain(self.config, np.arange(count)).astype(self.dtype)[:, None, None]
        out = np.empty((count, self.heads, head_dim), self.dtype)
        share = self.heads // kv_heads
        for head in range(self.heads):
            out[:, head] = causal_attention(q[:, head], k[:, head // share], v[:, head // share], layer["window"], first=first,
                                            scale=self.scale, bound=self.config.get("attn_logit_softcapping"),
                                            sink=layer["sinks"][head] if "sinks" in layer else None)
        return layer["o_proj"](out.reshape(count, -1)[first:])

    def hidden(self, tokens, last=None):
        """Normalized hidden states (tokens, hidden_size) of one sequence that starts at position 0. With `last`, those of the last tokens
        only, which spares the last layer its other rows."""
        x = self.embedding.rows(np.asarray(tokens)).astype(self.dtype) * self.dtype.type(self.embedding_factor)
        factor = self.dtype.type(self.config.get("residual_multiplier", 1.0))
        if self.inputs:
            shape = (len(x), len(self.layers), self.inputs)
            projected = self.input_norm((self.input_projection(x) * self.dtype.type(x.shape[-1] ** -0.5)).reshape(shape))
            rows = self.input_table.rows(np.asarray(tokens)).astype(self.dtype).reshape(shape) * self.dtype.type(self.inputs**0.5)
            inputs = (projected + rows) * self.dtype.type(2**-0.5)
        for layer in self.layers:
            first = len(x) - last if last and layer is self.layers[-1] else 0
            attended = self.attention(layer, layer["input_norm"](x), first)
            x = x[first:] + factor * layer["attention_output_norm"](attended)
            x = x + factor * layer["mlp_output_norm"](self.mlp(layer, x))
            if self.inputs:
                gated = self.activation(layer["per_layer_input_gate"](x)) * inputs[first:, layer["number"]]
                x = x + layer["input_norm_behind"](layer["per_layer_projection"](gated))
            x = x * layer["scalar"]
        return self.norm(x)

    def logits(self, tokens, last=None):
        """(tokens, vocab_size), or (last, vocab_size)."""
        logits = self.head(self.hidden(tokens, last)) / self.dtype.type(self.config.get("logits_scaling", 1.0))
        return soft_cap(logits, self.config.get("final_logit_softcapping"))
