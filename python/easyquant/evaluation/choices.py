# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Multiple-choice questions, answered by log-likelihood: `easyquant eval OUT --choices FILE.jsonl`.

Each line is an object with `context` (a text), `choices` (texts that may follow it) and `answer` (the
index of the right one): the form that the field's question sets are commonly brought into.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from easyquant.evaluation.metrics import wilson_interval
from easyquant.support.errors import UserError
from easyquant.support.files import read_text


@dataclass(frozen=True)
class Question:
    context: str
    choices: list[str]
    answer: int


@dataclass
class Tally:
    """Right answers by total log-likelihood, and by log-likelihood per byte of the choice's text."""

    questions: int = 0
    right: int = 0
    right_normalized: int = 0
    tokens_scored: int = 0

    def figures(self) -> dict:
        return {
            "accuracy": self.right / self.questions,
            "accuracy_interval95": list(wilson_interval(self.right, self.questions)),
            "accuracy_normalized": self.right_normalized / self.questions,
            "accuracy_normalized_interval95": list(wilson_interval(self.right_normalized, self.questions)),
            "questions": self.questions,
            "tokens_scored": self.tokens_scored,
        }


def read_questions(path: Path) -> list[Question]:
    questions = []
    # Not splitlines(): it would also split at separators that JSON strings may hold.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number}: is not valid JSON ({error})") from None
        if not isinstance(entry, dict):
            raise UserError(f"{path}, line {number}: is {type(entry).__name__}, expected an object with context, choices and answer")
        context, choices, answer = (entry.get(key) for key in ("context", "choices", "answer"))
        if not isinstance(context, str):
            raise UserError(f"{path}, line {number}: context is {context!r}, expected a text")
        if not isinstance(choices, list) or len(choices) < 2 or not all(isinstance(choice, str) and choice for choice in choices):
            raise UserError(f"{path}, line {number}: choices is {choices!r}, expected a list of at least two texts")
        if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer < len(choices):
            raise UserError(f"{path}, line {number}: answer is {answer!r}, expected an index from 0 to {len(choices) - 1}")
        questions.append(Question(context, choices, answer))
    if not questions:
        raise UserError(f"{path}: holds no question; expected one JSON object a line")
    return questions


def split_tokens(encode, context: str, choice: str) -> tuple[list[int], list[int]]:
    """Tokens of the context, and those that the choice adds.

    Both are encoded together, since a tokenizer may merge across the border; blanks at the end of the
    context belong to the choice's first token.
    """
    stripped = context.rstrip(" \t\n")
    whole = encode(context + choice)
    border = min(len(encode(stripped)), len(whole) - 1)
    return whole[:border], whole[border:]


def _pair(number: int, question: Question, choice: str, encode, first_token: int | None, context: int) -> tuple[list[int], list[int]]:
    prefix, continuation = split_tokens(encode, question.context, choice)
    if not prefix:
        if first_token is None:
            raise UserError(f"question {number}: its context holds no token, and the model has no beginning-of-text token")
        prefix = [first_token]
    if len(prefix) + len(continuation) > context:
        raise UserError(f"question {number}: {len(prefix) + len(continuation)} tokens, but the context is {context}")
    return prefix, continuation


def answer_questions(likelihoods: Callable, encode: Callable[[str], list[int]], questions: list[Question], first_token: int | None, context: int) -> Tally:
    """`likelihoods(pairs)`: those of Scorer. `first_token` stands where a question has no context of its own (usually the beginning-of-text token)."""
    pairs = [
        _pair(number, question, choice, encode, first_token, context) for number, question in enumerate(questions, 1) for choice in question.choices
    ]
    totals = iter(found.total for found in likelihoods(pairs))
    tally = Tally(tokens_scored=sum(len(continuation) for _, continuation in pairs))
    for question in questions:
        scores = np.array([next(totals) for _ in question.choices])
        lengths = [len(choice.encode()) for choice in question.choices]
        tally.questions += 1
        tally.right += int(np.argmax(scores)) == question.answer
        tally.right_normalized += int(np.argmax(scores / lengths)) == question.answer
    return tally
