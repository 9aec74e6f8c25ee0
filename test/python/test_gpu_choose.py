# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens chosen on a GPU: simulated, and through a CUDA driver that simulates.

A choice by logits that are given is made on the host. So is the other one that each token is compared with.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

from easyquant import _runtime
from helpers import BUILD, random_llama, random_tokens, write_model
from test_batches import OVERFLOWING, poisoned_model

CHIP = "--target=sm_80"
VOCAB = 97
CONTEXT = 64
SETTINGS = {
    "greedy": {},
    "temperature": {"temperature": 0.8},
    "hot": {"temperature": 5.0},
    "top-k": {"temperature": 1.0, "top_k": 20},
    "top-p": {"temperature": 1.0, "top_p": 0.9},
    "min-p": {"temperature": 1.0, "min_p": 0.1},
    "all": {"temperature": 1.2, "top_k": 40, "top_p": 0.95, "min_p": 0.02},
    "greedy top-k": {"temperature": 1.0, "top_k": 1},
    "penalty": {"temperature": 1.0, "repetition_penalty": 1.3, "prompt": [1, 2, 3]},
    "penalties": {"temperature": 0.7, "top_k": 20, "repetition_penalty": 0.8, "presence_penalty": 0.5, "frequency_penalty": -0.25, "prompt": [5, 5, 9, 90]},
    "greedy penalty": {"repetition_penalty": 1.5, "prompt": [1, 2, 3, 4]},
    "bias": {"bias": {7: 3.0}},
    "bias and penalty": {"temperature": 1.0, "bias": {7: 3.0, 9: -2.5}, "repetition_penalty": 1.3, "prompt": [7, 8]},
    "logprobs": {"temperature": 1.0, "logprobs": 3},
}


@pytest.fixture(scope="module")
def folder(artifact, workspace):
    model = write_model(workspace / "llama-choose", *random_llama(31, heads=4, kv_heads=2, head_dim=16, layers=1))
    return str(artifact(model, "--scheme=W8A8", CHIP))


def choose(batch, ids, name, on_host):
    """The next token of each sequence, by a seed of its own."""
    samplers = [_runtime.Sampler(seed=100 + id, **SETTINGS[name]) for id in ids]
    if not on_host:
        return batch.choose(list(zip(ids, samplers, strict=True)))
    return batch.choose([(id, sampler, batch.logits(id), batch.position(id)) for id, sampler in zip(ids, samplers, strict=True)])


@pytest.mark.parametrize("name", list(SETTINGS))
def test_tokens_are_those_of_the_host(folder, name):
    batch = _runtime.Batch(_runtime.Model(folder, device="simt"), context=CONTEXT, sequences=6)
    ids = [batch.add() for _ in range(5)]
    batch.append([(id, random_tokens(id, 1 + 3 * id, VOCAB)) for id in ids])
    seen = set()
    for _ in range(6):
        found = choose(batch, ids, name, on_host=False)
        assert found == choose(batch, ids, name, on_host=True)
        seen |= {token for token, *_ in found}
        batch.append([(id, [token]) for id, (token, *_) in zip(ids, found, strict=True)])
    assert len(seen) > 3


def test_logits_stay_with_sequences(folder):
    """Through steps of others, forks, truncation, saving, and steps whose logits are all asked for."""
    model = _runtime.Model(folder, device="simt", simt_checks=True)
    batch = _runtime.Batch(model, context=CONTEXT, sequences=6)
    sessions = {}

    def append(prompts, all_logits=False):
        batch.append(list(prompts.items()), all_logits=all_logits)
        for id, tokens in prompts.items():
            sessions[id].prefill(np.asarray(tokens, np.int32))

    def check():
        """First the choice, then the logits, which are read by it."""
        going = [id for id in sessions if batch.position(id) > 0]
        for name in ("temperature", "greedy"):
            for id, (token, *_) in zip(going, choose(batch, going, name, on_host=False), strict=True):
                [(expected, *_)] = batch.choose([(id, _runtime.Sampler(seed=100 + id, **SETTINGS[name]), sessions[id].logits, batch.position(id))])
                assert token == expected
        for id in going[::2]:
            np.testing.assert_array_equal(batch.logits(id), sessions[id].logits)

    for id in (batch.add() for _ in range(4)):
        sessions[id] = _runtime.Session(model, context=CONTEXT)
    ids = list(sessions)
    append({id: random_tokens(id, 3 + id, VOCAB) for id in ids})
    append({ids[1]: [5]})  # the others keep theirs
    check()
    append({ids[2]: [6], ids[0]: [7, 8]}, all_logits=True)
    check()
    fork = batch.fork(ids[3])
    sessions[fork] = _runtime.Session(model, context=CONTEXT)
    sessions[fork].prefill(random_tokens(ids[3], 3 + ids[3], VOCAB))
    append({ids[3]: [9]})  # the fork keeps what it has
    check()
    batch.truncate(ids[0], 2)
    assert batch.logits(ids[0]) is None
    saved = batch.save(fork)
    batch.remove(fork)
    heir = batch.restore(saved)
    sessions[heir] = sessions.pop(fork)
    del sessions[ids[0]]
    check()
    for token in range(4):
        append({id: [token] for id in sessions})
        check()


