# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sites in a basis that is rotated in blocks of columns: the numpy oracle, what is reported, and what is refused."""

import json

import numpy as np
import pytest

from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from helpers import ISA, assert_refused, random_gpt2, random_llama, random_tokens, run_tool, write_model
from oracles.checkpoint import read_folder
from oracles.gpt2 import GPT2
from oracles.llama import Llama
from oracles.schemes import FLOAT, Scheme
from test_llama import relative_error

ROTATED = "--activation-basis=hadamard"
SCHEMES = {
    "W8A8": (Scheme(8, 8, 0, 8, hadamard=512), ("--scheme=W8A8",)),
    "W8A8 in 16s": (Scheme(8, 8, 0, 8, hadamard=16), ("--scheme=W8A8", "--hadamard-block=16")),
    "W8A16": (Scheme(8, None, 0, 8, hadamard=512), ("--scheme=W8A16",)),
    "W4A8 in 32s": (Scheme(4, 8, 32, 8, hadamard=512), ("--scheme=W4A8", "--group-size=32")),
    "W4A16 with zero points": (
        Scheme(4, None, 32, 8, "zeropoint", hadamard=512), ("--scheme=W4A16", "--method=zeropoint", "--group-size=32")),
}  # fmt: skip


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Blocks of 64 columns at most of its linears, of 32 at down_proj."""
    return write_model(tmp_path_factory.mktemp("rotated") / "llama", *random_llama(21, hidden=64, ffn=96, heads=4, kv_heads=2))


@pytest.mark.parametrize("name", SCHEMES)
def test_same_as_the_oracle(runner, llama, name):
    scheme, options = SCHEMES[name]
    tokens = random_tokens(6, 96, 97)
    config, tensors = read_folder(llama)
    expected = Llama(config, tensors, scheme, np.float64).logits(tokens)
    found = runner(llama, *options, ROTATED, "--kv-cache=f32").score(tokens)
    assert relative_error(found, expected) < (8e-3 if scheme.input_bits else 1e-5)
    plain = Llama(config, tensors, FLOAT, np.float64).logits(tokens)
    assert relative_error(expected, plain) > 3 * relative_error(found, expected), "the scheme itself must be visible"


def test_gpt2(runner, workspace):
    """Layer norms and GELU; a head that is the embedding."""
    folder = write_model(workspace / "gpt2-rotated", *random_gpt2(width=64))
    tokens = random_tokens(6, 60, 101)
    config, tensors = read_folder(folder)
    expected = GPT2(config, tensors, Scheme(8, 8, 0, 8, hadamard=512), np.float64).logits(tokens)
    found = runner(folder, "--scheme=W8A8", ROTATED, "--kv-cache=f32").score(tokens)
    assert relative_error(found, expected) < 8e-3


def test_outliers_cost_less(runner, workspace):
    """A few columns of what linears read are a hundred times the others, as in real models."""
    config, tensors = random_llama(22, hidden=64, ffn=128, heads=4, kv_heads=2)
    for name, weight in tensors.items():
        if name.endswith("norm.weight"):
            weight[[3, 40]] *= 60
    for name, weight in tensors.items():
        if any(part in name for part in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head")):
            weight[:, [3, 40]] /= 60
    folder = write_model(workspace / "outliers", config, tensors)
    tokens = random_tokens(7, 96, 97)
    plain = Llama(*read_folder(folder), FLOAT, np.float64).logits(tokens)
    errors = [relative_error(runner(folder, "--scheme=W8A8", "--head=float", *basis).score(tokens), plain) for basis in ((), (ROTATED,))]
    assert errors[1] < 0.5 * errors[0], errors


@pytest.mark.parametrize("method", ["smoothquant", "gptq", "awq", "signround", "smoothquant+gptq", "lkd"])
def test_methods_work_in_it(runner, llama, tmp_path, method):
    from calibrating import write_tokens

    tokens = write_tokens(tmp_path / "tokens", np.random.default_rng(3).integers(0, 97, (8, 40)))
    scheme = ("--scheme=W8A8",) if "smoothquant" in method else ("--scheme=W4A8", "--group-size=32")
    found = runner(llama, *scheme, f"--method={method}", f"--tokens={tokens}", ROTATED).score(random_tokens(8, 60, 97))
    plain = Llama(*read_folder(llama), FLOAT, np.float64).logits(random_tokens(8, 60, 97))
    assert relative_error(found, plain) < 0.35


def test_what_is_reported(artifact, llama):
    out = artifact(llama, "--scheme=W8A8", ROTATED)
    sites = {site["name"]: site for site in json.loads((out / "manifest.json").read_text())["sites"]}
    down, up = sites["model.layers.0.mlp.down_proj"], sites["model.layers.0.mlp.up_proj"]
    assert (down["weight"]["hadamard"], down["input"]["hadamard"]) == (32, 32)
    assert (up["weight"]["hadamard"], up["input"]["hadamard"]) == (64, 64)
    assert Artifact.open(out).manifest["quantization"]["activation_basis"] == "hadamard"
    # In the plain basis, as the checkpoint has it.
    weight = read_folder(llama)[1]["model.layers.0.mlp.down_proj.weight"]
    assert relative_error(read_site(Artifact.open(out), "model.layers.0.mlp.down_proj"), weight) == pytest.approx(down["weight_error"], rel=1e-3)


def test_widths_without_a_block_stay_plain(tiny_llama, tmp_path):
    result = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", "--scheme=W8A8", ROTATED, ISA)
    assert result.returncode == 0
    assert "site 'model.layers.0.self_attn.q_proj' stays in the plain basis: its 40 columns are no whole blocks of 16" in result.stderr


@pytest.mark.parametrize("options, message", [
    (("--activation-basis=hadamrd",), "hadamard"),
    ((ROTATED, "--hadamard-block=48"), "hadamard-block must be a power of two from 16 to 512, found 48"),
    ((ROTATED, "--target=sm_80"), "no kernel of GPUs rotates activations"),
])  # fmt: skip
def test_what_is_refused(llama, tmp_path, options, message):
    result = run_tool("easyquant-compile", llama, "-o", tmp_path / "out", "--scheme=W8A8", *options, ISA)
    assert_refused(result, message)
    assert not (tmp_path / "out").exists()
