# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""equant-smooth-quant: its factors against the formula in numpy, and the transformed float model against the model."""

import re

import numpy as np
import pytest

from helpers import assert_refused, random_gpt2, random_llama, random_tokens, run_tool, test_data, write_model
from oracles.checkpoint import read_llama2c
from oracles.gpt2 import GPT2
from oracles.gates import silu
from oracles.llama import Llama
from smoothing import Smoothed, formula

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
MLP = ("mlp.gate_proj", "mlp.up_proj")


def llama_absmax(model, config, tokens):
    """{site: max |X_j|} of what each linear of an oracle reads, by running it."""
    found = {}

    def note(layer, parts, x):
        for part in parts:
            found[f"model.layers.{layer}.{part}"] = np.abs(x).max(axis=0)

    x = model.embedding.rows(np.asarray(tokens)).astype(model.dtype)
    for index, layer in enumerate(model.layers):
        read = layer["input_norm"](x)
        note(index, ATTENTION, read)
        attended = []
        model.attention(layer | {"o_proj": lambda y: attended.append(y) or y}, read)
        note(index, ("self_attn.o_proj",), attended[0])
        x = x + layer["o_proj"](attended[0])
        read = layer["mlp_norm"](x)
        note(index, MLP, read)
        gated = silu(layer["gate_proj"](read)) * layer["up_proj"](read)
        note(index, ("mlp.down_proj",), gated)
        x = x + layer["down_proj"](gated)
    found["lm_head"] = np.abs(model.norm(x)).max(axis=0)
    return found


def expected_factors(config, tensors, absmax, alpha):
    """What SmoothQuant makes of a llama: rows are divided before the columns of the same weight are looked at."""
    factors = {}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        weight = {part: tensors[f"{at}{part}.weight"] for part in (*ATTENTION, *MLP, "self_attn.o_proj", "mlp.down_proj")}

        def take(*parts):
            factors[at + parts[0]] = s = formula(absmax[at + parts[0]], [weight[part] for part in parts], alpha)
            return s[:, None]

        weight["mlp.up_proj"] = weight["mlp.up_proj"] / take("mlp.down_proj")
        take(*MLP)
        if config["num_attention_heads"] == config["num_key_value_heads"]:
            weight["self_attn.v_proj"] = weight["self_attn.v_proj"] / take("self_attn.o_proj")
        take(*ATTENTION)
    return factors


@pytest.fixture(scope="module", params=["stories260K", "SmolLM2", "multi-head", "grouped"])
def llama(request, tmp_path_factory):
    """(folder, config, tensors, largest activations): a trained model, and random ones with and without grouped queries."""
    if request.param == "stories260K":
        config, tensors = read_llama2c(test_data("stories260K.bin"))
    elif request.param == "SmolLM2":
        config, tensors = request.getfixturevalue("smollm2_layer")
    else:
        config, tensors = random_llama(3, heads=5, kv_heads=5 if request.param == "multi-head" else 1, tied=False)
    folder = write_model(tmp_path_factory.mktemp("smooth") / "model", config, tensors)
    tokens = random_tokens(1, 60, config["vocab_size"])
    return folder, config, tensors, llama_absmax(Llama(config, tensors), config, tokens)


@pytest.mark.parametrize("alpha", [0.5, 0.8])
def test_factors_are_those_of_the_formula(llama, tmp_path, alpha):
    folder, config, tensors, absmax = llama
    smoothed = Smoothed(folder, tmp_path / "run", absmax, alpha, planned=lambda site: site != "lm_head")
    assert smoothed.ir
    actual, expected = smoothed.factors(), expected_factors(config, tensors, absmax, alpha)
    assert actual.keys() == expected.keys()
    for site, s in expected.items():
        np.testing.assert_allclose(actual[site], s, rtol=2e-6, err_msg=site)


def test_the_float_model_computes_the_same(llama, tmp_path):
    folder, config, tensors, absmax = llama
    smoothed = Smoothed(folder, tmp_path / "run", absmax)
    tokens = random_tokens(2, 40, config["vocab_size"])
    plain = Llama(config, tensors, dtype=np.float64).logits(tokens)
    transformed = smoothed.tensors()
    changed = [name for name, value in transformed.items() if name in tensors and not np.array_equal(value, tensors[name])]
    assert len(changed) >= 8 * config["num_hidden_layers"]  # two norms, q, k, v, gate, up, down
    # Each scaled weight is rounded to float once or twice: 2^-24 of it, through a few layers.
    logits = Llama(config, transformed, dtype=np.float64).logits(tokens)
    assert np.abs(logits - plain).max() < 2e-6 * np.abs(plain).max()


