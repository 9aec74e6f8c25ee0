# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gemma 4's assistant, compiled with the model that it drafts for: its guesses are those of the numpy oracle, however a text came into the sequence,
and answers are the same as without it."""

import itertools
import json
import shutil

import numpy as np
import pytest

import easyquant
from calibrating import write_tokens
from command_line import run_command_line
from easyquant import _runtime
from easyquant.compiler import cache
from easyquant.compiler.footprint import footprint_of
from easyquant.compiler.options import CompileOptions
from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.drafts import HEAD, Speculation
from easyquant.runtime.engine import Engine, EngineOptions
from easyquant.runtime.requests import PromptReader, Settings
from helpers import BUILD, assert_refused, random_gemma4, random_gemma4_assistant, random_llama, random_tokens, run_tool, write_gguf, write_letters, write_model
from oracles.checkpoint import read_folder
from oracles.gemma4_assistant import Gemma4Assistant
from oracles.llama import Llama
from oracles.schemes import FLOAT, W8A8

SLIDING, FULL = "sliding_attention", "full_attention"
# What the model is, and its assistant.
PAIRS = {
    "plain": ({"layer_types": [SLIDING, FULL, SLIDING, FULL], "attention_k_eq_v": True, "num_global_key_value_heads": 1},
              {"layer_types": (SLIDING, SLIDING, FULL)}),
    "E2B in small": ({"layers": 10, "layer_types": [SLIDING, SLIDING, SLIDING, SLIDING, FULL] * 2, "heads": 8, "kv_heads": 1, "num_kv_shared_layers": 5,
                      "use_double_wide_mlp": True, "hidden_size_per_layer_input": 16, "final_logit_softcapping": 30.0},
                     {"clusters": 12, "chosen": 3, "layer_types": (SLIDING, FULL)}),
    "experts": ({"layers": 3, "layer_types": [SLIDING, SLIDING, FULL], "hidden": 64, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 3,
                 "moe_intermediate_size": 32}, {"tied": False, "attention_bias": True}),
    "a narrow window": ({"layers": 2, "layer_types": [SLIDING, FULL]}, {"sliding_window": 2}),
    "no windows": ({"layers": 2, "layer_types": [SLIDING, FULL]}, {"layer_types": (FULL,)}),
}
LONG = {"a long text": ({"layers": 2, "layer_types": [SLIDING, FULL], "context": 512}, {"layer_types": (SLIDING, FULL)})}
FLOATS = ("--scheme=none", "--isa=avx2")


@pytest.fixture(scope="module")
def pair(workspace):
    """pair(name): the folders of PAIRS[name], made once."""

    def make(name):
        folders = workspace / name.replace(" ", "-"), workspace / (name.replace(" ", "-") + "-assistant")
        if not folders[0].exists():
            of_model, of_assistant = (PAIRS | LONG)[name]
            config, tensors = random_gemma4(11, vocab=96, **of_model)
            write_model(folders[0], config, tensors)
            write_model(folders[1], *random_gemma4_assistant(12, config, **of_assistant))
        return folders

    return make


def oracle(folders, scheme=FLOAT):
    return Gemma4Assistant(Llama(*read_folder(folders[0]), scheme, np.float64), *read_folder(folders[1]), scheme)


def with_assistant(folders):
    return folders[0], f"--assistant={folders[1]}"


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

    def cut(self, sequence, position):
        self.batch.truncate(sequence, position)
        del self.texts[sequence][position:]

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


@pytest.mark.parametrize("name", PAIRS)
def test_guesses(artifact, pair, name):
    subject = Guesser(artifact(*with_assistant(pair(name)), *FLOATS), oracle(pair(name)))
    first, second = subject.batch.add(), subject.batch.add()
    text, other = random_tokens(5, 60, 96), random_tokens(6, 95, 96)
    subject.append((first, text[:1]))
    subject.check((first, text[1], 3))
    for begin, end in itertools.pairwise((1, 2, 9, 40)):
        subject.append((first, text[begin:end]))
        subject.check((first, text[end], 4))
        subject.check((first, text[end] ^ 1, 2))  # which then does not come
    # Two in a step, one of which ends with a page.
    subject.append((first, text[40:50]), (second, other[:64]))
    subject.check((second, other[64], 2), (first, text[50], 6))
    subject.append((second, other[64:80]))
    subject.check((second, other[80], 5))
    # What was guessed wrong goes, and something else comes.
    subject.append((first, text[50:55]))
    subject.cut(first, 52)
    subject.append((first, [7, 8]))
    subject.check((first, 9, 5))
    fork = subject.batch.fork(first)
    subject.texts[fork] = list(subject.texts[first])
    subject.append((fork, [1, 2, 3]), (first, [3, 2]))
    subject.check((first, 1, 3), (fork, 4, 3))


def test_guesses_where_windows_have_moved_on(artifact, pair):
    """Pages behind the model's windows are gone. Cut back to where a window is, it guesses again; further back it has to read first."""
    subject = Guesser(artifact(*with_assistant(pair("a long text")), *FLOATS), oracle(pair("a long text")))
    sequence, text = subject.batch.add(), random_tokens(5, 420, 96)
    for begin, end in itertools.pairwise((0, 130, 320, 400)):
        subject.append((sequence, text[begin:end]))
        subject.check((sequence, text[end], 4))
    subject.cut(sequence, 390)
    subject.append((sequence, [5]))
    subject.check((sequence, 7, 4))
    subject.cut(sequence, 380)
    subject.check((sequence, 7, 4))
    subject.cut(sequence, 100)
    assert subject.batch.resume_position(sequence, 100) == 0 and subject.batch.draft([(sequence, 7, 4)]) == [[]]
    subject.append((sequence, [9, 8]))
    subject.check((sequence, 7, 4))


