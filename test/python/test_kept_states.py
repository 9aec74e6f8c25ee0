# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What sequences with a recurrent state, or with a window of attention, go back to: truncation, forks, saved sequences, beginnings that requests share, and guesses. Each
gives the bits of a session that has read the same tokens once, whatever the number of states that are kept."""

import random
from functools import partial

import numpy as np
import pytest

import easyquant
from command_line import run_command_line
from easyquant import _runtime
from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.drafts import DraftModel, Speculation
from easyquant.runtime.engine import KEPT_STATES, Engine, EngineOptions
from easyquant.runtime.requests import PromptReader, Request, Settings
from easyquant.support.errors import UserError
from helpers import Runner, random_lfm2, random_llama, random_qwen35, random_tokens, write_letters, write_model
from sequences import append
from serve_client import serving

CONTEXT, PAGE = 512, 64
WINDOW = 20
MODELS = {
    "lfm2": random_lfm2,
    "qwen3_5": random_qwen35,
    "llama": random_llama,
    "gemma3": partial(random_llama, arch="gemma3_text", layers=3, heads=4, head_dim=16, sliding_window_pattern=2, sliding_window=WINDOW),
    "mistral": partial(random_llama, arch="mistral", heads=4, head_dim=16, sliding_window=WINDOW),  # no layer keeps all tokens
}
STATES, WINDOWS = ("lfm2", "qwen3_5"), ("gemma3", "mistral")
TOKENS = random_tokens(3, 200, 97)


@pytest.fixture(scope="module")
def folders(workspace, artifact):
    """folders(name, seed, *options): an artifact that reads and writes letters."""

    def get(name, seed=11, *options):
        folder = workspace / f"states-{name}-{seed}"
        if not folder.exists():
            write_letters(write_model(folder, *MODELS[name](seed=seed, context=CONTEXT)))
        options = options or ("--scheme=none",)
        return artifact(folder, *options, *(f"--copy-file={folder / file}" for file in ("tokenizer.json", "tokenizer_config.json")))

    return get


def opened(folder):
    return _runtime.Model(str(folder))


def alone(model, tokens):
    """Logits behind each token of a session that has read nothing else."""
    return np.array(_runtime.Session(model, threads=1).score(np.asarray(tokens, np.int32)))


# ---------------------------------------------------------------------------------------------------------------- sequences


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("name", STATES + WINDOWS)
def test_a_session_that_is_cut_goes_on_with_the_same_bits(folders, name, kept):
    model = opened(folders(name))
    expected = alone(model, TOKENS)
    session = _runtime.Session(model, threads=1, kept_states=kept)
    # At, before and behind page ends; more than once; in one piece, in several, and token by token behind it.
    for begin, cuts in ((195, (192, 191, 194, 128, 64, 65, 63, 1, 0)), (130, (129, 128, 127)), (64, (64, 63)), (66, (64, 20, 19))):
        for cut in cuts:
            session.reset()
            assert np.array_equal(session.score(TOKENS[:begin]), expected[:begin])
            session.truncate(cut)
            assert session.position == cut and session.logits is None
            end = max(begin, cut + 5)
            assert np.array_equal(session.score(TOKENS[cut:end]), expected[cut:end])
            session.truncate(cut)
            session.truncate(cut // 2)
            for token in TOKENS[cut // 2 : cut // 2 + 3]:
                session.decode(token)
            assert np.array_equal(session.logits, expected[cut // 2 + 2])


@pytest.mark.parametrize("name", STATES + WINDOWS)
def test_what_is_cut_off_leaves_nothing(folders, name):
    """Other tokens follow than those that were there."""
    model = opened(folders(name))
    for kept, cut in ((0, 100), (1, 100), (2, 129), (2, 64)):
        session, other = _runtime.Session(model, threads=1, kept_states=kept), random_tokens(7, 90, 97)
        session.prefill(TOKENS)
        session.truncate(cut)
        assert np.array_equal(session.score(other), alone(model, TOKENS[:cut] + other)[cut:])


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("name", STATES + WINDOWS)
def test_sequences_of_a_batch_are_cut_forked_and_saved(folders, name, kept):
    """Random calls of a batch, beside what each sequence has read."""
    model = opened(folders(name))
    chance, batch = random.Random(kept), _runtime.Batch(model, context=300, sequences=6, threads=1 + kept % 2, kept_states=kept)
    texts, cuts = {batch.add(): []}, 0
    for _ in range(120):
        kind, sequence = chance.random(), chance.choice(list(texts))
        if kind < 0.15 and len(texts) < 6:
            texts[batch.fork(sequence) if kind < 0.1 else batch.restore(batch.save(sequence))] = list(texts[sequence])
        elif kind < 0.2 and len(texts) > 1:
            batch.remove(sequence)
            del texts[sequence]
        elif kind < 0.5:
            position = chance.choice([chance.randint(0, len(texts[sequence])), max(0, len(texts[sequence]) - chance.randint(0, 9))])
            assert 0 <= batch.resume_position(sequence, position) <= position
            batch.truncate(sequence, position)
            del texts[sequence][position:]
            cuts += 1
        else:
            going = [one for one in texts if chance.random() < 0.6 and len(texts[one]) < 150]
            pieces = {one: [chance.randrange(97) for _ in range(chance.choice([1, 3, 40, 64, 130]))] for one in going}
            for one, rows in zip(pieces, append(batch, pieces.items()) if pieces else [], strict=True):
                texts[one] += pieces[one]
                assert np.array_equal(rows, alone(model, texts[one])[-len(rows) :])
    assert cuts > 20
    for sequence in texts:
        batch.remove(sequence)
    assert batch.free_pages == batch.pages


@pytest.mark.parametrize("name", STATES)
def test_the_newest_page_ends_are_kept_and_no_more(folders, name):
    made = Artifact.open(folders(name))
    model = load_model(made)
    sizes = [_runtime.Batch(model, sequences=3, kept_states=kept).bytes for kept in range(4)]
    assert [size - sizes[0] for size in sizes] == [made.states_bytes(3, kept, "cpu") - made.states_bytes(3, 0, "cpu") for kept in range(4)] and made.state_bytes > 0
    for kept, expected in ((0, []), (1, [192]), (2, [128, 192]), (9, [64, 128, 192])):
        for step in (200, 64, 7):
            batch = _runtime.Batch(model, threads=1, kept_states=kept)
            sequence = batch.add()
            for at in range(0, 200, step):
                append(batch, [(sequence, TOKENS[at : at + step])])
            assert [end for end in range(PAGE, 200, PAGE) if batch.resume_position(sequence, end) == end] == sorted({*expected, *([192] if step == 64 else [])})
            assert batch.resume_position(sequence, 200) == 200
    with pytest.raises(_runtime.Error, match="kept_states: found -1, expected 0"):
        _runtime.Batch(model, kept_states=-1)
    plain = _runtime.Batch(opened(folders("llama")), threads=1, kept_states=5)
    sequence = plain.add()
    append(plain, [(sequence, TOKENS[:100])])
    assert plain.resume_position(sequence, 77) == 77, "without a recurrent state nothing is read again"


@pytest.mark.parametrize("kept", [0, 2])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_kept_and_no_more(folders, name, kept):
    made = Artifact.open(folders(name))
    cache = made.manifest["program"]["cache"]
    assert cache["sliding"]["window"] == WINDOW and (cache["page_bytes"] == 0) == (name == "mistral")
    batch = _runtime.Batch(load_model(made), threads=1, kept_states=kept)
    sequence = batch.add()
    for at in range(0, 200, 7):
        append(batch, [(sequence, TOKENS[at : at + 7])])
    # The window of token 200 begins in the page from 128 on; one page before it is kept, and `kept` more.
    first = 2 - 1 - kept
    assert [batch.resume_position(sequence, end) for end in (200, 199, 150)] == [200, 199, 150]
    lowest = max(0, first * PAGE + WINDOW - 1) if first > 0 else 0
    assert [batch.resume_position(sequence, end) for end in range(201)] == [end if end >= lowest else 0 for end in range(201)]
    # The pool has pages for as many tokens as all sequences need at a time, not for all of their context.
    sizes = [_runtime.Batch(load_model(made), context=CONTEXT, sequences=count, kept_states=kept).bytes for count in (1, 2, 3)]
    whole = CONTEXT // PAGE * (cache["page_bytes"] + cache["sliding"]["page_bytes"])
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] <= whole + 8 * 97
    assert made.cache_bytes(CONTEXT) == CONTEXT // PAGE * cache["page_bytes"] + 3 * cache["sliding"]["page_bytes"]


@pytest.mark.parametrize("name", WINDOWS)
def test_a_call_that_is_interrupted_leaves_the_window(artifact, workspace, name):
    """A call of several steps gives back pages that it has passed, but none that the tokens before it are read in."""
    # So wide that a step takes more than the 50 ms after which the call asks.
    folder = write_model(workspace / f"long-{name}", *MODELS[name](context=1536, hidden=256, ffn=2048, layers=8))
    model, text = opened(artifact(folder, "--scheme=none")), random_tokens(10, 1400, 97)
    expected, batch = alone(model, text), _runtime.Batch(model, threads=1)
    sequence = batch.add()
    append(batch, [(sequence, text[:110])])

    def stop(done, total):
        if done >= 1024:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batch.append([(sequence, np.asarray(text[110:], np.int32))], progress=stop)
    assert batch.position(sequence) == 110 == batch.resume_position(sequence, 110)
    assert np.array_equal(append(batch, [(sequence, text[110:])])[0], expected[110:])


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_codes(folders, name):
    """Codes are in pages that slide, too. What is read in one piece is the same, whatever was there before it."""
    model = opened(folders(name, 11, "--scheme=none", "--kv-scheme=int8", "--kv-group=16", "--kv-residual=16", "--kv-cache=f32"))
    batch = _runtime.Batch(model, threads=1, sequences=3)
    first, text = batch.add(), random_tokens(9, 400, 97)
    for at in range(0, 400, 50):
        rows = append(batch, [(first, text[at : at + 50])])[0]
        beside = alone(opened(folders(name)), text[: at + 50])[-50:]
        assert np.linalg.norm(rows - beside) / np.linalg.norm(beside) < 0.05
    fork, saved = batch.fork(first), batch.restore(batch.save(first))
    rows = append(batch, [(one, text[:40]) for one in (first, fork, saved)])
    assert np.array_equal(rows[0], rows[1]) and np.array_equal(rows[0], rows[2])
    expected = _runtime.Session(model, threads=1).score(np.asarray(text[:90], np.int32))
    batch.truncate(fork, 30)
    assert batch.resume_position(fork, 30) == 0
    batch.truncate(fork, 0)
    assert np.array_equal(append(batch, [(fork, text[:90])])[0], expected)


@pytest.mark.parametrize("options", [("--scheme=W8A8", "--kv-scheme=int8", "--kv-group=16", "--kv-residual=16"), ("--scheme=W8A8",)])
def test_with_codes_and_without(folders, options):
    """A cache of codes shows later calls other keys than the call that made them: what is cut goes on, if not with the same bits."""
    model = opened(folders("lfm2", 11, *options))
    scores = [_runtime.Session(model, threads=1, kept_states=kept).score(TOKENS) for kept in (0, 2)]
    assert np.array_equal(*scores), "what is kept changes no bit"
    session = _runtime.Session(model, threads=1, kept_states=2)
    session.prefill(TOKENS)
    session.truncate(150)
    found = session.score(TOKENS[150:])
    error = np.linalg.norm(found - scores[0][150:]) / np.linalg.norm(found)
    assert error == 0 if len(options) == 1 else error < 0.05


# ---------------------------------------------------------------------------------------------------------------- the engine


class Bench:
    def __init__(self, folder):
        self.artifact = Artifact.open(folder)
        self.reader, self.model = PromptReader(self.artifact), load_model(self.artifact)

    def engine(self, sequences=4, tokens=4 * CONTEXT, **options):
        return Engine(self.model, self.artifact, self.reader, BatchSize(CONTEXT, sequences, tokens), EngineOptions(threads=1, **options))


def request(tokens, limit, **settings):
    return Request(np.asarray(tokens, np.int32), limit, Settings(max_tokens=limit, **settings), begins_text=False, is_text=False)


def answers(engine, requests):
    done = {number: completion for number, _, completion in engine.complete(requests)}
    assert all(completion.finish_reason in ("length", "stop") for completion in done.values())
    return [done[number].tokens for number in range(len(requests))]


def assert_all_given_back(engine):
    while engine.prefixes.evict():
        pass
    assert engine._batch.free_pages == engine._batch.pages and not engine._tasks


def letters(seed, count):
    return [int(token) for token in np.random.default_rng(seed).integers(3, 97, count)]


@pytest.mark.parametrize("name", STATES + WINDOWS)
def test_the_engine_answers_as_a_session(folders, name):
    """Greedy answers, in a crowd, behind beginnings and where pages run out."""
    bench, runner = Bench(folders(name)), Runner(folders(name), threads=1)
    asked = [request(letters(1, 70)[:length], 30) for length in (70, 69, 64, 3)] * 2 + [request(letters(2, 200), 90), request(letters(1, 70), 60)]
    expected = [runner.greedy(one.tokens, one.max_tokens)[len(one.tokens) :] for one in asked]
    expected = [tokens[: tokens.index(2)] if 2 in tokens else tokens for tokens in expected]
    for sequences, tokens, kept in ((1, CONTEXT, 2), (4, 4 * CONTEXT, 1), (8, 6 * PAGE, 2), (8, 4 * CONTEXT, 0)):
        with bench.engine(sequences, tokens, kept_states=kept) as engine:
            found = answers(engine, asked)
            assert [[token for token in one if token != 2] for one in found] == expected
            assert (engine.figures.kept_tokens > 0) == (kept > 0 or name in WINDOWS) or tokens < CONTEXT
            assert_all_given_back(engine)


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("name", STATES)
def test_requests_that_begin_alike_share_what_was_read(folders, name, kept):
    bench = Bench(folders(name))
    system = letters(5, 150)
    asked = [request(system + letters(seed, 90 + 20 * seed), 8, temperature=2.0, seed=seed) for seed in range(6)]
    with bench.engine(1, kept_tokens=0) as engine:
        expected = [answers(engine, [one])[0] for one in asked]
        assert engine.figures.hits == 0
    with bench.engine(2, kept_states=kept) as engine:
        found = [answers(engine, [one])[0] for one in asked]
        assert found == expected
        # The second one parts from the first behind 128 tokens, where its state is kept for those that follow; the first has two states at most.
        hits = {0: 0, 1: 4, 2: 5}[kept]
        assert (engine.figures.hits, engine.figures.shared_tokens) == (hits, 128 * hits)
        assert [answers(engine, [one])[0] for one in asked] == expected
        assert answers(engine, asked) == expected
        assert engine.figures.kept_tokens == 0 or kept
        assert len(engine.prefixes) <= EngineOptions.kept_beginnings
        assert_all_given_back(engine)


@pytest.mark.parametrize("name", STATES + WINDOWS)
def test_the_next_turn_begins_with_the_answer(folders, name):
    bench = Bench(folders(name))
    prompt = letters(6, 90)
    with bench.engine(1, kept_tokens=0) as engine:
        (first,) = answers(engine, [request(prompt, 60, temperature=3.0, seed=5, logit_bias={2: -1e6})])
        longer = request(prompt + first + [7, 8], 20, temperature=3.0, seed=6)
        expected = answers(engine, [longer])
    with bench.engine(2) as engine:
        assert answers(engine, [request(prompt, 60, temperature=3.0, seed=5, logit_bias={2: -1e6})]) == [first] and len(prompt + first) > 2 * PAGE
        assert answers(engine, [longer]) == expected
        assert engine.figures.hits == 1 and engine.figures.shared_tokens == 2 * PAGE


@pytest.mark.parametrize("name", STATES + WINDOWS)
def test_memory_is_bounded(folders, name):
    """However much is read: no more states than there are slots, which do not grow."""
    bench = Bench(folders(name))
    with bench.engine(3, 3 * CONTEXT, kept_states=2, kept_beginnings=4) as engine:
        answers(engine, [request([5], 1)])
        before = engine._batch.bytes
        for seed in range(12):
            answers(engine, [request(letters(100 + seed + other, 300), 3) for other in range(3)])
        assert engine._batch.bytes == before and len(engine.prefixes) <= 4


# ------------------------------------------------------------------------------------------------------------------- guesses


PROMPTS = ["abcabcabcabc", "the-cat-sat-on-the-mat-the-cat-sat", "x", "01234567890123456789" * 4]
SETTINGS = [{}, {"temperature": 1.0, "seed": 3}, {"temperature": 0.6, "seed": 5, "top_p": 0.9, "frequency_penalty": 0.5}]


class Guessing(Bench):
    def __init__(self, folder):
        super().__init__(folder)
        self.requests = [self.reader.request(prompt, Settings(max_tokens=70, **options)) for prompt in PROMPTS for options in SETTINGS]


class Foresight:
    """A source that knows the answers, and gives right guesses with some probability, else any."""

    def __init__(self, requests, answers, chance):
        self.answers = [(list(map(int, one.tokens)), tokens) for one, tokens in zip(requests, answers, strict=True)]
        self.chance, self.random, self.known = chance, random.Random(0), {}

    def begin(self, number, tokens):
        self.known[number] = list(map(int, tokens))

    def accept(self, number, tokens):
        self.known[number] += map(int, tokens)

    def end(self, number):
        self.known.pop(number, None)

    def propose(self, asked):
        return {number: self.guess(self.known[number], wanted.count) for number, wanted in asked.items()}

    def guess(self, known, count):
        for prompt, answer in self.answers:
            if known[: len(prompt)] == prompt and answer[: len(known) - len(prompt)] == known[len(prompt) :]:
                right = answer[len(known) - len(prompt) :][:count]
                return [token if self.random.random() < self.chance else self.random.randrange(3, 97) for token in right + [5] * (count - len(right))]
        return [self.random.randrange(3, 97) for _ in range(count)]


@pytest.fixture(scope="module")
def plain(folders):
    """plain(name): its requests, and what each gets without guesses."""
    made = {}

    def get(name):
        if name not in made:
            bench = Guessing(folders(name))
            with bench.engine(1, kept_tokens=0) as engine:
                made[name] = bench, [answers(engine, [one])[0] for one in bench.requests]
        return made[name]

    return get


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("chance", [1.0, 0.7, 0.0])
@pytest.mark.parametrize("name", STATES + WINDOWS)
def test_answers_are_the_same_whatever_is_guessed(plain, name, chance, kept):
    bench, expected = plain(name)
    for sequences, tokens in ((5, 5 * CONTEXT), (5, 5 * PAGE)):
        with bench.engine(sequences, tokens, kept_states=kept, speculation=Speculation("ngram")) as engine:
            engine._drafts = Foresight(bench.requests, expected, chance)
            assert answers(engine, bench.requests) == expected
            assert engine.speed.right_tokens > 0 or chance < 1
            assert_all_given_back(engine)


@pytest.mark.parametrize("name", STATES + WINDOWS)
def test_the_text_itself_is_a_source(plain, name):
    bench, expected = plain(name)
    with bench.engine(5, 5 * CONTEXT, speculation=Speculation("ngram", 8)) as engine:
        assert answers(engine, bench.requests) == expected and engine.speed.right_tokens > 0
        assert_all_given_back(engine)


@pytest.mark.parametrize("name, source", [("lfm2", "lfm2"), ("qwen3_5", "qwen3_5"), ("lfm2", "llama"), ("llama", "lfm2"), ("qwen3_5", "lfm2")])
def test_another_model_is_a_source(plain, folders, name, source):
    """With a recurrent state, guessing for one that has none, and the other way round."""
    bench, expected = plain(name)
    with bench.engine(5, 5 * CONTEXT, speculation=Speculation(str(folders(source, 11, "--scheme=W8A8")), 6)) as engine:
        assert answers(engine, bench.requests) == expected
        assert isinstance(engine._drafts, DraftModel) and (engine.speed.right_tokens > 100) == (name == source)
        assert engine._drafts._copies == {} and engine._drafts._batch.free_pages == engine._drafts._batch.pages
        assert_all_given_back(engine)


def test_guesses_cost_rows_and_no_steps(plain):
    """What was right of a guess is read again in the step that verifies the next one."""
    bench, expected = plain("lfm2")
    one, tokens = bench.requests[1], expected[1]
    with bench.engine(1, CONTEXT, speculation=Speculation("ngram", 4)) as engine:
        engine._drafts = Foresight([one], [tokens], 0.7)
        assert answers(engine, [one]) == [tokens]
        assert engine.figures.steps + engine.speed.right_tokens <= len(tokens) + 2


def test_forced_tokens_are_read_in_one_step(folders):
    pytest.importorskip("llguidance")
    options = {"max_tokens": 60, "response_format": {"type": "regex", "regex": "(abcdefgh|stuvwxyz){2,5}!"}, "temperature": 1.0, "seed": 2}
    with easyquant.Model(folders("lfm2"), threads=1) as model:
        text = model.generate("abab", **options).text
        assert text and model._engine.speed.forced_tokens > 10
    with easyquant.Model(folders("lfm2"), threads=1, speculate="ngram", kept_states=0) as model:
        assert model.generate("abab", **options).text == text


# ------------------------------------------------------------------------------------------------------------------- options


def test_commands_and_the_server_have_the_option(folders, tmp_path):
    folder = folders("qwen3_5")
    lines = tmp_path / "prompts.jsonl"
    lines.write_text("".join(f'"{"common-beginning-" * 9}{prompt}"\n' for prompt in PROMPTS))
    runs = [run_command_line("run", folder, "--prompts", lines, "--batch", 1, "--max-new-tokens", 20, *options)
            for options in ((), ("--kept-states", 0), ("--kept-states", 3, "--speculate", "ngram"))]  # fmt: skip
    assert all(run.returncode == 0 for run in runs) and runs[0].stdout == runs[1].stdout == runs[2].stdout and len(runs[0].stdout.splitlines()) == 4
    assert run_command_line("run", folder, "--prompts", lines, "--kept-states", -1).returncode == 1
    talks = [run_command_line("chat", folder, "--max-new-tokens", 20, *options, stdin="common-beginning-" * 9 + "\nab\n") for options in ((), ("--kept-states", 0))]
    assert all(talk.returncode == 0 for talk in talks) and talks[0].stdout == talks[1].stdout and len(talks[0].stdout.splitlines()) == 2
    with pytest.raises(UserError, match="kept_states: found -1"):
        easyquant.Model(folder, kept_states=-1)
    cached = []
    for kept in (KEPT_STATES, 0):
        with serving({"letters": folder}, kept_states=kept) as client:
            for _ in range(2):
                reply = client.complete("common-beginning-" * 9, max_tokens=4, temperature=0).json
            cached.append(reply["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0))
    assert cached == [128, 0]
