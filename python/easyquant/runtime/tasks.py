# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A request that an engine answers, as a job of its schedule: what of it its sequence holds, what the next step reads, and what is told."""

import time
from collections.abc import Sequence

import numpy as np

from easyquant.runtime.drafts import Pace
from easyquant.runtime.events import Event, Events
from easyquant.runtime.generation import Answer
from easyquant.runtime.requests import PromptReader, Request
from easyquant.runtime.schedule import Job


class Task(Job):
    """A request as a job."""

    def __init__(self, number: int, request: Request, reader: PromptReader, priority: int, deadline: float | None, events: Events, hashes: list[bytes]):
        super().__init__(number, time.monotonic(), len(request.tokens), priority, deadline)
        self.number, self.request, self.events, self.hashes = number, request, events, hashes
        self.answer = Answer(request, reader)
        self.sequence: int | None = None
        self.saved: bytes | None = None  # while it stands aside
        self.fresh = True  # has not begun
        self.branch = 0  # tokens that an earlier text begins with, too, so that others may; 0: it is not to be kept
        self.pace: Pace | None = None  # where tokens are guessed
        self.guessed: Sequence[int] = ()  # for the next step; `guesses` of them are in it
        self.is_certain = False  # they are what a grammar forces
        self.guessing = True
        self.known = self.settled = 0  # tokens of the answer that the source of guesses knows, and what was held before this step
        self.rows: np.ndarray | None = None  # logits behind the last token and behind each guess, until all of them are verified
        self.scores: list[tuple[np.ndarray, ...]] = []

    @property
    def all_tokens(self) -> np.ndarray:
        return np.concatenate([self.request.tokens, np.asarray(self.answer.completion.tokens, np.int32)])

    def next_tokens(self, count: int) -> Sequence[int]:
        begin, prompt = self.held, self.request.tokens
        if begin + count <= len(prompt):
            return prompt[begin : begin + count]
        if begin >= len(prompt):
            return self.answer.completion.tokens[begin - len(prompt) :][:count]
        return self.all_tokens[begin : begin + count]

    @property
    def is_scored(self) -> bool:
        """Are log-probabilities wanted of what it reads?"""
        return self.request.score is not None and self.answer.completion.prompt_logprobs is None

    def item(self, count: int) -> tuple:
        """What `_runtime.Batch.append` is asked."""
        if self.guesses:
            return self.sequence, [*self.next_tokens(1), *self.guessed[: self.guesses]], None
        item = (self.sequence, self.next_tokens(count))
        return (*item, self.request.score) if self.is_scored and self.held + count > self.request.score_from else item

    def place(self) -> tuple:
        """What `_runtime.Batch.choose` is asked."""
        item = (self.sequence, self.answer.sampler)
        return item if self.rows is None else (*item, self.rows[self.held - self.settled - 1], self.held)

    def guess(self, tokens: Sequence[int], is_certain: bool = False) -> None:
        """What the next step is to verify."""
        self.guessed, self.guesses, self.is_certain = tokens, len(tokens), is_certain

    def take_guess(self, token: int) -> bool:
        """Was the next guess this token, which its sequence then holds already?"""
        place = self.held - self.settled - 1
        if self.rows is None or place >= self.guesses or self.guessed[place] != token:
            return False
        self.held += 1
        return True

    def tell(self, piece: str = "") -> None:
        read, completion = min(self.held, len(self.request.tokens)), self.answer.completion
        self.events.put(Event(self.number, piece, completion, read, len(completion.tokens), self.answer.reason, self.answer.error))
