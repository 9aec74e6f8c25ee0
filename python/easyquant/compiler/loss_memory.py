# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The memory that gathering the Hessians of the loss takes, said before anything runs."""

import re
from collections import defaultdict
from dataclasses import dataclass

from easyquant.support.errors import UserError
from easyquant.support.memory import available_bytes
from easyquant.terminal import console

FLOAT_BYTES = 4
# What the compiler takes without any method, as benchmarks/width.py measured it; its own pages are a part.
BASE_BYTES = 210e6
# Tokens whose logits are in memory (lib/Execution/LossGradients.cpp).
LOGIT_ROWS = 64
# Sums that are open at a time where samples are summed in a tree of eight shares: without samples held out, and with the last two shares held out.
SUMS, SUMS_WITH_HELD_OUT = 4, 5
# A program that runs forward and one that runs backward have the weights that they read.
PROGRAMS = 2


@dataclass(frozen=True)
class LossMemory:
    """Bytes, beside pages of mapped files: those of the model, and at the end those of the statistics."""

    text: str  # '16 x 512 tokens'
    states: float  # hidden states before every layer, and gradients behind the last one
    head: float  # weights of the output head, and logits
    layer: float  # weights of the largest layer, and what a sample leaves there for the way back
    hessians: float  # of that layer, in all the sums that are open
    file: float  # of statistics

    @classmethod
    def of(cls, sites: list[dict], model: dict, layer_floats: int, samples: int, length: int, rows: bool = True) -> "LossMemory":
        """`rows`: Hout and samples held out, too, which `hessian=loss` has no use for. `sites` and `layer_floats` are those of Plans."""
        layers: dict[str, list[dict]] = defaultdict(list)
        for site in sites:
            if number := re.search(r"\.(\d+)\.", site["name"]):
                layers[number[1]].append(site)
        squares = [sum(s["in_features"] ** 2 + (s["out_features"] ** 2 if rows else 0) for s in layer) for layer in layers.values()]
        widths = [sum(s["in_features"] + s["out_features"] for s in layer) for layer in layers.values()]
        hidden, vocabulary = model["hidden_size"], model["vocab_size"]
        return cls(
            f"{samples:,} x {length:,} tokens",
            states=FLOAT_BYTES * samples * length * hidden * (model["num_layers"] + 1),
            head=FLOAT_BYTES * (PROGRAMS * vocabulary * hidden + LOGIT_ROWS * vocabulary),
            layer=FLOAT_BYTES * (PROGRAMS * layer_floats + length * max(widths, default=0)),
            hessians=FLOAT_BYTES * max(squares, default=0) * min(SUMS_WITH_HELD_OUT if rows else SUMS, samples),
            file=FLOAT_BYTES * sum(squares),
        )  # fmt: skip

    @property
    def needed(self) -> float:
        return BASE_BYTES + self.states + max(self.head, self.layer + self.hessians)

    @property
    def parts(self) -> dict[str, float]:
        return {"hidden states before every layer": self.states, "the output head": self.head, "weights and activations of a layer": self.layer,
                "Hessians of a layer": self.hessians}  # fmt: skip

    def check(self) -> None:
        """Raises UserError where this machine has less."""
        available = available_bytes()
        if available is None or self.needed <= available:
            return
        raise UserError(
            f"the Hessians of the loss take about {console.human_bytes(self.needed)} of memory on {self.text}, of which hidden states before every layer are "
            f"{console.human_bytes(self.states)}; found {console.human_bytes(available)} available. "
            "Ask for fewer or shorter samples (--nsamples, --seqlen)"
        )  # fmt: skip
