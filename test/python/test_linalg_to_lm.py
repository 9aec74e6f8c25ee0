# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A LLaMA that torch-mlir has printed becomes a model of `lm`, and a folder that every command reads."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from easyquant.formats.packed import relative_error
from helpers import run_tool
from linalg import INPUTS, constants, network

TOKENS = {"llama": [3, 9, 1, 30, 22, 7], "tied_llama": [3, 9, 1, 20, 7]}


def raised(text, output, options=""):
    return run_tool("easyquant-opt", f"--convert-linalg-to-lm=output={output}{options}", input=text)


@pytest.fixture(scope="module", params=TOKENS)
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("raised") / request.param
    done = raised(network(request.param), folder)
    assert done.returncode == 0, done.stderr
    return request.param, folder, done.stdout


def test_it_is_what_torch_computes(model, runner):
    name, folder, _ = model
    expected = np.load(INPUTS / f"{name}.npy")[0]
    assert relative_error(expected, runner(folder, "--scheme=none", "--kv-cache=f32").score(TOKENS[name])) < 1e-6
    assert 1e-4 < relative_error(expected, runner(folder, "--scheme=W8A16", "--kv-cache=f32").score(TOKENS[name])) < 2e-2


def test_the_folder_and_the_module_are_one_model(model):
    _, folder, text = model
    again = run_tool("easyquant-translate", "--import-hf", folder)
    assert again.returncode == 0 and again.stdout.strip() == text.strip(), again.stderr


def test_weights_and_configuration(model):
    name, folder, _ = model
    config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    layers, kv_heads, is_tied = (1, 1, False) if name == "llama" else (2, 2, True)
    assert (config["num_hidden_layers"], config["num_key_value_heads"], config["tie_word_embeddings"]) == (layers, kv_heads, is_tied)
    assert (config["rope_theta"], config["rms_norm_eps"], config["num_attention_heads"]) == (10000, 1e-5, 2)
    assert config["max_position_embeddings"] == len(TOKENS[name]) and ("lm_head.weight" in weights) != is_tied
    stored = {value.tobytes() for value in constants(network(name)).values()}
    assert all(value.tobytes() in stored for value in weights.values())


def test_a_longer_context(tmp_path, runner):
    done = raised(network("llama"), tmp_path / "model", " context=64")
    assert done.returncode == 0 and "max_context = 64" in done.stdout, done.stderr
    assert np.isfinite(runner(tmp_path / "model", "--scheme=W8A8").score(list(range(30)))).all()


def changed(pattern, replacement, count):
    text, done = re.subn(pattern, replacement, network("llama"), count=count)
    assert done == count
    return text


TABLE = r'(torch_tensor_6_6_torch.float32: "0x04000000)[0-9A-F]*"'
ROTATIONS = r'(torch_tensor_6_8_torch.float32: "0x04000000)[0-9A-F]*"'
MISTAKES = {
    "another function": (r"math\.rsqrt", "math.sqrt", "'linalg.generic' op, which gives 'tensor<1x6x1xf32>', has no place in a LLaMA: expected 1 / sqrt(mean of squares + epsilon)"),
    "another activation": (r"math\.exp", "math.exp2", "has no place in a LLaMA: expected silu of the gate times another linear"),
    "no mask": (TABLE, rf'\g<1>{np.zeros((6, 6), np.float32).tobytes().hex().upper()}"', "expected a causal mask: 0 up to the token, -1e4 or less behind it; found 0.000000 at 0, 1"),
    "other rotations": (ROTATIONS, rf'\g<1>{np.ones((6, 8), np.float32).tobytes().hex().upper()}"', "expected a table of cosines and sines of p theta^(-2i/8)"),
    "quotients the other way round": (r"\"arith\.divf\"\((%arg\d+), (%\d+)\)", r'"arith.divf"(\2, \1)', "has no place in a LLaMA: expected the mean over 16 columns"),
    "an interleaved half": (r"static_offsets = array<i64: 0, 0, 0, 0>, static_sizes = array<i64: 1, 2, 6, 4>, static_strides = array<i64: 1, 1, 1, 1>", "static_offsets = array<i64: 0, 0, 0, 0>, static_sizes = array<i64: 1, 2, 6, 4>, static_strides = array<i64: 1, 1, 1, 2>", "expected the second half of each head, negative, before the first one"),
    "another scale": (r"2\.8284271247461903", "2.5", "expected products over sqrt(8), the dimension of a head"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_an_op_without_a_place(tmp_path, name):
    pattern, replacement, message = MISTAKES[name]
    count = len(re.findall(pattern, network("llama")))
    done = raised(changed(pattern, replacement, count), tmp_path / "model")
    assert done.returncode == 1 and message in done.stderr and re.search(r"\d+:\d+: error", done.stderr), done.stderr
    assert not list(tmp_path.iterdir())


def test_other_programs(tmp_path):
    for text, message in [(network("mlp"), "expected one argument, the tokens of one sequence"), ("module {}", "expected one function, from tokens to logits; found 0")]:
        done = raised(text, tmp_path / "model")
        assert done.returncode == 1 and message in done.stderr, done.stderr
    (tmp_path / "there").mkdir()
    done = raised(network("llama"), tmp_path / "there")
    assert done.returncode == 1 and "there" in done.stderr and "exists" in done.stderr
    done = run_tool("easyquant-opt", "--convert-linalg-to-lm", input=network("llama"))
    assert done.returncode == 1 and "option output is missing" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_table_that_the_program_computes(tmp_path):
    """As transformers' LLaMA has them: cosines, sines and mask follow from constants."""
    text = network("llama")
    found = re.search(r"(%\d+) = \"arith\.constant\"\(\) <\{value = dense_resource<torch_tensor_6_6_torch\.float32>[^\n]*\n", text)
    name = found[1]
    computed = (
        f'"arith.constant"() <{{value = dense_resource<torch_tensor_6_6_torch.float32> : tensor<6x6xf32>}}> : () -> tensor<6x6xf32>\n'
        f'    {name} = "arith.addf"(%mask, %mask) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>\n'
    )
    done = raised(text.replace(found[0], f"%mask = {computed}"), tmp_path / "model")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model" / "config.json").exists()
