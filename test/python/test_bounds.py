# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""equant-measure-bounds on whole models. The oracle is a float64 model whose weights and inputs numpy rounds."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from calibrating import write_tokens
from helpers import assert_refused, random_gpt2, random_llama, random_tokens, run_tool, write_model
from oracles.gates import silu
from oracles.llama import Llama
from oracles.schemes import QuantizedWeight
from planning import SITES, recorded_inputs

GROUP = 16
LENGTHS = (64, 40, 57, 70, 33)
SAMPLES = 2  # that go through quantized layers
PLANS = {
    "W8A8": "equant-absmax{scheme=W8A8}",
    "W4A16": f"equant-absmax{{scheme=W4A16 group-size={GROUP}}}",
    "W3A16_ASYM": f"equant-zeropoint{{scheme=W3A16_ASYM group-size={GROUP}}}",
}
PAIRS = ("weights", "outputs", "layers", "keys_values", "sampling")


def measure(model, output, tokens, plans, **options):
    text = " ".join(f"{name}={value}" for name, value in options.items())
    return run_tool("easyquant-compile", model, f'--pipeline={plans},equant-measure-bounds{{tokens="{tokens}" output="{output}" {text}}}')


@dataclass
class Measured:
    config: dict
    tensors: dict
    samples: list
    scheme: str
    report: dict

    @property
    def model(self):
        return Llama(self.config, self.tensors, dtype=np.float64)

    def rounded(self, site):
        bits, group = int(self.scheme[1]), GROUP if self.scheme != "W8A8" else 0
        rule = "zeropoint" if self.scheme.endswith("_ASYM") else "absmax"
        weight = QuantizedWeight(self.tensors[site + ".weight"], bits, group, np.float64, rule)
        return np.concatenate([weight.codes[:, at:end] * weight.scales[:, [i]].astype(np.float64) for i, (at, end) in enumerate(weight.bounds)], axis=1)

    def rounded_inputs(self, x):
        if self.scheme != "W8A8":
            return x
        scale = np.abs(x).max(axis=1, keepdims=True) / 127
        return np.rint(x / scale) * scale


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bounds")
    config, tensors = random_llama(5, hidden=40, heads=5, kv_heads=5, head_dim=8, layers=3)
    write_model(folder / "model", config, tensors)
    samples = [random_tokens(seed, length, 97) for seed, length in enumerate(LENGTHS)]
    tokens = write_tokens(folder / "tokens.safetensors", samples)
    return folder, config, tensors, samples, tokens


@pytest.fixture(scope="module", params=PLANS)
def measured(made, request):
    folder, config, tensors, samples, tokens = made
    output = folder / f"{request.param}.json"
    result = measure(folder / "model", output, tokens, PLANS[request.param], rows=1000, threads=2)
    assert result.returncode == 0, result.stderr
    return Measured(config, tensors, samples, request.param, json.loads(output.read_text()))


def test_every_pair_is_there_and_keeps_its_bound(measured):
    report = measured.report
    assert report["samples"] == SAMPLES and report["all_samples"] == len(LENGTHS) and report["rows"] == sum(LENGTHS[:SAMPLES])
    sites = [f"model.layers.{layer}.{site}" for layer in range(3) for site in SITES] + ["lm_head"]
    assert [entry["site"] for entry in report["weights"]] == [entry["site"] for entry in report["outputs"]] == sites
    assert [entry["layer"] for entry in report["layers"]] == [0, 1, 2]
    assert len(report["keys_values"]) == 3 * 3 * 2 and len(report["sampling"]) == 3 * (4 * 3 + 1)
    assert report["left_out"] == []
    for kind in PAIRS:
        for entry in report[kind]:
            assert 0 < entry["measured"] <= entry["bound"] * (1 + 1e-4), (kind, entry)
            assert entry["share"] == pytest.approx(entry["measured"] / entry["bound"])


def test_weights_and_outputs_are_off_by_what_numpy_finds(measured):
    inputs = recorded_inputs(measured.config, measured.tensors, {}, measured.samples[:SAMPLES])
    weights = {entry["site"]: entry for entry in measured.report["weights"]}
    for entry in measured.report["outputs"][:-1]:
        site = entry["site"]
        exact, rounded, x = measured.tensors[site + ".weight"].astype(np.float64), measured.rounded(site), inputs[site]
        assert weights[site]["largest"] == pytest.approx(np.abs(exact - rounded).max(), rel=1e-4)
        # Rounded activations may be one code apart where float32 and float64 disagree about a tie.
        error = np.abs(measured.rounded_inputs(x) @ rounded.T - x @ exact.T).max()
        assert entry["largest"] == pytest.approx(error, rel=0.02 if measured.scheme == "W8A8" else 1e-3)


