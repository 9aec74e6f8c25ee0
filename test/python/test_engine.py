# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The engine on a compiled model: what requests get in a crowd, with few pages, after a hit in the cache, and when they leave."""

import dataclasses
import json
import queue
import random
import threading
import time

import numpy as np
import pytest

from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.engine import Engine, EngineOptions
from easyquant.runtime.requests import PromptReader, Request, Settings
from easyquant.support.errors import UserError
from calibrating import write_tokens
from helpers import Runner, random_llama, random_tokens, write_letters, write_model

CONTEXT, PAGE = 512, 64
CACHES = {"f16": (), "int8": ("--kv-scheme=int8", "--kv-group=16", "--kv-residual=32", "--kv-sinks=4"), "online": ("--activations=online-ema", "--online-tokens=12")}


@pytest.fixture(scope="module")
def model(workspace):
    """It seldom ends its text."""
    return write_letters(write_model(workspace / "engine-letters", *random_llama(seed=11, context=CONTEXT)))


@pytest.fixture(scope="module")
def folder(artifact, model):
    return artifact(model, "--scheme=W8A8", *(f"--copy-file={model / name}" for name in ("tokenizer.json", "tokenizer_config.json")))


class Bench:
    def __init__(self, folder):
        self.artifact = Artifact.open(folder)
        self.reader, self.model = PromptReader(self.artifact), load_model(self.artifact)

    def engine(self, sequences=4, tokens=4 * CONTEXT, **options):
        return Engine(self.model, self.artifact, self.reader, BatchSize(CONTEXT, sequences, tokens), EngineOptions(threads=2, **options))


@pytest.fixture(scope="module")
def bench(folder):
    return Bench(folder)


def request(tokens, limit, score=None, **settings):
    return Request(np.asarray(tokens, np.int32), limit, Settings(max_tokens=limit or 1, **settings), begins_text=False, is_text=False, score=score)


def crowd(count, seed=0, longest=200):
    """Requests of all kinds."""
    choice = random.Random(seed)
    made = []
    for number in range(count):
        tokens = [choice.randrange(3, 97) for _ in range(choice.choice([1, 5, 30, 63, 64, 65, longest]))]
        options = [{}, {"temperature": 3.0, "seed": number}, {"temperature": 2.0, "seed": number, "top_p": 0.9, "presence_penalty": 0.5, "logprobs": 2}][number % 3]
        made.append(request(tokens, choice.randint(1, 60), **options))
    return made


def answers(engine, requests):
    done = {}
    for number, _, completion in engine.complete(requests):
        done[number] = completion
    assert all(completion.finish_reason for completion in done.values()) and len(done) == len(requests)
    return [done[number] for number in range(len(requests))]


def assert_all_given_back(engine):
    """Nothing but beginnings that are kept has pages."""
    while engine.prefixes.evict():
        pass
    assert engine._batch.free_pages == engine._batch.pages and not engine._tasks and not engine._scheduler.running


@pytest.fixture(scope="module")
def alone(bench):
    requests = crowd(40)
    with bench.engine(1, kept_tokens=0) as engine:
        return requests, [answers(engine, [one])[0] for one in requests]


def test_greedy_answers_are_those_of_a_session(bench, folder, alone):
    runner = Runner(folder, threads=2)
    for asked, completion in list(zip(*alone, strict=True))[::3]:
        tokens = runner.greedy(asked.tokens, len(completion.tokens))
        assert tokens[len(asked.tokens) :] == completion.tokens


@pytest.mark.parametrize("sequences, tokens, kept", [(4, 4 * CONTEXT, 0), (16, 8 * CONTEXT, 1 << 16), (5, 6 * PAGE, 0), (16, 8 * PAGE, 1 << 16), (1, 5 * PAGE, 100)])
def test_each_is_in_a_crowd_what_it_is_alone(bench, alone, sequences, tokens, kept):
    requests, expected = alone
    with bench.engine(sequences, tokens, kept_tokens=kept) as engine:
        assert answers(engine, requests) == expected
        assert_all_given_back(engine)
        tokens = sum(len(one.tokens) for one in expected)
        assert engine.speed.prompt_tokens == sum(len(one.tokens) for one in requests) and engine.speed.new_tokens == tokens


