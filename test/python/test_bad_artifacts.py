# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What running does with artifacts and requests that cannot be."""

import json
import shutil

import numpy as np
import pytest

from helpers import ISA, Runner, assert_refused, compile_model, random_tokens, run_tool, sign_manifest


@pytest.fixture
def copy(artifact, tiny_llama, tmp_path):
    """A copy of an artifact that a test may damage."""
    out = tmp_path / "artifact"
    shutil.copytree(artifact(tiny_llama, "--scheme=W8A8"), out)
    return out


def edit_manifest(folder, change):
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    sign_manifest(folder, manifest)


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "flipped byte of a weight": (lambda a: flip(a / "weights.safetensors", -100), ["weights.safetensors"]),
    "flipped byte of the program": (lambda a: flip(a / "model.so", 5000), ["model.so"]),
    "flipped byte of the weights' header": (lambda a: flip(a / "weights.safetensors", 12), ["weights.safetensors"]),
    "truncated weights": (lambda a: (a / "weights.safetensors").write_bytes(b"\x10"), ["weights.safetensors"]),
    "no program": (lambda a: (a / "model.so").unlink(), ["model.so"]),
    "no weights": (lambda a: (a / "weights.safetensors").unlink(), ["weights.safetensors"]),
    "no manifest": (lambda a: (a / "manifest.json").unlink(), ["manifest.json"]),
    "truncated manifest": (lambda a: (a / "manifest.json").write_bytes((a / "manifest.json").read_bytes()[:200]), ["manifest.json"]),
    "another format": (lambda a: edit_manifest(a, lambda m: m.update(format="tea")), ["manifest.json", "tea", "easyquant-artifact"]),
    "a later version": (lambda a: edit_manifest(a, lambda m: m.update(format_version=4)), ["manifest.json", "4", "3"]),
    "the ABI before": (lambda a: edit_manifest(a, lambda m: m["program"].update(abi=7)), ["abi", "found 7", "expected 8", "recompile"]),
    "another ABI": (lambda a: edit_manifest(a, lambda m: m["program"].update(abi=9)), ["abi", "9"]),
    "no entry": (lambda a: edit_manifest(a, lambda m: m["program"].update(entries={})), ["manifest.json"]),
    "an edited manifest": (lambda a: flip(a / "manifest.json", 900), ["manifest.json", "damaged", "manifest.xxh128"]),
    "no checksum of the manifest": (lambda a: (a / "manifest.xxh128").unlink(), ["manifest.xxh128", "again"]),
    "a negative arena": (lambda a: edit_manifest(a, lambda m: m["program"].update(arena_bytes=-1)), ["arena_bytes"]),
    "a cache of no bytes": (lambda a: edit_manifest(a, lambda m: m["program"]["cache"].update(page_bytes="many")), ["cache.page_bytes"]),
    "a cache of crooked pages": (lambda a: edit_manifest(a, lambda m: m["program"]["cache"].update(page_bytes=100)), ["cache.page_bytes", "100", "64"]),
    "a file outside": (lambda a: edit_manifest(a, lambda m: m["files"].update({"../x": m["files"]["model.so"]})), ["../x"]),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_artifact(copy, name):
    damage, words = DAMAGE[name]
    damage(copy)
    assert_refused(run_tool("easyquant-run", copy, "--tokens=1,2,3"), *words)
    from easyquant import _runtime

    with pytest.raises(_runtime.Error) as error:
        _runtime.Model(str(copy))
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("damage", ["missing", "flipped", "unlisted"])
def test_damaged_shard(tiny_llama, tmp_path, damage):
    out = compile_model(tiny_llama, tmp_path / "sharded", "--scheme=W8A8", "--max-shard-bytes=20000", ISA)
    shard = sorted(out.glob("weights-*.safetensors"))[1]
    if damage == "missing":
        shard.unlink()
    elif damage == "flipped":
        flip(shard, -10)
    else:
        edit_manifest(out, lambda m: m["files"].pop(shard.name))
    assert_refused(run_tool("easyquant-run", out, "--tokens=1,2,3"), shard.name)


@pytest.mark.parametrize("arguments, words", [
    (["--tokens=1,97"], ["97"]),
    (["--tokens=-1"], ["-1"]),
    (["--tokens=99999999999"], ["99999999999"]),
    (["--tokens=one"], ["one"]),
    (["--tokens=" + ",".join(["1"] * 97)], ["97", "96"]),
    (["--tokens=1", "--context=97"], ["97", "96"]),
    (["--tokens=1", "--context=-3"], ["-3"]),
    (["--tokens=1", "--threads=-2"], ["-2"]),
    (["--tokens=1", "--isa=neon"], ["neon", "avx2"]),
])
def test_bad_requests(artifact, tiny_llama, arguments, words):
    assert_refused(run_tool("easyquant-run", artifact(tiny_llama, "--scheme=W8A8"), *arguments), *words)


def test_context_overflow_while_decoding(artifact, tiny_llama):
    result = run_tool("easyquant-run", artifact(tiny_llama, "--scheme=W8A8"), "--tokens=" + ",".join(["5"] * 90),
                      "--max-new-tokens=20", "--ignore-eos")
    assert_refused(result, "96")
    # The last of the seven comes from a full context.
    assert len(result.stdout.strip().split(",")) == 7, "what was generated before the end is kept"


def test_not_an_artifact(tmp_path, tiny_llama):
    assert_refused(run_tool("easyquant-run", tmp_path, "--tokens=1"), "manifest.json")
    assert_refused(run_tool("easyquant-run", tiny_llama, "--tokens=1"), "manifest.json")
    assert_refused(run_tool("easyquant-run", tmp_path / "nothing", "--tokens=1"), "nothing")


@pytest.mark.parametrize("tokens", [[97], [-1], [1, 2, 2**31 - 1], random_tokens(1, 80, 97), []])
def test_refused_step_changes_nothing(artifact, tiny_llama, tokens):
    """17 tokens are held, 96 fit."""
    from easyquant import _runtime

    start = np.asarray(random_tokens(2, 17, 97), np.int32)
    runner = Runner(artifact(tiny_llama, "--scheme=W8A8"))
    runner.session.prefill(start)
    before = np.array(runner.session.logits)
    for step in (runner.session.prefill, runner.session.score):
        with pytest.raises((_runtime.Error, ValueError)):
            step(np.asarray(tokens, np.int32))
        assert runner.session.position == 17
        assert np.array_equal(runner.session.logits, before)
    runner.session.decode(3)
    clean = Runner(artifact(tiny_llama, "--scheme=W8A8"))
    clean.session.prefill(start)
    clean.session.decode(3)
    assert np.array_equal(runner.session.logits, clean.session.logits)
