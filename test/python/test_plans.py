# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant compile --dry-run` and `easyquant recipe check`: what they foretell, against what comes of it."""

import json
import re
from collections import defaultdict

import numpy as np
import pytest
from safetensors import safe_open

from command_line import run_command_line as easyquant
from easyquant.compiler.calibration import CalibrationText
from easyquant.compiler.options import CompileOptions
from easyquant.compiler.plans import forwards, plans_of, prediction
from easyquant.support.errors import UserError
from easyquant.terminal import console
from helpers import assert_refused, random_llama, run_tool, write_model

PANEL = 32  # rows of a weight that are packed together


def panels(rows):
    return -(-rows // PANEL)


def tensor_bytes(file):
    with safe_open(file, "np") as tensors:
        bits = {"U8": 8, "I32": 32, "F16": 16, "F32": 32}
        total = 0
        for name in tensors.keys():
            part = tensors.get_slice(name)
            elements = 1
            for length in part.get_shape():
                elements *= length
            total += elements * bits[part.get_dtype()] // 8
        return total


@pytest.fixture(scope="module")
def long(workspace):
    """A model with a site that sums more products of eight bits than an int32 holds."""
    return write_model(workspace / "long", *random_llama(hidden=8, ffn=70000, layers=1, heads=1, vocab=16))


@pytest.mark.parametrize("scheme, method", [("W4A16", "absmax"), ("W8A8_ASYM", "zeropoint")])
def test_bytes_are_those_of_the_artifact(tiny_llama, artifact, scheme, method):
    plans = plans_of(tiny_llama, CompileOptions(scheme=scheme, method=method))
    folder = artifact(tiny_llama, f"--scheme={scheme}", f"--method={method}", "--isa=avx2")
    made = {site["name"]: site for site in json.loads((folder / "manifest.json").read_text())["sites"]}
    assert [site["name"] for site in plans.sites] == list(made)
    # The manifest counts the rows that a site has, the prediction the panels that they fill: the rest of the last one is zeros.
    for site in plans.sites:
        rows = site["out_features"]
        assert site["bytes"] * rows == made[site["name"]]["bytes"] * panels(rows) * PANEL, site["name"]
        for operand in ("weight", "input"):  # the manifest says no more of either than applies to it
            assert (site[operand] or {}).items() >= (made[site["name"]][operand] or {}).items(), site["name"]
            assert (site[operand] is None) == (made[site["name"]][operand] is None), site["name"]
    # q, k and v, and gate and up, are one weight each in the artifact and share its last panel. Nothing else differs: norms and
    # the table of rotations are the other bytes, and the embedding is the head's weight.
    together = defaultdict(list)
    for site in plans.sites:
        together[made[site["name"]]["tensor"]].append(site)
    assert len(together) == 9
    shared = sum(sites[0]["bytes"] // panels(sites[0]["out_features"])
                 * (sum(panels(site["out_features"]) for site in sites) - panels(sum(site["out_features"] for site in sites)))
                 for sites in together.values())
    assert shared > 0, "the model's weights fill their panels: the test shows less than it says"
    file = folder / "weights.safetensors"
    assert plans.weight_bytes - plans.header_bytes - shared == tensor_bytes(file)
    assert file.stat().st_size <= plans.weight_bytes - shared, "the header is counted, too"


def test_an_embedding_of_its_own_is_counted_in_its_type(artifact, tmp_path):
    """From weights, and from a config.json alone, which names their type."""
    config, tensors = random_llama(3, tied=False, heads=4, kv_heads=2)
    model = write_model(tmp_path / "model", config | {"torch_dtype": "float16"}, {name: weight.astype(np.float16) for name, weight in tensors.items()})
    options = CompileOptions(scheme="none")
    plans, alone = plans_of(model, options), plans_of(model / "config.json", options)
    table = tensors["model.embed_tokens.weight"]
    assert plans.weight_bytes - plans.header_bytes == tensor_bytes(artifact(model, "--scheme=none", "--isa=avx2") / "weights.safetensors")
    assert alone.weight_bytes == plans.weight_bytes and alone.gathered_bytes == plans.gathered_bytes
    (model / "config.json").write_text(json.dumps(config))
    assert plans_of(model / "config.json", options).weight_bytes == plans.weight_bytes + 2 * table.size


def test_a_dry_run_shows_sites_and_writes_nothing(tiny_llama, tmp_path):
    done = easyquant("compile", tiny_llama, "-o", tmp_path / "out", "--dry-run", "--method", "awq", "--scheme", "W4A16",
                     "--group-size", "16", "--ignore", "model.layers.1.mlp.up_proj")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "int4/group 16, f16 + zero points" in lines["model.layers.*.mlp.gate_proj"] and "awq" in lines["model.layers.*.mlp.gate_proj"]
    assert "int8/channel + zero points" in lines["lm_head"] and "awq" not in lines["lm_head"]
    assert sum(line.strip().startswith("model.layers.*.mlp.up_proj") for line in done.stdout.splitlines()) == 2, "one of two is float"
    plans = plans_of(tiny_llama, CompileOptions(scheme="W4A16", method="awq", group_size=16, ignore=["model.layers.1.mlp.up_proj"]))
    assert console.human_bytes(plans.weight_bytes) in lines["weights"]
    assert "memory" in lines and "time" in lines
    assert not list(tmp_path.iterdir())


def test_prediction_knows_how_long_awq_searches_and_lkd_learns():
    assert forwards("equant-awq", 64, 1024, CompileOptions()) == forwards("equant-awq", 64, 1024, CompileOptions(search_samples=4)) == 1 / 4 + 21 * 4 / 64 / 2
    assert forwards("equant-awq", 64, 1024, CompileOptions(search_samples=128)) == 1 + 21 / 2, "no more samples than there are"
    assert forwards("equant-choose-ranges", 64, 1024, CompileOptions()) == 1 / 4 and forwards("equant-choose-ranges", 8, 1024, CompileOptions()) == 1
    assert forwards("equant-lkd", 64, 1024, CompileOptions(epochs=8)) == 2 * forwards("equant-lkd", 64, 1024, CompileOptions())
    learned = forwards("equant-signround", 8, 1024, CompileOptions())
    assert 0 < learned <= 15 and forwards("equant-signround", 64, 1024, CompileOptions(steps=400)) == learned / 4, "steps are of as many tokens whatever the text"


def test_prediction_knows_what_methods_hold(tiny_llama):
    """Methods and more tokens cost memory; round to nearest reads no text."""
    plain_options, gptq_options = (CompileOptions(scheme="W4A16", method=method) for method in ("absmax", "gptq"))
    plain, gptq = plans_of(tiny_llama, plain_options), plans_of(tiny_llama, gptq_options)
    assert plain.methods == [] and gptq.methods == ["gptq"] and plain.weight_bytes == gptq.weight_bytes
    assert prediction(plain, plain_options).weight_bytes == prediction(gptq, gptq_options).weight_bytes
    assert prediction(plain, plain_options).memory_bytes < prediction(gptq, gptq_options).memory_bytes
    # Every float of the largest layer, its table of rotations included.
    _, tensors = random_llama()
    layer = sum(weight.size for name, weight in tensors.items() if name.startswith("model.layers.0."))
    assert layer <= gptq.layer_floats <= layer + 96 * 8


def test_a_dry_run_with_text_plans_what_compile_would_do(tiny_llama, tmp_path):
    """Nobody reads the text: what the compiler takes by default where there is one is its own to say."""
    plain = plans_of(tiny_llama, CompileOptions(scheme="Q4"))
    options = CompileOptions(scheme="Q4", calibration=CalibrationText(tmp_path / "nowhere", 8, 1024))
    plans = plans_of(tiny_llama, options)
    assert plain.text_passes == [] and plans.text_passes == ["equant-awq", "equant-choose-ranges", "equant-signround"]
    assert plans.methods == ["awq", "signround"] and plans.recipe["weight_observer"] == "hessian-diagonal"
    shown = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", "--scheme=Q4", "--tokens=nowhere", "--dump-pipeline").stdout
    assert [name for name in re.findall(r"[(,]((?:equant|lm)-[a-z-]+)", shown) if name in plans.passes] == plans.passes
    assert prediction(plans, options).memory_bytes > prediction(plain, options).memory_bytes


@pytest.mark.parametrize("option, message", [
    ("--method=gtpq", "unknown method 'gtpq'"), ("--alpha=7", "alpha '7': expected a number from 0 to 1, or search"), ("--targets=cpu", "did you mean --target cpu?"),
])  # fmt: skip
def test_options_are_checked_before_the_text_is_read(tiny_llama, tmp_path, option, message):
    assert_refused(easyquant("compile", tiny_llama, "-o", tmp_path / "out", option, "--calib", tmp_path / "nowhere"), message)


def test_who_lacks_text_is_told_the_option_that_gives_it(tiny_llama, tmp_path):
    done = easyquant("compile", tiny_llama, "-o", tmp_path / "out", "--method", "gptq")
    assert_refused(done, "method gptq needs calibration text: give --calib FILE")
    assert "--tokens" not in done.stderr[done.stderr.index("error: ") :]
    assert_refused(run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", "--method=gptq"), "give --tokens FILE")


def test_sites_that_stay_float_are_listed(long, tmp_path):
    reason = "stays float: model.layers.0.mlp.down_proj sums 70000 products"
    done = easyquant("compile", long, "--dry-run", "--scheme", "W8A8")
    assert done.returncode == 0 and reason in done.stdout

    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("scheme: W8A8\n")
    refused = easyquant("recipe", "check", recipe, long)
    assert refused.returncode == 1 and reason in refused.stdout
    assert_refused(refused, "recipe.yaml: 1 sites cannot be quantized as asked", "--max-fallback")
    allowed = easyquant("recipe", "check", recipe, long, "--max-fallback", 1)
    assert allowed.returncode == 0 and reason in allowed.stdout and "quantizes 7 of 8 sites" in " ".join(allowed.stdout.split())
    recipe.write_text("scheme: W8A8\nsites: [{match: 're:down_proj$', scheme: W8A16}]\n")
    mended = easyquant("recipe", "check", recipe, long)
    assert mended.returncode == 0 and "stays float" not in mended.stdout and "quantizes 8 of 8 sites" in " ".join(mended.stdout.split())


def test_a_model_that_is_none_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere: there is no such file or folder"):
        plans_of(tmp_path / "nowhere", CompileOptions(scheme="W8A8"))


@pytest.mark.parametrize("scheme, group", [("W4A16", "8"), ("W4A8", "16"), ("T4A16", "8")])
def test_a_dry_run_refuses_what_compiling_refuses(tiny_llama, tmp_path, scheme, group):
    """In the same words, before anything is computed."""
    options = ("--scheme", scheme, "--group-size", group)
    foretold = easyquant("compile", tiny_llama, "--dry-run", *options, "--target", "sm_90a")
    refused = easyquant("compile", tiny_llama, "-o", tmp_path / "out", *options, "--target", "sm_90a")
    assert_refused(foretold, "model.layers.0.self_attn.q_proj", f"groups of {group}", "compile it with --target cpu")
    assert refused.returncode == 1 and refused.stderr.endswith(foretold.stderr)
    assert not (tmp_path / "out").exists()
    assert easyquant("compile", tiny_llama, "--dry-run", *options).returncode == 0


def test_a_dry_run_counts_the_files_of_all_targets(tiny_llama):
    def bytes_for(target):
        plans = plans_of(tiny_llama, CompileOptions(scheme="W8A8", target=target))
        return sum(site["bytes"] for site in plans.sites), plans.other_bytes

    cpu, gpu, both = (bytes_for(target) for target in ("cpu", "sm_80", "sm_90a,cpu,sm_80"))
    assert both == tuple(map(sum, zip(cpu, gpu))) and min(*cpu, *gpu) > 0