def test_guesses_change_nothing_of_the_model(artifact, pair):
    """Bits of what comes behind are those without guesses, and those of a model without an assistant."""
    folders, text = pair("E2B in small"), random_tokens(5, 40, 96)
    found = []
    for options, drafts in ((with_assistant(folders), True), (with_assistant(folders), False), (folders[:1], False)):
        batch = _runtime.Batch(_runtime.Model(str(artifact(*options, *FLOATS))), sequences=2, threads=2, drafts=drafts)
        sequence, rows = batch.add(), []
        for begin, end in itertools.pairwise((0, 20, 21, 25, 40)):
            batch.append([(sequence, np.asarray(text[begin:end], np.int32))])
            rows.append(np.array(batch.logits(sequence)))
            if drafts:
                batch.draft([(sequence, int(text[0]), 6)])
        found.append(np.array(rows))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


def test_guesses_of_quantized_weights(artifact, pair):
    """Errors of rounding can choose another token only where the oracle finds it about as good."""
    folders = pair("experts")
    subject = Guesser(artifact(*with_assistant(folders), "--scheme=W8A8", "--isa=avx2", "--kv-cache=f32"), oracle(folders, W8A8))
    sequence, text = subject.batch.add(), random_tokens(5, 60, 96)
    for begin, end in itertools.pairwise((0, 30, 31, 50)):
        subject.append((sequence, text[begin:end]))
        subject.check((sequence, text[end], 4), least=0.2)


