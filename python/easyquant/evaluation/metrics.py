# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures of the evaluation protocol, from logits. No model and no file is known here.

Sums over positions are accumulated in fp64, as those over the vocabulary are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from easyquant.runtime.logits import BLOCK_ROWS, exponentials, log_sum_exp


@dataclass
class Comparison:
    """One model's distributions against a reference's, position by position."""

    kl: np.ndarray  # nats, KL(reference ‖ model)
    agree: np.ndarray  # bool: the same most likely token
    max_difference: float  # of logits, absolute


def compare(logits: np.ndarray, reference: np.ndarray) -> Comparison:
    rows = len(logits)
    kl, agree, largest = np.empty(rows), np.empty(rows, dtype=bool), 0.0
    for begin in range(0, rows, BLOCK_ROWS):
        q, p = logits[begin : begin + BLOCK_ROWS], reference[begin : begin + BLOCK_ROWS]
        # KL = Σ p (log p − log q) = Σ p (l_p − l_q) − lse(l_p) + lse(l_q), with p = weights / total.
        weights, total, p_sum = exponentials(p)
        difference = p - q
        expected = np.einsum("rv,rv->r", weights, difference, dtype=np.float64) / total
        # Gibbs: not negative, except by rounding.
        kl[begin : begin + len(q)] = np.maximum(expected - p_sum + log_sum_exp(q), 0.0)
        agree[begin : begin + len(q)] = p.argmax(axis=1) == q.argmax(axis=1)
        largest = max(largest, float(np.abs(difference).max()))
    return Comparison(kl, agree, largest)


def wilson_interval(successes: int, trials: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson's score interval of a proportion; 95 % by default.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    if trials == 0:
        raise ValueError("a proportion of nothing has no interval")
    share = successes / trials
    scale = 1.0 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)


def standard_error(values: np.ndarray) -> float | None:
    """The standard error of the mean of independent values: s / √n with the n − 1 variance. None for fewer than two."""
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def paired(one: Sequence[float], other: Sequence[float]) -> tuple[float, float | None]:
    """The mean of one − other over the windows that both saw, and its standard error."""
    difference = np.subtract(one, other)
    return float(difference.mean()), standard_error(difference)


@dataclass
class Scores:
    """Collects windows and turns them into the figures of a report."""

    window_losses: list[float] = field(default_factory=list)  # mean of each window, nats
    reference_window_losses: list[float] = field(default_factory=list)
    tokens_scored: int = 0
    kl: list[np.ndarray] = field(default_factory=list)
    agreements: list[np.ndarray] = field(default_factory=list)
    max_difference: float = 0.0

    def add_window(self, losses: np.ndarray, reference_losses: np.ndarray | None = None) -> None:
        self.window_losses.append(float(losses.mean()))
        self.tokens_scored += len(losses)
        if reference_losses is not None:
            self.reference_window_losses.append(float(reference_losses.mean()))

    def add_comparison(self, comparison: Comparison) -> None:
        self.kl.append(comparison.kl)
        self.agreements.append(comparison.agree)
        self.max_difference = max(self.max_difference, comparison.max_difference)

    def extend(self, later: "Scores") -> None:
        """Adds windows that were scored elsewhere, behind those that are here."""
        self.window_losses += later.window_losses
        self.reference_window_losses += later.reference_window_losses
        self.tokens_scored += later.tokens_scored
        self.kl += later.kl
        self.agreements += later.agreements
        self.max_difference = max(self.max_difference, later.max_difference)

    def figures(self) -> dict:
        """The JSON keys of `easyquant eval`.

        Every window scores the same number of tokens, so the mean loss over tokens is the mean over
        windows, and windows are the independent samples: with standard error e of the mean loss,
        that of the perplexity exp(loss) is exp(loss) · e (delta method).
        """
        losses = np.array(self.window_losses)
        loss, error = float(losses.mean()), standard_error(losses)
        result = {
            "perplexity": math.exp(loss),
            "perplexity_stderr": None if error is None else math.exp(loss) * error,
            "loss": loss,
            "loss_stderr": error,
            "tokens_scored": self.tokens_scored,
            "windows": {"loss": self.window_losses},
        }
        if not self.reference_window_losses:
            return result
        reference = np.array(self.reference_window_losses)
        kl = np.concatenate(self.kl)
        agree = np.concatenate(self.agreements)
        successes, trials = int(agree.sum()), len(kl)
        # For paired differences: windows are the same for every artifact.
        per_window = {"kl": kl, "top1": agree.astype(np.float64)}
        result["windows"] |= {name: values.reshape(len(losses), -1).mean(axis=1).tolist() for name, values in per_window.items()}
        # The same windows on both sides: their difference varies far less than either loss.
        increase, increase_error = float((losses - reference).mean()), standard_error(losses - reference)
        return result | {
            "reference_perplexity": math.exp(float(reference.mean())),
            "loss_increase": increase,
            "loss_increase_stderr": increase_error,
            "kl_mean": float(kl.mean()),
            "kl_p99": float(np.percentile(kl, 99)),
            "top1_agreement": successes / trials,
            "top1_agreement_interval95": list(wilson_interval(successes, trials)),
            "max_logit_difference": self.max_difference,
        }
