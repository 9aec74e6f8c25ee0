# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Guesses that the model verifies: answers are the same as without, whatever is guessed."""

import contextlib
import random
import time

import pytest

import easyquant
from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.drafts import GRAM, Asked, DraftModel, NGrams, Pace, RowCost, Speculation
from easyquant.runtime.engine import Engine, EngineOptions
from easyquant.runtime.requests import PromptReader, Settings
from easyquant.support.errors import UserError
from command_line import run_command_line
from helpers import random_llama, write_letters, write_model
from serve_client import serving

PROMPTS = ["abcabcabcabc", "the-cat-sat-on-the-mat-the-cat-sat", "x", "01234567890123456789", "Zebra!"]
SETTINGS = [{}, {"temperature": 1.0, "seed": 3}, {"temperature": 0.6, "seed": 5, "top_p": 0.9, "frequency_penalty": 0.5}, {"repetition_penalty": 1.3, "logit_bias": {40: 3.0}}]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, artifact):
    """folders(seed, *options): an artifact that reads and writes letters."""
    made = {}

    def get(seed, *options):
        if seed not in made:
            made[seed] = write_letters(write_model(tmp_path_factory.mktemp("speculation") / "letters", *random_llama(seed=seed, context=400)))
        return artifact(made[seed], *options, *(f"--copy-file={made[seed] / name}" for name in ("tokenizer.json", "tokenizer_config.json")))

    return get


class Bench:
    def __init__(self, folder):
        self.reader = PromptReader(Artifact.open(folder))
        self.model = load_model(self.reader.artifact)
        self.requests = [self.reader.request(prompt, Settings(max_tokens=60, **options)) for prompt in PROMPTS for options in SETTINGS]

    @contextlib.contextmanager
    def engine(self, speculation=None, drafts=None, tokens=5 * 400):
        options = EngineOptions(2, speculation=speculation or (Speculation("ngram") if drafts else None))
        with Engine(self.model, self.reader.artifact, self.reader, BatchSize(400, 5, tokens), options) as engine:
            if drafts:
                engine._drafts = drafts
            yield engine

    def answers(self, engine):
        found = [None] * len(self.requests)
        for number, _, completion in engine.complete(self.requests):
            found[number] = completion
        return found


@pytest.fixture(scope="module")
def bench(folders):
    return Bench(folders(11, "--scheme=W8A8"))


@pytest.fixture(scope="module")
def alone(bench):
    """What each request gets without guesses."""
    with bench.engine() as engine:
        return [[completion for _, _, completion in engine.complete([request])][-1] for request in bench.requests]


def wanted(count):
    return Asked(count, sequence=0, token=0)


class Foresight:
    """A source that knows the answers, and gives right guesses with some probability, else any."""

    def __init__(self, bench, alone, chance):
        self.answers = {tuple(request.tokens) + (request.settings.seed, request.settings.repetition_penalty): answer.tokens for request, answer in zip(bench.requests, alone)}
        self.random, self.chance, self.proposed, self.known = random.Random(0), chance, 0, {}

    def begin(self, number, tokens):
        self.known[number] = list(tokens)

    def accept(self, number, tokens):
        self.known[number] += tokens

    def end(self, number):
        del self.known[number]

    def propose(self, asked):
        return {number: self.guess(self.known[number], wanted.count) for number, wanted in asked.items()}

    def guess(self, known, count):
        self.proposed += count
        for key, answer in self.answers.items():
            prompt = list(key[:-2])
            if known[: len(prompt)] == prompt and answer[: len(known) - len(prompt)] == known[len(prompt) :]:
                right = answer[len(known) - len(prompt) :][:count]
                return [token if self.random.random() < self.chance else self.random.randrange(3, 97) for token in right + [5] * (count - len(right))]
        return [self.random.randrange(3, 97) for _ in range(count)]


def assert_given_back(engine):
    end = time.monotonic() + 20
    while engine._tasks and time.monotonic() < end:
        time.sleep(0.01)
    while engine.prefixes.evict():
        pass
    assert engine._batch.free_pages == engine._batch.pages


