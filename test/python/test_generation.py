# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Continuous batching, on a model of a line of Python: what joins when, and what ends."""

from types import SimpleNamespace

import numpy as np
import pytest

from easyquant.runtime.generation import Completion, Speed, StopTexts, complete
from easyquant.runtime.requests import Request, Settings

VOCABULARY, END = 50, 7


class LineOfPython:
    """A batch whose next token is a function of all before it."""

    def __init__(self, sequences, fails=()):
        self.sequences, self.fails, self.held, self.steps, self.added = sequences, fails, {}, [], 0

    def add(self):
        assert len(self.held) < self.sequences
        self.held[self.added] = []
        self.added += 1
        return self.added - 1

    def remove(self, sequence):
        del self.held[sequence]

    def append(self, items, progress=None):
        self.steps.append([len(tokens) for _, tokens in items])
        for sequence, tokens in items:
            self.held[sequence] += list(tokens)
        return [RuntimeError("no more") if sequence in self.fails and len(self.held[sequence]) > 4 else None for sequence, _ in items]

    def choose(self, items):
        return [(next_token(self.held[sequence]), None, []) for sequence, _ in items]


def next_token(tokens):
    return (31 * int(sum(tokens)) + 17 * len(tokens)) % VOCABULARY


def expected(prompt, limit):
    tokens = list(prompt)
    while len(tokens) < len(prompt) + limit and (token := next_token(tokens)) != END:
        tokens.append(token)
    return tokens[len(prompt) :], "length" if len(tokens) == len(prompt) + limit else "stop"


READER = SimpleNamespace(
    end_tokens={END}, tokenizer=SimpleNamespace(stream=lambda at_start: SimpleNamespace(push=lambda token: f"{token} ", finish=lambda: ""))
)


def request(prompt, limit, **settings):
    return Request(np.asarray(prompt, np.int32), limit, Settings(max_tokens=limit, **settings), begins_text=False, is_text=False)


@pytest.fixture
def requests():
    random = np.random.default_rng(0)
    return [request(random.integers(0, VOCABULARY, random.integers(2, 9)), int(random.integers(1, 20))) for _ in range(40)]


def finished(events):
    return {number: completion for number, _, completion in events if completion.finish_reason}


@pytest.mark.parametrize("sequences", [1, 3, 16, 100])
def test_each_is_what_it_is_alone(requests, sequences):
    batch, pieces = LineOfPython(sequences), [""] * len(requests)
    events = []
    for number, piece, completion in complete(batch, READER, requests, sequences):
        pieces[number] += piece
        events.append((number, piece, completion))
    for number, completion in finished(events).items():
        asked = requests[number]
        assert (completion.tokens, completion.finish_reason) == expected(asked.tokens, asked.max_tokens)
        assert completion.text == pieces[number] == "".join(f"{token} " for token in completion.tokens)
        assert completion.prompt_tokens == len(asked.tokens)
    assert len(finished(events)) == len(requests) and not batch.held


def test_the_next_joins_as_one_ends(requests):
    batch, speed = LineOfPython(4), Speed()
    for _ in complete(batch, READER, requests, 4, speed):
        pass
    joined = 0
    for step in batch.steps:
        joined += sum(rows > 1 for rows in step)  # a prompt has two tokens at least
        assert len(step) == 4 or joined == len(requests)
    tokens = [expected(asked.tokens, asked.max_tokens)[0] for asked in requests]
    assert speed.prompt_tokens == sum(len(asked.tokens) for asked in requests) and speed.new_tokens == sum(map(len, tokens))
    # As many steps as the longest of four queues could have, not as many as all tokens.
    assert len(batch.steps) < sum(len(own) + 1 for own in tokens) / 2


def test_one_that_fails_leaves_the_others(requests):
    fails = {number for number, asked in enumerate(requests) if number % 3 == 0 and len(asked.tokens) > 4}
    batch = LineOfPython(4, fails)
    done = finished(complete(batch, READER, requests, 4))
    for number, completion in done.items():
        if completion.finish_reason == "error":
            assert number in fails and completion.error == "no more"
        else:
            assert completion.tokens == expected(requests[number].tokens, requests[number].max_tokens)[0]
    assert len(done) == len(requests) and {number for number in done if done[number].error} == fails and not batch.held


def test_who_leaves_takes_everything_along(requests):
    batch = LineOfPython(4)
    events = complete(batch, READER, requests, 4)
    for _ in range(9):
        next(events)
    assert batch.held
    events.close()
    assert not batch.held


def test_ends_before_a_text():
    prompt = [1, 2, 3]
    tokens = expected(prompt, 10)[0]
    (completion,) = finished(complete(LineOfPython(1), READER, [request(prompt, 10, stop=f"{tokens[3]} {tokens[4]}")], 1)).values()
    assert completion.text == "".join(f"{token} " for token in tokens[:3]) and completion.finish_reason == "stop"
    assert completion.tokens == tokens[:5]


@pytest.mark.parametrize("seed", range(200))
def test_stops_in_pieces(seed):
    random = np.random.default_rng(seed)
    text = "".join(random.choice(list("ab"), 40))
    stops = ["".join(random.choice(list("ab"), random.integers(2, 8))) for _ in range(2)]
    cuts = sorted(random.integers(0, 41, 12))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, 40])]
    stop, shown, read = StopTexts(stops), "", ""
    for piece in pieces:
        read += piece
        shown += stop.push(piece)
        if stop.found:
            break
        assert read.startswith(shown) and not any(read[len(shown) :].startswith(whole) for whole in stops)
        # Held back is only what may be the beginning of a stop.
        assert read == shown or any(whole.startswith(read[len(shown) :]) for whole in stops)
    places = [read.find(whole) for whole in stops if whole in read]
    assert stop.found == bool(places)
    assert shown + stop.finish() == (read[: min(places)] if places else text)


def test_a_completion_is_printed_as_its_text():
    assert str(Completion(text="Paris")) == "Paris" and not Completion().error
