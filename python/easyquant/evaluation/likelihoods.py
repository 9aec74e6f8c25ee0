# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How likely a model finds texts behind others: what `easyquant eval --choices` and lm-eval's model `easyquant` stand on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.device import AUTO, Placement
from easyquant.runtime.engine import Engine, EngineOptions
from easyquant.runtime.requests import PromptReader, Request, Settings
from easyquant.support.errors import UserError, expect

SEQUENCES = 16


@dataclass(frozen=True)
class Likelihood:
    total: float  # natural logarithm of the probability of the continuation
    is_greedy: bool  # each of its tokens is the most likely one in its place


class Scorer:
    """An artifact, open for scoring. `context`: tokens that a text and its continuation may have; 0: as many as the model can."""

    def __init__(self, artifact: Artifact, context: int = 0, threads: int = 0, place: Placement = AUTO, sequences: int = SEQUENCES):
        self.artifact, self.reader = artifact, PromptReader(artifact, context)
        self.model = load_model(artifact, place=place)
        self._threads, self._sequences = threads, sequences
        self._engine: Engine | None = None

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def engine(self, requests: Sequence[Request]) -> Engine:
        """One that has room for these, several at a time."""
        size = BatchSize.of(self.artifact, self.model.device, [request.positions for request in requests], self._sequences)
        if self._engine is None or not self._engine.size.holds(size):
            self.close()
            size = size if self._engine is None else size.union(self._engine.size)
            self._engine = Engine(self.model, self.artifact, self.reader, size, EngineOptions(self._threads))
        return self._engine

    def likelihoods(self, pairs: Sequence[tuple[list[int], list[int]]], advance: Callable[[], None] = lambda: None) -> list[Likelihood]:
        """How likely continuations are, each behind its beginning, both as tokens and at least one. UserError where one cannot be had."""
        requests = []
        for number, (beginning, continuation) in enumerate(pairs, 1):
            tokens = np.asarray(beginning + continuation, np.int32)
            holds = len(beginning) > 0 and len(continuation) > 0
            expect(f"text {number}", (len(beginning), len(continuation)), holds, "at least one token in the beginning and one in the continuation")
            if len(tokens) > self.reader.context:
                raise UserError(f"text {number}: {len(tokens)} tokens, but the context is {self.reader.context}")
            requests.append(Request(tokens, 0, Settings(), begins_text=False, is_text=False, score=1, score_from=len(beginning)))
        found: list[Likelihood | None] = [None] * len(pairs)
        for place, completion in self._completions(requests):
            begin, tokens = requests[place].score_from, requests[place].tokens
            likeliest = completion.prompt_best[0][begin:, 0]
            found[place] = Likelihood(float(completion.prompt_logprobs[begin:].sum()), bool((likeliest == tokens[begin:]).all()))
            advance()
        return found

    def _completions(self, requests: list[Request]) -> Iterator[tuple[int, object]]:
        if not requests:
            return
        for event, place in self.engine(requests).follow(requests):
            if event.error:
                raise UserError(event.error)
            if event.reason:
                yield place, event.completion
