# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with a recurrent state on a GPU, simulated and through a CUDA driver that simulates: LFM2's convolutions and Qwen3.5's gated delta nets.
Logits beside the CPU's, sequences of batches beside sessions, forks, truncation to states that are kept, saved sequences, steps that are left."""

import shutil

import numpy as np
import pytest

from easyquant import _runtime
from easyquant.runtime.artifact import GPU_SEQUENCE_STATES, SEQUENCE_STATES, Artifact
from helpers import Runner, assert_refused, random_lfm2, random_qwen35, random_tokens, run_tool, with_slow, write_model
from test_gpu import edit_program
from test_gpu_batch import DECODE, Pair, VOCAB, check_steps_that_are_left, mix, run_on_both

TARGET = "--target=sm_80,cpu"
ISA = "--isa=avx2"
LOGIT_BOUND = 0.02
MODELS = {
    "lfm2": lambda: random_lfm2(11, context=320),
    "lfm2, four tokens and biases": lambda: random_lfm2(12, kinds=("full_attention", "conv"), width=4, bias=True, tied=False, hidden=48, heads=4),
    "qwen3_5": lambda: random_qwen35(11, context=320),
    "qwen3_5, as many value heads": lambda: random_qwen35(13, kinds=("full_attention", "linear_attention"), key_heads=2, value_heads=2, key_dim=8,
                                                         value_dim=8, heads=4, kv_heads=2, width=2, tied=False, rotated=0.5, attention_bias=True),
    "qwen3_5, wide": lambda: random_qwen35(14, kinds=("linear_attention", "full_attention"), hidden=64, head_dim=32, key_heads=1, value_heads=2,
                                          key_dim=32, value_dim=32, rotated=1.0),
}  # fmt: skip
# Its steps take a while. It has no part in comparisons with a CPU, since codes move in half of its tokens.
DEEP = {"deep lfm2": lambda: random_lfm2(3, kinds=("conv", "full_attention", "conv") * 8)}
SMALL = ("lfm2", "qwen3_5")
SLOW = tuple(name for name in MODELS if name not in SMALL)


@pytest.fixture(scope="module")
def compiled(artifact, workspace):
    """compiled(name): W8A8."""

    def get(name):
        folder = workspace / name.replace(" ", "-").replace(",", "")
        if not folder.exists():
            write_model(folder, *(MODELS | DEEP)[name]())
        return artifact(folder, "--scheme=W8A8", "--kv-cache=f16", TARGET, ISA)

    return get


@pytest.fixture(scope="module")
def open_model(compiled):
    return lambda name, **place: _runtime.Model(str(compiled(name)), device="simt", **place)


@pytest.mark.parametrize("name", with_slow(MODELS, *SLOW))
def test_logits_are_those_of_the_cpu(compiled, name):
    """A code that moves by one moves what follows; all else is as close as sums in another order."""
    tokens = random_tokens(5, 70, VOCAB)
    found, expected = Runner(compiled(name), device="simt", simt_checks=True).score(tokens), Runner(compiled(name), device="cpu").score(tokens)
    assert np.abs(found - expected).max() <= LOGIT_BOUND * np.abs(expected).max()
    assert np.median(np.abs(found - expected)) < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("device, states", [("cpu", SEQUENCE_STATES), ("simt", GPU_SEQUENCE_STATES)])
def test_a_sequence_takes_the_states_that_are_planned(compiled, device, states):
    """Beside its pages and less than a state of tables."""
    made = Artifact.open(compiled("qwen3_5"))
    model, page_bytes = _runtime.Model(str(made.path), device=device), made.cache_pages(device)["page_bytes"]
    one, two = (_runtime.Batch(model, context=128, sequences=sequences) for sequences in (1, 2))
    assert (two.bytes - one.bytes - (two.pages - one.pages) * page_bytes) // made.state_bytes == states
    assert made.states_bytes(1, 0, device) == states * made.state_bytes


@pytest.mark.parametrize("name", SMALL)
def test_the_state_is_seen(artifact, workspace, name):
    """Without what attention gives, a token before changes logits by the state alone: the comparison above could fail."""
    config, tensors = MODELS[name]()
    silent = {key: np.zeros_like(tensor) if "self_attn.o" in key else tensor for key, tensor in tensors.items()}
    assert sum(not tensor.any() for tensor in silent.values()) > sum(not tensor.any() for tensor in tensors.values())
    model = _runtime.Model(str(artifact(write_model(workspace / f"silent-{name}", config, silent), "--scheme=W8A8", TARGET, ISA)), device="simt")
    tokens = random_tokens(5, 60, VOCAB)
    logits = []
    for first in (1, 2):
        session = _runtime.Session(model)
        session.prefill(np.asarray([first, *tokens[:1]], np.int32))
        logits.append(np.array(session.score(np.asarray(tokens[1:4], np.int32))))
    assert np.abs(logits[0] - logits[1]).max() > 0.01 * np.abs(logits[0]).max()


@pytest.mark.parametrize("name", with_slow(MODELS, *SLOW))
def test_sequences_have_the_bits_of_sessions(open_model, name):
    mix(Pair(open_model(name), 6))


@pytest.mark.parametrize("name", SMALL)
def test_nothing_is_found_by_the_checks(open_model, name):
    mix(Pair(open_model(name, simt_checks=True), 6), seed=50)


