# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choosing the next token from logits."""

import math

import numpy as np

from easyquant.errors import expect, is_number, is_whole


class Sampler:
    """Greedy at temperature 0; else softmax(logits / temperature) of the `top_k` most likely tokens, cut to the nucleus of mass `top_p`.

    A. Holtzman et al., "The curious case of neural text degeneration", 2020: the smallest set of most
    likely tokens whose probabilities reach `top_p`. `top_k` 0 is all tokens. Equal seeds draw equal tokens.
    """

    def __init__(self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0):
        expect("temperature", temperature, is_number(temperature) and 0.0 <= temperature < math.inf, "a number of at least 0 (0 is greedy)")
        expect("top_k", top_k, is_whole(top_k) and top_k >= 0, "a whole number of at least 0 (0 is all tokens)")
        expect("top_p", top_p, is_number(top_p) and 0.0 < top_p <= 1.0, "a number above 0 and at most 1")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self._random = np.random.default_rng(seed)

    def __call__(self, logits: np.ndarray) -> int:
        if self.temperature == 0.0:
            return int(logits.argmax())
        scores = logits.astype(np.float64)
        # Shifted first: however small the temperature, the largest exponent stays 0.
        with np.errstate(over="ignore"):
            weights = np.exp((scores - scores.max()) / self.temperature)
        if 0 < self.top_k < len(weights):
            weights[np.argsort(-scores, kind="stable")[self.top_k :]] = 0.0
        if self.top_p < 1.0:
            order = np.argsort(-weights, kind="stable")
            mass = np.cumsum(weights[order])
            keep = int(np.searchsorted(mass, self.top_p * mass[-1])) + 1
            weights[order[keep:]] = 0.0
        return int(self._random.choice(len(weights), p=weights / weights.sum()))
