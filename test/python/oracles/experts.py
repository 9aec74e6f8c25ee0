# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A mixture of experts in place of an MLP: softmax over all experts, the greatest of them, in mixtral and where norm_topk_prob says so made to
sum to 1; in gemma4_text so, too, and times a number of the expert; in gpt_oss the greatest first, and softmax over these; in lfm2_moe sigmoids, of which a bias chooses. The router is float whatever the
scheme."""

import numpy as np

from .gates import clamped, gelu, sigmoid, silu

# Router, experts, and gate, up and down of an expert.
NAMES = {"qwen3_moe": ("mlp.gate", "mlp.experts", ("gate_proj", "up_proj", "down_proj")),
         "qwen2_moe": ("mlp.gate", "mlp.experts", ("gate_proj", "up_proj", "down_proj")),
         "qwen3_5_moe_text": ("mlp.gate", "mlp.experts", ("gate_proj", "up_proj", "down_proj")),
         "gemma4_text": ("router.proj", "experts", ("gate_proj", "up_proj", "down_proj")),
         "gpt_oss": ("mlp.router", "mlp.experts", ("gate_proj", "up_proj", "down_proj")),
         "lfm2_moe": ("feed_forward.gate", "feed_forward.experts", ("w1", "w3", "w2")),
         "mixtral": ("block_sparse_moe.gate", "block_sparse_moe.experts", ("w1", "w3", "w2"))}  # fmt: skip


# The values of FP4 (OCP Microscaling Formats 1.0).
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def mxfp4(blocks, scales):
    """(E, N, K) of blocks (E, N, K / 32, 16), whose bytes have their first number in the lower nibble, and powers of two."""
    values = np.stack([FP4[blocks & 15], FP4[blocks >> 4]], axis=-1).reshape(*blocks.shape[:-1], 32)
    return np.ldexp(values, scales[..., None].astype(int) - 127).reshape(*blocks.shape[:2], -1)


def unstacked(config, tensors):
    """The tensors of gpt_oss with those of each expert apart, as other models have them."""
    result = {}
    for name, tensor in tensors.items():
        if ".experts." not in name or name.endswith((".weight", ".bias")):  # apart already
            result[name] = tensor
            continue
        if name.endswith("_scales"):
            continue
        if name.endswith("_blocks"):
            tensor = mxfp4(tensor, tensors[name.replace("_blocks", "_scales")])
        elif not name.endswith("_bias"):
            tensor = np.swapaxes(tensor, 1, 2)
        site, kind = name.removesuffix("_blocks").removesuffix("_bias"), "bias" if name.endswith("_bias") else "weight"
        at, module = site.rsplit(".", 1)
        parts = {"down_proj": tensor} if module == "down_proj" else {"gate_proj": tensor[:, ::2], "up_proj": tensor[:, 1::2]}
        result |= {f"{at}.{expert}.{part}.{kind}": rows[expert] for part, rows in parts.items() for expert in range(len(rows))}
    return result


def apart(tensors):
    """The tensors of qwen3_5_moe and gemma4_text with those of each expert apart. Their stacks are E x N x K, the rows of gate before those of up."""
    result = {}
    for name, tensor in tensors.items():
        at, _, module = name.rpartition(".experts.")
        if not at or module[0].isdigit():
            result[name] = tensor
            continue
        parts = zip(("gate_proj", "up_proj"), np.split(tensor, 2, axis=1)) if module == "gate_up_proj" else ((module, tensor),)
        result |= {f"{at}.experts.{expert}.{part}.weight": rows[expert] for part, rows in parts for expert in range(len(rows))}
    return result


class Experts:
    """linear(site): the linear of a site under the scheme. vector(name): a tensor."""

    def __init__(self, config, at, linear, vector):
        kind = config["model_type"]
        router, experts, parts = NAMES[kind]
        self.router = vector(f"{at}{router}.weight")
        self.bias = vector(f"{at}{router}.bias") if kind == "gpt_oss" else 0
        self.chosen = config["top_k_experts" if kind == "gemma4_text" else "num_experts_per_tok"]
        self.factors = vector(f"{at}router.per_expert_scale") if kind == "gemma4_text" else np.ones(len(self.router), self.router.dtype)
        self.chooses_first = kind == "gpt_oss"
        self.sigmoid, self.scale = kind == "lfm2_moe", config.get("routed_scaling_factor", 1.0)
        self.choice_bias = vector(f"{at}feed_forward.expert_bias") if config.get("use_expert_bias") else 0
        self.renormalizes = kind in ("mixtral", "qwen3_5_moe_text", "gemma4_text") or config.get("norm_topk_prob", False)
        activation = gelu if kind == "gemma4_text" else silu
        self.activated = clamped if kind == "gpt_oss" else lambda gate, up: activation(gate) * up
        self.experts = [[linear(f"{at}{experts}.{expert}.{part}") for part in parts] for expert in range(len(self.router))]
        self.shared = None
        if kind in ("qwen2_moe", "qwen3_5_moe_text"):
            self.shared = [linear(f"{at}mlp.shared_expert.{part}") for part in parts]
            self.shared_gate = vector(f"{at}mlp.shared_expert_gate.weight")

    def choose(self, rows):
        """(experts, weights) of each row, the greatest first."""
        logits = rows @ self.router.T + self.bias
        if self.sigmoid:
            scores = sigmoid(logits)
            order = np.argsort(-(scores + self.choice_bias), axis=1, kind="stable")[:, : self.chosen]
            weights = np.take_along_axis(scores, order, axis=1)
            return order, self.scale * (weights / (weights.sum(axis=1, keepdims=True) + 1e-6) if self.renormalizes else weights)
        order = np.argsort(-logits, axis=1, kind="stable")[:, : self.chosen]
        if self.chooses_first:
            scores = np.exp(np.take_along_axis(logits, order, axis=1))
            return order, scores / scores.sum(axis=1, keepdims=True)
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        weights = np.take_along_axis(scores, order, axis=1)
        return order, self.factors[order] * (weights / weights.sum(axis=1, keepdims=True) if self.renormalizes else weights)

    def __call__(self, rows, routed=None):
        """routed: what the router reads, if it is something else."""
        order, weights = self.choose(rows if routed is None else routed)
        out = np.zeros_like(rows)
        for expert, (gate, up, down) in enumerate(self.experts):
            at, choice = np.nonzero(order == expert)
            if len(at):
                given = rows[at]
                out[at] += weights[at, choice, None] * down(self.activated(gate(given), up(given)))
        if self.shared:
            gate, up, down = self.shared
            out += sigmoid(rows @ self.shared_gate.T) * down(silu(gate(rows)) * up(rows))
        return out


def rows_of_experts(run, samples, skip=0):
    """What the linears of each expert read while run(sample) takes each sample through a model: {site: a list of one matrix an expert}, without the
    first `skip` tokens of each sample."""
    seen = {}
    begin, call = Experts.__init__, Experts.__call__

    def remember(self, config, at, *rest):
        begin(self, config, at, *rest)
        _, experts, self.parts = NAMES[config["model_type"]]
        self.site = f"{at}{experts}."

    def record(self, rows, routed=None):
        order, _ = self.choose(rows if routed is None else routed)
        for expert, (gate, up, _) in enumerate(self.experts):
            tokens = np.nonzero((order == expert).any(axis=1))[0]
            given = rows[tokens[tokens >= skip]]
            for part, read in zip(self.parts, (given, given, self.activated(gate(given), up(given)))):
                seen.setdefault(self.site + part, [[] for _ in self.experts])[expert].append(read)
        return call(self, rows, routed)

    Experts.__init__, Experts.__call__ = remember, record
    try:
        for sample in samples:
            run(sample)
    finally:
        Experts.__init__, Experts.__call__ = begin, call
    return {site: [np.concatenate(parts) for parts in experts] for site, experts in seen.items()}
