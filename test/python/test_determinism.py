# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Equal inputs, equal bits: over builds, threads, chunks and sessions."""

import concurrent.futures
import json

import numpy as np
import pytest

from helpers import ALL_ISAS, ISA, Runner, compile_model, folder_contents, random_tokens


def test_artifact_built_twice(artifact, tiny_llama, tmp_path, monkeypatch):
    scheme = "W4A8"
    monkeypatch.delenv("EASYQUANT_CODE_CACHE")  # its code is generated again
    first = folder_contents(artifact(tiny_llama, f"--scheme={scheme}", ALL_ISAS))
    again = folder_contents(compile_model(tiny_llama, tmp_path / "again", f"--scheme={scheme}", "--threads=1"))
    assert first.keys() == again.keys()
    for name in first:
        assert first[name] == again[name], f"{name} differs"


def test_shards_change_nothing(artifact, tiny_llama, tmp_path):
    """The same tensors in many files: the same logits, and the Python package finds every site."""
    from easyquant.evaluation.weights import read_site
    from easyquant.runtime.artifact import Artifact

    whole = artifact(tiny_llama, "--scheme=W8A8")
    options = ("--scheme=W8A8", "--max-shard-bytes=20000", ISA)
    sharded = compile_model(tiny_llama, tmp_path / "sharded", *options)
    assert not (sharded / "weights.safetensors").exists()
    assert len(Artifact.open(sharded).weight_files) > 2
    assert folder_contents(sharded) == folder_contents(compile_model(tiny_llama, tmp_path / "again", *options, "--threads=1"))
    tokens = random_tokens(1, 40, 97)
    assert np.array_equal(Runner(sharded).score(tokens), Runner(whole).score(tokens))
    for layer in range(2):
        site = f"model.layers.{layer}.mlp.down_proj"
        assert np.array_equal(read_site(Artifact.open(sharded), site), read_site(Artifact.open(whole), site))


def test_folder_holds_what_the_manifest_says(artifact, tiny_llama):
    out = artifact(tiny_llama, "--scheme=W8A8", ALL_ISAS)
    manifest = json.loads((out / "manifest.json").read_text())
    files = {path.name for path in out.iterdir()}
    assert files == {"manifest.json", "manifest.xxh128", *manifest["files"]}
    for name, entry in manifest["files"].items():
        assert (out / name).stat().st_size == entry["bytes"]
    assert set(manifest["program"]["entries"]) == {"avx2", "avx512vnni"}


@pytest.mark.parametrize("scheme", ["none", "W8A8", "W4A16"])
def test_threads(artifact, tiny_llama, scheme):
    out = artifact(tiny_llama, f"--scheme={scheme}")
    tokens = random_tokens(1, 70, 97)
    one = Runner(out, threads=1).score(tokens)
    for threads in (2, 3, 5):
        assert np.array_equal(one, Runner(out, threads=threads).score(tokens)), f"{threads} threads"


@pytest.mark.parametrize("scheme", ["none", "W8A8", "W4A8", "W4A16"])
def test_prefill_in_chunks(artifact, tiny_llama, scheme):
    """A prompt in pieces, one token included, gives the logits of the prompt in one."""
    out = artifact(tiny_llama, f"--scheme={scheme}")
    tokens = np.asarray(random_tokens(2, 96, 97), np.int32)
    whole = Runner(out).score(tokens)
    session = Runner(out).session
    at = 0
    for count in (17, 1, 1, 2, 16, 32, 27):
        session.prefill(tokens[at:at + count])
        at += count
        assert session.position == at
        # Sums of floats may be taken in another order when there is one row; everything else is the same arithmetic.
        assert np.abs(session.logits - whole[at - 1]).max() <= 2e-5 * np.abs(whole[at - 1]).max()
    assert at == 96


def test_truncate_and_reset(runner, tiny_llama):
    session = runner(tiny_llama, "--scheme=W8A8").session
    tokens = np.asarray(random_tokens(3, 40, 97), np.int32)
    session.prefill(tokens)
    expected = np.array(session.logits)
    session.prefill(np.asarray(random_tokens(4, 20, 97), np.int32))
    session.truncate(39)
    session.decode(int(tokens[39]))
    close = np.abs(np.array(session.logits) - expected).max()
    assert close <= 2e-5 * np.abs(expected).max()
    session.reset()
    assert session.position == 0
    session.prefill(tokens)
    assert np.array_equal(session.logits, expected)


def test_two_sessions_in_two_threads(artifact, stories):
    """They share the weights and nothing else."""
    from easyquant import _runtime

    model = _runtime.Model(str(artifact(stories, "--scheme=W8A8")))
    prompts = [np.asarray(random_tokens(seed, 200, 512), np.int32) for seed in (5, 6)]

    def losses(prompt):
        session = _runtime.Session(model, context=256, threads=1)
        parts = [np.array(session.score(prompt[:100]))]
        for token in prompt[100:]:
            session.decode(int(token))
            parts.append(np.array(session.logits)[None])
        return np.concatenate(parts)

    alone = [losses(prompt) for prompt in prompts]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        together = list(pool.map(losses, prompts))
    for one, other in zip(alone, together):
        assert np.array_equal(one, other)
