# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choosing the next token from logits."""

import math

import numpy as np

from easyquant.support.errors import expect, is_number, is_whole


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
        kept = np.sort(self._kept(weights))  # by their numbers, so that what is left out moves no other's share
        mass = np.cumsum(weights[kept])
        return int(kept[min(np.searchsorted(mass, self._random.random() * mass[-1], side="right"), len(kept) - 1)])

    def _kept(self, weights: np.ndarray) -> np.ndarray:
        """Tokens that may be drawn."""
        limit = min(self.top_k or len(weights), len(weights))
        if self.top_p == 1.0:
            return most_likely(weights, limit) if limit < len(weights) else np.arange(limit)
        reached = self.top_p * (weights if limit == len(weights) else weights[most_likely(weights, limit)]).sum()
        count = min(limit, 64)  # enough for most nuclei, and a sort of a whole vocabulary takes longer than many a step
        while (mass := np.cumsum(weights[order := most_likely(weights, count)]))[-1] < reached and count < limit:
            count = min(limit, 16 * count)
        return order[: np.searchsorted(mass, reached) + 1]


def most_likely(weights: np.ndarray, count: int) -> np.ndarray:
    """So many tokens, the most likely ones first. Among equally likely tokens it takes the first ones."""
    tokens = np.flatnonzero(weights >= np.partition(weights, -count)[-count])
    return tokens[np.argsort(-weights[tokens], kind="stable")][:count]
