# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gpt2 architecture: LayerNorm, learned positions, fused qkv, tanh GELU, biases, head tied to the embedding. Conv1D
weights are stored (in, out). Names may carry the prefix "transformer."."""

import numpy as np

from .llama import causal_attention
from .schemes import FLOAT, rotate_from


def layer_norm(x, weight, bias, epsilon):
    mean = x.mean(axis=-1, keepdims=True)
    centred = x - mean
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + x.dtype.type(epsilon)) * weight + bias


def gelu_new(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x * x * x)))


class GPT2:
    """config: as in config.json. tensors: name to array. The head stays in float unless the scheme has head bits."""

    def __init__(self, config, tensors, scheme=FLOAT, dtype=np.float32):
        self.dtype = np.dtype(dtype)
        self.heads, self.epsilon = config["n_head"], config["layer_norm_epsilon"]
        tensors = {name.removeprefix("transformer."): value for name, value in tensors.items()}

        def vector(name):
            return np.asarray(tensors[name], self.dtype)

        self.head = self.embedding = scheme.head(tensors["wte.weight"], self.dtype)
        self.positions = vector("wpe.weight")
        self.final = vector("ln_f.weight"), vector("ln_f.bias")
        self.blocks = []
        width = tensors["wte.weight"].shape[1]
        values = scheme.value_block(width // self.heads)
        bases = {"attn.c_attn": {"out_block": values, "first_out": 2 * width}, "attn.c_proj": {"hadamard": values, "rotated": True}} if values else {}
        for index in range(config["n_layer"]):
            at = f"h.{index}."
            block = {name: (vector(at + name + ".weight"), vector(at + name + ".bias")) for name in ("ln_1", "ln_2")}
            for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
                weight = np.ascontiguousarray(tensors[at + name + ".weight"].T)
                bias = vector(at + name + ".bias")
                if values and name == "attn.c_attn":
                    bias = rotate_from(2 * width, bias, values)
                block[name] = scheme.linear(weight, self.dtype, **bases.get(name, {})), bias
            self.blocks.append(block)

    @staticmethod
    def affine(linear, x):
        weight, bias = linear
        return weight(x) + bias

    def attention(self, block, x):
        size = x.shape[1] // self.heads
        q, k, v = np.split(self.affine(block["attn.c_attn"], x), 3, axis=-1)
        out = np.empty_like(x)
        for head in range(self.heads):
            at = slice(head * size, (head + 1) * size)
            out[:, at] = causal_attention(q[:, at], k[:, at], v[:, at])
        return self.affine(block["attn.c_proj"], out)

    def hidden(self, tokens):
        tokens = np.asarray(tokens)
        x = (self.embedding.rows(tokens) + self.positions[: len(tokens)]).astype(self.dtype)
        for block in self.blocks:
            x = x + self.attention(block, layer_norm(x, *block["ln_1"], self.epsilon))
            y = gelu_new(self.affine(block["mlp.c_fc"], layer_norm(x, *block["ln_2"], self.epsilon)))
            x = x + self.affine(block["mlp.c_proj"], y)
        return layer_norm(x, *self.final, self.epsilon)

    def logits(self, tokens):
        """(tokens, vocab_size)."""
        return self.head(self.hidden(tokens))
