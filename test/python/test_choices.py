# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Multiple choice by log-likelihood, with a model whose probabilities are known in closed form."""

import json

import numpy as np
import pytest

from easyquant.evaluation.choices import answer_questions, read_questions, split_tokens
from easyquant.support.errors import UserError


def encode(text: str) -> list[int]:
    return list(text.encode())


class Bigrams:
    """A session of a model that expects byte b + 1 after byte b, and remembers what it was given."""

    def __init__(self):
        self.held: list[int] = []
        self.computed = 0

    def reset(self):
        self.held = []

    def truncate(self, position):
        assert position <= len(self.held)
        self.held = self.held[:position]

    def prefill(self, tokens):
        assert tokens.dtype == np.int32 and len(tokens) > 0
        self.held += list(tokens)
        self.computed += len(tokens)

    def score(self, tokens):
        self.prefill(tokens)
        logits = np.zeros((len(tokens), 256), dtype=np.float32)
        logits[np.arange(len(tokens)), (tokens + 1) % 256] = 8.0
        return logits


def ask(*questions, context=64, first_token=0):
    session = Bigrams()
    return answer_questions(session, session.score, encode, list(questions), first_token, context), session


def questions(tmp_path, *entries):
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries))
    return read_questions(file)


def test_the_likelier_choice_is_taken(tmp_path):
    right, wrong = ({"context": "abc", "choices": ["xx", "de"], "answer": answer} for answer in (1, 0))
    tally, _ = ask(*questions(tmp_path, right, wrong, right))
    assert (tally.questions, tally.right, tally.tokens_scored) == (3, 2, 12)
    figures = tally.figures()
    assert figures["accuracy"] == pytest.approx(2 / 3)
    low, high = figures["accuracy_interval95"]
    assert low < 2 / 3 < high


def test_normalization_is_by_bytes(tmp_path):
    # One expected byte of one beats five expected of six in total, and not per byte.
    tally, _ = ask(*questions(tmp_path, {"context": "a", "choices": ["b", "bcdefgx"], "answer": 0}))
    assert (tally.right, tally.right_normalized) == (1, 1)
    tally, _ = ask(*questions(tmp_path, {"context": "a", "choices": ["x", "bcdefxx"], "answer": 1}))
    assert (tally.right, tally.right_normalized) == (0, 1)


def test_a_shared_context_is_computed_once(tmp_path):
    tally, session = ask(*questions(tmp_path, {"context": "abcdefgh", "choices": ["i", "j", "k"], "answer": 0}))
    assert tally.right == 1 and session.computed == 7 + 3


def test_an_empty_context_begins_with_the_first_token(tmp_path):
    entry = {"context": "", "choices": ["\x01", "x"], "answer": 0}
    assert ask(*questions(tmp_path, entry))[0].right == 1
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
