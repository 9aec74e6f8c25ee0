# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every linear of a model reads: the rows of a float64 forward pass."""

import numpy as np

from .gpt2 import GPT2
from .llama import Llama


class Recorder:
    """A linear that remembers its inputs."""

    def __init__(self, linear, rows):
        self.linear, self.rows = linear, rows

    def __call__(self, x):
        self.rows.append(x)
        return self.linear(x)


def observe(config, tensors, samples):
    """{site: a list of one matrix (tokens, features) for each sample}."""
    seen = {}

    def record(linear, site):
        return Recorder(linear, seen.setdefault(site, []))

    if config["model_type"] == "gpt2":
        model = GPT2(config, tensors, dtype=np.float64)
        for index, block in enumerate(model.blocks):
            for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
                linear, bias = block[name]
                block[name] = record(linear, f"h.{index}.{name}"), bias
    else:
        model = Llama(config, tensors, dtype=np.float64)
        for index, layer in enumerate(model.layers):
            for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                         "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
                key = name.rpartition(".")[2]
                layer[key] = record(layer[key], f"model.layers.{index}.{name}")
    for sample in samples:
        seen.setdefault("lm_head", []).append(model.hidden(sample))
    return seen
