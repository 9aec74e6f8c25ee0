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
# Experts whose Hessians are in memory while they are rounded (lib/Methods/GptqByLoss.cpp), each four times: all samples have them, those held out, the others, and a factor.
EXPERTS_AT_A_TIME, PAIRS_OF_EXPERT = 8, 4
# A program that runs forward and one that runs backward have the weights that they read.
PROGRAMS = 2


def outputs_of(site: dict) -> int:
    """What a row gets: a site of experts has the rows of all of them."""
    return site["out_features"] // site.get("experts", 1)


def hessian_floats(site: dict, rows: bool) -> int:
    """What the Hessians of a site have, or those of one of its experts."""
    return site["in_features"] ** 2 + (outputs_of(site) ** 2 if rows else 0)


def kept_widths(experts: list[dict]) -> int:
    """Floats that a token leaves of what experts of a layer read and of gradients of what they give: those that read rows of tokens share them."""
    shared = {(site["in_features"], site["experts_per_row"]) for site in experts if site["input_rows"] == 1}
    own = [(site["in_features"], site["experts_per_row"]) for site in experts if site["input_rows"] != 1]
    given = [(outputs_of(site), site["experts_per_row"]) for site in experts]
    return sum(width * choices for width, choices in [*shared, *own, *given])


@dataclass(frozen=True)
class LossMemory:
    """Bytes, beside pages of mapped files: those of the model, and at the end those of the statistics."""

    text: str  # '16 x 512 tokens'
    states: float  # hidden states before every layer, and gradients behind the last one
    head: float  # weights of the output head, and logits
    layer: float  # weights of the largest layer, and what a sample leaves there for the way back
    hessians: float  # of that layer, in all the sums that are open; those of experts are not among them
    experts: float  # what all samples leave at experts of that layer, and Hessians: a few experts have them at a time, or all in what goes to the file
    file: float  # of statistics

    @classmethod
    def of(cls, sites: list[dict], model: dict, layer_floats: int, samples: int, length: int, rows: bool = True, to_file: bool = False) -> "LossMemory":
        """`rows`: Hout and samples held out, too, which `hessian=loss` has no use for. `to_file`: the Hessians of all experts of a layer are put together.
        `sites` and `layer_floats` are those of Plans."""
        layers: dict[str, list[dict]] = defaultdict(list)
        for site in sites:
            if number := re.search(r"\.(\d+)\.", site["name"]):
                layers[number[1]].append(site)
        sums = min(SUMS_WITH_HELD_OUT if rows else SUMS, samples)
        squares = [sum(hessian_floats(s, rows) for s in layer if "experts" not in s) for layer in layers.values()]
        # Rows of experts are in the program's memory, and copied out of it.
        widths = [sum((s["in_features"] + outputs_of(s)) * (2 * s["experts_per_row"] if "experts" in s else 1) for s in layer) for layer in layers.values()]
        mixtures = [experts for layer in layers.values() if (experts := [s for s in layer if "experts" in s])]
        kept = max(map(kept_widths, mixtures), default=0)
        expert = max((hessian_floats(s, rows) for mixture in mixtures for s in mixture), default=0)
        stacks = [[s["experts"] * hessian_floats(s, rows) for s in mixture] for mixture in mixtures]
        at_once = max((sum(stack) + max(stack) for stack in stacks), default=0) if to_file else EXPERTS_AT_A_TIME * PAIRS_OF_EXPERT * expert
        hidden, vocabulary = model["hidden_size"], model["vocab_size"]
        return cls(
            f"{samples:,} x {length:,} tokens",
            states=FLOAT_BYTES * samples * length * hidden * (model["num_layers"] + 1),
            head=FLOAT_BYTES * (PROGRAMS * vocabulary * hidden + LOGIT_ROWS * vocabulary),
            layer=FLOAT_BYTES * (PROGRAMS * layer_floats + length * max(widths, default=0)),
            hessians=FLOAT_BYTES * max(squares, default=0) * sums,
            experts=FLOAT_BYTES * (samples * length * kept + sums * expert + at_once),
            file=FLOAT_BYTES * (sum(squares) + sum(map(sum, stacks))),
        )  # fmt: skip

    @property
    def needed(self) -> float:
        return BASE_BYTES + self.states + max(self.head, self.layer + self.hessians + self.experts)

    @property
    def parts(self) -> dict[str, float]:
        parts = {"hidden states before every layer": self.states, "the output head": self.head, "weights and activations of a layer": self.layer,
                 "Hessians of a layer": self.hessians}  # fmt: skip
        return parts | ({"rows and Hessians of a layer's experts": self.experts} if self.experts else {})

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
