# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is told of an answer: its text, which comes token by token, and its figures."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from easyquant.runtime.requests import PromptReader, Request
from easyquant.runtime.sampling import TokenLogprob, make_sampler


@dataclass
class Completion:
    """The continuation of a prompt. Printed, it is its text."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    """The new ones, without that which ended the text."""
    finish_reason: str | None = None
    """"stop": the model ended its text, its grammar did, or one of the texts `stop` came; "length": `max_tokens` or the context was reached; "error"."""
    prompt_tokens: int = 0
    seed: int | None = None
    """The seed of the random numbers, where tokens were drawn."""
    logprobs: list[TokenLogprob] | None = None
    """Each token's, where they were asked for."""
    prompt_logprobs: np.ndarray | None = field(default=None, repr=False, compare=False)
    """Each prompt token's after all before it (0 for the first one), where the prompt was scored."""
    prompt_best: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False, compare=False)
    """The most likely tokens in the place of each prompt token, and their log-probabilities, where the prompt was scored."""
    cached_tokens: int = field(default=0, compare=False)
    """Tokens of the prompt that were not read, since the engine had kept them."""
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
    guessed_tokens: int = 0
    right_tokens: int = 0  # of these
    forced_tokens: int = 0  # by grammars, which were read beside the token before them

    def count(self, sequences: int, reads_prompts: bool, seconds: float) -> None:
        """A step of so many sequences."""
        if reads_prompts:
            self.prefill_seconds += seconds
        else:
            self.decode_seconds += seconds
            self.decoded_tokens += sequences

    def count_guesses(self, guessed: int, right: int) -> None:
        self.guessed_tokens += guessed
        self.right_tokens += right
        self.decoded_tokens += right

    def count_forced(self, tokens: int) -> None:
        self.forced_tokens += tokens
        self.decoded_tokens += tokens

    def __str__(self) -> str:
        text = f"{self.prompt_tokens} prompt tokens"
        if self.prefill_seconds > 0:
            text += f" at {self.prompt_tokens / self.prefill_seconds:.0f} tokens/s"
        text += f", {self.new_tokens} new"
        if self.decoded_tokens and self.decode_seconds > 0:
            text += f" at {self.decoded_tokens / self.decode_seconds:.1f} tokens/s"
        if self.guessed_tokens:
            text += f", {self.right_tokens} of {self.guessed_tokens} guesses right"
        if self.forced_tokens:
            text += f", {self.forced_tokens} forced by grammars"
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


class Answer:
    """The answer to a request, which grows token by token. Who is told of its end gives the completion its `finish_reason`."""

    def __init__(self, request: Request, reader: PromptReader):
        self.request = request
        self.sampler = make_sampler(request.settings, request.tokens)
        self.constraint = request.grammar.start() if request.grammar else None
        self.end_tokens = reader.end_tokens | (self.constraint.end_tokens if self.constraint else frozenset())
        # A grammar says of the first space, too, whether it is there.
        self.stream = reader.tokenizer.stream(at_start=request.begins_text and self.constraint is None, shown=request.shown)
        self.stops = StopTexts(request.settings.stop)
        self.completion = Completion(prompt_tokens=len(request.tokens), seed=request.settings.seed if request.settings.temperature > 0 else None)
        self.completion.logprobs = None if request.settings.logprobs is None else []
        self.reason: str | None = None  # why it has ended
        self.error: str | None = None

    @property
    def forced(self) -> Sequence[int]:
        """Tokens that come next, whatever the model finds likely."""
        return self.constraint.forced if self.constraint else ()

    def take(self, token: int, logprob: float | None, best: list[tuple[int, float]]) -> str:
        """Appends a token, or ends; the text that is certain by it."""
        if token in self.end_tokens:
            return self._end("stop")
        self.completion.tokens.append(token)
        if self.completion.logprobs is not None:
            self.completion.logprobs.append(TokenLogprob(token, logprob, best))
        piece = self.stops.push(self.stream.push(token))
        self.completion.text += piece
        if self.stops.found:
            self.reason = "stop"
        elif self.constraint and self.constraint.take(token):
            piece += self._end("stop")
        elif len(self.completion.tokens) == self.request.max_tokens:
            piece += self._end("length")
        return piece

    def _end(self, reason: str) -> str:
        rest = self.stops.push(self.stream.finish())
        if not self.stops.found:
            rest += self.stops.finish()
        self.completion.text += rest
        self.reason = "stop" if self.stops.found else reason
        return rest

    def score(self, parts: list[tuple[np.ndarray, ...]]) -> None:
        """What pieces of the prompt were told. It ends where nothing but that is wanted."""
        count = len(self.request.tokens)
        logprobs, tokens, best = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        before = count - len(logprobs)  # tokens whose scores nobody wants
        if before > 0:
            logprobs = np.concatenate([np.zeros(before), logprobs])
            tokens = np.concatenate([np.full((before, tokens.shape[1]), -1, np.int32), tokens])
            best = np.concatenate([np.zeros((before, best.shape[1])), best])
        logprobs, tokens, best = logprobs[:count], tokens[:count], best[:count]
        self.completion.prompt_logprobs, self.completion.prompt_best = logprobs, (tokens, best)
        if self.request.max_tokens == 0:
            self.reason = "length"

    def fail(self, error: str) -> None:
        self.reason, self.error = "error", error
