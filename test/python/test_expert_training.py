# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Learned rounding and distillation of mixtures of experts: gradients go through gathered rows, the linears of each expert and what the router's
choices count. Errors of layers are computed anew by float64 models."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibrating import write_tokens
from helpers import assert_refused, compile_model, folder_contents, kl, random_gemma4, random_lfm2, random_llama, random_qwen35, random_tokens, write_model
from oracles.llama import Llama
from planning import dequantized, plan, planned_module, run_pass
from test_expert_statistics import SIZES, rigged
from test_lkd import GROUP, nearest

METHODS = {"signround": "steps=60", "lkd": "epochs=6"}
MODELS = {
    "qwen3_moe": {"arch": "qwen3_moe", "head_dim": 16, **SIZES},
    "qwen3_moe, parts of all": {"arch": "qwen3_moe", "head_dim": 16, "norm_topk_prob": False, **SIZES},
    "qwen2_moe": {"arch": "qwen2_moe", **SIZES},
    "mixtral": {"arch": "mixtral", **SIZES},
}
SAMPLES = [random_tokens(seed, 48, 97) for seed in range(16)]


def of_experts(site):
    return ".experts." in site


def in_layers(site):
    return site != "lm_head" and not site.endswith("gate")  # routers and gates of shared experts


def trained(model, work, method, options="", names=in_layers, samples=SAMPLES):
    work.mkdir(exist_ok=True)
    tokens = write_tokens(work.parent / "tokens.safetensors", samples)
    result = run_pass(planned_module(model, work, lambda site: plan([method]) if names(site) else None), f"--equant-{method}=tokens={tokens} {options}")
    assert result.returncode == 0, result.stderr
    return result


def through_layer(model, layer, x):
    x = x + model.attention(layer, layer["input_norm"](x))
    return x + model.mlp(layer, x)


def rounded(tensors, sites, weight_of):
    """The tensors of a checkpoint, those of `sites` being weight_of(site), of all experts of the site."""
    result = dict(tensors)
    for site in sites:
        weight = weight_of(site)
        if not of_experts(site):
            result[f"{site}.weight"] = weight
            continue
        names = [name for name in tensors if re.fullmatch(re.escape(site).replace(r"experts\.", r"experts\.\d+\.") + r"\.weight", name)]
        for name, part in zip(sorted(names, key=lambda name: int(re.search(r"experts\.(\d+)", name)[1])), np.split(weight, len(names))):
            result[name] = part
    return result


def stacked(tensors, site):
    if not of_experts(site):
        return tensors[f"{site}.weight"]
    at, part = site.split("experts.")
    return np.concatenate([tensors[f"{at}experts.{expert}.{part}.weight"] for expert in range(8)])


@pytest.mark.parametrize("names", [of_experts, in_layers], ids=["experts", "all"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MODELS)
def test_the_error_of_layers_falls(tmp_path, name, method, names):
    """Less so where attention is rounded, too: its errors make the router choose other experts, of which no gradient knows."""
    config, tensors = random_llama(29, **MODELS[name])
    model = write_model(tmp_path / "model", config, tensors)
    work = tmp_path / "work"
    remarks = trained(model, work, method, METHODS[method], names).stderr
    exact = Llama(config, tensors, dtype=np.float64)
    states = [exact.embedding.rows(np.asarray(sample)).astype(np.float64) for sample in SAMPLES]
    all_errors = []
    for index, layer in enumerate(exact.layers):
        file = f"{method}_{index}.safetensors"
        sites = [key.removesuffix(".weight_codes") for key in load_file(work / file) if key.endswith(".weight_codes")]
        assert sum(map(of_experts, sites)) == 3 and (names is of_experts) == (len(sites) == 3)
        expected = [through_layer(exact, layer, x) for x in states]
        errors = []
        for weight_of in (lambda site: nearest(stacked(tensors, site)), lambda site: dequantized(work, file, site, GROUP)):
            other = Llama(config, rounded(tensors, sites, weight_of), dtype=np.float64)
            errors.append(np.mean([(through_layer(other, other.layers[index], x) - y) ** 2 for x, y in zip(states, expected)]))
        assert names is in_layers or errors[1] < 0.9 * errors[0], f"layer {index}: {errors}"
        all_errors.append(errors)
        states = expected
    before, after = np.sum(all_errors, axis=0)
    assert after < 0.97 * before, all_errors
    assert remarks.count("on held-out samples") == 1 and "of 2 layers" in remarks and "chosen by no row" not in remarks


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [
    lambda: random_qwen35(17, hidden=40, experts=5), lambda: random_lfm2(17, experts=6), lambda: random_gemma4(17, enable_moe_block=True, num_experts=6, top_k_experts=3, moe_intermediate_size=32),
], ids=["qwen3_5_moe", "lfm2_moe", "gemma4"])
def test_other_mixtures(tmp_path, make, method):
    """Beside recurrences, by sigmoids and a bias that chooses, beside an MLP: the compiler's own figures of samples held out."""
    config, tensors = make()
    result = trained(write_model(tmp_path / "model", config, tensors), tmp_path / "work", method, METHODS[method])
    errors = re.findall(r"(\S+) before, (\S+) after", result.stderr)
    assert len(errors) == 2 and float(errors[0][1]) < float(errors[0][0]), result.stderr


