# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every method through easyquant-compile: artifacts that run, equal bytes for any number of threads, interrupted runs, recipes."""

import json
import shutil
import signal
import subprocess

import numpy as np
import pytest

from calibrating import write_tokens
from helpers import ISA, Runner, assert_refused, compile_model, folder_contents, random_llama, random_tokens, run_tool, tool, write_model

METHODS = [
    ("W8A8", "smoothquant"), ("W8A8", "smoothquant+gptq"), ("W4A16", "awq"), ("W4A16", "awq+gptq"), ("W4A16", "gptq"),
    ("W3A16_ASYM", "gptq"), ("W2A16", "symmetric+gptq"), ("W4A8", "zeroquant+lkd"),
]  # fmt: skip


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return write_tokens(tmp_path_factory.mktemp("tokens") / "tokens.safetensors", [random_tokens(seed, 40, 97) for seed in range(6)])


def similarity(artifact, reference):
    """Correlation of the logits of two artifacts."""
    prompt = random_tokens(7, 50, 97)
    found, expected = Runner(artifact).score(prompt), Runner(reference).score(prompt)
    assert np.isfinite(found).all()
    return np.corrcoef(found.ravel(), expected.ravel())[0, 1]


@pytest.mark.parametrize("scheme, method", [METHODS[1], METHODS[3], METHODS[6], METHODS[7], *(pytest.param(*METHODS[i], marks=pytest.mark.slow) for i in (0, 2, 4, 5))])
def test_every_method_makes_an_artifact_near_the_float_model(artifact, tiny_llama, tokens, tmp_path, scheme, method):
    options = (f"--scheme={scheme}", f"--method={method}", f"--tokens={tokens}", "--group-size=32", ISA)
    if "W8" in scheme:
        options = tuple(option for option in options if "group" not in option)
    one = compile_model(tiny_llama, tmp_path / "one", *options, "--threads=1")
    assert similarity(one, artifact(tiny_llama, "--scheme=none")) > {"W8": 0.999, "W4": 0.9, "W3": 0.85, "W2": 0.4}[scheme[:2]]
    assert not (tmp_path / "one.work").exists()
    quantization = json.loads((one / "manifest.json").read_text())["quantization"]
    assert quantization["calibration"]["samples"] == "6" and quantization["fallbacks"] == []
    two = compile_model(tiny_llama, tmp_path / "two", *options, "--threads=2")
    assert folder_contents(one) == folder_contents(two)


def test_the_manifest_says_which_text_was_given(tmp_path):
    """AWQ looks at some of the samples, and learned rounding splits them."""
    model = write_model(tmp_path / "model", *random_llama(context=200))
    tokens = write_tokens(tmp_path / "tokens.safetensors", [random_tokens(seed, 200, 97) for seed in range(3)])
    made = compile_model(model, tmp_path / "out", "--scheme=W4A16", "--method=awq+signround", "--group-size=32", "--steps=2", "--search-samples=1",
                         f"--tokens={tokens}", ISA)  # fmt: skip
    calibration = json.loads((made / "manifest.json").read_text())["quantization"]["calibration"]
    assert (calibration["samples"], calibration["length"]) == ("3", "200")


def test_a_recipe_does_the_same_again(tiny_llama, tokens, tmp_path):
    options = ("--scheme=W4A16", "--method=awq+gptq", "--no-act-order", "--damping=0.02", "--search-samples=2", "--kv-scheme=int8",
               "--kv-residual=64", ISA)  # fmt: skip
    first = compile_model(tiny_llama, tmp_path / "first", *options, f"--tokens={tokens}")
    recipe = json.loads((first / "recipe.json").read_text())
    assert recipe["act_order"] is False and recipe["search_samples"] == 2 and recipe["kv"]["residual"] == 64
    second = compile_model(tiny_llama, tmp_path / "second", f"--recipe={first / 'recipe.json'}", f"--tokens={tokens}", ISA)
    assert folder_contents(first) == folder_contents(second)


