# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statistics of calibration text by expert, and what GPTQ and ranges by mean squares make of them: against the oracle in double precision, against
dense models that have one expert in place of all, and for experts that few rows chose or none."""

import json
import re

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from calibrating import ALL, calibrate, write_tokens
from easyquant.compiler.options import CompileOptions
from easyquant.compiler.plans import expert_bytes, plans_of
from helpers import assert_refused, compile_model, folder_contents, random_llama, random_qwen35, random_tokens, run_tool, write_model
from oracles.experts import rows_of_experts
from oracles.llama import Llama
from oracles.qwen35 import Qwen35
from planning import dequantized, plan, planned_module, run_pass
from test_gptq import brain_quantizer

SIZES = {"hidden": 64, "heads": 4, "kv_heads": 2, "tied": False}
MODELS = {
    "qwen3_moe": {"arch": "qwen3_moe", "head_dim": 16, **SIZES},
    "qwen3_moe, one of eight": {"arch": "qwen3_moe", "num_experts_per_tok": 1, "norm_topk_prob": False, **SIZES},
    "qwen2_moe": {"arch": "qwen2_moe", **SIZES},
    "mixtral": {"arch": "mixtral", **SIZES},
    "gpt_oss": {"arch": "gpt_oss", "head_dim": 16, **SIZES},
    "qwen3_5_moe": {"hidden": 40, "experts": 5},
}
GATE, UP, DOWN = (f"model.layers.0.mlp.experts.{part}_proj" for part in ("gate", "up", "down"))
SAMPLES = [random_tokens(seed, length, 97) for seed, length in ((1, 64), (2, 40), (3, 96), (4, 57))]


def model_of(name):
    return random_qwen35(17, **MODELS[name]) if name == "qwen3_5_moe" else random_llama(17, **MODELS[name])


def rows_of(config, tensors, samples, skip=0):
    """By the model in double precision; its experts are made when it is, or when it runs."""
    oracle = {}

    def run(sample):
        if not oracle:
            oracle["model"] = (Qwen35 if "qwen3_5" in config["model_type"] else Llama)(config, tensors, dtype=np.float64)
        oracle["model"].logits(sample)

    return rows_of_experts(run, samples, skip)


def near(found, expected, what):
    assert np.linalg.norm(found - expected) <= 1e-4 * np.linalg.norm(expected), what


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_statistics_are_those_of_the_rows_of_each_expert(tmp_path, name, bos):
    """In chunks of 16 tokens, which do not divide the samples."""
    config, tensors = model_of(name)
    model, tokens = write_model(tmp_path / "model", config, tensors), write_tokens(tmp_path / "tokens", SAMPLES, bos)
    found = load_file(calibrate(model, tmp_path / "run", tokens, ALL, layer_rows=16))
    expected = rows_of(config, tensors, SAMPLES, int(bos))
    assert {key.split("/")[0] for key in found if ".experts." in key} == set(expected)
    for site, experts in expected.items():
        count, columns = len(experts), experts[0].shape[1]
        assert np.array_equal(found[f"{site}/tokens"], [len(rows) for rows in experts])
        assert found[f"{site}/hessian"].shape == (count, columns, columns) and found[f"{site}/moments"].shape == (count, 2, columns)
        assert f"{site}/sinks" not in found and found[f"{site}/inliers"].shape == (count, 2, columns)
        for expert, x in enumerate(experts):
            if not len(x):
                assert not any(found[f"{site}/{part}"][expert].any() for part in ("absmax", "mean_abs", "hessian", "histogram"))
                continue
            near(found[f"{site}/absmax"][expert], np.abs(x).max(0, initial=0), site)
            near(found[f"{site}/mean_abs"][expert], np.abs(x).mean(0), site)
            near(found[f"{site}/minmax"][expert], [x.min(0), x.max(0)], site)
            near(found[f"{site}/moments"][expert], [x.mean(0), x.var(0)], site)
            near(found[f"{site}/hessian"][expert], 2 / len(x) * x.T @ x, site)
            assert found[f"{site}/histogram"][expert].sum() == x.size
            near(found[f"{site}/histogram_range"][expert], [x.min(), x.max()], site)
    # All tokens of the layer have chosen so many experts, and the others are observed as ever.
    chosen = config["num_experts_per_tok"] * (sum(map(len, SAMPLES)) - bos * len(SAMPLES))
    assert all(found[f"{site}/tokens"].sum() == chosen for site in expected)
    assert found["model.layers.1.self_attn.q_proj/tokens" if name != "qwen3_5_moe" else "model.layers.2.self_attn.q_proj/tokens"].shape == (1,)


def test_threads_and_journals_change_no_bit_of_statistics(tmp_path):
    model, tokens = write_model(tmp_path / "model", *model_of("qwen3_moe")), write_tokens(tmp_path / "tokens", SAMPLES)
    one = calibrate(model, tmp_path / "one", tokens, threads=1).read_bytes()
    assert calibrate(model, tmp_path / "three", tokens, threads=3).read_bytes() == one


def test_statistics_of_another_number_of_experts_are_refused(tmp_path):
    model, tokens = write_model(tmp_path / "model", *model_of("qwen3_moe")), write_tokens(tmp_path / "tokens", SAMPLES)
    path = calibrate(model, tmp_path / "run", tokens, "absmax")

    def attach(file):
        return run_tool("easyquant-compile", model, f"--pipeline=equant-attach-calibration{{statistics={file}}}")

    assert attach(path).returncode == 0
    with safe_open(path, "np") as file:
        metadata = {key: value for key, value in file.metadata().items() if key != "xxh3_128"}
    kept = load_file(path)
    save_file(kept | {f"{UP}/tokens": kept[f"{UP}/tokens"][:4]}, tmp_path / "few", metadata=metadata)
    assert_refused(attach(tmp_path / "few"), f'"{UP}/tokens"', "expected I64 [8], found I64 [4]", "another number of experts")


# ------------------------------------------------------------------------------------------------------- one expert is a linear


def all_of_them(arch="qwen3_moe"):
    """A model of one layer all of whose experts compute every token."""
    return random_llama(5, arch=arch, head_dim=16, layers=1, experts=3, num_experts_per_tok=3, **SIZES)


def dense(config, tensors, expert):
    """The model with an MLP that is one of the experts."""
    at = f".mlp.experts.{expert}."
    kept = {name.replace(at, ".mlp."): tensor for name, tensor in tensors.items() if at in name or ".mlp." not in name}
    fields = {key: value for key, value in config.items() if "expert" not in key and "moe" not in key and key != "norm_topk_prob"}
    return fields | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "intermediate_size": config["moe_intermediate_size"]}, kept


def run_method(model, work, method, tokens, rule="absmax", sites="mlp", options="", weight="<i4, symmetric, group = 16>"):
    """The file of the first layer, and what the run said."""
    work.mkdir(exist_ok=True)
    text = planned_module(model, work, lambda site: plan(["gptq"] if method == "gptq" else [], weight, rule)
                          if re.search(rf"\.{sites}\.", site) and not site.endswith("mlp.gate") else None)
    result = run_pass(text, f"--equant-{method}=tokens={tokens} {options}")
    assert result.returncode == 0, result.stderr
    return load_file(work / f"{method}_0.safetensors"), result


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("method, rule, weight", [
    ("gptq", "absmax", "<i4, symmetric, group = 16>"), ("gptq", "hessian_diagonal", "<i3, asymmetric, group = 16>"), ("gptq", "absmax", "<i4, symmetric, channel>"),
    ("choose-ranges", "hessian_diagonal", "<i4, symmetric, group = 16>"), ("choose-ranges", "hessian_diagonal", "<i3, asymmetric, group = 16>"),
])
def test_an_expert_is_rounded_as_the_same_linear(tmp_path, method, rule, weight, bos):
    """To the bit: experts that all tokens chose read what an MLP in their place reads."""
    config, tensors = all_of_them()
    tokens = write_tokens(tmp_path / "tokens", SAMPLES, bos)
    found, result = run_method(write_model(tmp_path / "model", config, tensors), tmp_path / "work", method, tokens, rule, weight=weight)
    assert "filled up" not in result.stderr
    for expert in range(3):
        plain, _ = run_method(write_model(tmp_path / f"dense{expert}", *dense(config, tensors, expert)), tmp_path / f"work{expert}", method, tokens, rule, weight=weight)
        for name, values in plain.items():
            stack = np.split(found[name.replace(".mlp.", ".mlp.experts.")], 3)
            assert np.array_equal(stack[expert], values), name
    assert np.array_equal(found[f"{DOWN}.expert_rows"], [sum(map(len, SAMPLES)) - bos * len(SAMPLES)] * 3)


# ------------------------------------------------------------------------------------------------------------ few rows, or none


def rigged(layers=1):
    """Five experts, of which half of the tokens choose the first two and half the next two, and none the last."""
    config, tensors = random_llama(5, arch="qwen3_moe", head_dim=16, layers=layers, experts=5, num_experts_per_tok=2, **SIZES)
    for layer in range(layers):
        way = tensors[f"model.layers.{layer}.mlp.gate.weight"][0]
        tensors[f"model.layers.{layer}.mlp.gate.weight"] = np.stack([way, 2 * way, -way, -2 * way, 0 * way])
    return config, tensors


def filled(own, columns, other):
    """The Hessian of an expert of these rows."""
    rows = len(own)
    hessian = 2 / rows * own.T @ own if rows else np.zeros((columns, columns))
    if rows >= columns:
        return hessian
    if other is None:
        other = (np.trace(hessian) / columns if rows else 1) * np.eye(columns)
    return rows / columns * hessian + (1 - rows / columns) * other


@pytest.mark.parametrize("lengths", [(64, 96), (20, 31), (9,)])
@pytest.mark.parametrize("bos", [False, True])
def test_gptq_fills_up_hessians_of_few_rows(tmp_path, lengths, bos):
    """As good as the plain solver by the Hessian that the page says; attention stays float."""
    config, tensors = rigged()
    samples = [random_tokens(seed, length, 97) for seed, length in enumerate(lengths)]
    tokens = write_tokens(tmp_path / "tokens", samples, bos)
    work = tmp_path / "work"
    found, result = run_method(write_model(tmp_path / "model", config, tensors), work, "gptq", tokens, sites="experts")
    weights = {site: np.split(dequantized(work, "gptq_0.safetensors", site, 16), 5) for site in (GATE, UP, DOWN)}
    rounded = tensors | {f"{site.replace('experts.', f'experts.{expert}.')}.weight": weights[site][expert].astype(np.float32)
                         for site in (GATE, UP) for expert in range(5)}
    rows = rows_of(config, rounded, samples, int(bos))
    counts = [len(x) for x in rows[UP]]
    assert counts[4] == 0 and (min(counts[:4]) > 0 or len(lengths) == 1)
    all_rows = np.concatenate([rows[UP][0], rows[UP][2]])  # every token chose one of these
    pooled = 2 / len(all_rows) * all_rows.T @ all_rows
    for site, other in ((GATE, pooled), (UP, pooled), (DOWN, None)):
        assert np.array_equal(found[f"{site}.expert_rows"], counts)
        for expert, own in enumerate(rows[site]):
            columns = own.shape[1]
            hessian = filled(own, columns, other)
            damped = hessian + 0.01 * np.mean(np.diag(hessian)) * np.eye(columns)
            weight = tensors[f"{site.replace('experts.', f'experts.{expert}.')}.weight"].astype(np.float64)

            def loss(values):
                return np.trace((weight - values) @ damped @ (weight - values).T)

            assert loss(weights[site][expert]) == pytest.approx(loss(brain_quantizer(weight, damped, act_order=True)), rel=0.01), (site, expert)
    sparse = sum(1 for count in counts if count < 64)
    assert f"gptq: {sparse} of 5 experts of site '{GATE}'" in result.stderr and "filled up" in result.stderr


def test_another_way_to_fill_up_would_be_seen():
    """The comparison above could fail."""
    config, tensors = rigged()
    rows = rows_of(config, tensors, [random_tokens(0, 20, 97), random_tokens(1, 31, 97)])[UP]
    all_rows = np.concatenate([rows[0], rows[2]])
    pooled = 2 / len(all_rows) * all_rows.T @ all_rows
    weight = tensors["model.layers.0.mlp.experts.0.up_proj.weight"].astype(np.float64)
    own, plain = (hessian + 0.01 * np.mean(np.diag(hessian)) * np.eye(64) for hessian in (filled(rows[0], 64, pooled), 2 / len(rows[0]) * rows[0].T @ rows[0]))
    losses = [np.trace((weight - values) @ own @ (weight - values).T) for values in (brain_quantizer(weight, own, True), brain_quantizer(weight, plain, True))]
    assert losses[1] > 1.05 * losses[0]


def test_ranges_of_experts_without_rows(tmp_path):
    """gate and up have those by what all tokens are, down has them from its weights alone, whatever the text."""
    config, tensors = rigged()
    model = write_model(tmp_path / "model", config, tensors)
    found, other = (run_method(model, tmp_path / f"work{seed}", "choose-ranges", write_tokens(tmp_path / f"tokens{seed}", [random_tokens(seed, 96, 97)] * 4),
                               "hessian_diagonal") for seed in (1, 2))
    assert "of 5 experts" in found[1].stderr
    plain, _ = run_method(write_model(tmp_path / "dense", *dense(config, tensors, 4)), tmp_path / "plain", "choose-ranges", tmp_path / "tokens1", "hessian_diagonal")
    for part in ("gate", "up"):
        name = f"model.layers.0.mlp.{part}_proj.weight_scale"
        expected, scales = plain[name], np.split(found[0][name.replace(".mlp.", ".mlp.experts.")], 5)[4]
        assert np.mean(np.isclose(scales, expected, rtol=1e-6)) > 0.99
    name = f"{DOWN}.weight_scale"
    assert np.array_equal(*(np.split(run[0][name], 5)[4] for run in (found, other)))
    assert not np.array_equal(*(np.split(run[0][name], 5)[0] for run in (found, other)))
    assert found[0][f"{DOWN}.expert_rows"][4] == 0 and found[0][f"{DOWN}.expert_rows"].sum() == 2 * 4 * 96


@pytest.mark.parametrize("method, rule", [("gptq", "absmax"), ("choose-ranges", "hessian_diagonal")])
def test_threads_and_runs_that_were_ended_change_no_bit(tmp_path, method, rule):
    model, tokens = write_model(tmp_path / "model", *rigged(layers=2)), write_tokens(tmp_path / "tokens", SAMPLES)
    _, one = run_method(model, tmp_path / "one", method, tokens, rule, options="threads=1")
    _, three = run_method(model, tmp_path / "three", method, tokens, rule, options="threads=3")
    files = folder_contents(tmp_path / "one")
    assert files == folder_contents(tmp_path / "three") and len(files) >= 2
    # The second layer again, and what is said of experts as in a whole run.
    (tmp_path / "three" / f"{method}_1.safetensors").unlink()
    _, again = run_method(model, tmp_path / "three", method, tokens, rule, options="threads=2")
    assert folder_contents(tmp_path / "three") == files
    notes = [[line for line in run.stderr.splitlines() if "remark:" in line] for run in (one, three, again)]
    assert notes[0] == notes[1] == notes[2] and len(notes[0]) == 1 and "filled up" in notes[0][0]


@pytest.mark.parametrize("scheme", ["W4A16", "W4A8"])
@pytest.mark.parametrize("options, method, enough", [(["--method=gptq"], "gptq", 64), (["--weight-observer=hessian-diagonal"], "hessian-diagonal", 128)])
def test_the_manifest_names_experts_that_few_rows_chose(tmp_path, scheme, options, method, enough):
    """In the rotated basis, too, where all experts read the same columns as before."""
    model, tokens = write_model(tmp_path / "model", *rigged(layers=2)), write_tokens(tmp_path / "tokens", SAMPLES)
    out = compile_model(model, tmp_path / "out", f"--scheme={scheme}", "--group-size=32", "--isa=avx2", *options, f"--tokens={tokens}")
    transforms = json.loads((out / "manifest.json").read_text())["quantization"]["transforms"]
    entries = {entry["sites"][0]: entry for entry in transforms if entry["method"] == method}
    assert set(entries) == {f"model.layers.{layer}.mlp.experts.{part}_proj" for layer in (0, 1) for part in ("gate", "up", "down")}
    for site, entry in entries.items():
        assert 4 in entry["experts"] and entry["expert_count"] == len(entry["experts"])
        needed = 32 if method == "gptq" and "down" in site else enough
        assert f"fewer than {needed} rows" in entry["skipped"]
        assert ("as if all columns were alike" if "down" in site else "those of the rows of all experts") in entry["skipped"]


def test_a_plan_counts_the_rows_that_gptq_keeps(tmp_path):
    """Rows of tokens once, whatever chose them, and what experts made a row for each choice."""
    model = write_model(tmp_path / "model", *model_of("qwen3_moe"))
    plans = plans_of(model, CompileOptions(method="gptq", scheme="W4A16", group_size=32))
    assert {site["name"]: site["input_rows"] for site in plans.sites if "layers.0" in site["name"] and "experts" in site} == {GATE: 1, UP: 1, DOWN: 2}
    assert expert_bytes(plans, 1000) == 4 * 1000 * 64
    assert expert_bytes(plans_of(model, CompileOptions(scheme="W4A16", group_size=32)), 1000) == 0