@pytest.mark.parametrize("options", [
    ("--scheme=W8A8", "--activations=static", "--method=smoothquant"),
    pytest.param(("--scheme=W4A16", "--method=awq+gptq", "--group-size=8"), marks=pytest.mark.slow),
], ids=" ".join)
def test_methods_leave_it_to_ranges_of_its_weights(pair, artifact, workspace, options):
    """Text runs through the model alone: its sites are those of a model without an assistant."""
    folders, tokens = pair("plain"), write_tokens(workspace / "text.safetensors", [random_tokens(seed, 48, 96) for seed in range(4)])
    out, plain = (Artifact.open(artifact(*model, *options, f"--tokens={tokens}", "--isa=avx2")) for model in (with_assistant(folders), folders[:1]))
    text = random_tokens(5, 60, 96)
    assert np.array_equal(*(_runtime.Session(_runtime.Model(str(each.path))).score(text) for each in (out, plain)))
    skipped = [entry["sites"] for entry in out.manifest["quantization"]["transforms"] if "the head that drafts" in entry.get("skipped", "")]
    assert skipped and all("assistant.pre_projection" in sites for sites in skipped)
    batch = _runtime.Batch(_runtime.Model(str(out.path)), drafts=True)
    sequence = batch.add()
    batch.append([(sequence, np.asarray(text[:30], np.int32))])
    assert len(batch.draft([(sequence, int(text[30]), 4)])[0]) == 4


def test_sites(artifact, pair):
    out = Artifact.open(artifact(*with_assistant(pair("E2B in small")), "--scheme=W4A16", "--group-size=8", "--isa=avx2"))
    sites = {site["name"] for site in out.manifest["sites"]}
    assert {"assistant.pre_projection", "assistant.post_projection", "assistant.lm_head", "assistant.model.layers.0.self_attn.q_proj",
            "assistant.model.layers.1.mlp.down_proj"} <= sites
    quantized = {site["name"] for site in out.manifest["sites"] if site.get("weight")}
    assert "assistant.masked_embedding.centroids" not in quantized and "assistant.lm_head" in quantized
    assert out.has_draft_head and out.manifest["program"]["fixed_draft_position"] is True
    assert out.manifest["source"]["assistant"] == "E2B-in-small-assistant"


def test_the_oracle_sees_every_part(pair):
    """The comparison above could fail."""
    folders, text = pair("E2B in small"), random_tokens(5, 30, 96)
    config, tensors = read_folder(folders[1])
    model = Llama(*read_folder(folders[0]), FLOAT, np.float64)

    def logits(config=config, tensors=tensors, text=text):
        found = Gemma4Assistant(model, config, tensors).guesses(text, 3, 2)
        return np.where(np.isinf(found), -100, found)

    expected = logits()
    for name, value in tensors.items():
        changed = tensors | {name: value * 1.5 if name.endswith("layer_scalar") else np.roll(value, 1, axis=-1)}
        if "norm" not in name and name != "model.layers.1.layer_scalar":  # whose numbers are alike, or behind which a norm stands
            assert np.abs(logits(tensors=changed) - expected).max() > 1e-2, name
    assert np.abs(logits(config | {"centroid_intermediate_top_k": 2}) - expected).max() > 1
    assert np.abs(logits(text=text[1:]) - expected).max() > 1e-2
    assert np.abs(logits(text=[*text[:-1], text[-1] ^ 1]) - expected).max() > 1e-2


def test_a_model_in_gguf(artifact, pair, workspace):
    folders = pair("plain")
    path = write_gguf(workspace / "model.gguf", *read_folder(folders[0]))
    subject = Guesser(artifact(path, f"--assistant={folders[1]}", *FLOATS), oracle(folders))
    sequence, text = subject.batch.add(), random_tokens(5, 31, 96)
    subject.append((sequence, text[:30]))
    subject.check((sequence, text[30], 6))


def test_ends(artifact, pair):
    """The end of the context, full pages, and what a restored sequence knows."""
    subject = Guesser(artifact(*with_assistant(pair("plain")), *FLOATS), oracle(pair("plain")), context=72, sequences=2, tokens=129)
    one, two, text = subject.batch.add(), subject.batch.add(), random_tokens(5, 128, 96)
    subject.append((one, text[:70]))
    assert [len(guesses) for guesses in subject.batch.draft([(one, 1, 9)])] == [2]
    assert subject.batch.draft([(two, 1, 3)]) == [[]]  # nothing is before it
    subject.append((two, text[:64]))
    assert subject.batch.free_pages == 0
    subject.check((two, 1, 3))  # guesses take no page
    saved = subject.batch.save(one)
    subject.batch.remove(two)
    subject.batch.remove(one)
    back = subject.batch.restore(saved)
    assert subject.batch.draft([(back, 1, 2)]) == [[]]
    subject.batch.append([(back, text[70:71])])
    assert [len(guesses) for guesses in subject.batch.draft([(back, 1, 2)])] == [1]


