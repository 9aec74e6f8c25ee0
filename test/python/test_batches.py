# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches of compiled models on the CPU, beside sessions that are fed the same pieces: the same bits."""

import numpy as np
import pytest

from easyquant import _runtime
from helpers import Runner, random_llama, random_tokens, write_model

VOCAB, CONTEXT = 97, 330
OVERFLOWING = VOCAB - 1  # no other token has anything in the last channel, where it overflows
SMALL = ("--kv-group=16", "--kv-residual=32", "--kv-sinks=4")
CACHES = {"f16": ("--kv-cache=f16",), "int8": ("--kv-scheme=int8", *SMALL), "int4": ("--kv-scheme=int4", *SMALL),
          "rotated int4": ("--kv-scheme=int4", "--kv-keys=hadamard", *SMALL)}  # fmt: skip


@pytest.fixture(scope="module")
def model(workspace):
    config, tensors = random_llama(14, hidden=64, ffn=96, heads=4, kv_heads=2, vocab=VOCAB, context=CONTEXT)
    return write_model(workspace / "batched-llama", config, tensors)


@pytest.fixture(scope="module", params=CACHES)
def cache(request):
    return request.param


@pytest.fixture(scope="module", params=["W8A8", "W4A8"])
def subject(request, artifact, model, cache):
    return _runtime.Model(str(artifact(model, f"--scheme={request.param}", "--group-size=32", *CACHES[cache])))


class Mirror:
    """A sequence of a batch, and a session that is fed the same."""

    def __init__(self, model, id, calls=()):
        self.id, self.calls, self.logits = id, [], None
        self.session = _runtime.Session(model, context=CONTEXT, threads=1)
        for name, argument in calls:
            getattr(self, name)(argument)

    def append(self, tokens):
        self.calls.append(("append", tokens))
        return self.session.score(tokens)

    def truncate(self, position):
        self.calls.append(("truncate", position))
        self.session.truncate(position)

    def assert_same(self, batch):
        assert batch.position(self.id) == self.session.position
        logits, expected = batch.logits(self.id), self.session.logits
        assert (logits is None) == (expected is None)
        assert logits is None or np.array_equal(logits, expected), f"sequence {self.id} at {self.session.position}"


def test_sixteen_sequences_are_sixteen_sessions(subject):
    batch = _runtime.Batch(subject, sequences=16, threads=2)
    mirrors = [Mirror(subject, batch.add()) for _ in range(16)]
    for round in range(4):
        tokens = [np.asarray(random_tokens(20 * i + round, 1 + i * 4 if round == 0 else 1 + i % (2 * round), VOCAB - 1), np.int32) for i in range(16)]
        results = batch.append([(mirror.id, mine) for mirror, mine in zip(mirrors, tokens, strict=True)], all_logits=True)
        for mirror, mine, result in zip(mirrors, tokens, results, strict=True):
            assert np.array_equal(result, mirror.append(mine)), mirror.id
            mirror.assert_same(batch)


