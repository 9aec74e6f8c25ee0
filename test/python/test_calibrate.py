# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`equant-calibrate` against a numpy forward pass."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibrating import calibrate, write_tokens
from helpers import random_gpt2, random_llama, run_tool, write_model
from oracles.activations import observe


class Statistics:
    def __init__(self, path):
        self.tensors = load_file(path)
        self.sites = {name.rpartition("/")[0] for name in self.tensors}

    def __call__(self, site, name):
        return self.tensors[f"{site}/{name}"]


def assert_statistics(statistics, site, rows, tolerance=2e-5):
    x = np.concatenate(rows)
    near = dict(rtol=tolerance, atol=tolerance * np.abs(x).max())
    assert statistics(site, "tokens") == len(x)
    np.testing.assert_allclose(statistics(site, "absmax"), np.abs(x).max(0), **near)
    np.testing.assert_allclose(statistics(site, "minmax"), [x.min(0), x.max(0)], **near)
    np.testing.assert_allclose(statistics(site, "mean_abs"), np.abs(x).mean(0), **near)
    np.testing.assert_allclose(statistics(site, "moments")[0], x.mean(0), **near)
    np.testing.assert_allclose(statistics(site, "moments")[1], x.var(0), rtol=1e-3, atol=1e-4 * x.var())
    hessian = 2 / len(x) * x.T @ x
    np.testing.assert_allclose(statistics(site, "hessian"), hessian, rtol=1e-3, atol=1e-4 * np.abs(hessian).max())
    assert statistics(site, "histogram").sum() == x.size
    np.testing.assert_allclose(statistics(site, "histogram_range"), [x.min(), x.max()], **near)


@pytest.mark.parametrize("bos", [False, True])
def test_statistics_are_those_of_a_numpy_forward(tmp_path, bos):
    """Two layers with grouped-query attention; padding in one sample, chunks of 16 rows that do not divide its length."""
    config, tensors = random_llama(seed=11)
    model = write_model(tmp_path / "model", config, tensors)
    rng = np.random.default_rng(5)
    tokens = rng.integers(0, config["vocab_size"], (3, 41))
    tokens[1, 23:] = -1
    statistics = Statistics(calibrate(model, tmp_path / "run", write_tokens(tmp_path / "tokens", tokens, bos), layer_rows=16))
    seen = observe(config, tensors, [row[row >= 0] for row in tokens])
    assert statistics.sites == set(seen)
    for site, rows in seen.items():
        assert_statistics(statistics, site, [r[1:] if bos else r for r in rows])


def test_gpt2(tmp_path):
    """Learned positions, biases, LayerNorm, Conv1D weights."""
    config, tensors = random_gpt2(seed=2)
    tokens = np.random.default_rng(4).integers(0, config["vocab_size"], (2, 37))
    model = write_model(tmp_path / "model", config, tensors)
    statistics = Statistics(calibrate(model, tmp_path / "run", write_tokens(tmp_path / "tokens", tokens)))
    seen = observe(config, tensors, tokens)
    assert statistics.sites == set(seen)
    for site, rows in seen.items():
        assert_statistics(statistics, site, rows)


def test_stories(stories, tmp_path):
    """The trained model of 260,000 parameters, all five layers."""
    config, tensors = json.loads((stories / "config.json").read_text()), load_file(stories / "model.safetensors")
    tokens = np.random.default_rng(1).integers(3, 512, (2, 100))
    statistics = Statistics(calibrate(stories, tmp_path / "run", write_tokens(tmp_path / "tokens", tokens)))
    for site, rows in observe(config, tensors, tokens).items():
        assert_statistics(statistics, site, rows, 1e-4)


def test_a_real_layer(smollm2, tmp_path):
    """The first layer of SmolLM2, whose activations have outliers."""
    config, tensors = json.loads((smollm2 / "config.json").read_text()), load_file(smollm2 / "model.safetensors")
    one = write_model(tmp_path / "one", config | {"num_hidden_layers": 1},
                      {name: tensor for name, tensor in tensors.items() if ".layers." not in name or ".layers.0." in name})
    tokens = np.random.default_rng(2).integers(3, 40000, (2, 130))
    statistics = Statistics(calibrate(one, tmp_path / "run", write_tokens(tmp_path / "tokens", tokens)))
    for site, rows in observe(config | {"num_hidden_layers": 1}, tensors, tokens).items():
        assert_statistics(statistics, site, rows, 1e-4)


def test_the_module_names_its_statistics(tiny_llama, tmp_path):
    tokens = write_tokens(tmp_path / "tokens", [[1, 2, 3, 4]])
    path = calibrate(tiny_llama, tmp_path / "run", tokens, statistics="minmax")
    source = run_tool("easyquant-translate", "--import-hf", tiny_llama).stdout
    attach = f'--pass-pipeline=builtin.module(equant-insert-observers,equant-attach-calibration{{statistics="{path}"}})'
    ir = run_tool("easyquant-opt", "-", attach, input=source)
    assert ir.returncode == 0, ir.stderr
    assert f'equant.statistics = "{path}"' in ir.stdout and "equant.observe" not in ir.stdout

    other = write_model(tmp_path / "other", *random_llama(seed=99))
    source = run_tool("easyquant-translate", "--import-hf", other).stdout
    wrong = run_tool("easyquant-opt", "-", attach, input=source)
    assert wrong.returncode == 1 and "statistics of another model" in wrong.stderr
