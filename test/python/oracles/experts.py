# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A mixture of experts in place of an MLP: softmax over all experts, the greatest of them, in mixtral and where norm_topk_prob says so made to
sum to 1. The router is float whatever the scheme."""

import numpy as np

NAMES = {"qwen3_moe": ("mlp.gate", "mlp.experts", ("gate_proj", "up_proj", "down_proj")),
         "mixtral": ("block_sparse_moe.gate", "block_sparse_moe.experts", ("w1", "w3", "w2"))}  # fmt: skip


def silu(x):
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


class Experts:
    """linear(site): the linear of a site under the scheme. vector(name): a tensor."""

    def __init__(self, config, at, linear, vector):
        router, experts, parts = NAMES[config["model_type"]]
        self.router = vector(f"{at}{router}.weight")
        self.chosen = config["num_experts_per_tok"]
        self.renormalizes = config["model_type"] == "mixtral" or config.get("norm_topk_prob", False)
        self.experts = [[linear(f"{at}{experts}.{expert}.{part}") for part in parts] for expert in range(len(self.router))]

    def choose(self, rows):
        """(experts, weights) of each row, the greatest first."""
        logits = rows @ self.router.T
        order = np.argsort(-logits, axis=1, kind="stable")[:, : self.chosen]
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        weights = np.take_along_axis(scores, order, axis=1)
        return order, weights / weights.sum(axis=1, keepdims=True) if self.renormalizes else weights

    def __call__(self, rows):
        order, weights = self.choose(rows)
        out = np.zeros_like(rows)
        for expert, (gate, up, down) in enumerate(self.experts):
            at, choice = np.nonzero(order == expert)
            if len(at):
                given = rows[at]
                out[at] += weights[at, choice, None] * down(silu(gate(given)) * up(given))
        return out