@pytest.mark.parametrize("chance", [1.0, 0.7, 0.0])
@pytest.mark.parametrize("tokens", [5 * 400, 4 * 64])
def test_answers_are_the_same_whatever_is_guessed(bench, alone, chance, tokens):
    source = Foresight(bench, alone, chance)
    with bench.engine(drafts=source, tokens=tokens) as engine:
        found = bench.answers(engine)
        assert [(one.tokens, one.text, one.finish_reason) for one in found] == [(one.tokens, one.text, one.finish_reason) for one in alone]
        assert source.known == {} and source.proposed > 0
        if chance == 1.0 and tokens > 1000:
            assert engine.speed.right_tokens > 0.5 * engine.speed.new_tokens
        assert_given_back(engine)


def test_a_text_that_repeats_itself_takes_fewer_steps(bench, alone):
    steps = []
    for speculation in (None, Speculation("ngram", 8)):
        with bench.engine(speculation) as engine:
            assert [one.tokens for one in bench.answers(engine)] == [one.tokens for one in alone]
            steps.append(engine.figures.steps)
            assert_given_back(engine)
    assert steps[1] < 0.8 * steps[0], steps


def test_another_model_guesses(bench, alone, folders):
    with bench.engine(Speculation(str(folders(11, "--scheme=W4A16", "--group-size=8")), 6)) as engine:
        assert [one.tokens for one in bench.answers(engine)] == [one.tokens for one in alone]
        assert engine.speed.right_tokens > 100 and isinstance(engine._drafts, DraftModel)
        assert engine._drafts._copies == {} and engine._drafts._batch.free_pages == engine._drafts._batch.pages


def test_log_probabilities_and_stops(folders):
    options = {"max_tokens": 40, "logprobs": 2}
    with easyquant.Model(folders(11, "--scheme=W8A8"), threads=2) as plain, easyquant.Model(folders(11, "--scheme=W8A8"), threads=2, speculate="ngram") as guessing:
        expected, found = plain.generate(PROMPTS, **options), guessing.generate(PROMPTS, **options)
        for one, other in zip(expected, found, strict=True):
            assert one.tokens == other.tokens and [entry.token for entry in other.logprobs] == other.tokens
            assert [entry.logprob for entry in one.logprobs] == pytest.approx([entry.logprob for entry in other.logprobs], abs=1e-4)
        stop = expected[0].text[12:15]
        assert guessing.generate(PROMPTS[0], stop=stop, max_tokens=40).text == plain.generate(PROMPTS[0], stop=stop, max_tokens=40).text
        assert "".join(guessing.stream(PROMPTS[1], max_tokens=40)) == expected[1].text
        assert guessing.generate(PROMPTS[0], max_tokens=1).tokens == expected[0].tokens[:1]


def test_an_answer_within_a_grammar(folders):
    pytest.importorskip("llguidance")
    options = {"max_tokens": 60, "response_format": {"type": "regex", "regex": "(ab|cd){4,20}x"}, "temperature": 1.0, "seed": 2}
    with easyquant.Model(folders(11, "--scheme=W8A8"), threads=2) as plain, easyquant.Model(folders(11, "--scheme=W8A8"), threads=2, speculate="ngram") as guessing:
        assert guessing.generate("ababababcdcdcdcd", **options) == plain.generate("ababababcdcdcdcd", **options)


def test_ngrams_propose_what_came_before():
    source = NGrams()
    source.begin(1, [1, 2, 3, 4, 5, 1, 2, 3])
    assert source.propose({1: wanted(4)}) == {1: [4, 5, 1, 2]}
    source.accept(1, [4])
    assert source.propose({1: wanted(1)}) == {1: [5]}
    source.accept(1, [9])
    assert source.propose({1: wanted(4)}) == {1: []} and GRAM == 3
    source.accept(1, [3, 4])
    assert source.propose({1: wanted(4)}) == {1: []}, "two tokens that came before are no reason"
    source.accept(1, [9])
    assert source.propose({1: wanted(2)}) == {1: [3, 4]}
    source.end(1), source.end(1)
    # Who copies the second of two equal places goes on with the second.
    source.begin(2, [7, 7, 7, 1, 5, 7, 7, 7, 2, 6, 8, 8, 8, 7, 7, 7, 1, 7, 7, 7, 1])
    assert source.propose({2: wanted(1)}) == {2: [7]}


