# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LFM2: in layers of the kind "conv" a gated short convolution in the place of attention, out(C * convolution(B * x)); in the others attention
with RMSNorms of every head of q and k. With experts, LFM2-MoE. Tensor names and layouts are those of a Hugging Face checkpoint."""

import numpy as np

from .experts import Experts
from .gates import silu
from .llama import causal_attention, rms_norm
from .rope import rotations
from .schemes import FLOAT


def convolution(x, weight, bias=None):
    """Along the tokens of one sequence, each column by itself, zeros before the first: weight is (columns, 1, width)."""
    weight = weight[:, 0]
    width = weight.shape[1]
    padded = np.concatenate([np.zeros((width - 1, x.shape[1]), x.dtype), x])
    result = sum(padded[i:i + len(x)] * weight[:, i] for i in range(width))
    return result if bias is None else result + bias


class Lfm2:
    """config: as in config.json. tensors: name to array. dtype: that of all arithmetic."""

    def __init__(self, config, tensors, scheme=FLOAT, dtype=np.float32):
        self.config, self.tensors, self.scheme, self.dtype = config, tensors, scheme, np.dtype(dtype)
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = config["hidden_size"] // self.heads
        embedding = tensors["model.embed_tokens.weight"]
        tied = "lm_head.weight" not in tensors
        self.head = scheme.head(embedding if tied else tensors["lm_head.weight"], self.dtype)
        self.embedding = self.head if tied else scheme.table(embedding, self.dtype)
        self.linears = {name.removesuffix(".weight"): scheme.linear(tensors[name], self.dtype) for name in tensors
                        if "layers" in name and name.endswith(".weight") and np.ndim(tensors[name]) == 2}

    def vector(self, name):
        return np.asarray(self.tensors[name], self.dtype)

    def norm(self, name, x):
        return rms_norm(x, self.vector(name + ".weight"), self.config["norm_eps"])

    def linear(self, name, x):
        bias = self.vector(name + ".bias") if name + ".bias" in self.tensors else 0
        return self.linears[name](x) + bias

    def rope(self, x):
        half = self.head_dim // 2
        cos, sin = (part.astype(self.dtype)[:, None] for part in rotations(self.config, self.head_dim, 0, len(x), None))
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def attention(self, at, x):
        q, k, v = (self.linear(f"{at}self_attn.{name}_proj", x).reshape(len(x), -1, self.head_dim) for name in "qkv")
        q, k = (self.rope(self.norm(f"{at}self_attn.{name}_layernorm", rows)) for name, rows in (("q", q), ("k", k)))
        share = self.heads // self.kv_heads
        out = [causal_attention(q[:, head], k[:, head // share], v[:, head // share]) for head in range(self.heads)]
        return self.linear(at + "self_attn.out_proj", np.concatenate(out, axis=-1))

    def convolved(self, at, x):
        gate, after, rows = np.split(self.linear(at + "conv.in_proj", x), 3, axis=-1)
        bias = self.vector(at + "conv.conv.bias") if at + "conv.conv.bias" in self.tensors else None
        return self.linear(at + "conv.out_proj", after * convolution(gate * rows, self.vector(at + "conv.conv.weight"), bias))

    def mlp(self, layer, at, rows):
        if layer >= self.config.get("num_dense_layers", len(self.config["layer_types"])):
            return Experts(self.config, at, self.linears.__getitem__, self.vector)(rows)
        return self.linear(at + "feed_forward.w2", silu(self.linear(at + "feed_forward.w1", rows)) * self.linear(at + "feed_forward.w3", rows))

    def logits(self, tokens):
        x = self.embedding.rows(np.asarray(tokens)).astype(self.dtype)
        for layer, kind in enumerate(self.config["layer_types"]):
            at = f"model.layers.{layer}."
            rows = self.norm(at + "operator_norm", x)
            x = x + (self.convolved(at, rows) if kind == "conv" else self.attention(at, rows))
            rows = self.norm(at + "ffn_norm", x)
            x = x + self.mlp(layer, at, rows)
        return self.head(self.norm("model.embedding_norm", x))