def test_a_thousand_random_calls_are_those_of_sessions(subject):
    """Sequences join, leave, fork, are cut back and appended to; some items are refused, and pages run out."""
    random = np.random.default_rng(5)
    batch = _runtime.Batch(subject, context=CONTEXT, sequences=8, tokens=1400, threads=2)
    mirrors, counts = [], {}
    for _ in range(1000):
        kind = random.choice(["add", "fork", "move", "remove", "truncate", "append"], p=[0.05, 0.05, 0.05, 0.05, 0.1, 0.7])
        if not mirrors or (kind == "add" and len(mirrors) < 8):
            mirrors.append(Mirror(subject, batch.add()))
        elif kind == "fork" and len(mirrors) < 8:
            origin = mirrors[random.integers(len(mirrors))]
            mirrors.append(Mirror(subject, batch.fork(origin.id), origin.calls))
            mirrors[-1].assert_same(batch)
        elif kind == "move" and batch.free_pages >= 6:  # it may have shared its pages
            mirror = mirrors[random.integers(len(mirrors))]
            saved = batch.save(mirror.id)
            batch.remove(mirror.id)
            mirror.id = batch.restore(saved)
            mirror.assert_same(batch)
            assert batch.save(mirror.id) == saved
        elif kind == "remove":
            batch.remove(mirrors.pop(random.integers(len(mirrors))).id)
        elif kind == "truncate":
            mirror = mirrors[random.integers(len(mirrors))]
            position = int(random.integers(mirror.session.position + 1))
            batch.truncate(mirror.id, position)
            mirror.truncate(position)
        elif kind == "append":
            chosen = [mirror for mirror in mirrors if random.random() < 0.8]
            most = random.choice([1, 8, 70])
            items = [(m.id, random.integers(0, VOCAB - 1 if random.random() < 0.98 else 10 * VOCAB, random.integers(1, most + 1))) for m in chosen]
            results = batch.append([(id, tokens.astype(np.int32)) for id, tokens in items], all_logits=bool(random.random() < 0.5))
            for mirror, (_, tokens), result in zip(chosen, items, results, strict=True):
                outcome = getattr(result, "message", "appended").split(":")[0].split("[")[0]
                counts[outcome] = counts.get(outcome, 0) + 1
                if not isinstance(result, _runtime.Error):
                    expected = mirror.append(tokens.astype(np.int32))
                    assert result is None or np.array_equal(result, expected)
                mirror.assert_same(batch)
        else:
            continue
    while mirrors:
        batch.remove(mirrors.pop().id)
    assert batch.free_pages == batch.pages
    assert counts["appended"] > 1000 and min(counts[key] for key in ("cache pages", "context overflow", "tokens")) > 5, counts


def poisoned_model(folder):
    """A model of which one token alone gives logits that are not finite."""
    config, tensors = random_llama(14, hidden=64, ffn=96, heads=4, kv_heads=2, vocab=VOCAB, context=CONTEXT, tied=False)
    for name, values in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            values[-1] = 0
        elif name.endswith(("gate_proj.weight", "up_proj.weight")):
            values[:, -1] = 1e20
    tensors["model.embed_tokens.weight"][:, -1] = 0
    tensors["model.embed_tokens.weight"][OVERFLOWING, -1] = 1
    return write_model(folder, config, tensors)


def test_a_sequence_that_overflows_fails_alone(artifact, workspace, tmp_path, cache):
    """Nor is anything of it left in the pages and windows that others get after it."""
    out = artifact(poisoned_model(tmp_path / "poisoned"), "--scheme=none", *CACHES[cache])
    subject = Runner(out, context=1).model
    good, others = np.asarray(random_tokens(1, 150, VOCAB - 1), np.int32), np.asarray(random_tokens(2, 40, VOCAB - 1), np.int32)
    bad = good.copy()
    bad[20] = OVERFLOWING

    def run(first):
        batch = _runtime.Batch(subject, sequences=3, tokens=512, threads=2)
        ids = [batch.add() for _ in range(3)]
        result, *rest = batch.append([(ids[0], first), (ids[1], others), (ids[2], others[:7])])
        assert rest == [None, None]
        return batch, ids, result

    batch, ids, result = run(bad)
    control, same_ids, fine = run(good)
    assert fine is None and isinstance(result, _runtime.Error) and result.code == "CORRUPT" and "are not finite" in result.message
    assert batch.position(ids[0]) == 0 and batch.logits(ids[0]) is None
    for id in ids[1:]:
        assert np.array_equal(batch.logits(id), control.logits(id))
    # What it wrote is overwritten by the sequence itself, or by one that has its pages and its window.
    assert batch.append([(ids[0], good)]) == [None]
    assert np.array_equal(batch.logits(ids[0]), control.logits(same_ids[0]))
    batch.truncate(ids[0], 0)
    batch.append([(ids[0], [OVERFLOWING] * 60)])
    for _ in range(2):  # each piece of it fails in its own window and pages
        batch.append([(ids[0], bad)])
    batch.remove(ids[0])
    heir = batch.add()
    for at in range(0, 150, 30):
        assert batch.append([(heir, good[at : at + 30])]) == [None]
    alone = _runtime.Session(subject, threads=1)
    for at in range(0, 150, 30):
        alone.prefill(good[at : at + 30])
    assert np.array_equal(batch.logits(heir), alone.logits)