def hidden_states(model, tokens):
    """Behind every layer."""
    x, states = model.embedding.rows(np.asarray(tokens)).astype(np.float64), []
    for layer in model.layers:
        x = x + model.attention(layer, layer["input_norm"](x))
        y = layer["mlp_norm"](x)
        x = x + layer["down_proj"](silu(layer["gate_proj"](y)) * layer["up_proj"](y))
        states.append(x)
    return np.stack(states)


def test_errors_grow_through_the_layers_as_in_numpy(measured):
    quantized = measured.model
    for index, layer in enumerate(quantized.layers):
        for site in SITES:
            rounded = measured.rounded(f"model.layers.{index}.{site}")
            layer[site.split(".")[1]] = lambda x, rounded=rounded: measured.rounded_inputs(x) @ rounded.T
    samples = measured.samples[:SAMPLES]
    errors = np.max([np.abs(hidden_states(quantized, s) - hidden_states(measured.model, s)).max(axis=(1, 2)) for s in samples], axis=0)
    tolerance = 0.05 if measured.scheme == "W8A8" else 2e-3
    layers = measured.report["layers"]
    assert [layer["measured"] for layer in layers] == pytest.approx(errors, rel=tolerance)
    assert layers[0]["measured_gain"] == 0 and layers[0]["bound"] == layers[0]["local"]
    assert layers[2]["bound"] == pytest.approx(layers[2]["measured_gain"] * layers[1]["bound"] + layers[2]["local"])


def test_values_of_a_cache(measured):
    inputs = recorded_inputs(measured.config, measured.tensors, {}, measured.samples[:SAMPLES])
    site = "model.layers.0.self_attn.v_proj"
    values = inputs[site] @ measured.tensors[site + ".weight"].astype(np.float64).T
    sinks = 4
    quantized = np.concatenate([values[sinks : LENGTHS[0]], values[LENGTHS[0] + sinks :]]).reshape(-1, 8)
    low, high = quantized.min(axis=1, keepdims=True), quantized.max(axis=1, keepdims=True)
    for bits in (8, 4, 2):
        step = (high - low) / (2**bits - 1)
        error = np.abs(np.rint((quantized - low) / step) * step + low - quantized).max()
        (entry,) = [e for e in measured.report["keys_values"] if (e["tensor"], e["layer"], e["bits"]) == ("values", 0, bits)]
        assert entry["measured"] == pytest.approx(error, rel=1e-3) and entry["bound"] == pytest.approx(step.max() / 2, rel=1e-5)


def test_means_of_scales(measured):
    inputs = recorded_inputs(measured.config, measured.tensors, {}, measured.samples)
    entries = [e for e in measured.report["sampling"] if "model.layers.1.mlp.gate_proj" in e["sites"]]
    assert [e["samples"] for e in entries] == [1, 2, 4] and entries[0]["sites"] == ["model.layers.1.mlp.gate_proj", "model.layers.1.mlp.up_proj"]
    rows = np.split(inputs["model.layers.1.mlp.gate_proj"], np.cumsum(LENGTHS)[:-1])
    scales = np.array([np.abs(sample).max() / 127 for sample in rows])
    for entry in entries:
        assert entry["bound"] == pytest.approx(np.ptp(scales) * np.sqrt(np.log(40) / (2 * entry["samples"])), rel=1e-4)
    assert np.isclose(entries[0]["measured"], np.abs(scales - scales.mean()), rtol=1e-3).any()
    assert np.isclose(entries[2]["measured"], np.abs(scales - scales.mean()) / 4, rtol=1e-3).any()  # all but one


