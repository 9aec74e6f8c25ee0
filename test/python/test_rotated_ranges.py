# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Static and online scales of rotated activations: those of numpy, what models of them compute, and what is refused."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibrating import write_tokens
from helpers import ISA, Runner, assert_refused, random_gpt2, random_llama, random_tokens, run_tool, with_outliers, write_model
from oracles.activations import observe
from oracles.checkpoint import read_folder
from oracles.gpt2 import GPT2
from oracles.llama import Llama
from oracles.schemes import FLOAT, Calibrated, block_of, rotate
from test_llama import relative_error

ROTATED = "--activation-basis=hadamard"
STATIC = ("--scheme=W8A8", "--activations=static", "--sinks=none", ROTATED)
HEAD_DIM = 16
SITES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def static(*options):
    """STATIC, in which these have the last word."""
    return tuple({option.partition("=")[0]: option for option in (*STATIC, *options)}.values())


@pytest.fixture(scope="module")
def samples():
    return [random_tokens(seed, 48, 97) for seed in range(3)]


@pytest.fixture(scope="module")
def tokens(samples, tmp_path_factory):
    return write_tokens(tmp_path_factory.mktemp("ranges") / "tokens.safetensors", samples)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A few columns of what linears read are far above the others."""
    return write_model(tmp_path_factory.mktemp("ranges") / "llama", *with_outliers(random_llama(41, hidden=64, ffn=96, heads=4, kv_heads=2), 20))


def block_at(site, columns, limit=512):
    return block_of(HEAD_DIM if "o_proj" in site else columns, limit)


def scales_of_ranges(seen, limit=512, divisors=None):
    """{site: scale of its rotated activations}, the head left out."""
    scales = {}
    for site, rows in seen.items():
        x = np.concatenate(rows)
        if divisors and site in divisors:
            x = x / divisors[site]
        if site != "lm_head":
            scales[site] = np.abs(rotate(x, block_at(site, x.shape[1], limit))).max() / 127
    return scales


def compiled_scales(model, *options):
    """{site: input_scale} of the quantized IR."""
    printed = run_tool("easyquant-compile", model, "--emit-ir-after=quantize", *options)
    assert printed.returncode == 0, printed.stderr
    found = {}
    for scale, sites in re.findall(r"equant\.linear [^\n]*input_scale = ([0-9.e+-]+) : f32[^\n]* sites = \[([^\]]*)\]", printed.stdout):
        for site in re.findall(r'"([^"]+)"', sites):
            found[site] = float(scale)
    return found


@pytest.mark.parametrize("options, limit", [((), 512), (("--hadamard-block=16",), 16), (("--observer=absmax", "--activations=online-ema"), 512)])
def test_ranges_are_those_of_rotated_values(llama, samples, tokens, tmp_path, options, limit):
    """What o_proj reads comes rotated, in blocks of a head's columns."""
    found = compiled_scales(llama, *static(*options, f"--tokens={tokens}", f"--work={tmp_path}"))
    expected = scales_of_ranges(observe(*read_folder(llama), samples), limit)
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[site] for site in expected], list(expected.values()), rtol=1e-4)


def test_ranges_are_those_of_smoothed_and_rotated_values(llama, samples, tokens, tmp_path):
    """Observed again behind SmoothQuant, as no statistic by channel follows a rotation. The float model stays as it was."""
    found = compiled_scales(llama, *STATIC, "--method=smoothquant", f"--tokens={tokens}", f"--work={tmp_path}")
    factors = {}
    for file in sorted(tmp_path.glob("smooth_*.safetensors")):
        factors |= {name.removesuffix(".smooth_scale"): value for name, value in load_file(file).items() if name.endswith(".smooth_scale")}
    divisors = {}
    for first, value in factors.items():
        layer, _, site = first.partition(".self_attn.") if "self_attn" in first else first.partition(".mlp.")
        shared = {"q_proj": ("q_proj", "k_proj", "v_proj"), "gate_proj": ("gate_proj", "up_proj")}.get(site, (site,))
        divisors |= {f"{first.removesuffix(site)}{name}": value for name in shared}
    assert len(divisors) >= 12
    expected = scales_of_ranges(observe(*read_folder(llama), samples), divisors=divisors)
    np.testing.assert_allclose([found[site] for site in expected], list(expected.values()), rtol=1e-3)


