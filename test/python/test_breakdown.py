# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`bench --breakdown` on a CPU: seconds by phase and site that add up to the run."""

import json

import numpy as np
import pytest

from command_line import run_command_line
from helpers import random_tokens

PREFILL, DECODE = 96, 16
LAYERS = 5  # of stories260K
PHASES = {"load", "quantize", "gemm", "attention", "comm", "sync", "other"}
FIGURES = {"launches", "bytes", "instructions", "seconds"}


def bench(out, file, *options):
    result = run_command_line(
        "bench", out, "--device=cpu", "--threads=1", f"--prefill={PREFILL}", f"--decode={DECODE}", "--repeats=1", f"--json={file}", *options
    )
    assert result.returncode == 0, result.stderr
    return json.loads(file.read_text()), result.stdout


@pytest.fixture(scope="module")
def measured(artifact, stories, tmp_path_factory):
    file = tmp_path_factory.mktemp("breakdown") / "bench.json"
    report, text = bench(artifact(stories, "--scheme=W8A8"), file, "--breakdown")
    return report["breakdown"], text


@pytest.mark.parametrize(("part", "steps"), [("prefill", 1), ("decode", DECODE)])
def test_phases_add_up_to_the_run(measured, part, steps):
    breakdown, _ = measured
    costs, wall = breakdown[part], breakdown["wall_seconds"][part]
    assert set(costs) == PHASES
    assert all(set(cost) == FIGURES and cost["bytes"] == cost["instructions"] == 0 for cost in costs.values())
    for phase in ("load", "comm", "sync"):
        assert costs[phase]["launches"] == 0 and costs[phase]["seconds"] == 0
    # Two norms, the activation and what attention gives become codes, in the end the last norm; q, k and v are one linear, as are gate and
    # up; attention turns q and k. In the last layer, the rows whose logits are asked for are gathered of attention and of the residual stream. The row of the embedding, which is the head's table, is rotated back.
    launches = {phase: costs[phase]["launches"] / steps for phase in ("quantize", "gemm", "attention", "other")}
    assert launches == {"quantize": 4 * LAYERS + 1, "gemm": 4 * LAYERS + 1, "attention": LAYERS, "other": 4}
    assert all(costs[phase]["seconds"] > 0 for phase in launches)
    assert sum(cost["seconds"] for cost in costs.values()) <= wall


def test_most_of_a_run_is_in_its_phases(artifact, stories, tmp_path):
    """What is outside is Python and the checks of the runtime. Another process may take the CPU just there, so one run of five will do."""

    def share():
        breakdown = bench(artifact(stories, "--scheme=W8A8"), tmp_path / "bench.json", "--breakdown")[0]["breakdown"]
        return min(sum(cost["seconds"] for cost in breakdown[part].values()) / breakdown["wall_seconds"][part] for part in ("prefill", "decode"))

    assert any(share() > 0.5 for _ in range(5))


@pytest.mark.parametrize("part", ["prefill", "decode"])
def test_sites_add_up_to_the_phases(measured, part):
    breakdown, _ = measured
    sites, costs = breakdown["sites"][part], breakdown[part]
    assert len({(cost["site"], cost["phase"]) for cost in sites}) == len(sites)
    for phase in PHASES:
        own = [cost for cost in sites if cost["phase"] == phase]
        assert sum(cost["launches"] for cost in own) == costs[phase]["launches"]
        assert sum(cost["seconds"] for cost in own) == pytest.approx(costs[phase]["seconds"])
    layers = [f"model.layers.{index}." for index in range(LAYERS)]
    linears = ("self_attn.q_proj+k_proj+v_proj", "self_attn.o_proj", "mlp.gate_proj+up_proj", "mlp.down_proj")
    expected = [layer + linear for layer in layers for linear in linears] + ["lm_head"]
    assert [cost["site"] for cost in sites if cost["phase"] == "gemm"] == expected
    # The rows whose logits are asked for are gathered for the head.
    assert [cost["site"] for cost in sites if cost["phase"] == "other"] == ["model.embed_tokens", "lm_head"]


def test_what_people_see(measured):
    _, text = measured
    for part in (f"prefill of {PREFILL}", f"decode of {DECODE}", "outside kernels", "model.layers.*.mlp.down_proj", "lm_head", "quantize: kernels that make codes"):
        assert part in text
    assert "model.layers.0." not in text and "bytes" not in text


def test_codes_of_the_cache_count_as_attention(artifact, stories, tmp_path):
    report, _ = bench(artifact(stories, "--scheme=W4A16", "--group-size=32", "--kv-scheme=int8"), tmp_path / "bench.json", "--breakdown")
    for part in ("prefill", "decode"):
        costs = report["breakdown"][part]
        assert costs["quantize"]["launches"] == 0 and costs["attention"]["seconds"] > 0


def test_only_when_asked_for(artifact, stories, tmp_path):
    report, text = bench(artifact(stories, "--scheme=W8A8"), tmp_path / "bench.json")
    assert "breakdown" not in report and "outside kernels" not in text


def test_measuring_changes_no_bit(artifact, stories):
    from easyquant import _runtime

    model = _runtime.Model(str(artifact(stories, "--scheme=W8A8")), device="cpu")
    tokens = np.array(random_tokens(1, 40, 512), np.int32)
    plain, measuring = (_runtime.Session(model, context=64, threads=2, measure=measure) for measure in (False, True))
    assert np.array_equal(plain.score(tokens), measuring.score(tokens))
    assert measuring.breakdown()["gemm"]["launches"] == 4 * LAYERS + 1
    for read in (plain.breakdown, plain.breakdown_sites):
        with pytest.raises(_runtime.Error, match="was not created to measure") as error:
            read()
        assert error.value.code == "INVALID_ARGUMENT"
