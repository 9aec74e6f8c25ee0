# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""int8 activations with a scale for each group of columns: the numpy oracle, what is reported, and what is refused."""

import json

import numpy as np
import pytest

from calibrating import write_tokens
from easyquant.runtime.artifact import Artifact
from easyquant.runtime.sites import describe_operand
from helpers import ISA, assert_refused, random_gpt2, random_llama, random_tokens, run_tool, sites_of, with_outliers, with_slow, write_model
from oracles.checkpoint import read_folder
from oracles.gpt2 import GPT2
from oracles.llama import Llama
from oracles.schemes import FLOAT, Scheme
from test_llama import relative_error

GROUPS = "--activation-group-size=32"
PLAIN = "--activation-basis=plain"
ZEROS = "--activation-zero-points"
# Widths are 64 and 112: the last group of down_proj has 16 columns.
SCHEMES = {
    "W8A8": (Scheme(8, 8, 0, 8, hadamard=0, input_group=32), ("--scheme=W8A8", GROUPS, PLAIN)),
    "W8A8, rotated": (Scheme(8, 8, 0, 8, input_group=32), ("--scheme=W8A8", GROUPS)),
    "W8A8 in groups of 64": (Scheme(8, 8, 0, 8, hadamard=0, input_group=64), ("--scheme=W8A8", "--activation-group-size=64", PLAIN)),
    "W4A8": (Scheme(4, 8, 32, 8, hadamard=0, input_group=32), ("--scheme=W4A8", "--group-size=32", GROUPS, PLAIN)),
    "W4A8, larger groups of the weight": (Scheme(4, 8, 64, 8, hadamard=0, input_group=32), ("--scheme=W4A8", "--group-size=64", GROUPS, PLAIN)),
    "W4A8, rotated": (Scheme(4, 8, 32, 8, input_group=32), ("--scheme=W4A8", "--group-size=32", GROUPS)),
    "W4A8_ASYM": (Scheme(4, 8, 32, 8, "zeropoint", hadamard=0, input_group=32), ("--scheme=W4A8", "--method=zeropoint", "--group-size=32", GROUPS, PLAIN)),
    "W8A8, zero points of activations": (Scheme(8, 8, 0, 8, hadamard=0, input_group=32, input_rule="zeropoint"), ("--scheme=W8A8", GROUPS, ZEROS, PLAIN)),
    "W8A8, zero points of activations, rotated": (
        Scheme(8, 8, 0, 8, input_group=64, input_rule="zeropoint"), ("--scheme=W8A8", "--activation-group-size=64", ZEROS)),
    "W4A8, zero points of activations": (
        Scheme(4, 8, 64, 8, hadamard=0, input_group=32, input_rule="zeropoint"), ("--scheme=W4A8", "--group-size=64", GROUPS, ZEROS, PLAIN)),
    "W4A8_ASYM, zero points of both": (
        Scheme(4, 8, 32, 8, "zeropoint", hadamard=0, input_group=32, input_rule="zeropoint"),
        ("--scheme=W4A8", "--method=zeropoint", "--group-size=32", GROUPS, ZEROS, PLAIN)),
    "W4A8_ASYM, rotated": (Scheme(4, 8, 64, 8, "zeropoint", input_group=32), ("--scheme=W4A8", "--method=zeropoint", "--group-size=64", GROUPS)),
}  # fmt: skip
# These vary what the others test.
SLOW = ("W8A8", "W8A8 in groups of 64", "W4A8", "W4A8, larger groups of the weight", "W4A8_ASYM", "W8A8, zero points of activations")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("grouped") / "llama", *random_llama(31, hidden=64, ffn=112, heads=4, kv_heads=2))


@pytest.mark.parametrize("name", with_slow(SCHEMES, *SLOW))
def test_same_as_the_oracle(runner, llama, name):
    scheme, options = SCHEMES[name]
    tokens = random_tokens(6, 96, 97)
    config, tensors = read_folder(llama)
    expected = Llama(config, tensors, scheme, np.float64).logits(tokens)
    found = runner(llama, *options, "--kv-cache=f32").score(tokens)
    assert relative_error(found, expected) < 8e-3
    plain = Llama(config, tensors, FLOAT, np.float64).logits(tokens)
    assert relative_error(expected, plain) > 3 * relative_error(found, expected), "the scheme itself must be visible"


@pytest.mark.parametrize("rule", ["absmax", "zeropoint"])
def test_gpt2(runner, workspace, rule):
    """Layer norms and GELU; a head that is the embedding."""
    folder = write_model(workspace / f"gpt2-grouped-{rule}", *random_gpt2(width=64))
    tokens = random_tokens(6, 60, 101)
    expected = GPT2(*read_folder(folder), Scheme(8, 8, 0, 8, hadamard=0, input_group=32, input_rule=rule), np.float64).logits(tokens)
    zeros = [ZEROS] * (rule == "zeropoint")
    found = runner(folder, "--scheme=W8A8", GROUPS, *zeros, PLAIN, "--kv-cache=f32").score(tokens)
    assert relative_error(found, expected) < 8e-3


