# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Speculation: tokens that may come next, guessed cheaply and verified by the model in one step (Y. Leviathan et al., "Fast Inference from
Transformers via Speculative Decoding", 2023).

A guess is right where it is the token that the model chooses in its place. Tokens are drawn by seed and position, so that this is
equality, at any temperature, and the answer is the one without guesses. `Drafts` is what an engine asks; here are three: the text itself
(A. Saxena, "Prompt Lookup Decoding", 2023), a smaller model of the same tokenizer, and a head that the model was trained with (F. Gloeckle et
al., "Better & Faster Large Language Models via Multi-token Prediction", 2024). `Pace` says how many tokens are worth guessing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from easyquant.runtime.artifact import Artifact, BatchSize, load_model, open_batch
from easyquant.runtime.device import AUTO, Placement
from easyquant.runtime.extension import runtime
from easyquant.runtime.requests import PromptReader
from easyquant.support.errors import UserError, expect, is_whole
from easyquant.text.tokenizer import load_tokenizer

DRAFT_TOKENS, MOST_DRAFT_TOKENS = 8, 63  # in a step, at most
NGRAM, HEAD, NONE = "ngram", "head", "none"
GRAM = 3  # tokens that must have come before in the same order
CATCH_UP = 256  # tokens of a prompt that a draft model reads in a step


class Asked(NamedTuple):
    """How many tokens are wanted, behind which one, in which sequence of the engine's batch, which has not read it."""

    count: int
    sequence: int
    token: int


class Drafts(Protocol):
    """A source of drafts for the sequences of an engine, called in its thread only."""

    def begin(self, number: int, tokens: Sequence[int]) -> None:
        """A new sequence, of which there are these tokens."""

    def propose(self, asked: Mapping[int, Asked]) -> Mapping[int, Sequence[int]]:
        """For each of the sequences at most so many tokens that may come next; none where it does not know."""

    def accept(self, number: int, tokens: Sequence[int]) -> None:
        """The tokens that came next, whether they were proposed or not."""

    def end(self, number: int) -> None:
        """The sequence is done."""


# ------------------------------------------------------------------------------------------------------ the text itself


class _Text:
    def __init__(self, tokens: Sequence[int]):
        self.tokens: list[int] = []
        self._behind: dict[tuple[int, ...], int] = {}  # the place behind the last GRAM tokens of this kind
        self._next: int | None = None  # the place of the token that came here before
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        for token in map(int, tokens):
            follows = self._next is not None and self.tokens[self._next] == token
            self.tokens.append(token)
            gram = tuple(self.tokens[-GRAM:])
            # Who copies goes on copying from there: what came before is longer than GRAM tokens then.
            self._next = self._next + 1 if follows else self._behind.get(gram)
            if len(gram) == GRAM:
                self._behind[gram] = len(self.tokens)

    def propose(self, count: int) -> list[int]:
        return [] if self._next is None else self.tokens[self._next : self._next + count]


class NGrams:
    """Proposes what came behind the last GRAM tokens when they came before: for answers that repeat the prompt or themselves, such as edited code."""

    def __init__(self):
        self._texts: dict[int, _Text] = {}

    def begin(self, number: int, tokens: Sequence[int]) -> None:
        self._texts[number] = _Text(tokens)

    def propose(self, asked: Mapping[int, Asked]) -> dict[int, list[int]]:
        return {number: self._texts[number].propose(wanted.count) for number, wanted in asked.items()}

    def accept(self, number: int, tokens: Sequence[int]) -> None:
        self._texts[number].extend(tokens)

    def end(self, number: int) -> None:
        self._texts.pop(number, None)


# ------------------------------------------------------------------------------------------------- the head of the model


class DraftHead:
    """Proposes what the model's own head for drafts finds most likely. The batch that has the sequences keeps what the head reads."""

    def __init__(self, batch):
        self._batch = batch

    def begin(self, number: int, tokens: Sequence[int]) -> None:
        pass

    def propose(self, asked: Mapping[int, Asked]) -> dict[int, list[int]]:
        return dict(zip(asked, self._batch.draft([(sequence, token, count) for count, sequence, token in asked.values()]), strict=True))

    def accept(self, number: int, tokens: Sequence[int]) -> None:
        pass

    def end(self, number: int) -> None:
        pass


# -------------------------------------------------------------------------------------------------------- another model


@dataclass
class _Copy:
    """A sequence as the draft model has it."""

    tokens: list[int]  # that are known
    sequence: int | None = None
    held: list[int] = field(default_factory=list)  # of the model's cache: known ones and guesses
    trunk: int | None = None  # the sequence that `sequence` is a fork of, for guesses

    def unread(self) -> tuple[int, list[int]]:
        """Where the cache is to be cut, and the tokens to be read from there on, at least the last one."""
        same = next((place for place, (one, other) in enumerate(zip(self.held, self.tokens)) if one != other), min(len(self.held), len(self.tokens)))
        begin = min(same, len(self.tokens) - 1)
        return begin, self.tokens[begin:]


