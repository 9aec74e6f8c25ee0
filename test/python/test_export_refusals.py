# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a format does not hold is an error that names the site and the format, before anything is written."""

import json

import numpy as np
import pytest

from exporting import SIZES, write_models
from helpers import assert_refused, random_gpt2, random_llama, run_tool, write_model

REFUSALS = [
    ("gptq", ["--scheme=W5A16"], "site 'model.layers.0.self_attn.q_proj': gptq holds integers of 2, 3, 4 or 8 bits, found int5", "compressed-tensors"),
    ("gptq", ["--scheme=W8A8"], "gptq holds quantized weights beside float activations, found activations in int8", "W4A16"),
    ("gptq", ["--scale-type=f32"], "gptq holds f16 scales", "--scale-type f16"),
    ("gptq", ["--activation-basis=hadamard"], "gptq holds weights in the plain basis", "--activation-basis plain"),
    ("gptq", ["--head=int8"], "site 'lm_head': gptq holds a float head", "--head float"),
    ("gptq", ["--scheme=NF4A16"], "gptq holds integers of 2, 3, 4 or 8 bits, found nf4"),
    ("gptq_v2", ["--scale-type=two-level"], "gptq_v2 holds f16 scales", "--scale-type f16"),
    ("awq", ["--scheme=W3A16"], "awq holds integers of 4 bits, found int3", "W4A16_ASYM"),
    ("awq", ["--group-size=40"], "awq holds whole groups: 64 columns are no multiple of 40"),
    ("compressed-tensors", ["--scheme=T4A16"], "compressed-tensors holds integers, FP8 and FP4, found", "a table of values", "take an integer scheme"),
    ("compressed-tensors", ["--scale-type=two-level"], "compressed-tensors holds scales of one level", "--scale-type f16"),
    ("compressed-tensors", ["--head=int8"], "holds float embeddings; take --head float where it is tied to the head"),
    ("compressed-tensors", ["--scheme=none"], "no site is quantized; a scheme other than none makes a compressed-tensors checkpoint"),
    ("gptq", ["--target=cpu"], "--target is an option of artifacts, and --export gptq writes a checkpoint; leave one of the two out"),
    ("gptq", ["--tensor-parallel=2"], "--tensor-parallel is an option of artifacts"),
    ("gptq", ["--context=16"], "--context is an option of artifacts"),
    ("gptq", ["--kv-scheme=int8"], "--kv-scheme is an option of artifacts"),
    ("gptq", ["--force"], "--force is an option of artifacts"),
    ("gptq", ["--emit-ir-after=kernels"], "--emit-ir-after kernels: with --export there is no such phase; expected import or quantize"),
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))["qwen2"]


@pytest.mark.parametrize("format, options, expected", [(format, options, expected) for format, options, *expected in REFUSALS])
def test_what_a_format_does_not_hold_is_refused(model, tmp_path, format, options, expected):
    out = tmp_path / "out"
    assert_refused(run_tool("easyquant-compile", model, f"--export={format}", "-o", out, *options), *expected)
    assert not out.exists() and not list(tmp_path.iterdir())


def test_sinks_and_online_scales_are_refused(model, tmp_path):
    for options, expected in [(["--activations=online-ema"], "holds no activations whose scales follow a sequence"),
                              (["--activations=static", "--sinks=keep"], "take --sinks none")]:  # fmt: skip
        result = run_tool("easyquant-compile", model, "--export=compressed-tensors", "--scheme=W8A8", "--dry-run", "--with-text", *options)
        assert_refused(result, "site 'model.layers.0.self_attn.q_proj': compressed-tensors holds", expected)


def test_a_zero_point_of_0_is_refused_in_version_1(tmp_path):
    config, tensors = random_llama(seed=3, **SIZES)
    tensors = {name: np.abs(value) if name == "model.layers.1.mlp.up_proj.weight" else value for name, value in tensors.items()}
    model = write_model(tmp_path / "model", config, tensors)
    options = ["--scheme=W4A16_ASYM", "-o", tmp_path / "out"]
    assert_refused(run_tool("easyquant-compile", model, "--export=gptq", *options),
                   "site 'model.layers.1.mlp.up_proj': the zero point of row 0, group 0 is 0 (the least code), and gptq stores zero points less 1",
                   "take gptq_v2")  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    for format in ("gptq_v2", "awq"):
        assert run_tool("easyquant-compile", model, f"--export={format}", *options[:2], tmp_path / format).returncode == 0


def test_models_that_checkpoints_do_not_hold(tmp_path):
    gpt2 = write_model(tmp_path / "gpt2", *random_gpt2())
    result = run_tool("easyquant-compile", gpt2, "--export=awq", "-o", tmp_path / "out")
    assert_refused(result, f"{gpt2}: models of the architecture gpt2 keep the weights of their linears transposed (Conv1D)", "compile an artifact")
    config, tensors = random_llama(hidden=64, ffn=96, heads=4)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * 1e6
    large = write_model(tmp_path / "large", config, tensors)
    result = run_tool("easyquant-compile", large, "--export=gptq", "-o", tmp_path / "out")
    assert_refused(result, "'model.norm.weight': ", "is beyond the range of f16, in which gptq checkpoints have their floats")
    odd = write_model(tmp_path / "odd", *random_llama())  # 40, 52 and 8
    assert_refused(run_tool("easyquant-compile", odd, "--export=gptq", "--group-size=0", "-o", tmp_path / "out"),
                   "site 'model.layers.0.mlp.gate_proj': gptq packs 4 bits into words of 32: 52 rows do not fill them", "leave the site float")  # fmt: skip
    assert run_tool("easyquant-compile", odd, "--export=compressed-tensors", "--group-size=0", "-o", tmp_path / "out").returncode == 0
    assert_refused(run_tool("easyquant-compile", odd, "--export=compressed-tensors", "--group-size=0", "-o", tmp_path / "out"), "exists; give another folder")


def test_a_recipe_names_what_it_asks_for(model, tmp_path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"scheme": "W4A16", "head": "float", "group_size": 32,
                                  "sites": [{"match": "re:.*up_proj", "scheme": "W4A16", "group_size": 16}]}))  # fmt: skip
    result = run_tool("easyquant-compile", model, "--export=awq", f"--recipe={recipe}", "-o", tmp_path / "out")
    assert_refused(result, "site 'model.layers.0.mlp.up_proj': awq has one group size for all sites, found 16 here and 32 in")