def test_who_steps_back_goes_on_with_the_same_bits(bench, monkeypatch):
    requests = [request([3 + number] * (20 + 9 * number), 150, temperature=3.0, seed=number) for number in range(8)]
    with bench.engine(1, kept_tokens=0) as engine:
        expected = [answers(engine, [one])[0] for one in requests]
    for reads_again in (False, True):
        moved = []
        with bench.engine(8, 9 * PAGE, kept_tokens=0) as engine:
            aside = engine.set_aside
            monkeypatch.setattr(engine, "set_aside", lambda task: (moved.append(task.number), aside(task)))
            engine._can_save = not reads_again
            found = answers(engine, requests)
            assert_all_given_back(engine)
        assert len(moved) > 3 and {completion.finish_reason for completion in found} <= {"length", "stop"}
        assert found == expected  # also where tokens that came one by one are read again in pieces


@pytest.mark.parametrize("scheme", ["W8A8", "W4A8", "W4A16", "none", "mixed"])
def test_one_answer(artifact, model, workspace, scheme):
    """Alone, in a crowd that has few pages and loses some, and as a next turn behind beginnings that are kept: the same bytes."""
    files = [f"--copy-file={model / name}" for name in ("tokenizer.json", "tokenizer_config.json")]
    options = [f"--scheme={scheme}"]
    if scheme == "mixed":  # floats, codes beside floats, and codes beside codes
        recipe = workspace / "engine-mixed.json"
        recipe.write_text(json.dumps({"scheme": "W4A8", "sites": [{"match": "re:down_proj$", "scheme": "W6A16"}, {"match": "re:o_proj$", "scheme": "none"}]}))
        options = [f"--recipe={recipe}"]
    bench = Bench(artifact(model, *options, *files))
    requests = crowd(14, seed=5)
    with bench.engine(1, kept_tokens=0) as engine:
        expected = [answers(engine, [one])[0] for one in requests]
        next_turns = [request([*one.tokens, *done.tokens, 5, 6], 20, temperature=2.0, seed=7, logprobs=2) for one, done in zip(requests, expected, strict=True)]
        expected_next = [answers(engine, [one])[0] for one in next_turns]
    with bench.engine(8, 2 * CONTEXT) as engine:
        leaving = [engine.submit(request([9 + number] * 40, 400)) for number in range(3)]
        following = engine.complete(requests)
        done = {}
        for number, _, completion in following:
            done[number] = completion
            if len(done) == 5:
                for handle in leaving:
                    handle.cancel()
        assert [done[number] for number in range(len(requests))] == expected
        assert_all_given_back(engine)
    with bench.engine(4, 8 * CONTEXT) as engine:
        assert answers(engine, requests) == expected
        before = engine.prefixes.hits
        assert answers(engine, next_turns) == expected_next and engine.prefixes.hits > before + 5


@pytest.mark.parametrize("kind", CACHES)
def test_requests_that_begin_alike(artifact, model, workspace, kind):
    """Pages are shared where that is exact, and answers are the same."""
    calibration = [f"--tokens={write_tokens(workspace / 'engine-tokens.safetensors', [random_tokens(3, 60, 97)])}"] if kind == "online" else []
    files = calibration + [f"--copy-file={model / name}" for name in ("tokenizer.json", "tokenizer_config.json")]
    bench = Bench(artifact(model, "--scheme=W8A8", *CACHES[kind], *files))
    choice = random.Random(1)
    beginning = [choice.randrange(3, 97) for _ in range(200)]
    requests = [request(beginning[: choice.choice([64, 100, 128, 130, 200])] + [choice.randrange(3, 97) for _ in range(choice.randint(1, 90))], 12) for _ in range(20)]
    requests += [request(beginning[:129], 12), request(beginning[:128], 12), request(beginning[:64], 5)]
    with bench.engine(4, kept_tokens=0) as engine:
        expected = [answers(engine, [one])[0] for one in requests]
        assert engine.prefixes.hits == 0
    with bench.engine(4) as engine:
        assert [answers(engine, [one])[0] for one in requests] == answers(engine, requests) == expected
        assert (engine.prefixes.hits > 30) == (kind == "f16") and (engine.prefixes.shared_tokens > 2000) == (kind == "f16")
        assert_all_given_back(engine)