def test_more_logits_than_there_is_memory_for_at_first(artifact, workspace):
    """Logits of 64 sequences have places in the beginning; some choices are of more tokens than the device looks at."""
    vocab = 2304
    model = write_model(workspace / "llama-choose-wide", *random_llama(31, vocab=vocab, heads=4, kv_heads=2, head_dim=16, layers=1))
    model = _runtime.Model(str(artifact(model, "--scheme=W8A8", CHIP)), device="simt")
    batch = _runtime.Batch(model, context=8, sequences=70)
    ids = [batch.add() for _ in range(70)]
    prompts = {id: random_tokens(id, 1, vocab) for id in ids}
    for first in range(0, len(ids), 20):
        batch.append([(id, prompts[id]) for id in ids[first : first + 20]])
    alone = _runtime.Session(model, context=8)
    for id in (ids[0], ids[63], ids[64], ids[-1]):
        alone.reset()
        alone.prefill(np.asarray(prompts[id], np.int32))
        np.testing.assert_array_equal(batch.logits(id), alone.logits)
    for settings in ({"temperature": 0.8}, {"temperature": 1.0, "top_k": 1100}, {"temperature": 100.0, "top_p": 0.95}):
        samplers = [(id, _runtime.Sampler(seed=id, **settings)) for id in (ids[3], ids[69])]
        on_host = [(id, _runtime.Sampler(seed=id, **settings), batch.logits(id), batch.position(id)) for id, _ in samplers]
        assert batch.choose(samplers) == batch.choose(on_host)


def test_logits_that_are_not_finite_end_their_sequence_alone(artifact, workspace):
    model = _runtime.Model(str(artifact(poisoned_model(workspace / "poisoned-gpu"), "--scheme=none", CHIP)), device="simt")

    def run(token):
        batch = _runtime.Batch(model, context=CONTEXT, sequences=3)
        ids = [batch.add() for _ in range(3)]
        assert batch.append([(id, random_tokens(id, 4, VOCAB - 1)) for id in ids]) == [None] * 3
        first, *others = batch.append([(ids[0], [token]), (ids[1], [3]), (ids[2], [4])])
        assert others == [None, None]
        return batch, ids, first

    batch, ids, failed = run(OVERFLOWING)
    control, _, fine = run(5)
    assert fine is None and isinstance(failed, _runtime.Error) and failed.code == "CORRUPT"
    assert f"the token at position 4 (id {OVERFLOWING}) are not finite: site 'model.layers.0.mlp.down_proj' is the first that was seen" in failed.message
    assert [batch.position(id) for id in ids] == [4, 5, 5]
    for id in ids[1:]:
        np.testing.assert_array_equal(batch.logits(id), control.logits(id))
    # It has the logits of its last good token.
    [(token, *_)] = batch.choose([(ids[0], _runtime.Sampler())])
    assert token == batch.logits(ids[0]).argmax()
    assert batch.append([(ids[0], [5])]) == [None]
    np.testing.assert_allclose(batch.logits(ids[0]), control.logits(ids[0]), atol=1e-2 * np.abs(control.logits(ids[0])).max())


LOOP = """
import sys
from easyquant import _runtime

folder, device, steps, settings = sys.argv[1], sys.argv[2], int(sys.argv[3]), eval(sys.argv[4])
batch = _runtime.Batch(_runtime.Model(folder, device=device), context=64, sequences=16)
ids = [batch.add() for _ in range(16)]
batch.append([(id, [1 + id]) for id in ids])
told = []
for step in range(steps):
    tokens = [token for token, *_ in batch.choose([(id, _runtime.Sampler(seed=100 * step + id, **settings)) for id in ids])]
    told.append(tokens)
    batch.append([(id, [token]) for id, token in zip(ids, tokens)])
print(told)
"""


@pytest.mark.parametrize("name, settled", [("greedy", 8), ("temperature", 12), ("all", 12), ("penalty", 20), ("bias", 16)])
def test_few_bytes_are_copied_for_a_token(folder, tmp_path, name, settled):
    """A greatest logit has 8, a choice 4 down; a penalty or a bias 32 up."""
    counts, printed = [], []
    for device, steps in (("cuda", 3), ("cuda", 9), ("simt", 9)):
        log = tmp_path / f"calls-{steps}"
        fake = {"LD_LIBRARY_PATH": str(BUILD / "unittests" / "fake-cuda"), "FAKE_CUDA_LOG": str(log), "FAKE_CUDA_IMAGE": f"{folder}/kernels.sm_80.ptx"}
        result = subprocess.run([sys.executable, "-c", LOOP, folder, device, str(steps), str(SETTINGS[name])],
                                env=os.environ | fake, capture_output=True, text=True)  # fmt: skip
        assert result.returncode == 0, result.stderr
        printed.append(result.stdout)
        if device == "cuda":
            counts.append({key: int(value) for key, value in (line.split() for line in log.read_text().splitlines())})
    assert printed[1] == printed[2]
    few, many = counts
    sequences, steps = 16, 6
    down = (many["bytesDown"] - few["bytesDown"]) / steps / sequences
    assert down == settled
    assert many["bytesToPageable"] == 0 and many["allocated"] == 0
    # A piece has 32 bytes, and so has the number of pieces, of each of the two cuts. A new page is told of once in 64 tokens.
    up = (many["bytesUp"] - few["bytesUp"]) / steps - 32 * 2
    changes = len(SETTINGS[name].get("prompt", SETTINGS[name].get("bias", ())))
    assert up <= (64 + 32 + 32 * changes) * sequences
