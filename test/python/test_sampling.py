# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import numpy as np
import pytest

from easyquant.runtime.sampling import Sampler
from easyquant.support.errors import UserError

LOGITS = np.log(np.array([0.5, 0.25, 0.15, 0.1], dtype=np.float32))


def frequencies(sampler: Sampler, draws: int = 20_000) -> np.ndarray:
    return np.bincount([sampler(LOGITS) for _ in range(draws)], minlength=4) / draws


def test_temperature_zero_takes_the_most_likely():
    assert {Sampler()(np.array([1.0, 5.0, 3.0], dtype=np.float32)) for _ in range(5)} == {1}


def test_temperature_one_draws_from_the_distribution():
    np.testing.assert_allclose(frequencies(Sampler(1.0, seed=1)), [0.5, 0.25, 0.15, 0.1], atol=0.015)


def test_temperature_sharpens():
    expected = np.array([0.5, 0.25, 0.15, 0.1]) ** 2
    np.testing.assert_allclose(frequencies(Sampler(0.5, seed=1)), expected / expected.sum(), atol=0.015)


def test_the_nucleus_is_the_smallest_set_that_reaches_its_mass():
    np.testing.assert_allclose(frequencies(Sampler(1.0, top_p=0.7, seed=1)), [2 / 3, 1 / 3, 0, 0], atol=0.015)


def test_a_tiny_nucleus_holds_one_token():
    assert frequencies(Sampler(1.0, top_p=1e-9, seed=1))[0] == 1.0


def test_the_most_likely_come_first():
    np.testing.assert_allclose(frequencies(Sampler(1.0, top_k=2, seed=1)), [2 / 3, 1 / 3, 0, 0], atol=0.015)
    assert frequencies(Sampler(9.0, top_k=1, seed=1))[0] == 1.0
    draws = [[Sampler(1.0, top_k=top_k, seed=seed)(LOGITS) for seed in range(50)] for top_k in (0, 4, 5)]
    assert draws[0] == draws[1] == draws[2]


def test_the_nucleus_is_of_the_most_likely():
    """With 2/3 and 1/3, the first one reaches 0.6."""
    assert frequencies(Sampler(1.0, top_k=2, top_p=0.6, seed=1))[0] == 1.0


@pytest.mark.parametrize("top_k, top_p", [(0, 1.0), (0, 0.9), (0, 0.1), (1, 1.0), (40, 1.0), (40, 0.5), (3000, 0.99), (10**6, 0.9)])
@pytest.mark.parametrize("spread", [0.01, 3.0])
def test_draws_are_those_of_the_definition(top_k, top_p, spread):
    """By sorting the whole vocabulary; also where logits are equal."""
    random = np.random.default_rng(0)
    logits = random.normal(0, spread, 5000).astype(np.float32).round(3)
    sampler, uniform = Sampler(0.8, top_k, top_p, seed=7), np.random.default_rng(7)
    weights = np.exp((logits.astype(np.float64) - logits.max()) / 0.8)
    order = np.argsort(-weights, kind="stable")[: top_k or None]
    mass = np.cumsum(weights[order])
    weights[np.setdiff1d(np.arange(5000), order[: np.searchsorted(mass, top_p * mass[-1] * (1 - 1e-12)) + 1])] = 0
    assert [sampler(logits) for _ in range(50)] == [uniform.choice(5000, p=weights / weights.sum()) for _ in range(50)]


def test_equal_seeds_draw_equal_tokens():
    def draw(seed):
        sampler = Sampler(1.0, seed=seed)
        return [sampler(LOGITS) for _ in range(50)]

    assert draw(4) == draw(4) != draw(5)


def test_the_smallest_temperatures_are_greedy():
    assert {Sampler(1e-300, seed=1)(LOGITS) for _ in range(5)} == {0}


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"temperature": float("nan")}, {"temperature": float("inf")}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": -1}, {"top_k": 1.5}])
def test_impossible_options(options):
    with pytest.raises(UserError, match="expected"):
        Sampler(**options)
