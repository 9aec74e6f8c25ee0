# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Online scales of compiled models: what a session keeps, and that it is nobody else's."""

import ctypes
import json
import struct

import numpy as np
import pytest

from calibrating import write_tokens
from easyquant import _runtime
from helpers import BUILD, assert_refused, random_llama, random_tokens, run_tool, write_model

VOCAB, CONTEXT, TOKENS = 97, 330, 8
PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
HEADER = 40  # of a saved state: what it is, and whose
KINDS = {
    "ema": ("--activations=online-ema", "--sinks=none"), "window": ("--activations=online-window", "--online-window=3", "--sinks=none"),
    "sinks": ("--activations=online-ema", "--sinks=keep"),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(workspace):
    config, tensors = random_llama(21, hidden=64, ffn=96, heads=4, kv_heads=2, vocab=VOCAB, context=CONTEXT)
    return write_model(workspace / "online-llama", config, tensors)


@pytest.fixture(scope="module")
def calibration(workspace):
    return f"--tokens={write_tokens(workspace / 'online-tokens.safetensors', [random_tokens(seed, 24, VOCAB) for seed in range(3)])}"


@pytest.fixture(scope="module", params=KINDS)
def folder(request, artifact, model, calibration):
    return artifact(model, "--scheme=W8A8", *KINDS[request.param], f"--online-tokens={TOKENS}", "--online-decay=0.75", "--target=sm_80,cpu", calibration)


@pytest.fixture(scope="module", params=["cpu", "simt"])
def subject(request, folder):
    return _runtime.Model(str(folder), device=request.param)


def session(model, threads=1):
    return _runtime.Session(model, context=CONTEXT, threads=threads)


def numbers(state, manifest):
    """(sites, fields) of a saved state."""
    fields = 2 + manifest["online"]["window"]
    return np.frombuffer(state, np.float64, offset=HEADER).reshape(-1, fields)


def test_sessions_start_as_calibrated_and_follow_their_input(subject, folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    start = manifest["online"]["start"]
    assert manifest["online"]["tokens"] == TOKENS and manifest["online"]["decay"] == 0.75
    # Two layers: q,k,v and gate,up share their input; behind the last attention scales are per token.
    assert len(start) == 5
    own = session(subject)
    before = numbers(own.state, manifest)
    assert np.array_equal(before[:, 1], np.float32(start)) and np.array_equal(before[:, 0], before[:, 1] * 127)
    own.prefill(random_tokens(1, 20, VOCAB))
    after = numbers(own.state, manifest)
    assert (after[:, 1] != before[:, 1]).all() and np.array_equal(after[:, 1], np.float32(after[:, 0] / 127))
    kept = own.state
    own.truncate(3)
    assert own.state == kept
    own.reset()
    assert own.state == kept
    own.reset_state()
    assert np.array_equal(numbers(own.state, manifest), before)


def test_prompts_are_cut_in_steps_of_so_many_tokens(subject):
    tokens = random_tokens(2, 3 * TOKENS + 5, VOCAB)
    whole, pieces, scored = session(subject), session(subject, threads=2), session(subject)
    whole.prefill(tokens)
    for first in range(0, len(tokens), TOKENS):
        pieces.prefill(tokens[first:first + TOKENS])
    logits = scored.score(tokens)
    assert whole.state == pieces.state == scored.state
    assert np.array_equal(whole.logits, pieces.logits) and np.array_equal(whole.logits, logits[-1])
    other = session(subject)
    for token in tokens:
        other.decode(token)
    assert other.state != whole.state  # an update each


def test_gpus_keep_what_cpus_keep(folder):
    """States differ only by the rounding of norms and activations: the same extrema give the same bits on both (OnlineScalesTest.cpp)."""
    states = []
    for device in ("cpu", "simt"):
        own = session(_runtime.Model(str(folder), device=device))
        own.prefill(random_tokens(8, 45, VOCAB))
        for token in random_tokens(9, 12, VOCAB):
            own.decode(token)
        states.append(own.state)
    np.testing.assert_allclose(*(np.frombuffer(state, np.float64, offset=HEADER) for state in states), rtol=5e-2)


def test_what_else_is_in_a_batch_changes_no_bit(subject):
    random = np.random.default_rng(5)
    batch = _runtime.Batch(subject, sequences=5, threads=2)
    mirrors = {batch.add(): session(subject) for _ in range(3)}
    for round in range(25):
        some = [id for id in mirrors if random.random() < 0.7] or list(mirrors)[:1]
        items = [(id, random_tokens(int(random.integers(1 << 30)), int(random.choice([1, 1, 1, 3, TOKENS, 2 * TOKENS + 1])), VOCAB)) for id in some]
        batch.append(items)
        for id, tokens in items:
            mirrors[id].prefill(tokens)
            assert np.array_equal(batch.logits(id), mirrors[id].logits), f"sequence {id} in round {round}"
        if round == 8:  # a fork has the state of its origin
            origin = next(iter(mirrors))
            copy = session(subject)
            copy.prefill([1])
            fork = batch.fork(origin)
            batch.truncate(fork, 0)
            copy.truncate(0)
            copy.restore_state(mirrors[origin].state)
            mirrors[fork] = copy
        if round == 12:  # and so has one that is saved and restored
            moved = list(mirrors)[0]
            saved = batch.save(moved)
            batch.remove(moved)
            mirrors[batch.restore(saved)] = mirrors.pop(moved)
        if round == 16:  # and what comes in the place of another starts anew
            gone = list(mirrors)[1]
            batch.remove(gone)
            del mirrors[gone]
            mirrors[batch.add()] = session(subject)


def test_states_go_from_sequences_to_sessions_and_back(subject):
    batch, own = _runtime.Batch(subject, sequences=2), session(subject)
    first, second = batch.add(), batch.add()
    start = batch.state(first)
    assert start == own.state
    tokens = random_tokens(4, 20, VOCAB)
    batch.append([(first, tokens)])
    own.prefill(tokens)
    assert batch.state(first) == own.state != start and batch.state(second) == start
    batch.restore_state(second, own.state)
    batch.reset_state(first)
    assert batch.state(second) == own.state and batch.state(first) == start
    own.reset()
    own.prefill(tokens)
    batch.append([(second, tokens)])
    assert np.array_equal(batch.logits(second), own.logits)
    batch.remove(first)
    for use in (lambda: batch.state(first), lambda: batch.restore_state(first, start), lambda: batch.reset_state(first)):
        with pytest.raises(Exception, match="sequence"):
            use()
    with pytest.raises(Exception, match="no saved state"):
        batch.restore_state(second, b"")


def test_saved_states_go_on(subject):
    tokens = random_tokens(3, 30, VOCAB)
    first, second = session(subject), session(subject, threads=2)
    first.prefill(tokens)
    first.reset()
    second.restore_state(first.state)
    for one in (first, second):
        one.prefill(tokens[::-1])
    assert np.array_equal(first.logits, second.logits) and first.state == second.state


def test_a_call_that_ends_early_changes_no_scale(folder):
    """Before some kernels of its second and third step: what the session keeps and computes then is as if the call had not been."""
    runtime = ctypes.CDLL(BUILD / "lib" / "libeasyquant_runtime.so")
    runtime.eq_session_logits.restype = ctypes.POINTER(ctypes.c_float)
    runtime.eq_session_state_size.restype = ctypes.c_int64
    for name in ("eq_model_load", "eq_session_create", "eq_session_prefill", "eq_session_state_save"):
        getattr(runtime, name).restype = ctypes.c_void_p
    tokens = np.asarray(random_tokens(9, 60, VOCAB), np.int32)
    model, session = ctypes.c_void_p(), ctypes.c_void_p()
    assert not runtime.eq_model_load(str(folder).encode(), None, ctypes.byref(model))

    def prefill(first, last):
        part = tokens[first:last]
        return runtime.eq_session_prefill(session, part.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(len(part)))

    def state():
        saved = ctypes.create_string_buffer(runtime.eq_session_state_size(session))
        assert not runtime.eq_session_state_save(session, saved, ctypes.c_size_t(len(saved)))
        return saved.raw

    expected = None
    for stops_at in (None, 30, 55, 60):
        assert not runtime.eq_session_create(model, struct.pack("<qiiq", 0, 1, 0, 0), ctypes.byref(session))
        assert not prefill(0, 20)
        before, asked = state(), 0
        if stops_at:

            @PROGRESS
            def progress(context, done, total):
                nonlocal asked
                asked += 1
                return asked == stops_at

            runtime.eq_session_set_progress(session, progress, None)
            error = prefill(20, 60)
            runtime.eq_session_set_progress(session, PROGRESS(), None)
            assert error and asked == stops_at
            runtime.eq_error_free(ctypes.c_void_p(error))
            assert state() == before
        assert not prefill(20, 50)
        found = (state(), np.ctypeslib.as_array(runtime.eq_session_logits(session), (VOCAB,)).tolist())
        expected = expected or found
        assert found == expected
        runtime.eq_session_free(session)
    runtime.eq_model_free(model)


def test_states_that_are_none_are_refused(subject, artifact, model, calibration):
    own = session(subject)
    good = own.state
    for bad, message in [
        (b"", "no saved state"),
        (b"x" * len(good), "no saved state"),
        (good[:-8], "another model"),
        (good[:8] + b"0" * 32 + good[40:], "another model"),
        (good[:40] + struct.pack("<d", float("nan")) + good[48:], "expected a magnitude and its scale"),
        (good[:40] + struct.pack("<d", -1.0) + good[48:], "expected a magnitude and its scale"),
    ]:
        with pytest.raises(Exception, match=message):
            own.restore_state(bad)
    assert own.state == good
    static = session(_runtime.Model(str(artifact(model, "--scheme=W8A8")), device="cpu"))
    assert static.state == b""
    with pytest.raises(Exception, match="the model keeps none"):
        static.restore_state(good)


@pytest.mark.parametrize("options, message", [
    (("--scheme=W4A16", "--activations=online-ema"), "need int8 activations, but scheme W4A16 has none"),
    (("--scheme=FP8", "--activations=online-window"), "scheme FP8 has static activations, found online-window"),
    (("--scheme=W8A8", "--activations=online-ema"), "static and online activations need calibration text"),
    (("--scheme=W8A8", "--online-window=0"), "online window 0: expected an integer"),
])  # fmt: skip
def test_what_cannot_be_is_refused(model, tmp_path, calibration, options, message):
    tokens = () if "calibration text" in message else (calibration,)
    assert_refused(run_tool("easyquant-compile", model, "-o", tmp_path / "out", *options, *tokens), message)