def test_other_observers_see_smoothed_and_rotated_values(llama, tokens, tmp_path):
    """In the plain basis they do not follow what smooths."""
    options = ("--method=smoothquant", "--observer=mse", f"--tokens={tokens}")
    largest = compiled_scales(llama, *STATIC, "--method=smoothquant", f"--tokens={tokens}", f"--work={tmp_path / 'a'}")
    found = compiled_scales(llama, *STATIC, *options, f"--work={tmp_path / 'b'}")
    assert found.keys() == largest.keys() and all(found[site] <= 1.001 * largest[site] for site in found)
    assert len([site for site in found if found[site] < 0.99 * largest[site]]) > 3
    plain = run_tool("easyquant-compile", llama, "--emit-ir-after=quantize", *static("--activation-basis=plain", *options, f"--work={tmp_path / 'c'}"))
    assert_refused(plain, "observer mse knows its activations as a whole, before they were smoothed")


def order_of(model, scales):
    """Scales in the order in which the oracle makes linears."""
    layers = read_folder(model)[0]["num_hidden_layers"]
    return [np.float32(scales[f"model.layers.{layer}.{site}"]) if scales else None for layer in range(layers) for site in SITES]


def test_static_scales_compute_what_the_oracle_does(runner, llama, samples, tokens):
    config, tensors = read_folder(llama)
    scales = order_of(llama, scales_of_ranges(observe(config, tensors, samples)))
    expected = Llama(config, tensors, Calibrated(scales), np.float64).logits(samples[1])
    found = runner(llama, *STATIC, f"--tokens={tokens}", "--kv-cache=f32").score(samples[1])
    assert relative_error(found, expected) < 8e-3
    exact = Llama(config, tensors, FLOAT, np.float64).logits(samples[1])
    assert relative_error(expected, exact) > 3 * relative_error(found, expected), "the scheme itself must be visible"
    plain = runner(llama, *static("--activation-basis=plain", f"--tokens={tokens}", "--kv-cache=f32")).score(samples[1])
    assert relative_error(found, exact) < 0.5 * relative_error(plain, exact)


def test_online_scales_begin_with_the_oracles(runner, llama, samples, tokens):
    """In the first step. Behind the last layer's attention scales are those of tokens."""
    config, tensors = read_folder(llama)
    scales = order_of(llama, scales_of_ranges(observe(config, tensors, samples)))
    scales[-4:] = [None] * 4
    options = ("--activations=online-ema", f"--tokens={tokens}", "--kv-cache=f32")
    expected = Llama(config, tensors, Calibrated(scales), np.float64).logits(samples[1][:30])
    assert relative_error(runner(llama, *static(*options)).score(samples[1][:30]), expected) < 8e-3


def test_online_scales_follow_rotated_values(artifact, llama, samples, tokens):
    """A step of one token makes the state of each site the mean of what it was and of the largest rotated value."""
    out = artifact(llama, *static("--activations=online-ema", "--online-decay=0.5", f"--tokens={tokens}", "--kv-cache=f32"))
    session = Runner(out).session
    before = np.frombuffer(session.state, np.float64, offset=40).reshape(-1, 2)
    session.prefill(np.asarray(samples[0][:1], np.int32))
    after = np.frombuffer(session.state, np.float64, offset=40).reshape(-1, 2)
    seen = observe(*read_folder(llama), [samples[0][:1]])
    peak = np.abs(rotate(seen["model.layers.0.self_attn.q_proj"][0], 64)).max()
    assert after[0, 0] == pytest.approx((before[0, 0] + peak) / 2, rel=2e-3)  # the embedding is the head's codes


