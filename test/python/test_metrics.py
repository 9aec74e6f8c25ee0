# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures against direct double-precision evaluations of their definitions."""

import math

import numpy as np
import pytest

from easyquant.evaluation.metrics import Scores, compare, standard_error, wilson_interval
from easyquant.runtime.logits import log_sum_exp, token_losses


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


# Rows around the block size of 32, one word, extreme logits.
SHAPES = [(1, 1), (1, 7), (31, 50), (32, 50), (33, 50), (100, 4099)]


@pytest.mark.parametrize("rows, vocabulary", SHAPES)
@pytest.mark.parametrize("spread, shift", [(1.0, 0.0), (20.0, 0.0), (3.0, 5000.0), (3.0, -5000.0), (0.0, 1.0)])
def test_losses_are_the_log_softmax(rows, vocabulary, spread, shift):
    random = np.random.default_rng(rows * vocabulary)
    logits = (random.normal(0, spread, (rows, vocabulary)) + shift).astype(np.float32)
    targets = random.integers(0, vocabulary, rows)
    expected = -log_softmax(logits)[np.arange(rows), targets]
    np.testing.assert_allclose(token_losses(logits, targets), expected, rtol=1e-6, atol=1e-6)


def test_log_sum_exp_survives_the_largest_floats():
    logits = np.array([[3e38, 3e38], [-3e38, 0.0]], dtype=np.float32)
    np.testing.assert_allclose(log_sum_exp(logits), [np.float64(np.float32(3e38)), 0.0])


@pytest.mark.parametrize("rows, vocabulary", SHAPES)
@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.3, 5.0])
def test_comparison_is_the_divergence_from_the_reference(rows, vocabulary, noise):
    random = np.random.default_rng(7)
    reference = random.normal(0, 3, (rows, vocabulary)).astype(np.float32)
    logits = (reference + random.normal(0, noise, reference.shape)).astype(np.float32)
    p, q = log_softmax(reference), log_softmax(logits)
    result = compare(logits, reference)
    np.testing.assert_allclose(result.kl, (np.exp(p) * (p - q)).sum(axis=1), rtol=1e-4, atol=2e-6)
    assert (result.kl >= 0).all()
    np.testing.assert_array_equal(result.agree, p.argmax(axis=1) == q.argmax(axis=1))
    assert result.max_difference == np.abs(reference - logits).max()


def test_comparison_ignores_a_common_shift_of_the_logits():
    random = np.random.default_rng(3)
    reference = random.normal(0, 2, (5, 1000)).astype(np.float32)
    result = compare(reference + np.float32(8.0), reference)
    assert result.kl.max() < 1e-5 and result.agree.all() and result.max_difference == pytest.approx(8.0, abs=1e-5)


@pytest.mark.parametrize(
    # Values from the closed form in Brown, Cai & DasGupta (2001), rounded.
    "successes, trials, low, high",
    [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (500, 1000, 0.4691, 0.5309)],
)
def test_wilson_interval(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=1e-4)


def test_wilson_interval_of_nothing():
    with pytest.raises(ValueError):
        wilson_interval(0, 0)


def test_standard_error():
    assert standard_error(np.array([1.0, 3.0])) == pytest.approx(1.0)  # s = √2, n = 2
    assert standard_error(np.array([1.0])) is None


def test_figures():
    scores = Scores()
    for loss, reference in [(2.0, 1.9), (3.0, 2.8), (4.0, 3.9)]:
        scores.add_window(np.full(10, loss), np.full(10, reference))
    random = np.random.default_rng(1)
    divergences = random.exponential(0.01, 30)
    agree = np.arange(30) % 5 != 0
    for part in (slice(0, 12), slice(12, 30)):
        comparison = compare(np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32))
        comparison.kl, comparison.agree, comparison.max_difference = divergences[part], agree[part], float(part.start)
        scores.add_comparison(comparison)
    figures = scores.figures()
    assert figures["perplexity"] == pytest.approx(math.exp(3.0))
    assert figures["perplexity_stderr"] == pytest.approx(math.exp(3.0) * 1.0 / math.sqrt(3))
    assert figures["tokens_scored"] == 30
    assert figures["loss_increase"] == pytest.approx(np.mean([0.1, 0.2, 0.1]))
    assert figures["loss_increase_stderr"] == pytest.approx(np.std([0.1, 0.2, 0.1], ddof=1) / math.sqrt(3))
    assert figures["kl_mean"] == pytest.approx(divergences.mean())
    assert figures["kl_p99"] == pytest.approx(np.percentile(divergences, 99))
    assert figures["top1_agreement"] == pytest.approx(0.8)
    assert figures["max_logit_difference"] == 12.0


def test_one_window_has_no_standard_error():
    scores = Scores()
    scores.add_window(np.array([1.0, 2.0]))
    figures = scores.figures()
    assert figures["perplexity_stderr"] is None and "kl_mean" not in figures
