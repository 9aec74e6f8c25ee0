# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The extension easyquant._runtime, on the fixture model of test/Runtime (see FixtureModel.c) and without the compiler."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

_runtime = pytest.importorskip("easyquant._runtime", reason="the extension is not built")

VOCAB, DIM, CONTEXT = 19, 5, 200


@pytest.fixture(scope="module")
def weights():
    random = np.random.default_rng(0)
    return random.normal(size=(2, VOCAB, DIM)).astype(np.float32)


@pytest.fixture
def folder(tmp_path, weights):
    from easyquant._config import TOOLS_DIR

    program = Path(TOOLS_DIR).parent / "unittests" / "RuntimeFixtureModel.so"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    shutil.copy(program, tmp_path / "model.so")
    size = weights[0].nbytes
    tensors = {name: {"dtype": "F32", "shape": [VOCAB, DIM], "data_offsets": [i * size, (i + 1) * size]}
               for i, name in enumerate(("embedding", "unembedding"))}
    header = json.dumps(tensors).encode().ljust(4096 - 8)
    (tmp_path / "weights.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + weights.tobytes())
    checksum = "0" * 32  # loading skips them
    sizes = dict.fromkeys(["hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "parameters"], 1)
    manifest = {
        "format": "easyquant-artifact", "format_version": 2, "easyquant_version": "0.1.0", "target": "cpu",
        "model": {"architecture": "fixture", "vocab_size": VOCAB, "max_context": CONTEXT, "bos_token_id": None, "eos_token_ids": [], **sizes},
        "source": {"kind": "test", "name": "fixture", "xxh3_128": checksum, "stored_types": {}},
        "quantization": {"method": "absmax", "scheme": "none", "group_size": 0, "head": "float", "ignore": [], "targets": []},
        "sites": [],
        "program": {"abi": 4, "entries": {"avx2": "easyquant_step_avx2"}, "max_rows": 4, "arena_bytes": 64,
                    "arena_bytes_per_thread": 64, "cache": {"page_tokens": 8, "page_bytes": 192, "window_bytes": 64}, "cache_scheme": None, "cache_type": "f32"},
        "files": {name: {"bytes": (tmp_path / name).stat().st_size, "xxh3_128": checksum} for name in ("model.so", "weights.safetensors")},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "manifest.xxh128").write_text(f"{checksum}  manifest.json\n")
    return tmp_path


@pytest.fixture
def model(folder):
    return _runtime.Model(str(folder), skip_checksums=True)


@pytest.fixture
def tokens():
    return np.random.default_rng(1).integers(0, VOCAB, 40).astype(np.int32)


def reference(weights, tokens):
    """Logits after the last token, in double precision."""
    positions = np.arange(len(tokens))
    states = weights[0][tokens].astype(np.float64) * (1 + positions / 64)[:, None]
    return weights[1].astype(np.float64) @ (states / (len(tokens) - positions)[:, None]).sum(axis=0)


def test_describes_the_model(model):
    assert (model.isa, model.vocab_size, model.max_context, model.weights_bytes) == ("avx2", VOCAB, CONTEXT, 2 * VOCAB * DIM * 4)
    assert model.manifest["program"]["max_rows"] == 4


def test_scores_steps_and_truncates(model, weights, tokens):
    session = _runtime.Session(model, context=100, threads=2)
    assert session.logits is None and session.position == 0
    logits = session.score(tokens[:30])
    assert logits.shape == (30, VOCAB) and logits.dtype == np.float32
    for row in range(30):
        np.testing.assert_allclose(logits[row], reference(weights, tokens[:row + 1]), atol=1e-4)
    assert np.array_equal(session.logits, logits[-1])
    session.truncate(10)
    assert session.logits is None
    session.prefill(tokens[10:29].tolist())
    session.decode(int(tokens[29]))
    assert np.array_equal(session.logits, logits[-1]) and session.position == 30
    session.reset()
    assert session.position == 0 and session.bytes > 0


def test_logits_are_a_copy(model, tokens):
    session = _runtime.Session(model)
    session.prefill(tokens)
    kept = session.logits
    before = kept.copy()
    session.decode(1)
    assert np.array_equal(kept, before) and not np.array_equal(session.logits, before)


def test_a_session_keeps_its_model(folder, weights, tokens):
    session = _runtime.Session(_runtime.Model(str(folder), skip_checksums=True))
    session.prefill(tokens)
    np.testing.assert_allclose(session.logits, reference(weights, tokens), atol=1e-4)


@pytest.mark.parametrize("token", [-1, VOCAB, 2**31, 2**40, -2**63])
def test_refuses_tokens_outside_the_vocabulary(model, token):
    session = _runtime.Session(model)
    session.prefill([1, 2])
    for step in (session.decode, lambda t: session.prefill([1, t]), lambda t: session.score(np.array([1, t], np.int64))):
        with pytest.raises(_runtime.Error) as error:
            step(token)
        assert error.value.code == "INVALID_ARGUMENT"
        assert str(token) in error.value.message and str(error.value) == error.value.message
    assert session.position == 2


@pytest.mark.parametrize("tokens", [np.zeros(3, np.float32), np.zeros((2, 2), np.int32), "abc", None])
def test_refuses_what_are_no_tokens(model, tokens):
    session = _runtime.Session(model)
    for step in (session.prefill, session.score):
        with pytest.raises(TypeError):
            step(tokens)


def test_errors_carry_their_code(folder, model):
    for code, call in {
        "NOT_FOUND": lambda: _runtime.Model(str(folder / "nothing")),
        "CORRUPT": lambda: _runtime.Model(str(folder)),
        "INVALID_ARGUMENT": lambda: _runtime.Model(str(folder), isa="neon", skip_checksums=True),
        "UNSUPPORTED": lambda: _runtime.Model(str(folder), isa="avx512vnni", skip_checksums=True),
        "OUT_OF_RANGE": lambda: _runtime.Session(model, context=CONTEXT + 1),
    }.items():
        with pytest.raises(_runtime.Error) as error:
            call()
        assert error.value.code == code
