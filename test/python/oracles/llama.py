# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The llama architecture: RMSNorm, rotary positions (a dimension pairs with the one half a head away), grouped-query
attention, SwiGLU, optionally tied head; and its descendants mistral (attention in a window), qwen2 (biases on q, k and v),
qwen3 (RMSNorm of every head of q and k), olmo2 (RMSNorm of all of q and of all of k; norms behind attention and MLP, none
before) and smollm3 (layers whose q and k are not rotated). Tensor names and layouts are those of a Hugging Face checkpoint."""

import numpy as np

from .rope import rotations
from .schemes import FLOAT, rotate


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(epsilon)) * weight


def silu(x):
    with np.errstate(over="ignore"):  # exp of a large number: the quotient is then 0, as it should be
        return x / (1 + np.exp(-x))


def causal_attention(q, k, v, window=None, rows=256, first=0):
    """softmax(q k^T / sqrt(d)) v of one head, each token seeing itself and what came before; all are (tokens, d).

    With a window, only so many tokens, itself included. Rows before `first` are not computed. Blocks of rows meet only the
    keys that they may see, which halves the work and bounds the memory.
    """
    q = q * q.dtype.type(q.shape[-1] ** -0.5)
    out = np.empty_like(v, shape=(len(q), v.shape[-1]))
    for start in range(first, len(q), rows):
        stop = min(start + rows, len(q))
        oldest = max(0, start + 1 - window) if window else 0
        scores = q[start:stop] @ k[oldest:stop].T
        age = np.arange(start, stop)[:, None] - np.arange(oldest, stop)
        scores[(age < 0) | (age >= (window or stop))] = -np.inf
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        out[start:stop] = (scores @ v[oldest:stop]) / scores.sum(axis=-1, keepdims=True)
    return out


def window_of(config, layer):
    """Tokens that a layer's attention sees, itself included; None: all."""
    kind = config["model_type"]
    if kind == "mistral":
        return config["sliding_window"]
    if not kind.startswith("qwen") or not config.get("use_sliding_window"):
        return None
    if types := config.get("layer_types"):
        return config["sliding_window"] if types[layer] == "sliding_attention" else None
    return config["sliding_window"] if layer >= config["max_window_layers"] else None


def is_rotated(config, layer):
    if config["model_type"] != "smollm3":
        return True
    if listed := config.get("no_rope_layers"):
        return listed[layer] == 1
    return (layer + 1) % config.get("no_rope_layer_interval", 4) != 0


class Llama:
    """config: as in config.json. tensors: name to array. dtype: that of all arithmetic (float32 or float64)."""

    def __init__(self, config, tensors, scheme=FLOAT, dtype=np.float32):
        self.dtype = np.dtype(dtype)
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads
        self.epsilon = config["rms_norm_eps"]
        self.config = config
        self.vocab_size = config["vocab_size"]

        def vector(name):
            return np.asarray(tensors[name], self.dtype)

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
        self.norm = vector("model.norm.weight")
        self.layers = []
        for index in range(config["num_hidden_layers"]):
            at = f"model.layers.{index}."
            layer = {name: linear(at + "self_attn." + name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
            layer |= {name: linear(at + "mlp." + name) for name in ("gate_proj", "up_proj", "down_proj")}
            kind = config["model_type"]
            layer["post_norm"] = vector(at + "post_attention_layernorm.weight")
            if kind == "olmo2":
                layer["post_mlp_norm"] = vector(at + "post_feedforward_layernorm.weight")
            else:
                layer["input_norm"] = vector(at + "input_layernorm.weight")
            for name in ("q_norm", "k_norm"):
                layer[name] = vector(f"{at}self_attn.{name}.weight") if kind in ("qwen3", "olmo2") else None
            layer["window"], layer["rotated"] = window_of(config, index), is_rotated(config, index)
            self.layers.append(layer)

    def rope(self, x, position):
        """x: (tokens, heads, head_dim)."""
        half = self.head_dim // 2
        cos, sin = (part.astype(self.dtype)[:, None] for part in rotations(self.config, self.head_dim, position, len(x)))
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def attention(self, layer, x, first=0):
        """Attention of the rows from `first` on."""
        count = len(x)
        q, k = layer["q_proj"](x), layer["k_proj"](x)
        if self.config["model_type"] == "olmo2":
            q, k = rms_norm(q, layer["q_norm"], self.epsilon), rms_norm(k, layer["k_norm"], self.epsilon)
        q, k = q.reshape(count, self.heads, self.head_dim), k.reshape(count, self.kv_heads, self.head_dim)
        if self.config["model_type"] == "qwen3":
            q, k = rms_norm(q, layer["q_norm"], self.epsilon), rms_norm(k, layer["k_norm"], self.epsilon)
        if layer["rotated"]:
            q, k = self.rope(q, 0), self.rope(k, 0)
        v = layer["v_proj"](x).reshape(count, self.kv_heads, self.head_dim)
        out = np.empty((count, self.heads, self.head_dim), self.dtype)
        share = self.heads // self.kv_heads
        for head in range(self.heads):
            out[:, head] = causal_attention(q[:, head], k[:, head // share], v[:, head // share], layer["window"], first=first)
        return layer["o_proj"](out.reshape(count, -1)[first:])

    def hidden(self, tokens, last=None):
        """Normalized hidden states (tokens, hidden_size) of one sequence that starts at position 0. With `last`, those of the last tokens
        only, which spares the last layer its other rows."""
        x = self.embedding.rows(np.asarray(tokens)).astype(self.dtype)
        for layer in self.layers:
            first = len(x) - last if last and layer is self.layers[-1] else 0
            def norm(rows, name, layer=layer):
                return rms_norm(rows, layer[name], self.epsilon)

            def mlp(rows, layer=layer):
                return layer["down_proj"](silu(layer["gate_proj"](rows)) * layer["up_proj"](rows))

            if self.config["model_type"] == "olmo2":
                x = x[first:] + norm(self.attention(layer, x, first), "post_norm")
                x = x + norm(mlp(x), "post_mlp_norm")
            else:
                x = x[first:] + self.attention(layer, norm(x, "input_norm"), first)
                x = x + mlp(norm(x, "post_norm"))
        return rms_norm(x, self.norm, self.epsilon)

    def logits(self, tokens, last=None):
        """(tokens, vocab_size), or (last, vocab_size)."""
        return self.head(self.hidden(tokens, last))