class DraftModel:
    """Proposes the most likely tokens of another artifact, whose tokenizer must be the same.

    Guesses that were wrong are cut off, but where layers have a recurrent state: there a fork has them, and the right ones are read again.
    """

    def __init__(self, artifact: Artifact, reader: PromptReader, size: BatchSize, threads: int = 0, place: Placement = AUTO):
        check_tokenizer(artifact, reader)
        context = min(size.context, artifact.max_context)
        model = load_model(artifact, place=place)
        self._forks = artifact.state_bytes > 0
        sequences, tokens = size.sequences, size.tokens
        if self._forks:  # which have copies of a page that is not full, and the page behind it
            tokens += 2 * sequences * int(artifact.cache_pages(model.device)["page_tokens"])
            sequences *= 2
        self._batch = open_batch(model, BatchSize(context, sequences, tokens), threads)
        self._context, self._vocabulary, self._sampler = context, reader.vocabulary, runtime().Sampler
        self._copies: dict[int, _Copy] = {}

    def begin(self, number: int, tokens: Sequence[int]) -> None:
        self._copies[number] = _Copy(list(map(int, tokens)))

    def accept(self, number: int, tokens: Sequence[int]) -> None:
        self._copies[number].tokens += map(int, tokens)

    def end(self, number: int) -> None:
        copy = self._copies.pop(number, None)
        for sequence in (copy.sequence, copy.trunk) if copy is not None else ():
            if sequence is not None:
                self._batch.remove(sequence)

    def propose(self, asked: Mapping[int, Asked]) -> dict[int, list[int]]:
        guesses: dict[int, list[int]] = {number: [] for number in asked}
        going = [number for number in self._read(asked) if self._fork(self._copies[number])]
        while going:
            chosen = self._batch.choose([(self._copies[number].sequence, self._sampler()) for number in going])
            going = [number for number, result in zip(going, chosen, strict=True) if self._takes(guesses[number], result) and len(guesses[number]) < asked[number].count]
            going = self._append({number: guesses[number][-1:] for number in going})
        return guesses

    def _fork(self, copy: _Copy) -> bool:
        """For guesses, where they are not cut off; False: there is no room for it."""
        if not self._forks:
            return True
        try:
            fork = self._batch.fork(copy.sequence)
        except runtime().Error:
            return False
        copy.trunk, copy.sequence = copy.sequence, fork
        return True

    def _join(self, copy: _Copy) -> None:
        if copy.trunk is not None:
            self._batch.remove(copy.sequence)
            copy.sequence, copy.trunk = copy.trunk, None
            del copy.held[self._batch.position(copy.sequence) :]

    def _takes(self, guesses: list[int], result) -> bool:
        if isinstance(result, runtime().Error) or result[0] >= self._vocabulary:
            return False
        guesses.append(result[0])
        return True

    def _read(self, asked: Mapping[int, Asked]) -> list[int]:
        """Reads what came; the sequences whose last token has been read."""
        parts, whole = {}, set()
        for number in asked:
            copy = self._copies[number]
            self._join(copy)
            begin, tokens = copy.unread()
            if len(copy.tokens) + asked[number].count > self._context:
                continue
            try:
                if copy.sequence is None:
                    copy.sequence = self._batch.add()
                if begin < len(copy.held):
                    self._batch.truncate(copy.sequence, begin)
            except runtime().Error:  # there is no room: no guesses
                continue
            del copy.held[begin:]
            parts[number] = tokens[:CATCH_UP]
            if len(tokens) <= CATCH_UP:
                whole.add(number)
        return [number for number in self._append(parts) if number in whole]

    def _append(self, parts: Mapping[int, list[int]]) -> list[int]:
        """The sequences that there was room for."""
        if not parts:
            return []
        results = self._batch.append([(self._copies[number].sequence, tokens) for number, tokens in parts.items()])
        read = [number for number, result in zip(parts, results, strict=True) if result is None]
        for number in read:
            self._copies[number].held += parts[number]
        return read


def check_tokenizer(artifact: Artifact, reader: PromptReader) -> None:
    tokenizer = load_tokenizer(artifact.path, int(artifact.model["vocab_size"]))
    ours, theirs = reader.tokenizer.vocabulary(), tokenizer.vocabulary()
    if ours != theirs:
        common = sum(theirs.get(token) == number for token, number in ours.items())
        raise UserError(
            f"speculate {artifact.path}: {common} of the {len(ours)} tokens of {reader.artifact.path} have the same numbers in its tokenizer, "
            "expected all; give an artifact of the same family of models"
        )