def test_answers_are_beginnings_too(bench):
    """The next turn of a chat begins with them."""
    found = []
    for keeps in (None, False):
        with bench.engine(2, keeps_answers=keeps) as engine:
            prompt = list(range(3, 93))
            (first,) = answers(engine, [request(prompt, 60, temperature=4.0, seed=5)])
            longer = prompt + first.tokens
            assert len(longer) > 128
            found += answers(engine, [request(longer + [7, 8], 30, logprobs=3)])
            assert engine.prefixes.hits == 1 and engine.prefixes.shared_tokens == (128 if keeps is None else 64)
    assert found[0] == found[1]


def test_beginnings_belong_to_who_asked(bench):
    def ask(engine, owner):
        (completion,) = answers(engine, [dataclasses.replace(request(list(range(3, 93)), 2), owner=owner)])
        return completion.cached_tokens

    with bench.engine(2) as engine:
        assert [ask(engine, owner) for owner in (b"", b"one", b"", b"one", b"two")] == [0, 0, 64, 64, 0]
        assert engine.figures.hits == 2 and engine.figures.shared_tokens == 128 and engine.figures.steps > 10


def test_a_prompt_is_scored_and_answered(bench):
    tokens = list(range(3, 93))
    with bench.engine(2) as engine:
        (alone,), (scored,) = answers(engine, [request(tokens, 9)]), answers(engine, [request(tokens, 0, score=2)])
        (both,) = answers(engine, [request(tokens, 9, score=2)])
        assert both.text == alone.text and len(both.tokens) == 9 and scored.tokens == []
        assert np.array_equal(both.prompt_logprobs, scored.prompt_logprobs) and len(both.prompt_logprobs) == 90
        assert all(map(np.array_equal, both.prompt_best, scored.prompt_best)) and both.prompt_best[0].shape == (90, 2)
    for reads_again in (False, True):
        with bench.engine(3, tokens=3 * PAGE) as engine:
            engine._can_save = not reads_again
            several = answers(engine, [request(tokens[:50], 60, score=2) for _ in range(3)])
            assert engine.figures.set_aside > 0
            assert all(np.array_equal(one.prompt_logprobs, scored.prompt_logprobs[:50]) and one.tokens == several[0].tokens for one in several)


def test_what_is_kept_has_a_limit(bench):
    choice = random.Random(2)
    with bench.engine(2, kept_tokens=5 * PAGE) as engine:
        prompts = [[choice.randrange(3, 97) for _ in range(130)] for _ in range(4)]
        for prompt in prompts:
            answers(engine, [request(prompt, 2)])
            assert engine.prefixes.tokens <= 5 * PAGE
        hits = []
        for prompt in reversed(prompts):  # the two newest are there
            before = engine.prefixes.hits
            answers(engine, [request(prompt, 2)])
            hits.append(engine.prefixes.hits - before)
        assert hits == [1, 1, 0, 0]
        answers(engine, [request([5] * 6 * PAGE, 2)])  # longer than all that may be kept
        assert len(engine.prefixes) == 2


def test_scores_are_those_of_the_logits(bench, folder):
    tokens = np.asarray([random.Random(4).randrange(3, 97) for _ in range(300)], np.int32)
    rows = Runner(folder, threads=2).score(tokens).astype(np.float64)
    expected = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    with bench.engine(3, 12 * PAGE) as engine:
        completions = answers(engine, [request(tokens, 0, score=1), request([5, 6], 40), request(tokens[:70], 0, score=0)])
        for completion, count in ((completions[0], 300), (completions[2], 70)):
            assert completion.prompt_logprobs[0] == 0 and completion.tokens == []
            np.testing.assert_allclose(completion.prompt_logprobs[1:], expected[np.arange(count - 1), tokens[1:count]], atol=1e-5)
        assert_all_given_back(engine)


