# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""equant-gptq on a whole model. The oracle is an independent float64 model that gives the Hessians, with the rounded weights
in the places of all earlier sites, and the Optimal Brain Quantizer that GPTQ speeds up, one column at a time."""

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from calibrating import write_tokens
from helpers import assert_refused, folder_contents, random_llama, random_tokens, write_model
from oracles import llama
from planning import SITES, dequantized, plan, planned_module, recorded_inputs, run_pass

GROUP = 16


@pytest.fixture(scope="module")
def samples():
    return [random_tokens(seed, length, 97) for seed, length in ((1, 64), (2, 40), (3, 96), (4, 57), (5, 90), (6, 33))]


def all_layers(site):
    return None if site == "lm_head" else plan(["gptq"])


def rounded(model, work, tokens, options="", plan_of=all_layers):
    work.mkdir(exist_ok=True)
    result = run_pass(planned_module(model, work, plan_of), f"--equant-gptq=tokens={tokens} {options}")
    assert result.returncode == 0, result.stderr
    return result


def scale_of(weights):
    top = np.max(np.abs(weights), axis=1)
    return np.where(top > 0, top / 7, 1)


def brain_quantizer(weight, hessian, act_order):
    """Ŵ, float64."""
    weight, inverse = weight.astype(np.float64).copy(), np.linalg.inv(hessian)
    order = np.argsort(-np.diag(hessian), kind="stable") if act_order else np.arange(len(hessian))
    scales = np.stack([scale_of(weight[:, j // GROUP * GROUP:(j // GROUP + 1) * GROUP]) for j in range(weight.shape[1])], 1)
    result = np.zeros_like(weight)
    for j in order:
        if not act_order and j % GROUP == 0:
            scales[:, j:j + GROUP] = scale_of(weight[:, j:j + GROUP])[:, None]
        result[:, j] = np.clip(np.rint(weight[:, j] / scales[:, j]), -7, 7) * scales[:, j]
        weight -= np.outer((weight[:, j] - result[:, j]) / inverse[j, j], inverse[j])
        inverse -= np.outer(inverse[:, j], inverse[j]) / inverse[j, j]
    return result


def assert_as_good_as_the_plain_solver(work, config, tensors, sites, samples, act_order, bos, others={}):
    weights = others | {site: dequantized(work, f"gptq_{site.split('.')[2]}.safetensors", site, GROUP) for site in sites}
    inputs = recorded_inputs(config, tensors, weights, samples, skip=int(bos))
    assert_solved(tensors, weights, {site: inputs[site] for site in sites}, act_order)


def assert_solved(tensors, weights, inputs, act_order):
    for site in inputs:
        original, x = tensors[site + ".weight"].astype(np.float64), inputs[site]
        hessian = 2 * x.T @ x / len(x)
        hessian += 0.01 * np.mean(np.diag(hessian)) * np.eye(len(hessian))

        def loss(weight):
            return np.trace((original - weight) @ hessian @ (original - weight).T)

        nearest = np.concatenate([np.clip(np.rint(part / scale_of(part)[:, None]), -7, 7) * scale_of(part)[:, None]
                                  for part in np.split(original, range(GROUP, original.shape[1], GROUP), axis=1)], axis=1)
        expected = loss(brain_quantizer(original, hessian, act_order))
        assert loss(weights[site]) == pytest.approx(expected, rel=0.005), site
        assert loss(weights[site]) < loss(nearest), site


@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("bos", [False, True])
def test_every_site_is_as_good_as_the_plain_solver(tiny_llama, tmp_path, samples, act_order, bos):
    work, tokens = tmp_path / "work", write_tokens(tmp_path / "tokens.safetensors", samples, bos)
    rounded(tiny_llama, work, tokens, f"hessian=inputs act-order={'true' if act_order else 'false'}")
    sites = [f"model.layers.{layer}.{short}" for layer in (0, 1) for short in SITES]
    assert_as_good_as_the_plain_solver(work, *random_llama(), sites, samples, act_order, bos)


def test_a_real_layer_is_as_good_as_by_the_plain_solver(smollm2_layer, tmp_path):
    config, tensors = smollm2_layer
    sites = [f"model.layers.0.{short}" for short in ("self_attn.k_proj", "self_attn.o_proj", "mlp.gate_proj")]
    samples = [random_tokens(seed, 512, 40000) for seed in (1, 2)]
    work, tokens = tmp_path / "work", write_tokens(tmp_path / "tokens.safetensors", samples, False)
    rounded(write_model(tmp_path / "model", config, tensors), work, tokens, "hessian=inputs act-order=true", lambda site: plan(["gptq"]) if site in sites else None)
    assert_as_good_as_the_plain_solver(work, config, tensors, sites, samples, act_order=True, bos=False)


@pytest.mark.parametrize("bos", [False, True])
def test_tokens_weigh_in_keys_and_values_what_attention_gives_them(tmp_path, samples, bos, monkeypatch):
    """The sinks of texts, too, which the Hessians of the other sites leave out. Attention sees a window."""
    config, tensors = random_llama(arch="mistral", heads=4, kv_heads=2, sliding_window=24)
    model = write_model(tmp_path / "model", config, tensors)
    work, tokens = tmp_path / "work", write_tokens(tmp_path / "tokens.safetensors", samples, bos)
    rounded(model, work, tokens)
    calls, attend = [], llama.causal_attention

    def recording(q, k, v, window=None, **rest):
        calls.append(attend(q, k, np.eye(len(k)), window).sum(0))
        return attend(q, k, v, window, **rest)

    monkeypatch.setattr(llama, "causal_attention", recording)
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    done = {}
    for layer in range(layers):
        calls.clear()
        inputs = recorded_inputs(config, tensors, done, samples)
        received = [np.mean(calls[at:at + heads], axis=0) for at in range(layer * heads, len(calls), layers * heads)]
        assert [part.sum() for part in received] == pytest.approx([len(sample) for sample in samples])
        own = {f"model.layers.{layer}.{short}": None for short in SITES}
        weights = {site: dequantized(work, f"gptq_{layer}.safetensors", site, GROUP) for site in own}
        for short in ("self_attn.k_proj", "self_attn.v_proj"):
            own[f"model.layers.{layer}.{short}"] = inputs[f"model.layers.{layer}.{short}"] * np.sqrt(np.concatenate(received))[:, None]
        done |= weights
        inputs = recorded_inputs(config, tensors, done, samples, skip=int(bos))
        assert_solved(tensors, weights, {site: inputs[site] if x is None else x for site, x in own.items()}, act_order=True)


def awq_rounded(work, site, weight, top):
    """Ŵ of a site that reads what gate_proj reads: scaled, rounded to nearest in the ranges that were found, and scaled back."""
    layer = site.split(".")[2]
    factor = load_file(work / f"awq_{layer}.safetensors")[f"model.layers.{layer}.mlp.gate_proj.awq_scale"].astype(np.float64)
    scale = load_file(work / f"awq_clip_{layer}.safetensors")[site + ".weight_scale"].astype(np.float64)
    scale = scale[:, np.arange(weight.shape[1]) // GROUP]
    return np.clip(np.rint(weight * factor / scale), -top, top) * scale / factor


@pytest.mark.parametrize("method", ["awq", "lkd"])
def test_sites_of_other_methods_are_seen_as_these_rounded_them(tiny_llama, tmp_path, samples, method):
    def plan_of(site):
        if "down_proj" in site:
            return plan(["gptq"])
        return plan([method], weight="<i2, symmetric, group = 16>") if "gate_proj" in site or "up_proj" in site else None

    work, tokens = tmp_path / "work", write_tokens(tmp_path / "tokens.safetensors", samples)
    work.mkdir()
    result = run_pass(planned_module(tiny_llama, work, plan_of), f"--equant-{method}=tokens={tokens}", f"--equant-gptq=tokens={tokens}")
    assert result.returncode == 0, result.stderr
    config, tensors = random_llama()
    others = {}
    for site in (f"model.layers.{layer}.mlp.{short}" for layer in (0, 1) for short in ("gate_proj", "up_proj")):
        if method == "awq":
            others[site] = awq_rounded(work, site, tensors[site + ".weight"], top=1)
        else:
            others[site] = dequantized(work, f"lkd_{site.split('.')[2]}.safetensors", site, GROUP)
    sites = [f"model.layers.{layer}.mlp.down_proj" for layer in (0, 1)]
    assert_as_good_as_the_plain_solver(work, config, tensors, sites, samples, act_order=True, bos=False, others=others)


def test_scales_follow_the_rule_of_the_plan(tiny_llama, tmp_path, samples):
    site, work = "model.layers.0.mlp.up_proj", tmp_path / "work"
    asked = plan(["gptq"], rule="percentile, percentile = 8.0e+01 : f64")
    tokens = write_tokens(tmp_path / "tokens.safetensors", samples)
    rounded(tiny_llama, work, tokens, "static-groups=true", lambda name: asked if name == site else None)
    weight = random_llama()[1][site + ".weight"]
    expected = [np.percentile(np.abs(weight[:, at : at + GROUP]), 80, axis=1) / 7 for at in range(0, weight.shape[1], GROUP)]
    assert load_file(work / "gptq_0.safetensors")[site + ".weight_scale"] == pytest.approx(np.stack(expected, 1), rel=1e-5)


def test_bytes_do_not_depend_on_threads(tiny_llama, tmp_path, samples):
    tokens = write_tokens(tmp_path / "tokens.safetensors", samples)
    texts = []
    for threads in (1, 2):
        texts.append(rounded(tiny_llama, tmp_path / f"work{threads}", tokens, f"threads={threads}").stdout)
    assert folder_contents(tmp_path / "work1") == folder_contents(tmp_path / "work2")
    assert texts[0].replace("work1", "") == texts[1].replace("work2", "")


@pytest.mark.parametrize("lost", [["gptq_0.safetensors"], ["gptq_1.safetensors"]])
def test_an_ended_run_goes_on_and_ends_with_the_same_bytes(tiny_llama, tmp_path, samples, lost):
    work, tokens = tmp_path / "work", write_tokens(tmp_path / "tokens.safetensors", samples)
    whole = rounded(tiny_llama, work, tokens)
    before = folder_contents(work)
    kept = [path for path in work.iterdir() if path.name not in lost]
    times = {path: path.stat().st_mtime_ns for path in kept}
    for name in lost:
        (work / name).unlink()
    again = rounded(tiny_llama, work, tokens)
    assert again.stdout == whole.stdout and folder_contents(work) == before
    assert {path: path.stat().st_mtime_ns for path in kept} == times, "what is there is not computed again"


def test_other_tokens_and_options_are_computed_anew(tiny_llama, tmp_path, samples):
    work = tmp_path / "work"

    def stamp():
        with safe_open(work / "gptq_1.safetensors", "np") as file:
            return file.metadata()

    stamps = []
    for sample_count, options in ((6, ""), (5, ""), (5, "damping=0.02"), (5, "act-order=false")):
        rounded(tiny_llama, work, write_tokens(tmp_path / "tokens.safetensors", samples[:sample_count]), options)
        assert stamp() not in stamps
        stamps.append(stamp())


def test_only_sites_that_ask_for_it_are_touched(tiny_llama, tmp_path, samples):
    def plan_of(site):
        if "up_proj" in site:
            return plan(["gptq"])
        return plan([]) if "layers" in site and "q_proj" in site else None

    tokens = write_tokens(tmp_path / "tokens.safetensors", samples)
    text = rounded(tiny_llama, tmp_path / "work", tokens, plan_of=plan_of).stdout
    assert text.count("codes = @") == 2
    with safe_open(tmp_path / "work/gptq_0.safetensors", "np") as file:
        assert set(file.keys()) == {f"model.layers.0.mlp.up_proj.weight_{what}" for what in ("codes", "scale")}
    # Without such sites nothing is asked for, not even tokens.
    assert run_pass(planned_module(tiny_llama, tmp_path, lambda site: plan([])), "--equant-gptq").returncode == 0


def test_mistakes_are_named(tiny_llama, tmp_path, samples):
    tokens = write_tokens(tmp_path / "tokens.safetensors", samples)
    module = planned_module(tiny_llama, tmp_path / "work", all_layers)
    run = f"--equant-gptq=tokens={tokens}"
    assert_refused(run_pass(module, "--equant-gptq"), "tokens=FILE")
    assert_refused(run_pass(module, "--equant-gptq=tokens=missing.safetensors"), "missing.safetensors")
    assert_refused(run_pass(module.replace("equant.work", "equant.play"), run), "equant.work")
    assert_refused(run_pass(module, run + " damping=-1"), "damping")
    head = planned_module(tiny_llama, tmp_path / "work", lambda site: plan(["gptq"]))
    assert_refused(run_pass(head, run), "site 'lm_head'", "none of the model's layers")
    large = write_tokens(tmp_path / "large.safetensors", [[1, 2, 97]])
    assert_refused(run_pass(module, f"--equant-gptq=tokens={large}"), "large.safetensors", "97")