def test_long_texts_are_forgotten(artifact, pair):
    """The batch keeps what it needs of what the model has made, and no more."""
    subject = Guesser(artifact(*with_assistant(pair("plain")), *FLOATS), oracle(pair("plain")))
    sequence, text = subject.batch.add(), random_tokens(5, 96, 96)
    for begin in range(0, 90, 5):
        subject.append((sequence, text[begin:begin + 5]))
    subject.check((sequence, 3, 4))
    subject.cut(sequence, 60)
    subject.check((sequence, 3, 4))


# ---------------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("change, expected", [
    ({"backbone_hidden_size": 48}, ["backbone_hidden_size: found 48, expected 40 as ", "give the assistant of this model"]),
    ({"text_config.vocab_size": 88}, ["vocab_size: found 88, expected 96"]),
    ({"text_config.head_dim": 12}, ["head_dim: found 12, expected 8"]),
    ({"text_config.global_head_dim": 12}, ["global_head_dim: found 12, expected 16"]),
    ({"text_config.sliding_window": 30}, ["sliding_window: found 30, expected 2 to 9"]),
    ({"text_config.rope_parameters": {SLIDING: {"rope_type": "default", "rope_theta": 5.0}, FULL: {"rope_type": "default"}}},
     ["rope_parameters", "rotate by other angles"]),
    ({"text_config.num_kv_shared_layers": 1}, ["num_kv_shared_layers: found 1, expected all 3 layers"]),
    ({"text_config.hidden_size_per_layer_input": 8}, ["hidden_size_per_layer_input", "expected 0"]),
    ({"text_config.enable_moe_block": True}, ["enable_moe_block"]),
    ({"text_config.num_attention_heads": 3}, ["3 attention heads cannot share 2 key-value heads"]),
    ({"model_type": "gemma4"}, ['model_type: found "gemma4", expected "gemma4_assistant"', "--speculate"]),
    ({"quantization_config": {"quant_method": "gptq"}}, ["quantization_config", "give the float checkpoint"]),
    ({"use_ordered_embeddings": True, "num_centroids": 7}, ["96 tokens cannot be in 7 clusters"]),
    ({"use_ordered_embeddings": True, "num_centroids": 8, "centroid_intermediate_top_k": 9}, ["centroid_intermediate_top_k: found 9"]),
    ({"use_ordered_embeddings": True, "num_centroids": 8}, ["masked_embedding.centroids.weight", "is missing"]),
])
def test_what_does_not_fit(pair, tmp_path, change, expected):
    model, folder = pair("plain")
    config, tensors = read_folder(folder)
    for name, value in change.items():
        *objects, field = name.split(".")
        (config[objects[0]] if objects else config)[field] = value
    other = write_model(tmp_path / "assistant", config, tensors)
    done = run_tool("easyquant-compile", model, f"--assistant={other}", "-o", tmp_path / "out", *FLOATS)
    assert_refused(done, str(other), *expected)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("change, expected", [
    ({"pre_projection.weight": np.ones((24, 40), np.float32)}, ["pre_projection.weight", "expected shape [24, 80], found [24, 40]"]),
    ({"post_projection.weight": None}, ["post_projection.weight", "is missing"]),
    ({"model.layers.1.layer_scalar": None}, ["model.layers.1.layer_scalar", "is missing"]),
    ({"model.layers.1.self_attn.k_proj.weight": np.ones((16, 24), np.float32)}, None),
    ({"lm_head.weight": np.ones((96, 24), np.float32)}, None),
    ({"model.norm.weight": np.ones(24, np.int32)}, ["model.norm.weight", "weights of type I32 are not supported"]),
    ({"extra.weight": np.ones(4, np.float32)}, ["extra.weight", "has no place in a gemma4_assistant model"]),
    ({"masked_embedding.token_ordering": np.zeros(96, np.int64)}, ["place 1 has token 0; expected each of the tokens 0..95 once"]),
    ({"masked_embedding.token_ordering": np.arange(95)}, ["expected shape [96], found [95]"]),
    ({"masked_embedding.token_ordering": np.ones(96, np.float32)}, ["numbers of type F32 are not supported"]),
    ({"masked_embedding.token_ordering": np.arange(96, dtype=np.int32)}, None),
], ids=str)
def test_damaged_weights(pair, tmp_path, change, expected):
    model, folder = pair("plain")
    config, tensors = read_folder(folder)
    if any("masked" in name for name in change):
        config |= {"use_ordered_embeddings": True, "num_centroids": 8, "centroid_intermediate_top_k": 2}
        tensors |= {"masked_embedding.centroids.weight": np.ones((8, 24), np.float32)}
    other = write_model(tmp_path / "assistant", config, {name: value for name, value in (tensors | change).items() if value is not None})
    done = run_tool("easyquant-compile", model, f"--assistant={other}", "-o", tmp_path / "out", *FLOATS)
    if expected is None:  # what nothing reads is left out
        assert done.returncode == 0, done.stderr
    else:
        assert_refused(done, str(other), *expected)


