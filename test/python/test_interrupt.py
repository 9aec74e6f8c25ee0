# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Long calls end when they are asked to, and the session is then as it was."""

import ctypes
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from easyquant import _runtime
from helpers import BUILD, Runner, random_llama, random_tokens, write_model

CONTEXT = 4096
PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@pytest.fixture(scope="module")
def slow(artifact, workspace):
    """An artifact that reads its whole context in seconds, in eight steps of 512 tokens."""
    config, tensors = random_llama(hidden=256, ffn=2048, layers=16, heads=4, kv_heads=4, context=CONTEXT)
    model = write_model(workspace / "slow-llama", config, tensors)
    letters = Tokenizer(models.BPE({chr(33 + id): id for id in range(94)}, []))
    letters.pre_tokenizer, letters.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    letters.save(str(model / "tokenizer.json"))
    return artifact(model, "--scheme=none", f"--copy-file={model / 'tokenizer.json'}")


@pytest.fixture(scope="module")
def tokens():
    return np.asarray(random_tokens(8, CONTEXT, 97), np.int32)


@pytest.mark.parametrize("call", ["prefill", "score"])
def test_ctrl_c_ends_a_call_between_kernels(slow, tokens, call):
    session = Runner(slow, context=CONTEXT).session
    session.prefill(tokens[:40])
    before = session.logits
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        getattr(session, call)(tokens[40:])
    assert time.monotonic() - begin < 1.5  # a step of 512 tokens alone takes about as long
    assert session.position == 40 and np.array_equal(session.logits, before)
    # It goes on as if nothing had been.
    session.prefill(tokens[40:60])
    other = Runner(slow, context=CONTEXT).session
    other.prefill(tokens[:40])
    other.prefill(tokens[40:60])
    assert np.array_equal(session.logits, other.logits)


def test_progress_is_told_and_may_raise(slow, tokens):
    session = Runner(slow, context=CONTEXT).session
    told = []

    def progress(done, total):
        told.append((done, total))
        if done:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        session.prefill(tokens, progress=progress)
    assert told[0] == (0, CONTEXT) and told[-1] == (512, CONTEXT) and session.position == 0


def read_until(terminal, text, seconds):
    """What the terminal shows until it shows `text`, or for so many seconds."""
    shown, end = b"", time.monotonic() + seconds
    while text not in shown and select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
        shown += os.read(terminal, 4096)
    return shown


