# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A llama that is decoded token by token over a quantized KV cache (SimQuant): keys per channel in groups of tokens, values per
token, a window of the newest tokens and the first ones in float."""

import numpy as np

from .llama import Llama
from .schemes import block_of, rotate


def quantized(x, bits, axis):
    """Asymmetric, elements along `axis` sharing minimum and scale; dequantized again."""
    low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
    scale = (high - low) / (2**bits - 1)
    scale = np.where(high == low, 1, scale)
    return low + scale * np.clip(np.rint((x - low) / scale), 0, 2**bits - 1)


class QuantizedCacheLlama(Llama):
    """kv: bits, group, residual, sinks, pre_rope, keys_per_token; hadamard: keys per token behind H over the columns of their heads, which
    queries are, too."""

    def __init__(self, *args, kv, **kwargs):
        super().__init__(*args, **kwargs)
        self.kv = kv

    def past_keys(self, k):
        """All tokens' keys (tokens, heads, d) as codes give them; only whole blocks behind the sinks are ever asked for."""
        out, count = k.copy(), len(k)
        width = min(self.kv["group"], k.shape[-1])
        for start in range(self.kv["sinks"], count - self.kv["group"] + 1, self.kv["group"]):
            block = k[start:start + self.kv["group"]]
            if self.kv.get("keys_per_token") or self.kv.get("hadamard"):
                parts = block.reshape(*block.shape[:2], -1, width)
                out[start:start + self.kv["group"]] = quantized(parts, self.kv["bits"], -1).reshape(block.shape)
            else:
                out[start:start + self.kv["group"]] = quantized(block, self.kv["bits"], 0)
        return out

    def past_values(self, v):
        parts = v.reshape(*v.shape[:2], -1, min(self.kv["group"], v.shape[-1]))
        return quantized(parts, self.kv["bits"], -1).reshape(v.shape)

    def attention(self, layer, x, first=0):
        window, (kv_heads, head_dim) = layer["window"], layer["heads_of"]
        count, share = len(x), self.heads // kv_heads
        q, k, v = self.projections(layer, x)
        q = self.rope(q, 0, window)
        if self.kv.get("pre_rope"):
            coded, k = self.rope(self.past_keys(k), 0, window), self.rope(k, 0, window)
        else:
            k = self.rope(k, 0, window)
            if self.kv.get("hadamard"):
                q, k = (rotate(x, block_of(head_dim, 512)) for x in (q, k))
            coded = self.past_keys(k)
        coded_values = self.past_values(v)
        sinks, residual = self.kv["sinks"], self.kv["residual"]
        out = np.empty((count, self.heads, head_dim), self.dtype)
        token = np.arange(count)
        for t in range(count):
            key_codes = (token >= sinks) & (token < sinks + max(t - sinks, 0) // residual * residual)
            value_codes = (token >= sinks) & (token < t + 1 - residual)
            seen = slice(max(0, t + 1 - window) if window else 0, t + 1)
            keys = np.where(key_codes[:, None, None], coded, k)[seen]
            values = np.where(value_codes[:, None, None], coded_values, v)[seen]
            for head in range(self.heads):
                scores = keys[:, head // share] @ q[t, head] * self.dtype.type(self.scale or head_dim**-0.5)
                weights = np.exp(scores - scores.max())
                out[t, head] = weights @ values[:, head // share] / weights.sum()
        return layer["o_proj"](out.reshape(count, -1)[first:])
