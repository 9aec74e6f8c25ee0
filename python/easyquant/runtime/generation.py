# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Continues prompts, many in one step of the model: as one ends, the next one takes its place.

What becomes of a prompt does not depend on the others: the runtime gives each sequence the logits that it has alone, and
each has a generator of random numbers of its own.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from easyquant.runtime.extension import runtime
from easyquant.runtime.requests import PromptReader, Request
from easyquant.runtime.sampling import TokenLogprob, make_sampler
from easyquant.support.errors import UserError


@dataclass
class Completion:
    """The continuation of a prompt. Printed, it is its text."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    """The new ones, without that which ended the text."""
    finish_reason: str | None = None
    """"stop": the model ended its text, or one of the texts `stop` came; "length": `max_tokens` or the context was reached; "error"."""
    prompt_tokens: int = 0
    seed: int | None = None
    """The seed of the random numbers, where tokens were drawn."""
    logprobs: list[TokenLogprob] | None = None
    """Of each of the tokens, where they were asked for."""
    error: str | None = None
    """What went wrong, where something did."""

    def __str__(self) -> str:
        return self.text


@dataclass
class Speed:
    """The speed of one generation, filled in while it runs."""

    prompt_tokens: int = 0
    prefill_seconds: float = 0.0  # of steps that read prompts
    new_tokens: int = 0
    decoded_tokens: int = 0
    decode_seconds: float = 0.0  # of all other steps

    def __str__(self) -> str:
        text = f"{self.prompt_tokens} prompt tokens"
        if self.prefill_seconds > 0:
            text += f" at {self.prompt_tokens / self.prefill_seconds:.0f} tokens/s"
        text += f", {self.new_tokens} new"
        if self.decoded_tokens and self.decode_seconds > 0:
            text += f" at {self.decoded_tokens / self.decode_seconds:.1f} tokens/s"
        return text


class StopTexts:
    """A text that comes in pieces, up to the first of some texts."""

    def __init__(self, texts: Sequence[str]):
        self.texts, self.found, self._held = texts, False, ""

    def push(self, piece: str) -> str:
        """The text that is certain once `piece` has come: what may be the beginning of a stop is held back."""
        if not self.texts:
            return piece
        text = self._held + piece
        places = [place for stop in self.texts if (place := text.find(stop)) >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)]
        longest = min(len(text), max(map(len, self.texts)) - 1)
        held = next((count for count in range(longest, 0, -1) if any(stop.startswith(text[-count:]) for stop in self.texts)), 0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


class _Sequence:
    """A request that a batch is working on."""

    def __init__(self, number: int, request: Request, identifier: int, reader: PromptReader):
        self.number, self.request, self.id, self.end_tokens = number, request, identifier, reader.end_tokens
        self.sampler = make_sampler(request.settings, request.tokens)
        self.stream = reader.tokenizer.stream(at_start=request.begins_text)
        self.stops = StopTexts(request.settings.stop)
        self.completion = Completion(prompt_tokens=len(request.tokens), seed=request.settings.seed if request.settings.temperature > 0 else None)
        self.completion.logprobs = None if request.settings.logprobs is None else []
        self.unread: Sequence[int] = request.tokens

    def take(self, token: int, logprob: float | None, best: list[tuple[int, float]]) -> str:
        """Appends a token, or ends; the text that is certain by it."""
        if token in self.end_tokens:
            return self.end("stop")
        self.completion.tokens.append(token)
        if self.completion.logprobs is not None:
            self.completion.logprobs.append(TokenLogprob(token, logprob, best))
        self.unread = (token,)
        piece = self.stops.push(self.stream.push(token))
        self.completion.text += piece
        if self.stops.found:
            self.completion.finish_reason = "stop"
        elif len(self.completion.tokens) == self.request.max_tokens:
            piece += self.end("length")
        return piece

    def end(self, reason: str) -> str:
        rest = self.stops.push(self.stream.finish())
        if not self.stops.found:
            rest += self.stops.finish()
        self.completion.text += rest
        self.completion.finish_reason = "stop" if self.stops.found else reason
        return rest


def complete(
    batch,
    reader: PromptReader,
    requests: Sequence[Request],
    sequences: int,
    speed: Speed | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[int, str, Completion]]:
    """Continues requests, so many `sequences` at a time, in an empty `_runtime.Batch`, and leaves it empty.

    Yields for each new token the number of its request, the text that it adds, and the completion so far, which has a
    `finish_reason` once it is whole. `progress` is told how many tokens of prompts have been read. A request that fails is
    whole, too; UserError is what fails all.
    """
    speed = speed if speed is not None else Speed()
    waiting, running = deque(enumerate(requests)), []
    try:
        while waiting or running:
            reads_prompts = bool(waiting) and len(running) < sequences
            while waiting and len(running) < sequences:
                number, request = waiting.popleft()
                running.append(_Sequence(number, request, batch.add(), reader))
                speed.prompt_tokens += len(request.tokens)
            begin = time.perf_counter()
            results = batch.append([(sequence.id, sequence.unread) for sequence in running], progress=progress if reads_prompts else None)
            seconds = time.perf_counter() - begin
            if reads_prompts:
                speed.prefill_seconds += seconds
            else:
                speed.decode_seconds += seconds
                speed.decoded_tokens += len(running)
            read = [sequence for sequence, failed in zip(running, results, strict=True) if failed is None]
            chosen = iter(batch.choose([(sequence.id, sequence.sampler) for sequence in read]))
            results = [next(chosen) if failed is None else failed for failed in results]
            for sequence, result in zip(tuple(running), results, strict=True):
                completion, count = sequence.completion, len(sequence.completion.tokens)
                if isinstance(result, tuple):
                    piece = sequence.take(*result)
                else:
                    piece, completion.finish_reason, completion.error = "", "error", str(result)
                speed.new_tokens += len(completion.tokens) - count
                if completion.finish_reason:
                    running.remove(sequence)
                    batch.remove(sequence.id)
                yield sequence.number, piece, completion
    except runtime().Error as error:
        raise UserError(str(error)) from None
    finally:
        for sequence in running:
            batch.remove(sequence.id)
