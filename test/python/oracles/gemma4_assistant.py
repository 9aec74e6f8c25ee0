# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The assistant of Gemma 4: a few layers that read the keys and values of the model that they draft for, all from one position. Tensor names are
those of a Hugging Face checkpoint. A query at position p sees the model's tokens before p, in layers with a window those behind p - W."""

import numpy as np

from .gates import gelu
from .llama import rms_norm
from .schemes import FLOAT


class Gemma4Assistant:
    """model: the Llama that it drafts for. config: as in config.json. tensors: name to array. The model's arithmetic."""

    def __init__(self, model, config, tensors, scheme=FLOAT):
        self.model, self.config, self.text, self.tensors, self.dtype = model, config, config["text_config"], tensors, model.dtype
        self.linears = {name.removesuffix(".weight"): (FLOAT if "centroids" in name else scheme).linear(tensors[name], self.dtype)
                        for name in tensors if name.endswith(".weight") and np.ndim(tensors[name]) == 2}
        self.head = self.linears["model.embed_tokens" if config.get("tie_word_embeddings", True) else "lm_head"]

    def norm(self, name, x):
        return rms_norm(x, np.asarray(self.tensors[name + ".weight"], self.dtype), self.text["rms_norm_eps"])

    def linear(self, name, x):
        bias = self.tensors.get(name + ".bias")
        return self.linears[name](x) + (0 if bias is None else np.asarray(bias, self.dtype))

    def source(self, windowed):
        """The last layer of the model that makes keys and values and has a window, or none."""
        return next(layer for layer in reversed(self.model.layers) if "source" not in layer and bool(layer["window"]) == windowed)

    def attention(self, at, kind, x, position):
        windowed = kind == "sliding_attention"
        source, heads = self.source(windowed), self.text["num_attention_heads"]
        keys, values = (kept[max(0, position - self.text["sliding_window"] + 1) if windowed else 0:position] for kept in source["kept"])
        kv_heads, head_dim = source["heads_of"]
        q = self.norm(at + "self_attn.q_norm", self.linear(at + "self_attn.q_proj", x).reshape(1, heads, head_dim))
        q = self.model.rope(q, position, source["window"])[0]
        out = np.empty((heads, head_dim), self.dtype)
        for head in range(heads):
            products = keys[:, head // (heads // kv_heads)] @ q[head]
            weights = np.exp(products - products.max())
            out[head] = weights / weights.sum() @ values[:, head // (heads // kv_heads)]
        return self.linear(at + "self_attn.o_proj", out.reshape(1, -1))

    def step(self, token, hidden, position):
        """Logits of what comes behind the token, and the state that takes the place of the model's for it; hidden: (1, columns of the model)."""
        embedded = self.model.embedding.rows(np.array([token])).astype(self.dtype) * self.dtype.type(self.model.embedding_factor)
        x = self.linear("pre_projection", np.concatenate([embedded, hidden], axis=1))
        for layer, kind in enumerate(self.text["layer_types"]):
            at = f"model.layers.{layer}."
            attended = self.attention(at, kind, self.norm(at + "input_layernorm", x), position)
            x = x + self.norm(at + "post_attention_layernorm", attended)
            rows = self.norm(at + "pre_feedforward_layernorm", x)
            inner = gelu(self.linear(at + "mlp.gate_proj", rows)) * self.linear(at + "mlp.up_proj", rows)
            x = x + self.norm(at + "post_feedforward_layernorm", self.linear(at + "mlp.down_proj", inner))
            x = x * np.asarray(self.tensors[at + "layer_scalar"], self.dtype)[0]
        x = self.norm("model.norm", x)
        return self.among_clusters(x, self.head(x)[0]), self.linear("post_projection", x)

    def among_clusters(self, x, logits):
        """Logits of the tokens in the best clusters, -inf for others."""
        if not self.config.get("use_ordered_embeddings"):
            return logits
        scores = self.linear("masked_embedding.centroids", x)[0]
        chosen = np.argsort(-scores, kind="stable")[:self.config["centroid_intermediate_top_k"]]
        tokens = self.tensors["masked_embedding.token_ordering"].reshape(len(scores), -1)[chosen].reshape(-1)
        masked = np.full_like(logits, -np.inf)
        masked[tokens] = logits[tokens]
        return masked

    def guesses(self, tokens, token, count):
        """Logits of `count` tokens behind `token`, which is behind `tokens`, each for the likeliest ones before it."""
        hidden, found = self.model.hidden(tokens)[-1:], []
        for _ in range(count):
            logits, hidden = self.step(token, hidden, len(tokens))
            token = int(logits.argmax())
            found.append(logits)
        return np.array(found)