@dataclass(frozen=True)
class Speculation:
    """What guesses come from: "ngram", the text itself; "head", the model's own head for drafts; an artifact; or "none". At most so many tokens in
    a step. An engine on CPUs that is told nothing takes the head where the model has one."""

    source: str
    draft_tokens: int = DRAFT_TOKENS

    @classmethod
    def of(cls, source: str | Path | None, draft_tokens: int | None) -> "Speculation | None":
        expect("draft_tokens", draft_tokens, draft_tokens is None or is_whole(draft_tokens) and 1 <= draft_tokens <= MOST_DRAFT_TOKENS, f"1 to {MOST_DRAFT_TOKENS}")
        if source is None:
            if draft_tokens is not None:
                raise UserError('draft_tokens: goes with speculate, "head", "ngram" or an artifact')
            return None
        if str(source) == NONE and draft_tokens is not None:
            raise UserError('draft_tokens: found with speculate "none", which guesses nothing; leave one of the two out')
        return cls(str(source), draft_tokens or DRAFT_TOKENS)

    def check(self, reader: PromptReader) -> None:
        """UserError where it cannot be: what was guessed wrong is cut off again, and only a float cache is then as if it had never been there."""
        artifact = reader.artifact
        if self.source == NONE:
            return
        if artifact.lasting:
            raise UserError(
                f"speculate: {artifact.path} has {artifact.lasting}, which forgets no token exactly; speculation needs a float KV cache and no online scales"
            )
        if self.source == HEAD and not artifact.has_draft_head:
            raise UserError(f"speculate: {artifact.path} has no head that drafts tokens; compile a checkpoint that has one, or take ngram")
        if self.source not in (NGRAM, HEAD):
            check_tokenizer(Artifact.open(Path(self.source)), reader)

    @classmethod
    def settled(cls, asked: "Speculation | None", artifact: Artifact, device: str) -> "Speculation | None":
        """What an engine does that is asked for this: None where nothing is guessed."""
        if asked is None:
            return cls(HEAD) if artifact.has_draft_head and artifact.lasting is None and device == "cpu" else None
        return None if asked.source == NONE else asked

    def open(self, reader: PromptReader, batch, size: BatchSize, threads: int = 0, place: Placement = AUTO) -> Drafts:
        """`batch` has the sequences, which are at most of `size`."""
        if self.source == HEAD:
            return DraftHead(batch)
        return NGrams() if self.source == NGRAM else DraftModel(Artifact.open(Path(self.source)), reader, size, threads, place)


# ------------------------------------------------------------------------------------------------------ how many tokens

_PRIOR = 0.6  # that a guess is right
_LEARNING = 0.15  # of what is known of guesses, for each new one
_RECOVERY = 0.002  # of the prior, for each step without a guess
_LEAST_GAIN = 1.02
_ROW_SHARE = 0.2  # of a step of one row that another row takes, until it has been measured
_FORGETTING = 0.05


class RowCost:
    """Seconds of steps without prompts as a line over their rows, by least squares that forget, and those of a guess."""

    def __init__(self):
        self._rows = self._seconds = self._square = self._product = self._guess = 0.0
        self._steps = 0

    def guessed(self, tokens: int, seconds: float) -> None:
        if tokens > 0:
            self._guess += (_FORGETTING if self._guess else 1.0) * (seconds / tokens - self._guess)

    def measured(self, rows: int, seconds: float) -> None:
        share = max(_FORGETTING, 1 / (self._steps + 1))
        self._steps += 1
        self._rows += share * (rows - self._rows)
        self._seconds += share * (seconds - self._seconds)
        self._square += share * (rows * rows - self._square)
        self._product += share * (rows * seconds - self._product)

    def share(self, rows: int) -> float:
        """What one more row takes with its guess, as a share of a step of so many."""
        variance = self._square - self._rows**2
        if self._steps < 8 or variance < 0.05:
            return _ROW_SHARE / max(1, rows)
        slope = max(0.0, (self._product - self._rows * self._seconds) / variance)
        whole = self._seconds + slope * (rows - self._rows)
        return (slope + self._guess) / whole if whole > 0 else _ROW_SHARE


class Pace:
    """How many tokens of a sequence are worth guessing: as many as let the most tokens come for the time, by how often guesses were right."""

    def __init__(self, most: int):
        self._most, self._rate = most, _PRIOR

    def length(self, row_share: float) -> int:
        best, length, expected, chance = _LEAST_GAIN, 0, 1.0, 1.0
        for count in range(1, self._most + 1):
            chance *= self._rate
            expected += chance
            if (gain := expected / (1 + count * row_share)) > best:
                best, length = gain, count
        if length == 0:
            self._rate += _RECOVERY * (_PRIOR - self._rate)
        return length

    def tell(self, guessed: int, right: int) -> None:
        for hit in [1.0] * right + [0.0] * (right < guessed):
            self._rate += _LEARNING * (hit - self._rate)
