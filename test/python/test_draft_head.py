# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A head that drafts tokens (multi-token prediction): its guesses are those of the numpy oracle, however a text came into the sequence, and answers
are the same as without it."""

import itertools
import json

import numpy as np
import pytest

import easyquant
from calibrating import write_tokens
from command_line import run_command_line
from easyquant import _runtime
from easyquant.compiler.footprint import STEP_ROWS, footprint_of
from easyquant.compiler.options import CompileOptions
from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.drafts import HEAD, Speculation
from easyquant.runtime.engine import Engine, EngineOptions
from easyquant.runtime.requests import PromptReader, Settings
from easyquant.support.errors import UserError
from helpers import assert_refused, random_qwen35, random_tokens, run_tool, write_byte_level, write_gguf, write_letters, write_model, written_back
from oracles.checkpoint import read_folder
from oracles.qwen35 import Qwen35
from oracles.schemes import FLOAT, W8A8

MODELS = {
    "tied": {},
    "not tied": {"kinds": ("linear_attention", "full_attention"), "heads": 4, "kv_heads": 2, "tied": False, "rotated": 0.5},
    "attention alone": {"kinds": ("full_attention",) * 2},
    "experts": {"kinds": ("linear_attention", "full_attention"), "experts": 5},
}
FLOATS = ("--scheme=none", "--isa=avx2")


@pytest.fixture(scope="module")
def model(workspace):
    """model(name): the folder of MODELS[name], made once."""

    def make(name):
        folder = workspace / name.replace(" ", "-")
        return folder if folder.exists() else write_model(folder, *random_qwen35(11, **MODELS[name], mtp_num_hidden_layers=1))

    return make


class Guesser:
    """A batch that drafts beside the oracle."""

    def __init__(self, folder, oracle, **sizes):
        self.oracle = oracle
        self.batch = _runtime.Batch(_runtime.Model(str(folder)), **({"sequences": 4, "threads": 2, "drafts": True} | sizes))
        self.texts = {}

    def append(self, *items):
        for sequence, tokens in items:
            self.texts[sequence] = [*self.texts.get(sequence, ()), *map(int, tokens)]
        assert self.batch.append([(sequence, np.asarray(tokens, np.int32)) for sequence, tokens in items]) == [None] * len(items)

    def check(self, *items, least=1e-3):
        """Each guess is the likeliest one, or as good as that: where two have about the same logit, what is behind them is not compared."""
        found = self.batch.draft([(sequence, int(token), count) for sequence, token, count in items])
        for (sequence, token, count), guesses in zip(items, found, strict=True):
            expected = self.oracle.guesses(self.texts[sequence], int(token), count)
            assert len(guesses) == count
            for guess, logits in zip(guesses, expected):
                assert logits.max() - logits[guess] < least
                if guess != logits.argmax():
                    break
        return found


@pytest.mark.parametrize("name", MODELS)
def test_guesses(artifact, model, name):
    subject = Guesser(artifact(model(name), *FLOATS), Qwen35(*read_folder(model(name)), FLOAT, np.float64))
    first, second = subject.batch.add(), subject.batch.add()
    text, other = random_tokens(5, 60, 97), random_tokens(6, 150, 97)
    subject.append((first, text[:1]))
    subject.check((first, text[1], 3))
    for begin, end in itertools.pairwise((1, 2, 9, 40)):
        subject.append((first, text[begin:end]))
        subject.check((first, text[end], 4))
        subject.check((first, text[end] ^ 1, 2))  # which then does not come
    # Two in a step, one of which has more tokens than are kept, and is asked late.
    subject.append((first, text[40:50]), (second, other[:130]))
    subject.append((second, other[130:140]))
    subject.check((second, other[140], 2), (first, text[50], 6))
    # What was guessed wrong goes, and something else comes.
    subject.append((first, text[50:55]))
    subject.batch.truncate(first, 52)
    subject.texts[first] = subject.texts[first][:52]
    subject.append((first, [7, 8]))
    subject.check((first, 9, 5))
    fork = subject.batch.fork(first)
    subject.texts[fork] = list(subject.texts[first])
    subject.append((fork, [1, 2, 3]), (first, [3, 2]))
    subject.check((first, 1, 3), (fork, 4, 3))


def test_guesses_of_quantized_weights(artifact, model):
    """Errors of rounding can choose another token only where the oracle finds it about as good."""
    folder = model("not tied")
    subject = Guesser(artifact(folder, "--scheme=W8A8", "--isa=avx2", "--kv-cache=f32"), Qwen35(*read_folder(folder), W8A8, np.float64))
    sequence, text = subject.batch.add(), random_tokens(5, 60, 97)
    for begin, end in itertools.pairwise((0, 30, 31, 50)):
        subject.append((sequence, text[begin:end]))
        subject.check((sequence, text[end], 4), least=0.05)


@pytest.mark.parametrize("options", [
    ("--scheme=W8A8", "--activations=static", "--method=smoothquant"), ("--scheme=W4A16", "--method=gptq", "--hessian=loss-both"),
    *(pytest.param(options, marks=pytest.mark.slow) for options in (
        ("--scheme=W4A8", "--method=awq+gptq"), ("--scheme=Q4",), ("--scheme=W4A16", "--method=signround", "--steps=4"))),
], ids=lambda options: " ".join(options))
def test_methods_leave_the_head_to_ranges_of_its_weights(model, artifact, workspace, options):
    """Text runs through the model alone: its sites are those of a model without the head, and the head drafts."""
    folder, tokens = model("tied"), write_tokens(workspace / "text.safetensors", [random_tokens(seed, 48, 97) for seed in range(4)])
    out, plain = (Artifact.open(artifact(folder, *options, f"--tokens={tokens}", "--isa=avx2", *more)) for more in ((), ("--draft-head=none",)))
    text = random_tokens(5, 60, 97)
    assert np.array_equal(*(_runtime.Session(_runtime.Model(str(each.path))).score(text) for each in (out, plain)))
    assert {site["name"] for site in out.manifest["sites"]} >= (own := {"mtp.fc", "mtp.layers.0.mlp.down_proj", "mtp.layers.0.self_attn.q_proj"})
    skipped = [entry["sites"] for entry in out.manifest["quantization"]["transforms"] if "the head that drafts" in entry.get("skipped", "")]
    assert skipped and all(own <= set(sites) for sites in skipped)
    batch = _runtime.Batch(_runtime.Model(str(out.path)), drafts=True)
    sequence = batch.add()
    batch.append([(sequence, np.asarray(text[:30], np.int32))])
    assert len(batch.draft([(sequence, text[30], 4)])[0]) == 4


def test_the_oracle_sees_every_part(model):
    """The comparison above could fail."""
    config, tensors = read_folder(model("tied"))
    text = random_tokens(5, 30, 97)
    expected = Qwen35(config, tensors, FLOAT, np.float64).guesses(text, 3, 3)
    for part in ("mtp.fc", "mtp.norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "mtp.layers.0.self_attn.k_proj", "mtp.layers.0.mlp.down_proj"):
        changed = {name: np.roll(value, 1, axis=-1) if part in name else value for name, value in tensors.items()}
        assert np.abs(Qwen35(config, changed, FLOAT, np.float64).guesses(text, 3, 3) - expected).max() > 0.1, part
    # Both halves of what fc reads, and what it has read before.
    assert np.abs(Qwen35(config, tensors, FLOAT, np.float64).guesses(text, 4, 3) - expected).max() > 0.1
    assert np.abs(Qwen35(config, tensors, FLOAT, np.float64).guesses(text[1:], 3, 3) - expected).max() > 0.01


def test_the_model_is_the_one_without_the_head(artifact, model):
    text = random_tokens(5, 90, 97)
    with_head, without = (_runtime.Session(_runtime.Model(str(artifact(model("tied"), *FLOATS, *options)))) for options in ((), ("--draft-head=none",)))
    assert np.array_equal(with_head.score(text), without.score(text))


def test_gguf_has_the_same_head(artifact, model, workspace):
    path = write_gguf(workspace / "head.gguf", *read_folder(model("not tied")))
    subject = Guesser(artifact(path, *FLOATS), Qwen35(*read_folder(model("not tied")), FLOAT, np.float64))
    sequence, text = subject.batch.add(), random_tokens(5, 31, 97)
    subject.append((sequence, text[:30]))
    subject.check((sequence, text[30], 6))


def test_more_rows_than_a_step_takes(artifact, model):
    """The head reads texts in as many steps as they take."""
    subject = Guesser(artifact(model("tied"), *FLOATS), Qwen35(*read_folder(model("tied")), FLOAT, np.float64), sequences=6)
    rows = int(Artifact.open(artifact(model("tied"), *FLOATS)).manifest["program"]["max_rows"])
    assert rows == STEP_ROWS, "what plans of memory count with"
    texts = {subject.batch.add(): random_tokens(seed, 121, 97) for seed in range(6)}
    assert len(texts) * 120 > rows
    subject.append(*((sequence, text[:120]) for sequence, text in texts.items()))
    subject.check(*((sequence, text[120], 2) for sequence, text in texts.items()))


def test_ends(artifact, model):
    """The end of the context and of the pages, and what a restored sequence knows."""
    folder = artifact(model("tied"), *FLOATS)
    page = int(Artifact.open(folder).cache_pages("cpu")["page_tokens"])
    subject = Guesser(folder, Qwen35(*read_folder(model("tied")), FLOAT, np.float64), context=page + 8, sequences=2, tokens=2 * page + 1)
    one, two, text = subject.batch.add(), subject.batch.add(), random_tokens(5, 2 * page, 97)
    subject.append((one, text[:page + 6]))
    assert [len(guesses) for guesses in subject.batch.draft([(one, 1, 9)])] == [2]
    assert subject.batch.draft([(two, 1, 3)]) == [[]]  # nothing is before it
    subject.append((two, text[:page]))
    assert subject.batch.free_pages == 0 and subject.batch.draft([(two, 1, 3)]) == [[]]
    saved = subject.batch.save(one)
    subject.batch.remove(two)
    subject.batch.remove(one)
    back = subject.batch.restore(saved)
    assert subject.batch.draft([(back, 1, 2)]) == [[]]
    subject.batch.append([(back, text[page + 6:page + 7])])
    assert [len(guesses) for guesses in subject.batch.draft([(back, 1, 2)])] == [1]


@pytest.mark.parametrize("items, expected", [
    ([(77, 1, 2)], "sequence: found 77"), ([(0, 97, 2)], "token: found 97, expected a token id in 0..96"), ([(0, -1, 2)], "token: found -1"),
    ([(0, 1, 2), (0, 1, 2)], "found 0 twice in one call"),
])
def test_what_cannot_be_asked(artifact, model, items, expected):
    batch = _runtime.Batch(_runtime.Model(str(artifact(model("tied"), *FLOATS))), sequences=2, drafts=True)
    batch.append([(batch.add(), np.arange(5, dtype=np.int32))])
    with pytest.raises(_runtime.Error, match=expected):
        batch.draft(items)


def test_a_batch_that_does_not_draft(artifact, model):
    batch = _runtime.Batch(_runtime.Model(str(artifact(model("tied"), *FLOATS))))
    with pytest.raises(_runtime.Error, match="was not created to draft"):
        batch.draft([(batch.add(), 1, 2)])
    with pytest.raises(_runtime.Error, match="has no head that drafts; compile a checkpoint that has one"):
        _runtime.Batch(_runtime.Model(str(artifact(model("tied"), *FLOATS, "--draft-head=none"))), drafts=True)


# ---------------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("change, expected", [
    ({"mtp.fc.weight": np.ones((40, 40), np.float32)}, ["mtp.fc.weight", "expected shape [40, 80], found [40, 40]"]),
    ({"mtp.norm.weight": None}, ["mtp.norm.weight", "is missing"]),
    ({"mtp.layers.0.self_attn.k_norm.weight": None}, ["mtp.layers.0.self_attn.k_norm.weight", "is missing"]),
    ({"mtp.extra.weight": np.ones(4, np.float32)}, ["mtp.extra.weight", "no place"]),
])
def test_damaged_heads(model, tmp_path, change, expected):
    config, tensors = read_folder(model("tied"))
    folder = write_model(tmp_path / "model", config, {name: value for name, value in (tensors | change).items() if value is not None})
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *FLOATS), *expected)


def test_a_step_of_the_model_reads_nothing_of_the_head(model):
    """Plans count its weights and its part of the cache, and not among what a step reads."""
    found, without = (footprint_of(model("not tied"), CompileOptions(scheme="W8A8", draft_head=head), None, 1) for head in ("auto", "none"))
    assert found.weight_bytes > without.weight_bytes + 40 * 80 and found.cache_bytes == 2 * without.cache_bytes  # one layer more has attention
    assert abs(found.step_bytes - without.step_bytes) < 1000  # vectors, such as norms


@pytest.mark.parametrize("format", ["hf", "gguf"])
def test_exported_checkpoints_have_the_head(artifact, model, tmp_path, format):
    folder = write_byte_level(write_model(tmp_path / "model", *random_qwen35(8, kinds=("linear_attention", "full_attention") * 2, hidden=64, ffn=96, head_dim=32,
                              key_heads=2, key_dim=32, value_heads=4, value_dim=32, vocab=330, tied=False, mtp_num_hidden_layers=1)), vocabulary=320)
    if format == "hf":
        file = written_back(folder, tmp_path)
    else:
        done = run_command_line("export", folder, "--format", "gguf", "-o", tmp_path / "out", "--scheme=none")
        assert done.returncode == 0, done.stderr
        file = tmp_path / "out" / "model.gguf"
    text, found = random_tokens(5, 30, 330), []
    for source in (folder, file):
        batch = _runtime.Batch(_runtime.Model(str(artifact(source, *FLOATS))), drafts=True)
        sequence = batch.add()
        batch.append([(sequence, np.asarray(text, np.int32))])
        found.append(batch.draft([(sequence, 7, 5)]))
    assert found[0] == found[1]


@pytest.mark.parametrize("options, expected", [
    (("--kv-scheme=int8",), "what was guessed wrong can be taken from a float KV cache alone"),
    (("--scheme=W8A8", "--activations=online-ema", "--tokens"), "scales that follow a text forget no guess"),
    (("--scheme=W8A8",), None),
    (("--draft-head=none",), None),
])
def test_what_goes_without_the_head(model, tmp_path, options, expected):
    if options[-1] == "--tokens":
        options = (*options[:-1], f"--tokens={write_tokens(tmp_path / 'text.safetensors', [random_tokens(seed, 48, 97) for seed in range(2)])}")
    done = run_tool("easyquant-compile", model("tied"), "-o", tmp_path / "out", "--isa=avx2", *options)
    assert done.returncode == 0, done.stderr
    assert (expected in done.stderr) if expected else "head" not in done.stderr
    assert Artifact.open(tmp_path / "out").has_draft_head == (options == ("--scheme=W8A8",))


def test_a_head_with_an_embedding_of_its_own_is_left_out(model, tmp_path):
    config, tensors = read_folder(model("tied"))
    folder = write_model(tmp_path / "model", config, tensors | {"mtp.embed_tokens.weight": np.ones((97, 40), np.float32)})
    done = run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *FLOATS)
    assert done.returncode == 0 and "an embedding of its own: drafts are left out" in done.stderr


# --------------------------------------------------------------------------------------------------------------------- answers

PROMPTS = ["abcabcabcabc", "the-cat-sat-on-the-mat", "x", "01234567890123456789"]
SETTINGS = [{}, {"temperature": 0.7, "seed": 3}, {"repetition_penalty": 1.3}]


@pytest.fixture(scope="module")
def letters(workspace, artifact):
    folder = write_letters(write_model(workspace / "letters", *random_qwen35(4, vocab=330, context=200, mtp_num_hidden_layers=1)))
    return artifact(folder, "--scheme=W8A8", *(f"--copy-file={folder / name}" for name in ("tokenizer.json", "tokenizer_config.json")))


def answers(folder, speculation, sequences):
    reader = PromptReader(Artifact.open(folder))
    requests = [reader.request(prompt, Settings(max_tokens=40, **settings)) for prompt in PROMPTS for settings in SETTINGS]
    found = [None] * len(requests)
    size = BatchSize(100, sequences, sequences * 112)
    with Engine(load_model(reader.artifact), reader.artifact, reader, size, EngineOptions(2, speculation=speculation)) as engine:
        for number, _, completion in engine.complete(requests):
            found[number] = completion
        return [completion.tokens for completion in found], engine.speed


@pytest.mark.parametrize("sequences", [1, 3])
def test_answers_are_the_same(letters, sequences):
    plain, none = answers(letters, Speculation("none"), sequences)
    guessed, some = answers(letters, None, sequences)  # what an engine does that is told nothing
    assert guessed == plain and none.guessed_tokens == 0 and some.guessed_tokens > 20


def test_the_head_is_the_default_where_it_is(letters, artifact):
    opened = Artifact.open(letters)
    assert Speculation.settled(None, opened, "cpu") == Speculation(HEAD) and Speculation.settled(None, opened, "simt") is None
    assert Speculation.settled(Speculation("none"), opened, "cpu") is None
    assert Speculation.settled(Speculation("ngram"), opened, "cpu") == Speculation("ngram")


def test_commands(letters, model, artifact):
    run = ("run", letters, "--prompt", PROMPTS[1], "--max-new-tokens", 30, "--temperature", 0)
    outputs = {option: run_command_line(*run, *(("--speculate", option) if option else ())) for option in ("", "none", "head")}
    assert all(done.returncode == 0 for done in outputs.values()), outputs
    assert len({done.stdout for done in outputs.values()}) == 1
    refused = run_command_line(*run, "--speculate", "none", "--draft-tokens", 3)
    assert refused.returncode == 1 and "guesses nothing" in refused.stderr


def test_a_model_without_a_head(workspace, artifact):
    folder = write_letters(write_model(workspace / "plain", *random_qwen35(4, vocab=330, context=200)))
    plain = artifact(folder, "--scheme=W8A8", *(f"--copy-file={folder / name}" for name in ("tokenizer.json", "tokenizer_config.json")))
    with pytest.raises(UserError, match="has no head that drafts tokens; compile a checkpoint that has one, or take ngram"):
        easyquant.Model(plain, speculate="head")
    assert Speculation.settled(None, Artifact.open(plain), "cpu") is None