def test_what_goes_without(pair, tmp_path):
    model, folder = pair("plain")

    def refused(*options, expected, target=model, assistant=folder):
        assert_refused(run_tool("easyquant-compile", target, f"--assistant={assistant}", "-o", tmp_path / "out", *options), *expected)

    refused("--draft-head=none", expected=["--assistant", "--draft-head none; leave one of the two out"])
    refused("--kv-scheme=int8", expected=["--assistant", "float KV cache"])
    refused("--activations=online-ema", expected=["--assistant", "scales that follow a text"])
    refused("--tensor-parallel=2", expected=["--assistant", "one rank"])
    refused("--export=gguf", expected=["--assistant", "checkpoints have no place for it"])
    refused(*FLOATS, expected=["no such folder"], assistant=tmp_path / "nothing")
    refused(*FLOATS, expected=["a configuration alone has no weights"], assistant=folder / "config.json")
    llama = write_model(tmp_path / "llama", *random_llama(3))
    refused(*FLOATS, expected=["is a model of llama, for which there are no assistants"], target=llama)


def test_plans_count_it(pair):
    model, folder = pair("plain")
    found, without = (footprint_of(model, CompileOptions(scheme="W8A8", assistant=each), None, 1) for each in (folder, None))
    assert found.weight_bytes > without.weight_bytes + 24 * 80 and found.cache_bytes == without.cache_bytes
    assert abs(found.step_bytes - without.step_bytes) < 2000  # vectors, such as norms
    alone = footprint_of(model / "config.json", CompileOptions(scheme="W8A8", assistant=folder / "config.json"), None, 1)
    assert alone.weight_bytes == found.weight_bytes


def test_the_command_that_plans_counts_it(pair, tmp_path):
    """With weights, and by configurations alone."""
    model, folder = pair("plain")
    bare = [tmp_path / name for name in ("model", "assistant")]
    for source, target in zip((model, folder), bare, strict=True):
        target.mkdir()
        shutil.copy(source / "config.json", target)
    figures = []
    for where, of_assistant in ((model, folder), bare, (model, None)):
        options = () if of_assistant is None else ("--assistant", of_assistant)
        done = run_command_line("plan", where, "--scheme", "W8A8", "--bandwidth", 20, *options, "--json", tmp_path / "plan.json", EASYQUANT_TOOLS=str(BUILD / "bin"))
        assert done.returncode == 0 and ("whose weights are counted" in done.stdout) == (of_assistant is not None), done
        figures.append(json.loads((tmp_path / "plan.json").read_text())["schemes"][0])
    assert figures[0]["cpu"] == figures[1]["cpu"] and figures[0]["cpu"]["weight_bytes"] > figures[2]["cpu"]["weight_bytes"]
    assert figures[0]["gpu"]["weight_bytes"] > figures[2]["gpu"]["weight_bytes"]


