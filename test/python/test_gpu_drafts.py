# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Drafts on a GPU, simulated and through a CUDA driver that simulates: those of the head are the CPU's, however a text came into the sequence, and answers are
those without drafts."""

import itertools
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from easyquant import _runtime
from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.device import Placement
from easyquant.runtime.drafts import Speculation
from easyquant.runtime.engine import Engine, EngineOptions
from easyquant.runtime.requests import PromptReader, Settings
from helpers import random_qwen35, random_tokens, run_tool, with_slow, write_letters, write_model
from oracles.checkpoint import read_folder
from oracles.qwen35 import Qwen35
from oracles.schemes import W8A8
from test_draft_head import PROMPTS, SETTINGS, Guesser
from test_gemma4_assistant import pair, with_assistant  # noqa: F401
from test_gpu import edit_program
from test_gpu_batch import run_on_both
from test_speculation import Foresight

TARGET = ("--target=sm_80,cpu", "--isa=avx2", "--kv-cache=f16")
VOCAB = 97
MODELS = {
    "tied": {},
    "not tied": {"kinds": ("linear_attention", "full_attention"), "heads": 4, "kv_heads": 2, "tied": False, "rotated": 0.5},
    "attention alone": {"kinds": ("full_attention",) * 2},
    "experts": {"kinds": ("full_attention",), "experts": 5, "hidden": 64, "ffn": 64, "expert_ffn": 64},
}


@pytest.fixture(scope="module")
def compiled(artifact, workspace):
    """compiled(name): a W8A8 artifact, so that codes are those of the CPU."""

    def get(name, *options):
        folder = workspace / name.replace(" ", "-")
        if not folder.exists():
            write_letters(write_model(folder, *random_qwen35(11, **MODELS[name], mtp_num_hidden_layers=1, context=384)))
        copied = (f"--copy-file={folder / file}" for file in ("tokenizer.json", "tokenizer_config.json"))
        return artifact(folder, "--scheme=W8A8", *TARGET, *copied, *options)

    return get


class Both:
    """The same batch on a CPU and on a simulated GPU."""

    def __init__(self, folder, **place):
        sizes = {"sequences": 4, "threads": 2, "drafts": True}
        self.batches = [_runtime.Batch(_runtime.Model(str(folder)), **sizes), _runtime.Batch(_runtime.Model(str(folder), device="simt", **place), **sizes)]

    def __getattr__(self, name):
        def call(*arguments):
            on_cpu, on_gpu = (getattr(batch, name)(*arguments) for batch in self.batches)
            assert on_cpu == on_gpu, name
            return on_cpu

        return call

    def read(self, *items):
        assert self.append([(sequence, np.asarray(tokens, np.int32)) for sequence, tokens in items]) == [None] * len(items)

    def begin(self, text):
        """A sequence that has read the first 30 tokens of a text, and what was guessed behind each of some pieces: behind the next token, and one that does not come."""
        sequence, found = self.add(), []
        assert self.draft([(sequence, 1, 3)]) == [[]], "nothing is before it"
        for begin, end in itertools.pairwise((0, 1, 2, 9, 30)):
            self.read((sequence, text[begin:end]))
            for token, count in ((text[end], 4), ((text[end] + 1) % 96, 2)):
                found += self.draft([(sequence, token, count)])
        return sequence, found


@pytest.mark.parametrize("name", with_slow(MODELS, "tied", "experts"))
def test_guesses_are_those_of_the_cpu(compiled, name):
    both = Both(compiled(name), simt_checks=True)
    text, other = random_tokens(5, 60, VOCAB), random_tokens(6, 150, VOCAB)
    first, found = both.begin(text)
    second = both.add()
    # Two in a step, one of which has more tokens than are kept, and is asked late.
    both.read((first, text[30:40]), (second, other[:130]))
    both.read((second, other[130:140]))
    found += both.draft([(second, other[140], 2), (first, text[40], 6)])
    # What was guessed wrong goes, and something else comes.
    both.read((first, text[40:45]))
    both.truncate(first, 42)
    both.read((first, [7, 8]))
    found += both.draft([(first, 9, 5)])
    fork = both.fork(first)
    both.read((fork, [1, 2, 3]), (first, [3, 2]))
    found += both.draft([(first, 1, 3), (fork, 4, 3)])
    both.remove(first)
    both.read((fork, [5]))
    found += both.draft([(fork, 6, 3), (second, 7, 2)])
    assert len({token for guesses in found for token in guesses}) > 8, "guesses that say something"


def test_more_rows_than_a_step_takes(compiled, tmp_path):
    """The model, and then the head, read a text in as many steps as it takes."""
    folder = tmp_path / "artifact"
    shutil.copytree(compiled("attention alone"), folder)
    edit_program(folder, lambda program: program.update(max_rows=50))
    batches = [_runtime.Batch(_runtime.Model(str(each), device="simt", skip_checksums=True), sequences=2, drafts=True) for each in (folder, compiled("attention alone"))]
    found = []
    for batch in batches:
        ids = [batch.add(), batch.add()]
        batch.append([(id, np.asarray(random_tokens(id, 130, VOCAB), np.int32)) for id in ids])
        found.append(batch.draft([(ids[0], 5, 4), (ids[1], 6, 3)]))
    assert found[0] == found[1]


def test_guesses_are_those_of_the_oracle(compiled, workspace):
    """Errors of rounding can choose another token only where the oracle finds it about as good."""
    folder = compiled("not tied")
    subject = Guesser(folder, Qwen35(*read_folder(workspace / "not-tied"), W8A8, np.float64))
    subject.batch = _runtime.Batch(_runtime.Model(str(folder), device="simt"), sequences=4, drafts=True)
    sequence, text = subject.batch.add(), random_tokens(5, 60, VOCAB)
    for begin, end in itertools.pairwise((0, 30, 31, 50)):
        subject.append((sequence, text[begin:end]))
        subject.check((sequence, text[end], 4), least=0.05)


def test_the_head_reads_on_in_a_full_batch(compiled):
    """Behind a call whose sequences are all that the batch has room for, too: once, not anew behind each call."""
    batch = _runtime.Batch(_runtime.Model(str(compiled("attention alone")), device="simt"), sequences=1, drafts=True, measure=True)
    sequence, text, launches = batch.add(), random_tokens(5, 150, VOCAB), []
    for begin, end in itertools.pairwise((0, 10, 130, 134, 138, 142)):
        before = batch.breakdown()["gemm"]["launches"]
        batch.append([(sequence, text[begin:end])])
        launches.append(batch.breakdown()["gemm"]["launches"] - before)
    # The model's launches each time, and the head's as well, once.
    assert launches[1] > launches[0] and launches[2:] == [launches[0]] * 3


@pytest.mark.parametrize("name", with_slow(("plain", "E2B in small", "a narrow window", "no windows"), "E2B in small", "no windows"))
def test_guesses_of_an_assistant_are_those_of_the_cpu(artifact, pair, workspace, name):
    """What makes inputs of all layers is W8A8, too: it is float by default, which is bf16 on GPUs."""
    sites = [{"match": "re:per_layer_model_projection$", "scheme": "W8A8"}] if name == "E2B in small" else []
    (recipe := workspace / "assistant.json").write_text(json.dumps({"method": "absmax", "scheme": "W8A8", "sites": sites}))
    both = Both(artifact(*with_assistant(pair(name)), f"--recipe={recipe}", *TARGET), simt_checks=True)
    text, other = random_tokens(5, 60, 96), random_tokens(6, 95, 96)
    first, found = both.begin(text)
    second = both.add()
    both.read((first, text[30:34]), (second, other[:70]))
    found += both.draft([(second, other[70], 3), (first, text[34], 2)])
    both.truncate(first, 31)
    both.read((first, [7, 8]))
    fork = both.fork(first)
    both.read((fork, [1, 2, 3]), (first, [3]))
    found += both.draft([(first, 1, 3), (fork, 4, 2)])
    assert len({token for guesses in found for token in guesses}) > 5, "guesses that say something"


@pytest.mark.parametrize("begin", [20, 58, 252])
@pytest.mark.parametrize("name", with_slow(("attention alone", "not tied"), "not tied"))
def test_few_rows_of_a_sequence_have_the_bits_of_one(compiled, name, begin):
    """What verifies up to eight guesses, of which the last is wrong: int8 activations, and attention that cuts up to nine rows as it cuts one, also
    where a page or a piece of 256 tokens ends among them."""
    batch = _runtime.Batch(_runtime.Model(str(compiled(name)), device="simt"), sequences=2)
    text = np.asarray(random_tokens(5, begin + 20, VOCAB), np.int32)
    one, several = batch.add(), batch.add()
    batch.append([(one, text[:begin]), (several, text[:begin])])
    for first in (begin, begin + 8):
        guessed = text[first : first + 9].copy()
        guessed[-1] = (guessed[-1] + 1) % VOCAB
        [found] = batch.append([(several, guessed)], all_logits=True)
        batch.truncate(several, first + 8)
        for token, row in zip(text[first : first + 8], found, strict=False):
            batch.append([(one, [token])])
            np.testing.assert_array_equal(batch.logits(one), row)


# --------------------------------------------------------------------------------------------------------------------- answers

SIMT = Placement("simt")


def answers(folder, speculation, sequences, foreseen=None):
    """Tokens of the answers, greedy and drawn, and how many were guessed. Those that are foreseen are guessed, some wrong."""
    reader = PromptReader(Artifact.open(folder))
    requests = [reader.request(prompt, Settings(max_tokens=14, **settings)) for prompt in PROMPTS[:3] for settings in SETTINGS]
    found = [None] * len(requests)
    size = BatchSize(60, sequences, sequences * 64)
    with Engine(load_model(reader.artifact, place=SIMT), reader.artifact, reader, size, EngineOptions(2, speculation=speculation)) as engine:
        if foreseen:
            engine._drafts = Foresight(SimpleNamespace(requests=requests), [SimpleNamespace(tokens=tokens) for tokens in foreseen], chance=0.7)
        for number, _, completion in engine.complete(requests):
            found[number] = completion
        return [completion.tokens for completion in found], engine.speed.guessed_tokens


@pytest.fixture(scope="module")
def plain(compiled):
    tokens, guessed = answers(compiled("not tied"), None, 3)
    assert guessed == 0, "nobody asked"
    return tokens


@pytest.mark.parametrize("source, sequences", [("head", 1), ("head", 3), ("foresight", 3), ("a model", 2)])
def test_answers_are_those_without_drafts(compiled, plain, source, sequences):
    """Activations are int8, of which sums are exact: all bits are those without."""
    speculation = Speculation({"foresight": "ngram", "a model": str(compiled("not tied", "--draft-head=none"))}.get(source, source), 4)
    tokens, guessed = answers(compiled("not tied"), speculation, sequences, plain if source == "foresight" else None)
    assert tokens == plain and guessed > 0


DRAFT = """
import sys
from easyquant import _runtime