def test_the_pace_is_what_pays():
    pace = Pace(8)
    assert pace.length(0.01) > 4 and pace.length(3.0) == 0
    for _ in range(30):
        pace.tell(8, 8)
    assert pace.length(0.1) == 8
    for _ in range(40):
        pace.tell(4, 0)
    assert pace.length(0.2) == 0, "what is always wrong is not worth a try"
    lengths = [pace.length(0.2) for _ in range(3000)]
    assert 0 < next(number for number, length in enumerate(lengths) if length) < 3000, "and is tried again"
    cost = RowCost()
    assert cost.share(1) == pytest.approx(0.2)
    for number in range(200):
        rows = 1 + number % 5
        cost.measured(rows, 0.010 + 0.002 * rows)
    assert cost.share(1) == pytest.approx(0.002 / 0.012, rel=0.01) and cost.share(4) == pytest.approx(0.002 / 0.018, rel=0.01)


@pytest.mark.parametrize("options, message", [
    ({"speculate": "ngram", "draft_tokens": 0}, "draft_tokens: found 0, expected 1 to 63"),
    ({"draft_tokens": 3}, 'draft_tokens: goes with speculate, "head", "ngram" or an artifact'),
    ({"speculate": "none-there"}, "none-there"),
])  # fmt: skip
def test_impossible_speculation(folders, options, message):
    with pytest.raises(UserError, match=message):
        easyquant.Model(folders(11, "--scheme=W8A8"), **options)


def test_what_cannot_be_forgotten_is_not_guessed(folders, letters_model, tmp_path, artifact):
    codes = folders(11, "--scheme=W8A8", "--kv-scheme=int8", "--kv-group=16", "--kv-residual=16")
    with pytest.raises(UserError, match="has a cache of codes, which forgets no token exactly; speculation needs a float KV cache"):
        easyquant.Model(codes, speculate="ngram")
    other = write_letters(write_model(tmp_path / "other", *random_llama(seed=1, context=400)))
    text = (other / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(text.replace('"a": 67', '"a": 68', 1).replace('"b": 68', '"b": 67', 1) if '"a": 67' in text else text.replace('"a":67', '"a":68', 1).replace('"b":68', '"b":67', 1))
    changed = artifact(other, "--scheme=W8A8", *(f"--copy-file={other / name}" for name in ("tokenizer.json", "tokenizer_config.json")))
    with pytest.raises(UserError, match="95 of the 97 tokens of .* have the same numbers in its tokenizer, expected all"):
        easyquant.Model(folders(11, "--scheme=W8A8"), speculate=changed)


def test_commands_speculate(folders, tmp_path):
    folder = folders(11, "--scheme=W8A8")
    plain = run_command_line("run", folder, "--prompt", PROMPTS[0], "--max-new-tokens", 40)
    guessing = run_command_line("run", folder, "--prompt", PROMPTS[0], "--max-new-tokens", 40, "--speculate", "ngram", "--draft-tokens", 4)
    assert plain.stdout == guessing.stdout and "guesses right" in guessing.stderr and "guesses" not in plain.stderr
    lines = tmp_path / "prompts.jsonl"
    lines.write_text("".join(f'"{prompt}"\n' for prompt in PROMPTS))
    several = [run_command_line("run", folder, "--prompts", lines, *options).stdout for options in ((), ("--speculate", folder))]
    assert several[0] == several[1] and len(several[0].splitlines()) == len(PROMPTS)
    refused = run_command_line("run", folder, "--prompt", "a", "--draft-tokens", 4)
    assert refused.returncode == 1 and refused.stderr == "error: --draft-tokens: goes with --speculate\n"


def test_a_server_speculates(folders):
    folder = folders(11, "--scheme=W8A8")
    with easyquant.Model(folder, threads=2) as model, serving({"letters": folder}, speculation=Speculation("ngram")) as client:
        expected = model.generate(PROMPTS[0], max_tokens=40, logprobs=1)
        reply = client.complete(PROMPTS[0], max_tokens=40, temperature=0, logprobs=1).json["choices"][0]
        assert reply["text"] == expected.text and len(reply["logprobs"]["tokens"]) == 40
        assert client.served.engine.speed.right_tokens > 0