def test_targets_alone_are_quantized(tiny_llama, tmp_path):
    out = compile_model(tiny_llama, tmp_path / "out", "--scheme=W8A8", "--targets=re:.*up_proj", ISA)
    names = [site["name"] for site in json.loads((out / "manifest.json").read_text())["sites"] if site["weight"]]
    assert names and all(name.endswith("up_proj") for name in names)


@pytest.mark.parametrize("options, observer", [
    (("--scheme=W4A16",), "hessian-diagonal"), (("--scheme=W4A8", "--method=zeroquant"), "hessian-diagonal"),
    (("--scheme=W3A16", "--method=gptq"), "hessian-diagonal"), (("--scheme=W4A16", "--method=signround", "--steps=4"), "hessian-diagonal"),
    (("--scheme=W4A16", "--method=awq"), "hessian-diagonal"), (("--scheme=W4A16", "--method=awq+gptq"), "hessian-diagonal"),
    (("--scheme=NVFP4A16",), "hessian-diagonal"), (("--scheme=NVFP4A16", "--method=gptq"), "absmax"), (("--scheme=MXFP4A16",), "absmax"),
    (("--scheme=NF4A16",), "hessian-diagonal"), (("--scheme=T3A16",), "hessian-diagonal"), (("--scheme=W8A8",), "absmax"), (("--scheme=W4A16", "--method=smoothquant"), "absmax"),
])  # fmt: skip
def test_ranges_are_weighted_by_default_where_there_is_text(tiny_llama, tokens, tmp_path, options, observer):
    """As if the observer were given, which the recipe records."""
    text = f"--tokens={tokens}"
    default = compile_model(tiny_llama, tmp_path / "default", *options, text, ISA)
    assert json.loads((default / "recipe.json").read_text())["weight_observer"] == observer
    given = compile_model(tiny_llama, tmp_path / "given", *options, text, f"--weight-observer={observer}", ISA)
    assert folder_contents(default) == folder_contents(given)
    other = compile_model(tiny_llama, tmp_path / "other", *options, text, "--weight-observer=minmax", ISA)
    assert (default / "weights.safetensors").read_bytes() != (other / "weights.safetensors").read_bytes() or observer == "absmax"


def test_an_interrupted_compilation_goes_on_from_its_work_folder(tiny_llama, tokens, tmp_path):
    options = ["--scheme=W4A16", "--method=awq+gptq", f"--tokens={tokens}", ISA]
    whole = folder_contents(compile_model(tiny_llama, tmp_path / "whole", *options))
    out, work = tmp_path / "out", tmp_path / "out.work"
    command = [tool("easyquant-compile"), tiny_llama, "-o", out, *options, "--progress=json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("{") and json.loads(line)["phase"] == "gptq":
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL and not out.exists()
    kept = {name: data for name, data in folder_contents(work).items() if name.startswith("awq_")}
    assert len(kept) == 4  # scales and ranges of two layers
    shutil.copytree(work, tmp_path / "seen")
    assert folder_contents(compile_model(tiny_llama, out, *options)) == whole
    assert not work.exists()
    # A folder that the user names stays.
    compile_model(tiny_llama, tmp_path / "again", *options, f"--work={tmp_path / 'seen'}")
    assert folder_contents(tmp_path / "again") == whole
    assert {name: (tmp_path / "seen" / name).read_bytes() for name in kept} == kept


def test_what_is_missing_is_named(tiny_llama, tokens, tmp_path):
    def refused(*options):
        return run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", *options)

    assert_refused(refused("--method=gptq"), "method gptq needs calibration text: give --tokens FILE")
    assert_refused(refused("--activations=static"), "static and online activations", "--tokens FILE")
    assert_refused(refused("--method=smoothquant", "--alpha=often", f"--tokens={tokens}"), "alpha 'often'", "search")
    assert_refused(refused("--method=smoothquant", "--alpha=2", f"--tokens={tokens}"), "alpha '2'", "from 0 to 1")
    assert_refused(refused("--method=gptq+lkd", f"--tokens={tokens}"), "'gptq'", "'lkd'", "both round")
    assert_refused(refused("--weight-percentile=99"), "--weight-observer percentile")
    assert_refused(refused("--method=gptq+smoothquant", f"--tokens={tokens}"), "gptq")
    assert not (tmp_path / "out").exists()
