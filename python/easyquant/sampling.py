# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choosing the next token from logits."""

import numpy as np

from easyquant.errors import UserError


class Sampler:
    """Greedy at temperature 0; else softmax(logits / temperature), cut to the nucleus of mass `top_p`.

    A. Holtzman et al., "The curious case of neural text degeneration", 2020: the smallest set of most
    likely tokens whose probabilities reach `top_p`. Equal seeds draw equal tokens.
    """

    def __init__(self, temperature: float = 0.0, top_p: float = 1.0, seed: int = 0):
        if not (0.0 <= temperature < float("inf")):
            raise UserError(f"--temperature {temperature}: expected a number of at least 0 (0 is greedy)")
        if not (0.0 < top_p <= 1.0):
            raise UserError(f"--top-p {top_p}: expected more than 0 and at most 1")
        self.temperature = temperature
        self.top_p = top_p
        self._random = np.random.default_rng(seed)

    def __call__(self, logits: np.ndarray) -> int:
        if self.temperature == 0.0:
            return int(logits.argmax())
        scores = logits.astype(np.float64)
        # Shifted first: however small the temperature, the largest exponent stays 0.
        with np.errstate(over="ignore"):
            weights = np.exp((scores - scores.max()) / self.temperature)
        if self.top_p < 1.0:
            order = np.argsort(-weights, kind="stable")
            mass = np.cumsum(weights[order])
            keep = int(np.searchsorted(mass, self.top_p * mass[-1])) + 1
            weights[order[keep:]] = 0.0
        return int(self._random.choice(len(weights), p=weights / weights.sum()))
