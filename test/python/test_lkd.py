# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""equant-lkd on whole models. Errors of layers are computed anew by independent float64 models."""

import re

import numpy as np
import pytest

from calibrating import write_tokens
from helpers import assert_refused, folder_contents, random_gpt2, random_llama, random_tokens, write_model
from oracles.gates import silu
from oracles.llama import Llama
from oracles.schemes import absmax_scale
from planning import dequantized, plan, planned_module, run_pass

GROUP = 16


@pytest.fixture(scope="module")
def samples():
    return [random_tokens(seed, 48, 97) for seed in range(16)]


def in_layers(site):
    return None if site == "lm_head" else plan(["lkd"])


def distilled(model, work, tokens, options=""):
    work.mkdir(exist_ok=True)
    result = run_pass(planned_module(model, work, in_layers), f"--equant-lkd=tokens={tokens} {options}")
    assert result.returncode == 0, result.stderr
    return result


def through_layer(model, layer, x):
    x = x + model.attention(layer, layer["input_norm"](x))
    y = layer["mlp_norm"](x)
    return x + layer["down_proj"](silu(layer["gate_proj"](y)) * layer["up_proj"](y))


def nearest(weight):
    result = np.empty_like(weight, dtype=np.float64)
    for start in range(0, weight.shape[1], GROUP):
        part = weight[:, start:start + GROUP]
        scale = absmax_scale(part, 4)
        result[:, start:start + GROUP] = np.clip(np.rint(part / scale), -7, 7) * scale.astype(np.float64)
    return result


@pytest.mark.parametrize("arch, fields", [
    ("llama", {}), ("mistral", {"sliding_window": 11}), ("qwen2", {}), ("qwen3", {"heads": 4, "kv_heads": 2, "head_dim": 12})])
def test_the_error_of_layers_falls_on_samples_held_out(arch, fields, tmp_path, samples):
    config, tensors = random_llama(arch=arch, **fields)
    model = write_model(tmp_path / "model", config, tensors)
    work, tokens = tmp_path / "work", write_tokens(tmp_path / "tokens.safetensors", samples)
    remarks = distilled(model, work, tokens, "epochs=8").stderr
    exact = Llama(config, tensors, dtype=np.float64)
    states = [exact.embedding.rows(np.asarray(sample)).astype(np.float64) for sample in samples]
    for index, layer in enumerate(exact.layers):
        expected = [through_layer(exact, layer, x) for x in states]
        errors = []
        for weight_of in (lambda site: nearest(tensors[site + ".weight"]),
                          lambda site: dequantized(work, f"lkd_{index}.safetensors", site, GROUP)):
            other = dict(layer)
            for name in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"):
                block = "mlp" if name in ("gate_proj", "up_proj", "down_proj") else "self_attn"
                site = f"model.layers.{index}.{block}.{name}"
                weight, bias = weight_of(site), tensors.get(site + ".bias", 0)
                other[name] = lambda x, weight=weight, bias=bias: x @ weight.T + bias
            errors.append(np.mean([(through_layer(exact, other, x) - y) ** 2 for x, y in zip(states[-2:], expected[-2:])]))
        assert errors[1] < 0.9 * errors[0], f"layer {index}"
        states = expected
    assert remarks.count("on held-out samples") == 1 and f"of {len(exact.layers)} layers" in remarks


def test_a_gpt2_is_distilled_too(tiny_gpt2, tmp_path):
    tokens = write_tokens(tmp_path / "tokens.safetensors", [random_tokens(seed, 30, 101) for seed in range(8)])
    result = distilled(tiny_gpt2, tmp_path / "work", tokens)
    errors = re.findall(r"(\S+) before, (\S+) after", result.stderr)
    assert len(errors) == 2 and all(float(after) < float(before) for before, after in errors)
    weight = random_gpt2()[1]["h.0.attn.c_attn.weight"].T
    codes = dequantized(tmp_path / "work", "lkd_0.safetensors", "h.0.attn.c_attn", GROUP)
    assert np.abs(codes - weight).max() < 0.5, "rows of q, k and v are where they were"


def test_bytes_do_not_depend_on_threads_nor_on_interruptions(tiny_llama, tmp_path, samples):
    tokens = write_tokens(tmp_path / "tokens.safetensors", samples[:5])
    for threads in (1, 2):
        distilled(tiny_llama, tmp_path / f"work{threads}", tokens, f"threads={threads} epochs=1")
    before = folder_contents(tmp_path / "work1")
    assert folder_contents(tmp_path / "work2") == before
    (tmp_path / "work1/lkd_1.safetensors").unlink()
    distilled(tiny_llama, tmp_path / "work1", tokens, "epochs=1")
    assert folder_contents(tmp_path / "work1") == before


def test_mistakes_are_named(tiny_llama, tmp_path, samples):
    module = planned_module(tiny_llama, tmp_path / "work", in_layers)
    assert_refused(run_pass(module, "--equant-lkd"), "tokens=FILE")
    one = write_tokens(tmp_path / "one.safetensors", samples[:1])
    assert_refused(run_pass(module, f"--equant-lkd=tokens={one}"), "at least 2")
    two = write_tokens(tmp_path / "two.safetensors", samples[:2])
    assert_refused(run_pass(module, f"--equant-lkd=tokens={two} learning-rate=0"), "learning rate 0")
