# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Multiple choice by log-likelihood, with a model whose probabilities are known in closed form."""

import contextlib
import json

import numpy as np
import pytest

from easyquant.evaluation.choices import answer_questions, read_questions, split_tokens
from easyquant.evaluation.likelihoods import Likelihood, Scorer
from easyquant.runtime.artifact import Artifact
from easyquant.support.errors import UserError
from helpers import Runner


def encode(text: str) -> list[int]:
    return list(text.encode())


def bigrams(pairs):
    """Likelihoods of a model that expects byte b + 1 after byte b."""
    right, wrong = 8.0 - np.log(np.exp(8.0) + 255), -np.log(np.exp(8.0) + 255)
    return [
        Likelihood(sum(right if after == (before + 1) % 256 else wrong for before, after in zip((beginning + rest)[len(beginning) - 1 :], rest)), False)
        for beginning, rest in pairs
    ]


def ask(*questions, context=64, first_token=0):
    return answer_questions(bigrams, encode, list(questions), first_token, context)


def questions(tmp_path, *entries):
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries))
    return read_questions(file)


def test_the_likelier_choice_is_taken(tmp_path):
    right, wrong = ({"context": "abc", "choices": ["xx", "de"], "answer": answer} for answer in (1, 0))
    tally = ask(*questions(tmp_path, right, wrong, right))
    assert (tally.questions, tally.right, tally.tokens_scored) == (3, 2, 12)
    figures = tally.figures()
    assert figures["accuracy"] == pytest.approx(2 / 3)
    low, high = figures["accuracy_interval95"]
    assert low < 2 / 3 < high


def test_normalization_is_by_bytes(tmp_path):
    # One expected byte of one beats five expected of six in total, and not per byte.
    tally = ask(*questions(tmp_path, {"context": "a", "choices": ["b", "bcdefgx"], "answer": 0}))
    assert (tally.right, tally.right_normalized) == (1, 1)
    tally = ask(*questions(tmp_path, {"context": "a", "choices": ["x", "bcdefxx"], "answer": 1}))
    assert (tally.right, tally.right_normalized) == (0, 1)


def test_likelihoods_are_those_of_the_logits(letters):
    """And a beginning that several have in common is read once."""
    scorer, random = Scorer(Artifact.open(letters("--scheme=W8A8")), threads=2, sequences=3), np.random.default_rng(0)
    pairs = [(random.integers(3, 97, beginning).tolist(), random.integers(3, 97, rest).tolist()) for beginning, rest in ((1, 3), (63, 5), (64, 1), (65, 70), (130, 30))]
    pairs += [(pairs[-1][0], random.integers(3, 97, 4).tolist()) for _ in range(4)]
    with contextlib.closing(scorer):
        found = scorer.likelihoods(pairs)
        runner = Runner(scorer.artifact.path, threads=2)
        for (beginning, rest), own in zip(pairs, found, strict=True):
            rows = np.asarray(runner.score(beginning + rest), np.float64)[len(beginning) - 1 : -1]
            rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
            assert own.total == pytest.approx(rows[np.arange(len(rest)), rest].sum(), abs=1e-4)
        greedy = int(runner.score(pairs[4][0])[-1].argmax())
        assert [one.is_greedy for one in scorer.likelihoods([(pairs[4][0], [greedy]), (pairs[4][0], [greedy - 1])])] == [True, False]
        assert scorer._engine.figures.shared_tokens >= 128
        with pytest.raises(UserError, match="text 2: 170 tokens, but the context is 160"):
            scorer.likelihoods([([5], [6]), ([5] * 100, [6] * 70)])
        with pytest.raises(UserError, match="text 1: found .*, expected at least one token"):
            scorer.likelihoods([([], [6])])


def test_an_empty_context_begins_with_the_first_token(tmp_path):
    entry = {"context": "", "choices": ["\x01", "x"], "answer": 0}
    assert ask(*questions(tmp_path, entry)).right == 1
    with pytest.raises(UserError, match="question 1: its context holds no token"):
        ask(*questions(tmp_path, entry), first_token=None)


def test_blanks_belong_to_the_choice():
    assert split_tokens(encode, "a ", "b") == (encode("a"), encode(" b"))


def test_a_question_longer_than_the_context(tmp_path):
    with pytest.raises(UserError, match="question 1: 12 tokens, but the context is 11"):
        ask(*questions(tmp_path, {"context": "0123456789", "choices": ["ab", "c"], "answer": 0}), context=11)


@pytest.mark.parametrize("entry, message", [
    ("{", "line 1: is not valid JSON"),
    ([], "expected an object"),
    ({"choices": ["a", "b"], "answer": 0}, "context is None"),
    ({"context": "", "choices": ["a"], "answer": 0}, "at least two texts"),
    ({"context": "", "choices": ["a", ""], "answer": 0}, "at least two texts"),
    ({"context": "", "choices": ["a", "b"], "answer": 2}, "expected an index from 0 to 1"),
    ({"context": "", "choices": ["a", "b"], "answer": True}, "expected an index from 0 to 1"),
    ("", "holds no question"),
])  # fmt: skip
def test_malformed_questions(tmp_path, entry, message):
    with pytest.raises(UserError, match=message):
        questions(tmp_path, entry)