@pytest.mark.parametrize("method", METHODS)
def test_threads_and_runs_that_were_ended_change_no_bit(tmp_path, method):
    model = write_model(tmp_path / "model", *random_llama(29, **MODELS["qwen2_moe"]))
    options = {"signround": "steps=8", "lkd": "epochs=1"}[method]
    for threads in (1, 2):
        trained(model, tmp_path / f"work{threads}", method, f"{options} threads={threads}", samples=SAMPLES[:5])
    before = folder_contents(tmp_path / "work1")
    assert folder_contents(tmp_path / "work2") == before
    (tmp_path / f"work1/{method}_1.safetensors").unlink()
    trained(model, tmp_path / "work1", method, options, samples=SAMPLES[:5])
    assert folder_contents(tmp_path / "work1") == before


@pytest.mark.parametrize("method", METHODS)
def test_experts_without_rows_are_rounded_to_nearest_and_named(tmp_path, method):
    config, tensors = rigged(layers=2)
    model = write_model(tmp_path / "model", config, tensors)
    result = trained(model, tmp_path / "work", method, METHODS[method], of_experts)
    for index in (0, 1):
        for part in ("gate", "up", "down"):
            site = f"model.layers.{index}.mlp.experts.{part}_proj"
            file = f"{method}_{index}.safetensors"
            found = np.split(dequantized(tmp_path / "work", file, site, GROUP), 5)
            weights = [tensors[f"model.layers.{index}.mlp.experts.{expert}.{part}_proj.weight"] for expert in range(5)]
            assert np.array_equal(found[4], nearest(weights[4])) and not np.array_equal(found[0], nearest(weights[0]))
            assert load_file(tmp_path / "work" / file)[f"{site}.expert_rows"][4] == 0
    assert f"{method}: 1 of 5 experts of site 'model.layers.0.mlp.experts.gate_proj' (4), and 5 of 5 more sites, were chosen by no row" in result.stderr
    tokens = write_tokens(tmp_path / "tokens", SAMPLES)
    options = {"signround": ["--steps=4"], "lkd": ["--epochs=1"]}[method]
    out = compile_model(model, tmp_path / "out", "--scheme=W4A16", "--group-size=32", "--isa=avx2", f"--method={method}", *options, f"--tokens={tokens}")
    transforms = json.loads((out / "manifest.json").read_text())["quantization"]["transforms"]
    entries = [entry for entry in transforms if entry["method"] == method]
    assert len(entries) == 6 and all(entry["experts"] == [4] and "rounded to nearest" in entry["skipped"] for entry in entries)


@pytest.mark.parametrize("method", METHODS)
def test_an_artifact_is_nearer_to_its_model(tmp_path, runner, method):
    """Behind transforms, too, in a whole compilation: KL of the logits from those of the float model."""
    config, tensors = random_llama(29, **MODELS["qwen3_moe"])
    model = write_model(tmp_path / "model", config, tensors)
    tokens = f"--tokens={write_tokens(tmp_path / 'tokens', SAMPLES)}"
    oracle = Llama(config, tensors, dtype=np.float64)
    text = random_tokens(99, 90, 97)
    expected = oracle.logits(text)
    options = ["--scheme=W3A16", "--group-size=32", "--head=float", "--isa=avx2", "--weight-observer=absmax"]
    lost = {name: kl(expected, runner(model, *options, *more).score(text)) for name, more in (("nearest", []), (method, [f"--method={method}", tokens]))}
    assert lost[method] < lost["nearest"], lost


def test_what_has_no_gradient_is_named(tmp_path):
    """The clamped gate of gpt_oss."""
    tokens = write_tokens(tmp_path / "tokens", SAMPLES[:4])
    clamped = write_model(tmp_path / "gpt_oss", *random_llama(17, arch="gpt_oss", head_dim=16, **SIZES))
    module = planned_module(clamped, tmp_path / "work", lambda site: plan(["signround"]) if of_experts(site) else None)
    assert_refused(run_pass(module, f"--equant-signround=tokens={tokens}"), "has a clamped gate, of which there are no gradients yet")
