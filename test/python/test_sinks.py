# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`--sinks keep`: tokens that leave a static or online range have scales of their own."""

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


@pytest.mark.parametrize("scheme, activations", [("W8A8", "static"), ("W8A8_ASYM", "static"), ("W4A8", "static"), ("W8A8", "online-window")])
def test_tokens_out_of_range_are_as_good_as_dynamic_ones(made, scheme, activations):
    """Online scales are tested in the first step, whose scales are those of calibration."""
    tokens = random_tokens(3, 30, 97)
    none = (f"--activations={activations}",)
    dynamic, clamped, keep = (Runner(made(f"--scheme={scheme}", *options)).score(tokens) for options in ((), none, (*none, "--sinks=keep")))
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
    plain = made("--scheme=W8A8", *STATIC)
    assert "sinks" not in (plain / "manifest.json").read_text() and "sinks" not in (plain / "recipe.json").read_text()


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