def test_run_shows_prefill_and_ends_on_ctrl_c(slow):
    """What takes a second shows its progress on a terminal; Ctrl-C there ends it at once, quietly."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "easyquant", "run", str(slow), "--prompt=-", "--max-new-tokens=1", "--threads=1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs) as process:
        process.stdin.write(b"a" * (CONTEXT - 1))
        process.stdin.close()
        shown = read_until(ours, b"reading the prompt", 60)
        assert b"reading the prompt" in shown, shown
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        assert process.wait(timeout=20) == 130
        assert time.monotonic() - begin < 3
        assert process.stdout.read() == b""
    assert b"Traceback" not in read_until(ours, b"interrupted", 1)


@pytest.mark.parametrize("options", [("--kv-cache=f32",), ("--kv-scheme=int8", "--kv-group=16", "--kv-residual=32", "--kv-sinks=4")])
def test_an_interrupted_step_is_not_seen(artifact, tiny_llama, options):
    """Before every kernel of a step in turn. A cache of codes, whose window some layers have then changed and others not, becomes what it was."""
    runtime = ctypes.CDLL(BUILD / "lib" / "libeasyquant_runtime.so")
    runtime.eq_session_logits.restype = ctypes.POINTER(ctypes.c_float)
    for name in ("eq_model_load", "eq_session_create", "eq_session_prefill", "eq_session_truncate"):
        getattr(runtime, name).restype = ctypes.c_void_p
    tokens = np.asarray(random_tokens(9, 90, 97), np.int32)
    model, session = ctypes.c_void_p(), ctypes.c_void_p()
    assert not runtime.eq_model_load(str(artifact(tiny_llama, "--scheme=W8A8", *options)).encode(), None, ctypes.byref(model))

    def prefill(first, last):
        part = tokens[first:last]
        return runtime.eq_session_prefill(session, part.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(len(part)))

    def logits(between=lambda: None):
        """The logits of 90 tokens in three calls; `between` is called after the first."""
        assert not runtime.eq_session_create(model, struct.pack("<qiiq", 0, 1, 0, 0), ctypes.byref(session))
        assert not prefill(0, 40)
        between()
        assert not prefill(40, 80) and not prefill(80, 90)
        values = np.ctypeslib.as_array(runtime.eq_session_logits(session), (97,)).copy()
        runtime.eq_session_free(session)
        return values

    def interrupted(stops_at):
        """Tries the second call and stops it there; whether it came to that."""
        asked = 0

        @PROGRESS
        def progress(context, done, total):
            nonlocal asked
            asked += 1
            return asked == stops_at

        runtime.eq_session_set_progress(session, progress, None)
        error = prefill(40, 80)
        runtime.eq_session_set_progress(session, PROGRESS(), None)
        if not error:
            assert not runtime.eq_session_truncate(session, ctypes.c_int64(40))
            return False
        assert runtime.eq_error_get_code(ctypes.c_void_p(error)) == 7  # EQ_INTERRUPTED
        runtime.eq_error_free(ctypes.c_void_p(error))
        return asked == stops_at

    expected, rewound = logits(), logits(lambda: interrupted(None))
    moved = np.abs(rewound - expected).max()  # by a truncation: what left the window comes back as codes
    assert moved == 0 if options == ("--kv-cache=f32",) else 0 < moved < 0.25
    reached = []
    for stops_at in range(1, 200):
        found = logits(lambda: reached.append(interrupted(stops_at)))
        if not reached[-1]:
            break
        assert np.array_equal(found, expected), f"stopped at question {stops_at}"
    assert len(reached) > 20
    runtime.eq_model_free(model)


class Item(ctypes.Structure):
    """eq_batch_item."""

    _fields_ = [("sequence", ctypes.c_int64), ("tokens", ctypes.c_void_p), ("count", ctypes.c_size_t), ("logits", ctypes.c_void_p),
                ("logprobs", ctypes.c_void_p), ("best", ctypes.c_void_p), ("best_count", ctypes.c_size_t), ("status", ctypes.c_int), ("error", ctypes.c_void_p)]


@pytest.mark.parametrize("options", [("--kv-cache=f32",), ("--kv-scheme=int4", "--kv-group=16", "--kv-residual=32", "--kv-sinks=4")])
def test_an_interrupted_step_of_many_sequences_is_not_seen(artifact, tiny_llama, options):
    """The same of three sequences, of which one is the fork of another: each has its own window, and some of their pages in common."""
    runtime = ctypes.CDLL(BUILD / "lib" / "libeasyquant_runtime.so")
    runtime.eq_batch_logits.restype = ctypes.POINTER(ctypes.c_float)
    for name in ("eq_model_load", "eq_batch_create", "eq_batch_add", "eq_batch_fork", "eq_batch_append"):
        getattr(runtime, name).restype = ctypes.c_void_p
    tokens = np.asarray(random_tokens(9, 90, 97), np.int32)
    model, batch = ctypes.c_void_p(), ctypes.c_void_p()
    assert not runtime.eq_model_load(str(artifact(tiny_llama, "--scheme=W8A8", *options)).encode(), None, ctypes.byref(model))

    def append(*parts):
        items = (Item * len(parts))(*(Item(id, tokens[first:].ctypes.data, last - first) for id, (first, last) in enumerate(parts)))
        error = runtime.eq_batch_append(batch, items, ctypes.c_size_t(len(parts)))
        assert all(item.status == 0 for item in items)
        return error

    def logits(stops_at=0):
        """The logits of three sequences, and whether a call was stopped at this question before it was made again."""
        asked = 0

        @PROGRESS
        def progress(context, done, total):
            nonlocal asked
            asked += 1
            return asked == stops_at

        assert not runtime.eq_batch_create(model, struct.pack("<qqqiiqii", 0, 3, 0, 2, 0, 0, 0, 0), ctypes.byref(batch))
        ids = [ctypes.c_int64() for _ in range(3)]
        assert not runtime.eq_batch_add(batch, ctypes.byref(ids[0])) and not runtime.eq_batch_add(batch, ctypes.byref(ids[1]))
        assert not append((0, 70), (3, 9)) and not runtime.eq_batch_fork(batch, ids[0], ctypes.byref(ids[2]))
        second = (70, 90), (9, 10), (20, 23)
        if stops_at:
            runtime.eq_batch_set_progress(batch, progress, None)
            error = append(*second)
            runtime.eq_batch_set_progress(batch, PROGRESS(), None)
            if not error:
                runtime.eq_batch_free(batch)
                return None
            assert runtime.eq_error_get_code(ctypes.c_void_p(error)) == 7  # EQ_INTERRUPTED
            runtime.eq_error_free(ctypes.c_void_p(error))
        assert not append(*second) and not append((1, 3), (10, 60), (5, 6))
        values = [np.ctypeslib.as_array(runtime.eq_batch_logits(batch, id), (97,)).copy() for id in ids]
        runtime.eq_batch_free(batch)
        return values

    expected = logits()
    stopped = 0
    while found := logits(stopped + 1):
        stopped += 1
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True)), f"stopped at question {stopped}"
    assert stopped > 20
    runtime.eq_model_free(model)