def test_outliers_cost_less(runner, workspace):
    """A few columns of what linears read are a hundred times the others, as in real models."""
    folder = write_model(workspace / "grouped-outliers", *with_outliers(random_llama(22, hidden=128, ffn=128, heads=4, kv_heads=2), 60))
    tokens = random_tokens(7, 96, 97)
    plain = Llama(*read_folder(folder), FLOAT, np.float64).logits(tokens)
    options = ("--scheme=W8A8", "--head=float", PLAIN)
    errors = [relative_error(runner(folder, *options, *groups).score(tokens), plain) for groups in ((), ("--activation-group-size=0",), (GROUPS,))]
    assert errors[0] == errors[1]
    assert errors[2] < 0.8 * errors[0], errors


@pytest.mark.parametrize("method", ["smoothquant", "gptq", "lkd"])
def test_methods_work_with_them(runner, llama, tmp_path, method):
    tokens = write_tokens(tmp_path / "tokens", np.random.default_rng(3).integers(0, 97, (8, 40)))
    scheme = ("--scheme=W8A8",) if method == "smoothquant" else ("--scheme=W4A8", "--group-size=32")
    read = random_tokens(8, 60, 97)
    plain = Llama(*read_folder(llama), FLOAT, np.float64).logits(read)
    nearest, found = (runner(llama, *scheme, *options, GROUPS).score(read) for options in ((), (f"--method={method}", f"--tokens={tokens}")))
    assert relative_error(found, plain) < 1.05 * relative_error(nearest, plain)


def test_what_is_reported(artifact, llama):
    out = artifact(llama, "--scheme=W8A8", GROUPS)
    down = sites_of(out)["model.layers.0.mlp.down_proj"]
    assert (down["input"]["granularity"], down["input"]["group_size"]) == ("token", 32)
    assert describe_operand(down["input"]) == "int8/token, group 32, behind H16"
    assert Artifact.open(out).manifest["quantization"]["activation_group_size"] == 32
    asymmetric = sites_of(artifact(llama, "--scheme=W8A8", GROUPS, ZEROS))["model.layers.0.mlp.down_proj"]
    assert describe_operand(asymmetric["input"]) == "int8/token, group 32 + zero points, behind H16"
    assert asymmetric["bytes"] == down["bytes"], "kernels take the sums of codes that zero points need"
    assert "group_size" not in sites_of(artifact(llama, "--scheme=W8A8"))["model.layers.0.mlp.down_proj"]["input"]


def test_sites_of_a_recipe_have_their_own(artifact, llama, workspace):
    recipe = workspace / "groups.json"
    recipe.write_text(json.dumps({
        "scheme": "W8A8", "activation_group_size": 32, "activation_zero_points": True,
        "sites": [{"match": "re:down_proj$", "activation_group_size": 64, "activation_zero_points": False}, {"match": "re:o_proj$", "activation_group_size": 0},
                  {"match": "re:up_proj$", "scheme": "W8A16"}],
    }))  # fmt: skip
    sites = sites_of(artifact(llama, f"--recipe={recipe}"))
    groups = {name: sites[f"model.layers.0.{name}"]["input"] for name in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")}
    assert groups["mlp.up_proj"] is None
    assert [groups[name].get("group_size") for name in ("self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj")] == [32, None, 64]
    assert [groups[name]["symmetric"] for name in ("self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj")] == [False, True, True]
    assert sites["lm_head"]["input"]["group_size"] == 32


def test_mixes_have_them(artifact, llama):
    inputs = [site["input"] for site in sites_of(artifact(llama, "--scheme=Q4", GROUPS)).values()]
    assert len(inputs) > 10 and all(found["group_size"] == 32 for found in inputs)


@pytest.mark.parametrize("options, message", [
    (("--scheme=W8A8", "--activation-group-size=48"), "error: activation-group-size must be 32, 64 or 128, or 0 for one scale a token; found 48"),
    (("--scheme=W4A8", "--group-size=32", "--activation-group-size=64"),
     "activation-group-size 64 does not divide the groups of 32 of the weights; take one that does, another group-size, or activation-group-size 0"),
    (("--scheme=W4A8", "--group-size=48", GROUPS), "activation-group-size 32 does not divide the groups of 48 of the weights"),
    (("--scheme=W8A16", GROUPS), "activation-group-size 32 needs int8 activations, but scheme W8A16 has none; take one such as W8A8"),
    (("--scheme=W8A8", ZEROS), "activation-zero-points needs activations in groups, found activation-group-size 0; take 32, 64 or 128, or leave zero points out"),
    (("--scheme=none", GROUPS), "activation-group-size 32 needs int8 activations, but scheme none has none"),
    (("--scheme=Q4", "--activations=float", GROUPS), "activation-group-size 32 needs int8 activations"),
    (("--scheme=W8A8", "--activations=static", "--tokens=TOKENS", PLAIN, GROUPS), "activation-group-size 32 needs dynamic activations, found static; take these"),
    (("--scheme=W8A8", "--activations=online-ema", "--tokens=TOKENS", PLAIN, GROUPS), "activation-group-size 32 needs dynamic activations, found online-ema"),
    (("--scheme=W8A8", GROUPS, "--tensor-parallel=2"),
     "has 112 input features in groups of 32, which 2 ranks cannot share; legal degrees of tensor parallelism: 1"),
])  # fmt: skip
def test_what_is_refused(llama, tmp_path, options, message):
    text = write_tokens(tmp_path / "tokens", np.random.default_rng(3).integers(0, 97, (8, 40)))
    result = run_tool("easyquant-compile", llama, "-o", tmp_path / "out", *(option.replace("TOKENS", str(text)) for option in options), ISA)
    assert_refused(result, message)
    assert not (tmp_path / "out").exists()
