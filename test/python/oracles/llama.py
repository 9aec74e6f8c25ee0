# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The llama architecture: RMSNorm, rotary positions (a dimension pairs with the one half a head away), grouped-query
attention, SwiGLU, optionally tied head. Tensor names and layouts are those of a Hugging Face checkpoint."""

import numpy as np

from .schemes import FLOAT


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(epsilon)) * weight


def silu(x):
    with np.errstate(over="ignore"):  # exp of a large number: the quotient is then 0, as it should be
        return x / (1 + np.exp(-x))


def causal_attention(q, k, v, rows=256):
    """softmax(q k^T / sqrt(d)) v of one head, each token seeing itself and what came before; all are (tokens, d).

    Blocks of rows meet only the keys that they may see, which halves the work and bounds the memory.
    """
    q = q * q.dtype.type(q.shape[-1] ** -0.5)
    out = np.empty_like(v, shape=(len(q), v.shape[-1]))
    for start in range(0, len(q), rows):
        stop = min(start + rows, len(q))
        scores = q[start:stop] @ k[:stop].T
        own = scores[:, start:stop]
        own[~np.tri(stop - start, dtype=bool)] = -np.inf
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        out[start:stop] = (scores @ v[:stop]) / scores.sum(axis=-1, keepdims=True)
    return out


class Llama:
    """config: as in config.json. tensors: name to array. dtype: that of all arithmetic (float32 or float64)."""

    def __init__(self, config, tensors, scheme=FLOAT, dtype=np.float32):
        self.dtype = np.dtype(dtype)
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads
        self.epsilon = config["rms_norm_eps"]
        self.theta = config.get("rope_theta") or 10000.0
        self.vocab_size = config["vocab_size"]

        def vector(name):
            return np.asarray(tensors[name], self.dtype)

        def linear(name):
            return scheme.linear(tensors[name + ".weight"], self.dtype)

        embedding = tensors["model.embed_tokens.weight"]
        tied = config.get("tie_word_embeddings", "lm_head.weight" not in tensors)
        self.head = scheme.head(embedding if tied else tensors["lm_head.weight"], self.dtype)
        self.embedding = self.head if tied else scheme.head(embedding, self.dtype)
        self.norm = vector("model.norm.weight")
        self.layers = []
        for index in range(config["num_hidden_layers"]):
            at = f"model.layers.{index}."
            layer = {name: linear(at + "self_attn." + name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
            layer |= {name: linear(at + "mlp." + name) for name in ("gate_proj", "up_proj", "down_proj")}
            layer["input_norm"] = vector(at + "input_layernorm.weight")
            layer["post_norm"] = vector(at + "post_attention_layernorm.weight")
            self.layers.append(layer)

    def rope(self, x, position):
        """x: (tokens, heads, head_dim)."""
        half = self.head_dim // 2
        frequency = self.theta ** (-np.arange(half, dtype=np.float64) / half)
        angle = (position + np.arange(len(x), dtype=np.float64))[:, None] * frequency
        cos, sin = np.cos(angle).astype(self.dtype)[:, None], np.sin(angle).astype(self.dtype)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def attention(self, layer, x):
        count = len(x)
        q = self.rope(layer["q_proj"](x).reshape(count, self.heads, self.head_dim), 0)
        k = self.rope(layer["k_proj"](x).reshape(count, self.kv_heads, self.head_dim), 0)
        v = layer["v_proj"](x).reshape(count, self.kv_heads, self.head_dim)
        out = np.empty((count, self.heads, self.head_dim), self.dtype)
        share = self.heads // self.kv_heads
        for head in range(self.heads):
            out[:, head] = causal_attention(q[:, head], k[:, head // share], v[:, head // share])
        return layer["o_proj"](out.reshape(count, -1))

    def hidden(self, tokens):
        """Normalized hidden states (tokens, hidden_size) of one sequence that starts at position 0."""
        x = self.embedding.rows(np.asarray(tokens)).astype(self.dtype)
        for layer in self.layers:
            x = x + self.attention(layer, rms_norm(x, layer["input_norm"], self.epsilon))
            y = rms_norm(x, layer["post_norm"], self.epsilon)
            x = x + layer["down_proj"](silu(layer["gate_proj"](y)) * layer["up_proj"](y))
        return rms_norm(x, self.norm, self.epsilon)

    def logits(self, tokens):
        """(tokens, vocab_size)."""
        return self.head(self.hidden(tokens))