# --------------------------------------------------------------------------------------------------------------------- answers

PROMPTS = ["abcabcabcabc", "the-cat-sat-on-the-mat", "x", "01234567890123456789"]
SETTINGS = [{}, {"temperature": 0.7, "seed": 3}, {"repetition_penalty": 1.3}]


@pytest.fixture(scope="module")
def letters(workspace):
    """The folders of a model with a tokenizer and of its assistant."""
    config, tensors = random_gemma4(4, vocab=330, context=200, layer_types=[SLIDING, FULL] * 2, attention_k_eq_v=True)
    folder = write_letters(write_model(workspace / "letters", config, tensors))
    return folder, write_model(workspace / "letters-assistant", *random_gemma4_assistant(5, config, clusters=33, chosen=5))


@pytest.fixture(scope="module")
def lettered(letters, artifact):
    files = (f"--copy-file={letters[0] / name}" for name in ("tokenizer.json", "tokenizer_config.json"))
    return artifact(*with_assistant(letters), "--scheme=W8A8", *files)


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
def test_answers_are_the_same(lettered, sequences):
    plain, none = answers(lettered, Speculation("none"), sequences)
    guessed, some = answers(lettered, None, sequences)  # what an engine does that is told nothing
    assert Speculation.settled(None, Artifact.open(lettered), "cpu") == Speculation(HEAD)
    assert guessed == plain and none.guessed_tokens == 0 and some.guessed_tokens > 20


def test_commands(letters, tmp_path):
    done = run_command_line("compile", letters[0], "--assistant", letters[1], "--scheme", "W8A8", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    run = ("run", tmp_path / "out", "--prompt", PROMPTS[1], "--max-new-tokens", 30, "--temperature", 0)
    outputs = {option: run_command_line(*run, *(("--speculate", option) if option else ())) for option in ("", "none", "head")}
    assert all(done.returncode == 0 for done in outputs.values()), outputs
    assert len({done.stdout for done in outputs.values()}) == 1


def test_the_package(letters, tmp_path, monkeypatch):
    """A model that is compiled once and kept, and another one where the assistant is another."""
    monkeypatch.setenv("EASYQUANT_CACHE", str(tmp_path / "cache"))
    found = []
    for speculate in (None, "none"):
        with easyquant.Model(letters[0], assistant=letters[1], scheme="W8A8", speculate=speculate) as model:
            found.append([completion.tokens for completion in model.generate(PROMPTS, max_tokens=30)])
            assert "letters" in repr(model)
    assert found[0] == found[1]
    assert len(list((tmp_path / "cache" / "artifacts").glob("letters-*"))) == 1
    config, tensors = read_folder(letters[1])
    other = write_model(tmp_path / "other", config, tensors | {"model.norm.weight": tensors["model.norm.weight"][::-1].copy()})
    keys = {cache._key(letters[0], CompileOptions(scheme="W8A8", assistant=each)) for each in (None, letters[1], other)}
    assert len(keys) == 3


def test_the_pipeline_step_by_step(pair):
    done = run_tool("easyquant-compile", *with_assistant(pair("plain")), "-o", "out", "--dump-pipeline", *FLOATS)
    assert done.returncode == 0 and f"--assistant '{pair('plain')[1]}'" in done.stdout
    imported = run_tool("easyquant-translate", "--import-hf", pair("plain")[0], "--assistant", pair("plain")[1])
    assert imported.returncode == 0 and "lm.cached_attention" in imported.stdout and "lm.assistant" in imported.stdout