def test_a_head_with_a_weight_of_its_own_is_smoothed_too(tmp_path):
    config, tensors = random_llama(4, tied=False)
    folder = write_model(tmp_path / "model", config, tensors)
    absmax = llama_absmax(Llama(config, tensors), config, random_tokens(1, 30, 97))
    smoothed = Smoothed(folder, tmp_path / "run", absmax, planned=lambda site: site == "lm_head")
    transformed, s = smoothed.tensors(), smoothed.factors()["lm_head"]
    np.testing.assert_array_equal(transformed["lm_head.weight"], tensors["lm_head.weight"] * s)
    np.testing.assert_array_equal(transformed["model.norm.weight"], tensors["model.norm.weight"] / s)


def test_gpt2_folds_into_its_norms_and_leaves_the_rest(tmp_path):
    config, tensors = random_gpt2(5)
    folder = write_model(tmp_path / "model", config, tensors)
    random = np.random.default_rng(6)
    absmax = {f"h.{layer}.{part}": random.uniform(0.5, 20, 48)
              for layer in range(2) for part in ("attn.c_attn", "mlp.c_fc")}
    smoothed = Smoothed(folder, tmp_path / "run", absmax)
    assert "made by lm.gelu, through which no factor passes" in smoothed.ir
    assert smoothed.factors().keys() == absmax.keys()
    # Materialized weights are out x in; the oracle takes the checkpoint's in x out.
    transformed = {name: value.T.copy() if value.ndim == 2 and not name.startswith("w") else value
                   for name, value in smoothed.tensors().items()}
    tokens = random_tokens(7, 30, 101)
    plain = GPT2(config, tensors, dtype=np.float64).logits(tokens)
    logits = GPT2(config, transformed, dtype=np.float64).logits(tokens)
    assert np.abs(logits - plain).max() < 2e-6 * np.abs(plain).max()


def test_is_deterministic_and_resumes(llama, tmp_path):
    folder, _, _, absmax = llama
    first = Smoothed(folder, tmp_path / "run", absmax)
    assert first.ir
    files = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in (tmp_path / "run" / "work").iterdir()}
    removed = sorted(files)[0]
    removed.unlink()
    again = run_tool("easyquant-opt", "-", f"--equant-smooth-quant=statistics={tmp_path}/run/statistics.safetensors",
                     input=first.input)
    assert again.stdout == first.ir
    for file, (contents, written) in files.items():
        assert file.read_bytes() == contents
        assert file == removed or file.stat().st_mtime_ns == written  # not computed again
    other = run_tool("easyquant-opt", "-", f"--equant-smooth-quant=statistics={tmp_path}/run/statistics.safetensors alpha=0.6",
                     input=first.input)
    assert other.returncode == 0
    assert all(file.read_bytes() != contents for file, (contents, _) in files.items())


def test_bad_statistics_are_refused(llama, tmp_path):
    folder, _, _, absmax = llama
    site = "model.layers.0.mlp.down_proj"
    assert_refused(Smoothed(folder, tmp_path / "other", absmax, model_hash="123").result, "another model", "calibrate")
    missing = {name: values for name, values in absmax.items() if name != site}
    assert_refused(Smoothed(folder, tmp_path / "missing", missing).result, f"site '{site}'", "was not gathered")
    short = absmax | {site: absmax[site][1:]}
    assert_refused(Smoothed(folder, tmp_path / "short", short).result, site, "expected F32")
    broken = absmax | {site: np.full_like(absmax[site], np.nan)}
    assert_refused(Smoothed(folder, tmp_path / "nan", broken).result, site, "is nan")
    assert_refused(Smoothed(folder, tmp_path / "alpha", absmax, alpha=1.5).result, "alpha 1.5")
    nothing = run_tool("easyquant-opt", "-", "--equant-smooth-quant", input=Smoothed(folder, tmp_path / "none", absmax).input)
    assert_refused(nothing, "statistics=FILE")


def test_weights_that_are_not_finite_are_refused(tmp_path):
    config, tensors = random_llama(8)
    absmax = llama_absmax(Llama(config, tensors), config, random_tokens(1, 30, 97))
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = np.inf
    folder = write_model(tmp_path / "model", config, tensors)
    other = Smoothed(folder, tmp_path / "other", absmax, model_hash="0").result.stderr
    model_hash = re.search(r'this one has "([0-9a-f]+)"', other)[1]
    run = Smoothed(folder, tmp_path / "run", absmax, model_hash=model_hash)
    assert_refused(run.result, "site 'model.layers.1.mlp.up_proj'", "row 3, column 4 is inf")
    assert not (tmp_path / "run" / "work" / "smooth_layer_1.safetensors").exists()