@pytest.mark.parametrize("name", SMALL)
def test_no_bit_depends_on_how_a_text_is_cut(open_model, name):
    """As on CPUs, as far as attention goes: it has pieces of more than nine rows, which are of one kernel."""
    tokens = np.asarray(random_tokens(6, 90, VOCAB), np.int32)
    whole = np.array(_runtime.Session(open_model(name)).score(tokens))
    for pieces in ([10] * 9, [30, 15, 45], [64, 26], [63, 10, 17]):
        session, at, parts = _runtime.Session(open_model(name)), 0, []
        for count in pieces:
            parts.append(np.array(session.score(tokens[at:at + count])))
            at += count
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("name", SMALL)
def test_sequences_go_back_to_states_that_are_kept(open_model, name):
    tokens = random_tokens(7, 250, VOCAB)

    def alone(given):
        return np.array(_runtime.Session(open_model(name)).score(np.asarray(given, np.int32)))

    batch = _runtime.Batch(open_model(name), context=320, sequences=3, kept_states=2)

    def append(*items):
        return [np.array(rows) for rows in batch.append([(id, np.asarray(part, np.int32)) for id, part in items], all_logits=True)]

    first = batch.add()
    np.testing.assert_array_equal(append((first, tokens[:150]))[0], alone(tokens[:150]))
    fork, saved = batch.fork(first), batch.save(first)
    other = tokens[:140] + random_tokens(8, 40, VOCAB)
    batch.truncate(fork, 140)
    assert batch.resume_position(fork, 140) == 128
    # Twelve tokens are read again, in a step that others have a part in.
    found, others = append((fork, other[140:]), (first, tokens[150:200]))
    np.testing.assert_array_equal(found, alone(other)[140:])
    np.testing.assert_array_equal(others, alone(tokens[:200])[150:])
    batch.truncate(fork, 70)
    assert batch.resume_position(fork, 70) in (0, 64)
    np.testing.assert_array_equal(append((fork, tokens[70:100]))[0], alone(tokens[:100])[70:])
    restored = batch.restore(saved)
    assert batch.save(restored) == saved
    np.testing.assert_array_equal(append((restored, tokens[150:]))[0], alone(tokens)[150:])


@pytest.mark.parametrize("name", SMALL)
def test_steps_of_which_one_writes_no_state_that_it_reads(compiled, open_model, tmp_path, name):
    """A text over several steps, of which the second begins with a state that no sequence has, and leaves one at a page end on its way."""
    out = shutil.copytree(compiled(name), tmp_path / "artifact")
    edit_program(out, lambda program: program.update(max_rows=100))
    batch = _runtime.Batch(_runtime.Model(str(out), device="simt", skip_checksums=True, simt_checks=True), context=320, sequences=2, kept_states=2)
    ids, texts = [batch.add(), batch.add()], [random_tokens(seed, 250, VOCAB) for seed in (7, 8)]
    for id, found, text in zip(ids, batch.append(list(zip(ids, texts, strict=True)), all_logits=True), texts, strict=True):
        np.testing.assert_array_equal(found, np.array(_runtime.Session(open_model(name)).score(np.asarray(text, np.int32))))
        assert batch.resume_position(id, 200) == 192


@pytest.mark.parametrize("name", [*DEEP, "qwen3_5"])
def test_a_step_that_is_left_changes_nothing(open_model, name):
    check_steps_that_are_left(open_model(name, simt_checks=True))


@pytest.mark.parametrize("name", SMALL)
def test_decode_steps_are_recorded(compiled, tmp_path, name):
    """Rows of nobody, which fill steps up, have slots of their own."""
    printed, calls = run_on_both(DECODE, compiled(name), tmp_path)
    assert printed["cuda"] == printed["simt"]
    assert (calls["cuStreamBeginCapture"], calls["cuGraphLaunch"], calls["allocated"]) == ("3", "7", "0"), "of three sequences as of four"


def test_gpus_alone(workspace, tmp_path):
    """The manifest says what a sequence keeps where there is no program for CPUs, too."""
    model = write_model(workspace / "alone", *random_lfm2(11))
    for name, target in (("gpu", "--target=sm_80"), ("both", "--target=sm_80,cpu")):
        result = run_tool("easyquant-compile", model, "-o", tmp_path / name, "--scheme=W8A8", target)
        assert result.returncode == 0, result.stderr
    states = {name: Artifact.open(tmp_path / name).manifest["program"]["recurrent_values"] for name in ("gpu", "both")}
    assert states == {"gpu": 160, "both": 160}  # two layers, two rows of 40 columns
    tokens = random_tokens(5, 20, VOCAB)
    logits = [Runner(tmp_path / name, device="simt").score(tokens) for name in ("gpu", "both")]
    np.testing.assert_array_equal(*logits)


def test_float_linears_are_within_the_rounding_of_bf16(artifact, workspace):
    model = write_model(workspace / "floats", *random_lfm2(11))
    out = artifact(model, "--scheme=none", "--kv-cache=f16", TARGET, ISA)
    tokens = random_tokens(5, 40, VOCAB)
    found, expected = Runner(out, device="simt").score(tokens), Runner(out, device="cpu").score(tokens)
    assert np.abs(found - expected).max() <= LOGIT_BOUND * np.abs(expected).max()


def test_keys_that_are_too_long_for_a_kernel(workspace, tmp_path):
    model = write_model(workspace / "long-keys", *random_qwen35(11, key_heads=1, value_heads=1, key_dim=516))
    result = run_tool("easyquant-compile", model, "-o", tmp_path / "out", "--scheme=W8A8", "--target=sm_80")
    assert_refused(result, "linear_attn", "keys of 516 dimensions", "up to 512", "--target cpu")