def test_gpt2(runner, tmp_path, tokens, samples):
    """Layer norms, GELU, and a tied head."""
    model = write_model(tmp_path / "gpt2", *random_gpt2(width=64))
    config, tensors = read_folder(model)
    exact = GPT2(config, tensors, FLOAT, np.float64).logits(samples[0])
    found = runner(model, *STATIC, f"--tokens={tokens}", "--kv-cache=f32").score(samples[0])
    assert relative_error(found, exact) < 0.05


@pytest.mark.parametrize("activations", ["static", "online-ema"])
def test_gpus(artifact, tmp_path, samples, tokens, activations):
    """Simulated, with all checks."""
    model = write_model(tmp_path / "model", *random_llama(21, hidden=64, ffn=96, heads=4, kv_heads=2))
    out = artifact(model, *static(f"--activations={activations}", f"--tokens={tokens}", "--target=sm_80,cpu"))
    found = Runner(out, device="simt", simt_checks=True).score(samples[1][:20])
    assert relative_error(found, Runner(out, device="cpu").score(samples[1][:20])) < 0.025


def test_sinks_are_those_of_rotated_rows(runner, llama, tmp_path, samples):
    """Calibrated on one token over and over: others leave the range, and have the scale that they have with dynamic activations."""
    one = write_tokens(tmp_path / "tokens", [[7] * 40] * 2)
    options = ("--activations=static", f"--tokens={one}")
    dynamic = runner(llama, "--scheme=W8A8", ROTATED).score(samples[0])
    clamped, kept = (runner(llama, *static(*options, f"--sinks={sinks}")).score(samples[0]) for sinks in ("none", "keep"))
    assert np.abs(kept - dynamic).max() < 0.3 * np.abs(clamped - dynamic).max()


def test_methods_that_round_work_beside_them(runner, llama, samples, tokens):
    exact = Llama(*read_folder(llama), FLOAT, np.float64).logits(samples[0])
    nearest = relative_error(runner(llama, *STATIC, f"--tokens={tokens}").score(samples[0]), exact)
    for method in ("gptq", "awq", "smoothquant+gptq"):
        found = runner(llama, *STATIC, f"--method={method}", f"--tokens={tokens}").score(samples[0])
        assert relative_error(found, exact) < 1.2 * nearest, method


def test_statistics_are_kept_by_basis(llama, tokens, tmp_path):
    """A work folder serves a basis after the other, and another scheme in the same one takes the ranges that are there."""
    options = (f"--tokens={tokens}", f"--work={tmp_path}")
    first = compiled_scales(llama, *STATIC, *options)
    stamp = (tmp_path / "ranges.safetensors").stat().st_mtime_ns
    assert compiled_scales(llama, *static("--hadamard-block=16", *options)) != first
    assert (tmp_path / "ranges.safetensors").stat().st_mtime_ns != stamp
    assert compiled_scales(llama, *STATIC, *options) == first
    stamp = (tmp_path / "ranges.safetensors").stat().st_mtime_ns
    assert compiled_scales(llama, *static("--scheme=W4A8", *options)) == first
    assert (tmp_path / "ranges.safetensors").stat().st_mtime_ns == stamp


def test_a_rule_may_have_another_basis(artifact, llama, tokens, tmp_path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"scheme": "W8A8", "activations": "static", "activation_basis": "hadamard", "sites": [
        {"match": "re:.*gate_proj", "activation_basis": "plain"}, {"match": "re:.*up_proj", "hadamard_block": 16}]}))
    out = artifact(llama, f"--recipe={recipe}", f"--tokens={tokens}")
    blocks = {site["name"].rpartition(".")[2]: site["input"].get("hadamard") for site in json.loads((out / "manifest.json").read_text())["sites"]}
    assert blocks["gate_proj"] is None and blocks["up_proj"] == 16 and blocks["q_proj"] == 64 and blocks["down_proj"] == 32
