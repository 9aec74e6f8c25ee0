# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `_runtime.Batch.choose` chooses, against its definition (eq_choice of easyquant.h) in NumPy, with NumPy's random numbers.

test/Runtime/SamplingTest.cpp has logits of all kinds; here they are a model's.
"""

import numpy as np
import pytest

from easyquant import _runtime
from easyquant.runtime.requests import Settings
from easyquant.support.errors import UserError

VOCABULARY = 97
PROMPT = [5, 9, 9, 40, 3, 77]


@pytest.fixture(scope="module")
def model(letters):
    return _runtime.Model(str(letters("--scheme=W8A8")))


@pytest.fixture(scope="module")
def batch(model):
    batch = _runtime.Batch(model, sequences=17, threads=2)
    batch.append([(batch.add(), PROMPT)])
    return batch


def uniform(seed, position):
    """By Philox4x64-10 for this key and counter; NumPy counts up before it draws."""
    counter = np.array([position - 1, 0, 0, 0], np.uint64)
    return (int(np.random.Philox(key=np.array([seed, 0], np.uint64), counter=counter).random_raw()) >> 11) * 2.0**-53


def probabilities(logits, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, bias={}, allowed=None, tokens=(), prompt=0, repetition=1.0, presence=0.0, frequency=0.0):
    scores = logits.astype(np.float64)
    for token in set(tokens):
        scores[token] *= 1 / repetition if scores[token] > 0 else repetition
        if count := list(tokens[prompt:]).count(token):
            scores[token] -= frequency * count + presence
    for token, shift in bias.items():
        scores[token] += shift
    if allowed is not None:
        scores[~allowed] = -np.inf
    order = np.argsort(-scores, kind="stable")
    if temperature == 0:
        return np.eye(len(scores))[order[0]]
    weights = np.exp((scores - scores.max()) / temperature)
    order = order[: top_k or None]
    mass = np.cumsum(weights[order])
    order = order[: np.searchsorted(mass, top_p * mass[-1] * (1 - 1e-9)) + 1]
    kept = np.zeros_like(weights)
    kept[order] = np.where(weights[order] >= min_p, weights[order], 0)
    return kept / kept.sum()


WAYS = [
    {}, {"temperature": 1.0}, {"temperature": 3.0, "top_k": 7}, {"temperature": 2.0, "top_p": 0.7}, {"temperature": 2.0, "min_p": 0.2},
    {"temperature": 2.0, "top_k": 1000, "top_p": 0.95, "min_p": 0.01}, {"temperature": 1.5, "bias": {3: 8.0, 60: -100.0, 61: 4.0}},
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_draws_are_those_of_the_definition(batch, way):
    expected = np.cumsum(probabilities(batch.logits(0), **way))
    for seed in [0, 1, 2**64 - 1, *range(100, 160)]:
        ((token, logprob, best),) = batch.choose([(0, _runtime.Sampler(seed=seed, **way))])
        assert token == np.searchsorted(expected, uniform(seed, len(PROMPT)), side="right") and logprob is None and best == []


def test_a_token_depends_on_seed_and_position_alone(batch):
    """Sixteen forks, alone and together, with other choices beside them."""
    forks = [batch.fork(0) for _ in range(16)]
    samplers = [_runtime.Sampler(temperature=4.0, seed=seed // 2) for seed in range(16)]
    together = batch.choose([*zip(forks, samplers)])
    alone = [batch.choose([(fork, sampler)])[0] for fork, sampler in zip(forks, samplers)]
    assert together == alone == batch.choose([(0, sampler) for sampler in samplers])
    assert together[::2] == together[1::2] and len({token for token, _, _ in together}) > 3
    for fork in forks:
        batch.remove(fork)


def test_penalties_count_the_answer(model):
    options = {"repetition_penalty": 1.7, "presence_penalty": 0.4, "frequency_penalty": 0.3}
    batch = _runtime.Batch(model, threads=1)
    own, tokens = batch.add(), list(PROMPT)
    batch.append([(own, PROMPT)])
    sampler = _runtime.Sampler(temperature=2.0, seed=5, prompt=PROMPT, **options)
    for _ in range(40):
        expected = probabilities(batch.logits(own), temperature=2.0, tokens=tokens, prompt=len(PROMPT), repetition=1.7, presence=0.4, frequency=0.3)
        ((token, _, _),) = batch.choose([(own, sampler)])
        assert token == np.searchsorted(np.cumsum(expected), uniform(5, len(tokens)), side="right")
        tokens.append(token)
        batch.append([(own, [token])])


def test_bits_say_which_tokens_may_be_chosen(batch):
    random = np.random.default_rng(3)
    for kept in (0.02, 0.5, 1.0):
        allowed = random.random(VOCABULARY) < kept
        bits = np.packbits(np.pad(allowed, (0, -VOCABULARY % 32)), bitorder="little").view(np.uint32)
        for way in ({}, {"temperature": 3.0}, {"temperature": 3.0, "top_k": 5, "top_p": 0.8}):
            sampler = _runtime.Sampler(seed=9, **way)
            sampler.allow(bits)
            ((token, _, _),) = batch.choose([(0, sampler)])
            expected = np.cumsum(probabilities(batch.logits(0), allowed=allowed, **way))
            assert allowed[token] and token == np.searchsorted(expected, uniform(9, len(PROMPT)), side="right")
    sampler.allow(np.zeros_like(bits))
    (error,) = batch.choose([(0, sampler)])
    assert error.code == "INVALID_ARGUMENT" and "found no token that may be chosen" in error.message
    sampler.allow(None)
    assert batch.choose([(0, sampler)])[0][0] >= 0


def test_log_probabilities(batch):
    rows = batch.logits(0).astype(np.float64)
    expected = rows - rows.max() - np.log(np.exp(rows - rows.max()).sum())
    order = np.argsort(-rows, kind="stable")
    for count in (0, 1, 20, VOCABULARY):
        # The model's own, whatever changes its logits.
        ((token, logprob, best),) = batch.choose([(0, _runtime.Sampler(temperature=2.0, bias={50: 100.0}, logprobs=count))])
        assert token == 50 and logprob == pytest.approx(expected[50], abs=1e-5)
        assert [own for own, _ in best] == order[:count].tolist()
        np.testing.assert_allclose([own for _, own in best], expected[order[:count]], atol=1e-5)


def test_scores_of_given_tokens_are_those_of_their_logits(model):
    random = np.random.default_rng(0)
    tokens = random.integers(0, VOCABULARY, 120).astype(np.int32)
    batch = _runtime.Batch(model, sequences=3, threads=2)
    one, other, third = (batch.add() for _ in range(3))
    (rows,) = batch.append([(other, tokens)], all_logits=True)
    rows = rows.astype(np.float64)
    expected = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    # In two calls, beside a sequence that goes on: the second begins with the logits of the first.
    found = [batch.append([(one, tokens[:50], 3), (third, [4])]), batch.append([(third, [5]), (one, tokens[50:], 3)])]
    logprobs, best, likely = (np.concatenate([found[0][0][part], found[1][1][part]]) for part in range(3))
    assert found[0][1] is None and logprobs[0] == 0 and best[0].tolist() == [-1] * 3
    np.testing.assert_allclose(logprobs[1:], expected[np.arange(119), tokens[1:]], atol=1e-5)
    order = np.argsort(-rows[:-1], axis=1, kind="stable")[:, :3]
    assert np.array_equal(best[1:], order)
    np.testing.assert_allclose(likely[1:], np.take_along_axis(expected[:-1], order, 1), atol=1e-5)
    assert np.array_equal(batch.logits(one), batch.logits(other))


def test_what_cannot_be_chosen_fails_alone(model):
    batch = _runtime.Batch(model, sequences=2, threads=2)
    own, empty = batch.add(), batch.add()
    batch.append([(own, PROMPT)])
    samplers = [_runtime.Sampler(), _runtime.Sampler(), _runtime.Sampler(temperature=-1.0), _runtime.Sampler(bias={97: 1.0}), _runtime.Sampler()]
    results = batch.choose(list(zip((own, empty, own, own, 99), samplers)))
    assert isinstance(results[0], tuple)
    words = ["has no logits", "temperature: found -1, expected a number from 0", "bias[0]: found 1 for token 97", "sequence: found 99"]
    for error, word in zip(results[1:], words, strict=True):
        assert error.code == "INVALID_ARGUMENT" and word in error.message
    samplers[0].allow(np.ones(3, np.uint32))
    assert "allowed: found 3 words of 32 bits, expected 4" in batch.choose([(own, samplers[0])])[0].message
    assert batch.choose([]) == []
    with pytest.raises(_runtime.Error, match="one Sampler for two sequences"):
        batch.choose([(own, samplers[1]), (own, samplers[1])])
    with pytest.raises(TypeError, match="a sequence's id and its Sampler"):
        batch.choose([own])
    with pytest.raises(_runtime.Error, match="found 96 logits, expected 97"):
        batch.choose([(own, samplers[1], np.zeros(96, np.float32), 3)])
    (result,) = batch.choose([(own, samplers[1], np.full(97, np.nan, np.float32), 3)])
    assert "logits: found a number that is not finite" in result.message


@pytest.mark.parametrize("options", [{}, {"temperature": 1.5, "seed": 7, "top_p": 0.9, "logprobs": 2}, {"temperature": 1.0, "seed": 1, "presence_penalty": 3.0}])
def test_rows_of_appended_tokens_are_chosen_from_as_if_each_was_the_last(model, options):
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, 40).astype(np.int32)
    batch = _runtime.Batch(model, sequences=3, threads=2)
    one, other, third = (batch.add() for _ in range(3))
    rows, nothing = batch.append([(one, tokens, None), (third, [4])])
    assert rows.shape == (40, VOCABULARY) and nothing is None
    by_rows, by_turns = _runtime.Sampler(**options), _runtime.Sampler(**options)
    for position in range(1, 41):
        batch.append([(other, tokens[position - 1 : position])])
        logits = batch.logits(other)
        (expected,) = batch.choose([(other, by_turns)])
        assert batch.choose([(one, by_rows, logits, position)]) == [expected]
        np.testing.assert_allclose(rows[position - 1], logits, atol=1e-3)


@pytest.mark.parametrize("options", [
    {"temperature": -1.0}, {"temperature": float("nan")}, {"temperature": float("inf")}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": -1}, {"top_k": 1.5}, {"min_p": 2.0},
    {"repetition_penalty": 0.0}, {"presence_penalty": float("inf")}, {"frequency_penalty": "1"}, {"seed": 2**64}, {"logprobs": 101}, {"logit_bias": [3]},
    {"logit_bias": {"x": 1}}, {"logit_bias": {3: float("nan")}}, {"logit_bias": {-3: 1.0}},
])  # fmt: skip
def test_impossible_options(options):
    with pytest.raises(UserError, match=f"{next(iter(options))}: found .*expected"):
        Settings(**options)