batch = _runtime.Batch(_runtime.Model(sys.argv[1], device=sys.argv[2]), context=140, sequences=3, drafts=True)
ids = [batch.add() for _ in range(3)]
batch.append([(id, [1 + id, 5, 7 + id][:1 + id]) for id in ids])
said = []
def draft(of):
    said.append(batch.draft([(id, int(batch.logits(id).argmax()), 3) for id in of]))
    batch.append([(id, [int(batch.logits(id).argmax())]) for id in of])
    batch.append([(id, said[-1][0][:2]) for id in ids])
    for id in ids:
        batch.truncate(id, batch.position(id) - 1)
    batch.append([(id, [4]) for id in ids])
for count in (3, 2, 3, 1, 3, 3, 2, 1):
    draft(ids[:count])
batch.append([(id, list(range(1, 88))) for id in ids])
for count in (3, 2, 1):
    draft(ids[:count])
print(said)
"""


def test_hidden_states_of_recorded_steps(compiled, tmp_path):
    """Steps of single tokens are replayed, and what they leave is where the head reads it, also behind a step of more rows than there was room for."""
    printed, calls = run_on_both(DRAFT, compiled("attention alone"), tmp_path)
    assert printed["cuda"] == printed["simt"] and calls["allocated"] == "0"
    assert int(calls["cuGraphLaunch"]) == 22 > int(calls["cuStreamBeginCapture"]) >= 6, "of 4, 2 and 1 rows, and once more for each"


# --------------------------------------------------------------------------------------------------------------------- refusals


def test_the_list_and_the_manifest_agree(compiled, tmp_path):
    folder = tmp_path / "artifact"
    shutil.copytree(compiled("not tied"), folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["gpu"]["drafts"] is True and Artifact.open(folder).has_draft_head
    del manifest["gpu"]["drafts"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(_runtime.Error, match="found a head that drafts, expected what its manifest says; compile the artifact again"):
        _runtime.Model(str(folder), device="simt", skip_checksums=True)
    edit_program(folder, lambda program: program.update(drafting=None))
    with pytest.raises(_runtime.Error, match="next_hidden"):  # which the model leaves for the head
        _runtime.Model(str(folder), device="simt", skip_checksums=True)


def test_who_does_not_draft(compiled):
    without = _runtime.Model(str(compiled("not tied", "--draft-head=none")), device="simt")
    with pytest.raises(_runtime.Error, match="has no head that drafts"):
        _runtime.Batch(without, drafts=True)
    batch = _runtime.Batch(_runtime.Model(str(compiled("not tied")), device="simt"))
    with pytest.raises(_runtime.Error, match="was not created to draft"):
        batch.draft([(batch.add(), 1, 2)])


@pytest.mark.parametrize("options, expected", [
    (("--kv-scheme=int8", "--kv-group=16", "--kv-residual=16"), "what was guessed wrong can be taken from a float KV cache alone"),
    (("--tensor-parallel=2",), "it runs on one rank"),
])
def test_what_goes_without_the_head(tmp_path, options, expected):
    folder = write_model(tmp_path / "model", *random_qwen35(11, kinds=("full_attention",), heads=4, kv_heads=2, head_dim=16, ffn=64, hidden=64, mtp_num_hidden_layers=1))
    done = run_tool("easyquant-compile", folder, "-o", tmp_path / "out", "--scheme=W8A8", "--target=sm_80", *options)
    assert done.returncode == 0 and expected in done.stderr, done.stderr
    assert not Artifact.open(tmp_path / "out").has_draft_head
