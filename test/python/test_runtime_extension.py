# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The extension easyquant._runtime, on the fixture model of test/Runtime (see FixtureModel.c) and without the compiler."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

_runtime = pytest.importorskip("easyquant.runtime._runtime", reason="the extension is not built")

VOCAB, DIM, CONTEXT = 19, 5, 200


@pytest.fixture(scope="module")
def weights():
    random = np.random.default_rng(0)
    return random.normal(size=(2, VOCAB, DIM)).astype(np.float32)


@pytest.fixture
def folder(tmp_path, weights):
    from easyquant.support._config import TOOLS_DIR

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
        "format": "easyquant-artifact", "format_version": 3, "easyquant_version": "0.1.0", "target": "cpu",
        "model": {"architecture": "fixture", "vocab_size": VOCAB, "max_context": CONTEXT, "bos_token_id": None, "eos_token_ids": [], **sizes},
        "source": {"kind": "test", "name": "fixture", "xxh3_128": checksum, "stored_types": {}},
        "quantization": {"method": "absmax", "scheme": "none", "group_size": 0, "head": "float", "ignore": [], "targets": []},
        "sites": [],
        "program": {"abi": 8, "entries": {"avx2": "easyquant_step_avx2"}, "max_rows": 4, "arena_bytes": 64,
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


def assert_error(error, code, text):
    assert isinstance(error, _runtime.Error) and error.code == code
    assert text in error.message and str(error) == error.message


def test_a_batch_appends_to_many_sequences(model, weights, tokens):
    batch = _runtime.Batch(model, context=60, sequences=16, threads=2)
    assert (batch.context, batch.threads) == (60, 2) and batch.bytes > 0
    ids = [batch.add() for _ in range(16)]
    assert ids == list(range(16)) and batch.logits(3) is None and batch.position(3) == 0
    assert batch.append([(i, tokens[: 1 + 2 * i]) for i in ids]) == [None] * 16
    for i in ids:
        assert batch.position(i) == 1 + 2 * i
        np.testing.assert_allclose(batch.logits(i), reference(weights, tokens[: 1 + 2 * i]), atol=1e-4)
    kept = batch.logits(0)
    before = kept.copy()
    assert batch.append([(0, [1]), (5, tokens[11:13].tolist())]) == [None, None]
    assert np.array_equal(kept, before)
    np.testing.assert_allclose(batch.logits(5), reference(weights, tokens[:13]), atol=1e-4)
    assert batch.append([]) == []


def test_a_batch_has_the_bits_of_sessions(model, tokens):
    batch, session = _runtime.Batch(model, sequences=3, threads=2), _runtime.Session(model, threads=1)
    ids = [batch.add() for _ in range(3)]
    prompts = [tokens[:9], tokens[5:6], tokens[7:30]]
    results = batch.append(list(zip(ids, prompts, strict=True)), all_logits=True)
    for id, prompt, result in zip(ids, prompts, results, strict=True):
        session.reset()
        assert result.dtype == np.float32 and np.array_equal(result, session.score(prompt))
        assert np.array_equal(batch.logits(id), session.logits)


def test_a_batch_forks_truncates_and_removes(model, weights, tokens):
    batch = _runtime.Batch(model, context=60, sequences=2)
    first = batch.add()
    assert batch.append([(first, tokens[:20])]) == [None]
    fork = batch.fork(first)
    assert np.array_equal(batch.logits(fork), batch.logits(first)) and batch.position(fork) == 20
    assert batch.append([(first, tokens[20:25]), (fork, tokens[30:33])]) == [None, None]
    np.testing.assert_allclose(batch.logits(first), reference(weights, tokens[:25]), atol=1e-4)
    np.testing.assert_allclose(batch.logits(fork), reference(weights, np.concatenate([tokens[:20], tokens[30:33]])), atol=1e-4)
    batch.truncate(fork, 10)
    assert batch.logits(fork) is None and batch.position(fork) == 10
    batch.remove(first)
    for call in (batch.position, batch.logits, batch.remove, batch.fork, lambda i: batch.truncate(i, 0)):
        with pytest.raises(_runtime.Error, match=f"sequence: found {first}, which is not") as error:
            call(first)
        assert error.value.code == "INVALID_ARGUMENT"
    assert batch.add() == 2


@pytest.mark.parametrize("all_logits", [False, True])
def test_items_fail_alone(model, weights, tokens, all_logits):
    batch = _runtime.Batch(model, context=10, sequences=3, tokens=16)
    ids = [batch.add() for _ in range(3)]
    long = np.resize(tokens, 11)
    items = [(ids[0], tokens[:3]), (9, [1]), (ids[1], [1, VOCAB]), (ids[1], [2, 2**40]), (ids[1], []), (ids[0], [4]), (ids[1], long),
             (ids[1], tokens[:8]), (ids[2], [1])]
    good, *bad, eighth, last = batch.append(items, all_logits=all_logits)
    if all_logits:
        assert good.shape == (3, VOCAB) and eighth.shape == (8, VOCAB)
    else:
        assert good is None and eighth is None
    for error, (code, text) in zip(bad, [
        ("INVALID_ARGUMENT", "sequence: found 9, which is not among the 3"),
        ("INVALID_ARGUMENT", f"tokens[1]: found {VOCAB}"),
        ("INVALID_ARGUMENT", f"tokens[1]: found {2**40}, expected a token id"),
        ("INVALID_ARGUMENT", "tokens: found none"),
        ("INVALID_ARGUMENT", "sequence: found 0 twice"),
        ("OUT_OF_RANGE", "context overflow: 11 tokens at position 0 do not fit the context of 10"),
    ], strict=True):
        assert_error(error, code, text)
    assert_error(last, "OUT_OF_RANGE", "cache pages: 1 tokens at position 0 take 1 pages of 8 tokens, 0 of them copies of shared ones, but 0 of the 2")
    np.testing.assert_allclose(batch.logits(ids[1]), reference(weights, tokens[:8]), atol=1e-4)
    with pytest.raises(_runtime.Error, match="the batch holds 3 already") as error:
        batch.add()
    assert error.value.code == "OUT_OF_RANGE"


@pytest.mark.parametrize("items", [[1], [(0,)], [("a", [1])], [(0, None)], [(0, "abc")], [(0, np.zeros(3, np.float32))], None])
def test_a_batch_refuses_what_are_no_items(model, items):
    batch = _runtime.Batch(model)
    batch.add()
    with pytest.raises(TypeError):
        batch.append(items)
    assert batch.position(0) == 0


@pytest.mark.parametrize(("options", "text"), [({"sequences": 0}, "sequences: found 0"), ({"sequences": -1}, "sequences: found -1"),
                                               ({"tokens": -1}, "tokens: found -1"), ({"context": CONTEXT + 1}, "at most 200")])
def test_a_batch_checks_its_options(model, options, text):
    with pytest.raises(_runtime.Error, match=text):
        _runtime.Batch(model, **options)


def test_what_is_raised_meanwhile_ends_a_call_of_a_batch(model, tokens, monkeypatch):
    class Enough(Exception):
        pass

    asked = []

    def progress(done, total):
        asked.append((done, total))
        raise Enough

    monkeypatch.setenv("FIXTURE_ATTENTION_NANOSECONDS", "60000000")  # it is asked every 50 ms
    batch = _runtime.Batch(model, sequences=2)
    ids = [batch.add(), batch.add()]
    with pytest.raises(Enough):
        batch.append([(ids[0], tokens[:20]), (ids[1], tokens[:4])], progress=progress)
    assert [batch.position(i) for i in ids] == [0, 0] and len(asked) == 1 and asked[0][1] == 24
    monkeypatch.setenv("FIXTURE_ATTENTION_NANOSECONDS", "0")
    assert batch.append([(i, tokens[:20]) for i in ids]) == [None, None]
    assert np.array_equal(batch.logits(ids[0]), batch.logits(ids[1]))


def test_a_batch_breaks_down_what_steps_cost(model, tokens):
    batch = _runtime.Batch(model, sequences=4, measure=True)
    batch.append([(batch.add(), [int(token)]) for token in tokens[:4]])
    assert batch.breakdown()["attention"]["launches"] == 1
    assert [site["launches"] for site in batch.breakdown_sites()] == [4, 1]