def test_cancelled_between_steps(bench):
    with bench.engine(2, kept_tokens=0) as engine:
        other = engine.submit(request([4] * 20, 200))
        long = engine.submit(request([5] * 20, 400))
        waiting = engine.submit(request([6] * 20, 5))
        for place, event in enumerate(long):
            if place == 3:
                long.cancel()
        assert (event.completion.finish_reason, event.completion.error) == ("error", "the request was cancelled") == (event.reason, event.error)
        assert 0 < len(event.completion.tokens) < 300
        assert [event.completion for event in waiting][-1].finish_reason != "error"
        assert [event.completion for event in other][-1].finish_reason != "error"
        long.cancel()  # for nothing
        pieces = engine.complete([request([5] * 20, 400), request([6] * 20, 400)])
        next(pieces)
        pieces.close()  # who leaves cancels
        while engine._tasks:
            time.sleep(0.01)
        assert_all_given_back(engine)


def test_deadlines_end_what_waits_and_what_runs(bench):
    with bench.engine(1) as engine:
        now = time.monotonic()

        class Slow:
            """Its first steps take until the deadline is over."""

            def __init__(self, batch):
                self.batch = batch

            def append(self, items, progress):
                time.sleep(0.02 if time.monotonic() < now + 0.1 else 0)
                return self.batch.append(items, progress=progress)

            def __getattr__(self, name):
                return getattr(self.batch, name)

        engine._batch = Slow(engine._batch)
        handles = [engine.submit(request([4] * 20, 450), deadline=now + 0.1), engine.submit(request([5] * 20, 450), deadline=now), engine.submit(request([6] * 20, 5))]
        completions = [[event.completion for event in handle][-1] for handle in handles]
        assert "not done by its deadline" in completions[0].error and "not done by its deadline" in completions[1].error
        assert completions[1].tokens == [] and completions[2].error is None
        assert_all_given_back(engine)


def test_urgent_ones_go_first(bench):
    with bench.engine(1) as engine:
        events = queue.SimpleQueue()
        handles = [engine.submit(request([number + 3] * 10, 20), priority=10 * (number == 3), events=events) for number in range(4)]
        order = []
        while len(order) < 4:
            event = events.get()
            if event.reason:
                order.append(event.number)
        assert order.index(3) < 2 and sorted(order) == [handle.number for handle in handles]


def test_what_there_is_no_memory_for_is_an_error_at_once(bench):
    with bench.engine(2, 3 * PAGE) as engine:
        completions = answers(engine, [request([5] * 100, 200), request([5] * 100, 20)])
        assert "take 299 positions, but there is memory for 192" in completions[0].error and completions[1].error is None
        (bad,) = answers(engine, [request([5], 3, logit_bias={97: 1.0})])
        assert bad.finish_reason == "error" and "bias[0]: found 1 for token 97" in bad.error
        assert answers(engine, [request([5] * 100, 20)])[0] == completions[1]
        assert_all_given_back(engine)


def test_a_step_that_fails_is_the_error_of_those_in_it(bench, monkeypatch):
    from easyquant import _runtime

    with bench.engine(2) as engine:

        class Failing:
            def __init__(self, batch):
                self.batch, self.left = batch, 3

            def append(self, items, progress):
                self.left -= 1
                if self.left == 0:
                    raise _runtime.Error("the device is lost")
                return self.batch.append(items, progress=progress)

            def __getattr__(self, name):
                return getattr(self.batch, name)

        engine._batch = Failing(engine._batch)
        first = answers(engine, [request([5] * 10, 40), request([6] * 10, 40)])
        assert {completion.error for completion in first} == {"the device is lost"} and all(len(completion.tokens) == 2 for completion in first)
        assert answers(engine, [request([5] * 10, 4)])[0].error is None
        assert_all_given_back(engine)


def test_ends_with_what_runs(bench):
    engine = bench.engine(2)
    running = engine.submit(request([5] * 10, 450))
    assert next(iter(running)).completion.finish_reason is None
    engine.close()
    assert [event.completion for event in running][-1].error == "the engine was closed"
    with pytest.raises(UserError, match="the engine was closed"):
        engine.submit(request([5], 1))
    engine.close()
    engine = bench.engine(2)
    answers(engine, [request([5], 3)])
    thread = engine._thread
    del engine  # who forgets it ends it, too, in whichever thread the last reference was
    thread.join()


def test_many_threads_submit(bench, alone):
    requests, expected = alone
    found = [None] * len(requests)
    with bench.engine(4, 12 * PAGE) as engine:

        def ask(number):
            found[number] = [event.completion for event in engine.submit(requests[number])][-1]

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(requests))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == expected
        assert_all_given_back(engine)
