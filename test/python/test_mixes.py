# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Q3 to Q6: a format for each kind of site, in every architecture and with every method."""

import json

import numpy as np
import pytest

from easyquant.compiler.options import choices_of
from calibrating import write_tokens
from helpers import assert_refused, compile_model, random_gpt2, random_llama, random_tokens, run_tool, sites_of, with_slow, write_model

MIXES = ("Q3", "Q4", "Q5", "Q6")
# Bits by the last part of a site's name: in layers between the ends, and at the ends where they are others.
ATTENTION = {"Q3": (4, 4), "Q4": (5, 5), "Q5": (6, 5), "Q6": (8, 6)}
MLP = {"Q3": ((3, 4), (4, 5)), "Q4": ((4, 5), (5, 6)), "Q5": ((5, 5), (6, 6)), "Q6": ((6, 6), (6, 6))}
HEAD = {"Q3": 4, "Q4": 5, "Q5": 6, "Q6": 6}
KINDS = {
    "q_proj": "in", "k_proj": "in", "v_proj": "in", "c_attn": "in", "o_proj": "out", "attn.c_proj": "out",
    "gate_proj": "up", "up_proj": "up", "c_fc": "up", "down_proj": "down", "mlp.c_proj": "down",
}  # fmt: skip
MODELS = {
    "llama": random_llama(layers=4),
    "untied": random_llama(3, tied=False, heads=4, kv_heads=2),
    "mistral": random_llama(11, arch="mistral", sliding_window=17, heads=4, kv_heads=2),
    "qwen3": random_llama(11, arch="qwen3", head_dim=16, heads=6, kv_heads=2),
    "gpt2": random_gpt2(),
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return write_tokens(tmp_path_factory.mktemp("tokens") / "tokens.safetensors", [random_tokens(seed, 40, 97) for seed in range(4)])


@pytest.fixture(scope="module")
def model(workspace):
    made = {}

    def make(name):
        if name not in made:
            made[name] = write_model(workspace / f"mixes-{name}", *MODELS[name])
        return made[name]

    return make


def expected_bits(mix, site, layers):
    kind = next((kind for part, kind in KINDS.items() if site.endswith(part)), "head")
    if kind == "head":
        return HEAD[mix]
    if kind in ("in", "out"):
        return ATTENTION[mix][kind == "out"]
    number = int(next(part for part in site.split(".") if part.isdigit()))
    return MLP[mix][number in (0, layers - 1)][kind == "down"]


def weights_of(out):
    return (out / "weights.safetensors").read_bytes()


@pytest.mark.parametrize("mix, name", [("Q4", "llama"), ("Q3", "untied"), ("Q4", "qwen3"), ("Q4", "gpt2"), *(
    pytest.param(mix, name, marks=pytest.mark.slow) for mix, name in (("Q3", "llama"), ("Q5", "llama"), ("Q6", "llama"), ("Q4", "untied"), ("Q4", "mistral")))])  # fmt: skip
def test_every_kind_of_site_has_its_format(artifact, model, mix, name):
    """Columns are 40 and 96 or so, which groups of 64 and 128 do not divide: the last group of a row is shorter."""
    out = artifact(model(name), f"--scheme={mix}")
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["quantization"]["scheme"] == mix and manifest["quantization"]["fallbacks"] == []
    sites = sites_of(out)
    assert {site: entry["weight"]["bits"] for site, entry in sites.items()} == {
        site: expected_bits(mix, site, manifest["model"]["num_layers"]) for site in sites}
    assert not any(entry["weight"]["symmetric"] for entry in sites.values())
    inputs = {site: entry["input"] for site, entry in sites.items() if site != "model.embed_tokens"}
    assert all(entry["bits"] == 8 and entry["dynamic"] for entry in inputs.values())
    assert ("model.embed_tokens" in sites) == (name == "untied")

    planned = json.loads(run_tool("easyquant-compile", model(name), f"--scheme={mix}", "--dry-run").stdout)
    assert {site["name"]: site["weight"] for site in planned["sites"]} == {site: entry["weight"] for site, entry in sites.items()}
    again = artifact(model(name), f"--recipe={out / 'recipe.json'}")
    assert weights_of(out) == weights_of(again) and (out / "recipe.json").read_bytes() == (again / "recipe.json").read_bytes()
    rules = json.loads((out / "recipe.json").read_text())["sites"]
    assert all(rule["scheme"] not in MIXES for rule in rules)


@pytest.mark.parametrize("method", with_slow(["absmax", "symmetric", "zeropoint", "zeroquant", "awq", "gptq", "awq+gptq", "signround", "lkd"],
                                             "absmax", "symmetric", "zeropoint", "awq", "gptq", "lkd"))  # fmt: skip
def test_every_method_takes_a_mix(artifact, model, tokens, runner, method):
    options = ("--scheme=Q4", f"--method={method}", f"--tokens={tokens}", "--kv-cache=f32")
    out = artifact(model("untied"), *options)
    sites = sites_of(out)
    assert all(entry["weight"]["symmetric"] == (method in ("absmax", "symmetric", "zeroquant")) for entry in sites.values())
    recipe = json.loads((out / "recipe.json").read_text())
    assert recipe["weight_observer"] == "hessian-diagonal"
    given = random_tokens(9, 60, 97)
    reference = runner(model("untied"), "--scheme=none", "--kv-cache=f32").score(given)
    found = runner(model("untied"), *options).score(given)
    assert np.sqrt(np.mean((found - reference) ** 2) / np.mean(reference**2)) < 0.3


@pytest.mark.parametrize("mix", MIXES)
def test_float_activations_are_asked_for(artifact, model, mix):
    out = artifact(model("untied"), f"--scheme={mix}", "--activations=float")
    layers = json.loads((out / "manifest.json").read_text())["model"]["num_layers"]
    for site, entry in sites_of(out).items():
        assert entry["input"] is None and entry["weight"]["bits"] == expected_bits(mix, site, layers), site
    again = artifact(model("untied"), f"--recipe={out / 'recipe.json'}")
    assert weights_of(out) == weights_of(again)


def test_ranges_are_by_weighted_error_only_where_there_is_text(artifact, model, tokens):
    text = ("--method=zeropoint", f"--tokens={tokens}")
    plain, weighted = (artifact(model("llama"), "--scheme=Q4", *more) for more in ((), text))
    asked = artifact(model("llama"), "--scheme=Q4", *text, "--weight-observer=absmax")
    assert weights_of(plain) == weights_of(asked) != weights_of(weighted)


def test_text_fits_a_mix_by_awq_and_learned_rounding(artifact, model, tokens):
    by_default = artifact(model("llama"), "--scheme=Q4", f"--tokens={tokens}")
    named = artifact(model("llama"), "--scheme=Q4", "--method=awq+signround", f"--tokens={tokens}")
    nearest = artifact(model("llama"), "--scheme=Q4", "--method=zeropoint", f"--tokens={tokens}")
    assert weights_of(by_default) == weights_of(named) != weights_of(nearest)
    assert json.loads((by_default / "recipe.json").read_text())["method"] == "awq+signround"
    assert json.loads((artifact(model("llama"), "--scheme=Q4") / "recipe.json").read_text())["method"] == "zeropoint"


def test_what_is_asked_stands_above_the_mix(artifact, model):
    sites = sites_of(artifact(model("llama"), "--scheme=Q3", "--group-size=16", "--head=int8", "--ignore=re:layers\\.1\\."))
    assert sites["lm_head"]["weight"]["bits"] == 8
    assert sites["model.layers.2.mlp.up_proj"]["weight"] | {"codes": 0, "scale_type": 0} == {
        "bits": 3, "symmetric": False, "granularity": "group", "group_size": 16, "codes": 0, "scale_type": 0}
    assert sites["model.layers.1.mlp.up_proj"]["weight"] is None


@pytest.mark.parametrize("options, words", [
    (["--scheme=Q7"], ["unknown scheme 'Q7'", "Q3"]),
    (["--scheme=W4A16", "--head=Q4"], ["unknown head 'Q4'", "W5A16"]),
    (["--scheme=W8A8", "--activations=float"], ["scheme W8A8 quantizes activations", "W8A16"]),
    (["--scheme=Q4", "--activations=float", "--activation-basis=plan"], ["plain", "hadamard"]),
    (["--scheme=Q4", "--group-size=12"], ["group size must be a positive multiple of 8", "found 12"]),
    (["--scheme=Q4", "--method=zeroquant", "--mixed"], ["give scheme W8A8 or W8A16, found Q4"]),
])  # fmt: skip
def test_what_cannot_be(model, tmp_path, options, words):
    assert_refused(run_tool("easyquant-compile", model("llama"), "-o", tmp_path / "out", *options), *words)
    assert not (tmp_path / "out").exists()


def test_help_names_them():
    assert set(MIXES) <= set(choices_of("scheme"))
