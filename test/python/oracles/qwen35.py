# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text part of Qwen3.5: in layers of the kind "linear_attention" a gated delta net (Yang et al., 2025), token by token as the paper has it;
in the others attention whose results are gated, a part of each head rotated. Norms are of 1 + w, but for that of the delta net. Tensor names
and layouts are those of a Hugging Face checkpoint, whose q_proj has the gates of a head behind its queries, and which has the value heads of a
key head side by side. With experts in place of the MLPs, the text part of Qwen3.5-MoE. What `mtp.` begins is the head that drafts."""

import numpy as np

from .experts import Experts, apart
from .gates import sigmoid, silu
from .lfm2 import convolution
from .llama import causal_attention, rms_norm
from .rope import rotations
from .schemes import FLOAT

FLOATS = ("in_proj_a", "in_proj_b", "conv1d", "mlp.gate.", "shared_expert_gate")  # whatever the scheme


def unit(x):
    """Rows of length 1."""
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


def recurrence(q, k, v, decay, strength):
    """One head: q and k are (tokens, d_k), v (tokens, d_v), decay (below 1) and strength a number each."""
    state = np.zeros((k.shape[1], v.shape[1]), q.dtype)
    out = np.empty_like(v)
    for t in range(len(q)):
        state = decay[t] * state
        state = state + np.outer(k[t], strength[t] * (v[t] - state.T @ k[t]))
        out[t] = state.T @ q[t]
    return out


class Qwen35:
    """config: as in config.json. tensors: name to array. dtype: that of all arithmetic."""

    def __init__(self, config, tensors, scheme=FLOAT, dtype=np.float32):
        self.config, self.tensors, self.dtype = config, (tensors := apart(tensors)), np.dtype(dtype)
        self.heads, self.kv_heads, self.head_dim = (config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        self.rope_config = config | (config.get("rope_parameters") or {})
        self.rotated = int(self.head_dim * self.rope_config.get("partial_rotary_factor", 0.25))
        embedding = tensors["model.embed_tokens.weight"]
        tied = "lm_head.weight" not in tensors
        self.head = scheme.head(embedding if tied else tensors["lm_head.weight"], self.dtype)
        self.embedding = self.head if tied else scheme.table(embedding, self.dtype)
        self.linears = {name.removesuffix(".weight"): (FLOAT if any(part in name for part in FLOATS) else scheme).linear(tensors[name], self.dtype)
                        for name in tensors if ("layers" in name or "mtp.fc" in name) and name.endswith(".weight") and np.ndim(tensors[name]) == 2}

    def vector(self, name):
        return np.asarray(self.tensors[name], self.dtype)

    def norm(self, name, x):
        return rms_norm(x, 1 + self.vector(name + ".weight"), self.config["rms_norm_eps"])

    def linear(self, name, x):
        return self.linears[name](x) + (self.vector(name + ".bias") if name + ".bias" in self.tensors else 0)

    def rope(self, x):
        half = self.rotated // 2
        parameters = {key: self.rope_config[key] for key in ("rope_theta", "max_position_embeddings")}
        cos, sin = (part.astype(self.dtype)[:, None] for part in rotations(parameters, self.rotated, 0, len(x), None))
        a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)

    def attention(self, at, x):
        q, gate = np.split(self.linear(at + "self_attn.q_proj", x).reshape(len(x), self.heads, -1), 2, axis=-1)
        k, v = (self.linear(f"{at}self_attn.{name}_proj", x).reshape(len(x), self.kv_heads, -1) for name in "kv")
        q, k = (self.rope(self.norm(f"{at}self_attn.{name}_norm", rows)) for name, rows in (("q", q), ("k", k)))
        share = self.heads // self.kv_heads
        out = np.stack([causal_attention(q[:, head], k[:, head // share], v[:, head // share]) for head in range(self.heads)], axis=1)
        return self.linear(at + "self_attn.o_proj", (out * sigmoid(gate)).reshape(len(x), -1))

    def delta(self, at, x):
        at += "linear_attn."
        key_heads, value_heads = self.config["linear_num_key_heads"], self.config["linear_num_value_heads"]
        keys = key_heads * self.config["linear_key_head_dim"]
        mixed = silu(convolution(self.linear(at + "in_proj_qkv", x), self.vector(at + "conv1d.weight")))
        q, k, v = (part.reshape(len(x), -1, part.shape[1] // heads)
                   for part, heads in zip(np.split(mixed, [keys, 2 * keys], axis=1), (key_heads, key_heads, value_heads)))
        q, k = unit(q) / np.sqrt(q.shape[-1]), unit(k)
        strength = sigmoid(self.linear(at + "in_proj_b", x))
        step = np.logaddexp(0, self.linear(at + "in_proj_a", x) + self.vector(at + "dt_bias"))
        decay = np.exp(-np.exp(self.vector(at + "A_log")) * step)
        share = value_heads // key_heads
        out = np.stack([recurrence(q[:, head // share], k[:, head // share], v[:, head], decay[:, head], strength[:, head])
                        for head in range(value_heads)], axis=1)
        normed = rms_norm(out, self.vector(at + "norm.weight"), self.config["rms_norm_eps"]).reshape(len(x), -1)
        return self.linear(at + "out_proj", normed * silu(self.linear(at + "in_proj_z", x)))

    def mlp(self, at, x):
        if "num_experts" in self.config:
            return Experts(self.config, at, lambda name: self.linears[name], self.vector)(x)
        return self.linear(at + "mlp.down_proj", silu(self.linear(at + "mlp.gate_proj", x)) * self.linear(at + "mlp.up_proj", x))

    def layer(self, at, kind, x):
        rows = self.norm(at + "input_layernorm", x)
        x = x + (self.delta(at, rows) if kind == "linear_attention" else self.attention(at, rows))
        return x + self.mlp(at, self.norm(at + "post_attention_layernorm", x))

    def embed(self, tokens):
        return self.embedding.rows(np.asarray(tokens)).astype(self.dtype)

    def hidden(self, tokens):
        """What the final norm gives."""
        x = self.embed(tokens)
        for layer, kind in enumerate(self.config["layer_types"]):
            x = self.layer(f"model.layers.{layer}.", kind, x)
        return self.norm("model.norm", x)

    def logits(self, tokens):
        return self.head(self.hidden(tokens))

    def draft(self, tokens, hidden):
        """What the head that drafts makes of tokens, each beside the state behind the token before it: the states that take the place of `hidden`."""
        beside = [self.norm("mtp.pre_fc_norm_embedding", self.embed(tokens)), self.norm("mtp.pre_fc_norm_hidden", hidden)]
        return self.norm("mtp.norm", self.layer("mtp.layers.0.", "full_attention", self.linear("mtp.fc", np.concatenate(beside, axis=1))))

    def guesses(self, tokens, token, count):
        """Logits of `count` tokens behind `token`, which is behind `tokens`, each for the likeliest ones before it."""
        rows, hidden, found = [*tokens[1:], token], self.hidden(tokens), []
        for _ in range(count):
            states = self.draft(rows, hidden)
            found.append(self.head(states)[-1])
            rows, hidden = [*rows, int(found[-1].argmax())], np.concatenate([hidden, states[-1:]])
        return np.array(found)
