# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Searches in a model of experts: losses of blocks and of whole models against float64 forward passes in which the rounded experts stand."""

import json

import numpy as np
import pytest

from helpers import assert_refused, run_tool
from oracles.llama import Llama
from searching import Searched, rounded

EXPERTS = ("gate_proj", "up_proj", "down_proj")


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    return Searched(tmp_path_factory.mktemp("search-experts"), arch="qwen3_moe", experts=6, expert_ffn=32, norm_topk_prob=True)


@pytest.fixture(scope="module")
def report(searched):
    return searched.search("grid", "avg-bits=6,4.5")


def test_all_linears_of_the_experts_of_a_layer_share_a_format(searched, report):
    kinds = ["self_attn.q_proj+k_proj+v_proj", "self_attn.o_proj", "mlp.experts.gate_proj+up_proj+down_proj"]
    assert [group["kind"] for group in report["groups"]] == 2 * kinds
    single = searched.search("single", "avg-bits=6", "per-site")
    assert len(single["groups"]) == 14 and all(len(group["sites"]) == 1 for group in single["groups"])


def block(searched, tensors):
    """The hidden states of each sample behind the first layer, whose tensors alone may be others."""
    config = searched.config | {"num_hidden_layers": 1}
    model = Llama(config, tensors, dtype=np.float64)
    model.norm = lambda rows: rows
    return [model.hidden(sample) for sample in searched.samples]


@pytest.mark.parametrize("search", ["grid", "single"])
def test_errors_of_the_block_are_those_of_rounded_experts(searched, report, search):
    """The mean over tokens of |h - hhat|^2 / |h|^2, hidden states with the experts rounded and all else in float."""
    found = report if search == "grid" else json.loads((searched.folder / search / "report.json").read_text())
    exact, checked = block(searched, searched.tensors), 0
    for group in found["groups"]:
        if "layers.0.mlp.experts" not in group["sites"][0]:
            continue
        for choice in group["choices"]:
            if "error" not in choice:
                continue
            scheme = {"bits": int(found["formats"][choice["format"]]["scheme"][1]), "group_size": 16}
            tensors = dict(searched.tensors)
            for name in (name for site in group["sites"] for name in searched.tensors_of(site)):
                tensors[name] = rounded(tensors[name], scheme)
            errors = [((a - b) ** 2).sum(axis=1) / (a**2).sum(axis=1) for a, b in zip(exact, block(searched, tensors))]
            assert choice["error"] == pytest.approx(np.concatenate(errors).mean(), rel=2e-3)
            checked += 1
    assert checked >= (4 if search == "grid" else 12)


def test_the_verified_loss_is_that_of_the_recipe(searched, report, tmp_path):
    for point in report["points"]:
        assert point["verified"] == pytest.approx(searched.loss_of(point["recipe"], tmp_path), rel=2e-3)


@pytest.mark.parametrize("plan, formats", [
    ("equant-absmax{scheme=W4A16 group-size=16 methods=gptq}", "W3A16,W4A16"),
    ("equant-absmax{scheme=W4A16 group-size=16 weight-observer=hessian-diagonal}", "W3A16,W8A16"),
    ("equant-absmax{scheme=W4A16 group-size=16}", "T3A16,T4A16"),
    ("equant-absmax{scheme=W4A8 group-size=16}", "W4A8,W8A8"),
])
def test_what_takes_text_elsewhere(searched, tmp_path, plan, formats):
    """Experts are rounded to nearest while formats are compared; what is compiled is rounded as it says."""
    found = searched.search(f"other-{formats}-{len(plan)}", "avg-bits=5.5", plan=plan, formats=formats)
    (point,) = found["points"]
    assert point["verified"] > 0 and all(choice["error"] > 0 for group in found["groups"] for choice in group["choices"] if "error" in choice)
    (tmp_path / "recipe.json").write_text(json.dumps(point["recipe"]))
    text = [f"--tokens={searched.tokens}"] if "gptq" in plan or "hessian" in plan or "T3" in formats else []
    made = run_tool("easyquant-compile", searched.folder / "model", "-o", tmp_path / "out", f"--recipe={tmp_path / 'recipe.json'}", *text)
    assert made.returncode == 0, made.stderr


def test_what_is_not_known_of_experts(searched):
    assert_refused(searched.run("timed", "avg-bits=6 max-decode-ms=1"), "mlp.experts.gate_proj+up_proj+down_proj", "is not measured", "no milliseconds")
    assert_refused(searched.run("by-loss", "avg-bits=6 sensitivity=loss"), "experts")
