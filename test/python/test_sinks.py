# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens that leave a static or online range have scales of their own, by default or by `--sinks keep`."""

import json

import numpy as np
import pytest

from calibrating import write_tokens
from helpers import ISA, Runner, assert_refused, compile_model, random_tokens, run_tool


@pytest.fixture(scope="module")
def made(tiny_llama, tmp_path_factory):
    """Artifacts by their options, calibrated on one token over and over: most others leave its ranges."""
    folder = tmp_path_factory.mktemp("sinks")
    file = write_tokens(folder / "tokens.safetensors", [[7] * 40] * 2)
    known = {}

    def get(*options):
        if options not in known:
            known[options] = compile_model(tiny_llama, folder / str(len(known)), *options, f"--tokens={file}", ISA)
        return known[options]

    return get


STATIC = ("--activations=static",)
KEEP = (*STATIC, "--sinks=keep")
NONE = "--sinks=none"


@pytest.mark.parametrize("scheme, activations", [("W8A8", "static"), ("W8A8_ASYM", "static"), ("W4A8", "static"), ("W8A8", "online-window")])
def test_tokens_out_of_range_are_as_good_as_dynamic_ones(made, scheme, activations):
    """Online scales are tested in the first step, whose scales are those of calibration."""
    tokens = random_tokens(3, 30, 97)
    given = (f"--activations={activations}",)
    dynamic, clamped, keep = (Runner(made(f"--scheme={scheme}", *options)).score(tokens) for options in ((), (*given, NONE), given))
    off, kept = np.abs(clamped - dynamic).max(), np.abs(keep - dynamic).max()
    assert kept < 0.2 * off, (kept, off)


@pytest.mark.parametrize("options", [KEEP, (*KEEP, "--method=smoothquant"), (*KEEP, "--observer=absmax", "--method=symmetric")])
def test_bits_do_not_depend_on_how_a_text_is_cut(made, options):
    tokens = np.asarray(random_tokens(4, 24, 97), np.int32)
    out = made("--scheme=W8A8", *options)
    whole = Runner(out).score(tokens)[-1]
    session = Runner(out).session
    session.prefill(tokens[:9])
    session.prefill(tokens[9:20])
    for token in tokens[20:]:
        session.decode(int(token))
    assert np.array_equal(np.asarray(session.logits), whole)


def test_the_manifest_says_so(made):
    out = made("--scheme=W8A8", *KEEP)
    manifest = json.loads((out / "manifest.json").read_text())
    kinds = {site["name"]: site["input"].get("sinks") for site in manifest["sites"]}
    assert kinds.pop("lm_head") is None and set(kinds.values()) == {"keep"}
    assert json.loads((out / "recipe.json").read_text())["sinks"] == "keep"
    online = made("--scheme=W8A8", "--activations=online-window", "--sinks=keep")
    inputs = [site["input"] for site in json.loads((online / "manifest.json").read_text())["sites"]]
    assert any(scheme.get("online") and scheme.get("sinks") == "keep" for scheme in inputs)
    assert json.loads((online / "recipe.json").read_text())["sinks"] == "keep"
    none = made("--scheme=W8A8", *STATIC, NONE)
    assert "sinks" not in (none / "manifest.json").read_text().replace('"sinks": "none"', "") and json.loads((none / "recipe.json").read_text())["sinks"] == "none"


SINKS_BY_DEFAULT = {
    "static": (STATIC, "keep"), "online": (("--activations=online-ema",), "keep"), "absmax": ((*STATIC, "--observer=absmax"), "keep"),
    "observed as a whole": ((*STATIC, "--observer=mse"), None), "dynamic": ((), None), "asymmetric": ((*STATIC, "--scheme=W8A8_ASYM"), "keep"),
    "FP8": (("--scheme=FP8",), None), "mix": (("--scheme=Q4", "--method=zeropoint", *STATIC), "keep"),
}  # fmt: skip


@pytest.mark.parametrize("name", SINKS_BY_DEFAULT)
def test_defaults(made, name):
    """Wherever they can be kept apart; and the recipe does the same again."""
    options, expected = SINKS_BY_DEFAULT[name]
    out = made(*(() if any("--scheme" in option for option in options) else ("--scheme=W8A8",)), *options)
    sites = json.loads((out / "manifest.json").read_text())["sites"]
    assert {site["input"].get("sinks") for site in sites if "layers.0" in site["name"]} == {expected}
    assert json.loads((out / "recipe.json").read_text()).get("sinks") == expected
    again = made(f"--recipe={out / 'recipe.json'}")
    assert (out / "weights.safetensors").read_bytes() == (again / "weights.safetensors").read_bytes()
    assert (out / "manifest.json").read_bytes() == (again / "manifest.json").read_bytes()


def test_rules_and_observers_of_a_recipe(made, tmp_path):
    """A rule has the default of its own observer, and one on the command line counts for all that have none."""
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"scheme": "W8A8", "activations": "static", "sites": [
        {"match": "re:.*up_proj", "observer": "entropy"}, {"match": "re:.*q_proj", "observer": "absmax"}, {"match": "re:.*k_proj", "sinks": "none"}]}))

    def kinds(*options):
        sites = json.loads((made(f"--recipe={recipe}", *options) / "manifest.json").read_text())["sites"]
        return {site["name"].rpartition(".")[2]: site["input"].get("sinks") for site in sites if "layers.0" in site["name"]}

    keep = {"q_proj": "keep", "k_proj": None, "v_proj": "keep", "o_proj": "keep", "gate_proj": "keep", "up_proj": None, "down_proj": "keep"}
    assert kinds() == keep
    assert kinds("--observer=mse") == keep | {"v_proj": None, "o_proj": None, "gate_proj": None, "down_proj": None}


@pytest.mark.parametrize("arguments, words", [
    (("--sinks=keep", "--activations=static", "--observer=mse"), "sinks keep goes with observer minmax or absmax"),
    (("--sinks=keep", "--activations=online-ema", "--observer=mse"), "sinks keep goes with observer minmax or absmax"),
    (("--sinks=drop",), "unknown sinks 'drop'; legal are none and keep"),
])  # fmt: skip
def test_what_cannot_be_is_told_before_the_model_is_read(arguments, words):
    assert_refused(run_tool("easyquant-compile", "nowhere", "-o", "out", *arguments), words)


def test_dynamic_activations_have_no_range_to_leave(tiny_llama, tmp_path):
    done = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", "--sinks=keep")
    assert_refused(done, "sinks keep belongs to static or online activations of int8, found dynamic ones")