def test_smoothing_is_of_quantized_activations_alone(measured):
    points = measured.report["smoothing"]
    if measured.scheme != "W8A8":
        assert points == []
        return
    assert len(points) == 3 * 4  # o_proj folds into v_proj where heads do not share values
    inputs = recorded_inputs(measured.config, measured.tensors, {}, measured.samples)
    (point,) = [p for p in points if "model.layers.2.mlp.up_proj" in p["sites"]]
    a = np.abs(inputs[point["sites"][0]]).max(axis=0)
    w = np.max([np.abs(measured.tensors[site + ".weight"]).max(axis=0) for site in point["sites"]], axis=0).astype(np.float64)

    def error(s):
        return ((w * s).max() / 127 * (a / s).sum() + (a / s).max() / 127 * (w * s).sum()) / 2

    alphas = 0.5 + np.log(w.max() / a.max()) / (2 * np.log(a * w))
    assert point["error_best"] == pytest.approx(error(np.sqrt(a / w)), rel=1e-4)
    assert point["error_plain"] == pytest.approx(error(np.ones_like(a)), rel=1e-4)
    assert point["best_least"] == pytest.approx(alphas.min(), rel=1e-2) and point["best_greatest"] == pytest.approx(alphas.max(), rel=1e-2)
    assert point["error_searched"] == pytest.approx(error(a ** point["searched"] / w ** (1 - point["searched"])), rel=1e-4)
    for p in points:
        assert p["error_best"] <= p["error_searched"] * (1 + 1e-6) and p["error_best"] <= p["error_plain"] * (1 + 1e-6)


def test_the_report_is_the_same_for_any_number_of_threads(made):
    folder, _, _, _, tokens = made
    reports = []
    for threads in (1, 2):
        output = folder / f"threads-{threads}.json"
        assert measure(folder / "model", output, tokens, PLANS["W8A8"], threads=threads).returncode == 0
        reports.append(output.read_bytes())
    assert reports[0] == reports[1]


def test_gpt2_and_inputs_that_some_readers_keep_float(tmp_path):
    write_model(tmp_path / "gpt2", *random_gpt2())
    tokens = write_tokens(tmp_path / "tokens.safetensors", [random_tokens(seed, 40, 101) for seed in range(3)], bos=True)
    result = measure(tmp_path / "gpt2", tmp_path / "gpt2.json", tokens, "equant-absmax{scheme=W8A8}")
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "gpt2.json").read_text())
    assert len(report["outputs"]) == 2 * 4 + 1
    for kind in PAIRS:
        assert all(0 < entry["measured"] <= entry["bound"] * (1 + 1e-4) for entry in report[kind]), kind

    write_model(tmp_path / "llama", *random_llama(3, head_dim=8))
    tokens = write_tokens(tmp_path / "llama.safetensors", [random_tokens(seed, 40, 97) for seed in range(2)])
    for ignored in ("", ' ignore="re:.*gate_proj"', ' ignore="re:.*(gate|up)_proj"'):
        result = measure(tmp_path / "llama", tmp_path / "llama.json", tokens, f"equant-absmax{{scheme=W8A8{ignored}}}", samples=1)
        assert result.returncode == 0, result.stderr
        report = json.loads((tmp_path / "llama.json").read_text())
        assert len(report["weights"]) == 15 - 2 * ignored.count("gate") - 2 * ignored.count("up")
        assert all(layer["measured"] <= layer["bound"] * (1 + 1e-6) for layer in report["layers"])


def test_short_samples_leave_the_cache_out(tmp_path):
    write_model(tmp_path / "llama", *random_llama(3, head_dim=8))
    tokens = write_tokens(tmp_path / "tokens.safetensors", [random_tokens(1, 10, 97)])
    assert measure(tmp_path / "llama", tmp_path / "out.json", tokens, PLANS["W8A8"]).returncode == 0
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["keys_values"] == [] and report["sampling"] == []
    assert report["left_out"] == ["keys and values: samples of 10 tokens fill no group of keys; 20 are needed"]


@pytest.mark.parametrize(("plans", "options", "expected"), [
    ("equant-absmax{scheme=none}", {}, "no site has a plan"),
    ("equant-absmax{scheme=W8A8 activations=static}", {}, "static scales"),
    ("equant-absmax{scheme=FP8_DYNAMIC}", {}, "and not to int8"),
    (PLANS["W8A8"], {"samples": 0}, "at least 1, found 0"),
    (PLANS["W8A8"] + ",equant-quantize", {}, "no site has a plan"),
])
def test_what_cannot_be_measured_is_refused(made, plans, options, expected):
    folder, _, _, _, tokens = made
    assert_refused(measure(folder / "model", folder / "refused.json", tokens, plans, **options), expected)
    assert not (folder / "refused.json").exists()
