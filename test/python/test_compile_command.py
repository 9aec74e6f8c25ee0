# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant compile`: the method that it takes unasked, and what it says of things that may not be meant."""

import pytest

from easyquant.runtime.artifact import Artifact
from easyquant.text import shipped
from command_line import run_command_line as easyquant
from helpers import random_llama, write_letters, write_model


@pytest.fixture(scope="module")
def model(workspace):
    return write_letters(write_model(workspace / "compile-command", *random_llama(seed=7, context=96)))


def compiled(model, out, *options):
    done = easyquant("compile", model, "-o", out, *options)
    assert done.returncode == 0, done.stderr
    return Artifact.open(out).manifest["quantization"], [line for line in done.stderr.splitlines() if line.startswith("note: ")]


def test_nobody_needs_a_text_for_smoothquant(model, tmp_path):
    quantization, (note,) = compiled(model, tmp_path / "out")
    assert (quantization["scheme"], quantization["method"]) == ("W8A8", "smoothquant")
    assert "32 x 96 tokens of chapters 1 to 8 of Jane Austen's Persuasion" in note and "--calib FILE" in note and "--method absmax" in note
    quantization, notes = compiled(model, tmp_path / "same", "--method=smoothquant", f"--calib={shipped.FILE}", "--nsamples=32", "--seqlen=96")
    assert notes == [] and (tmp_path / "same" / "weights.safetensors").read_bytes() == (tmp_path / "out" / "weights.safetensors").read_bytes()


def test_a_text_of_ones_own(model, tmp_path):
    text = tmp_path / "text"
    text.write_text("abcdefghij" * 100)
    quantization, notes = compiled(model, tmp_path / "out", f"--calib={text}", "--nsamples=4", "--seqlen=32")
    assert quantization["method"] == "smoothquant" and notes == []


@pytest.mark.parametrize("options, method", [
    (("--method=absmax",), "absmax"), (("--scheme=W8A16",), "absmax"), (("--scheme=none",), None), (("--activations=static", "--calib=TEXT", "--nsamples=4", "--seqlen=32"), "absmax"),
])  # fmt: skip
def test_others_stay_as_they_are(model, tmp_path, options, method):
    (tmp_path / "text").write_text("abcdefghij" * 100)
    quantization, _ = compiled(model, tmp_path / "out", *(option.replace("TEXT", str(tmp_path / "text")) for option in options))
    assert quantization["method"] == method or method is None and quantization["scheme"] == "none"


def test_the_text_is_in_the_package():
    text = shipped.FILE.read_text(encoding="ascii")
    assert text.startswith("Chapter 1\n\nSir Walter Elliot") and 100_000 < len(text) < 200_000


def test_targets_that_are_what_to_compile_for(model, tmp_path):
    for name in ("cpu", "sm_80,cpu"):
        done = easyquant("compile", model, "-o", tmp_path / "out", "--targets", name)
        assert done.returncode == 1 and done.stderr == f"error: --targets {name}: names sites to quantize; did you mean --target {name}?\n"


def test_a_folder_that_is_made_on_the_way(model, tmp_path):
    out = tmp_path / "new" / "folder" / "out"
    _, notes = compiled(model, out, "--scheme=none")
    assert notes == [f"note: {out.parent}: was missing and has been made"]
    assert compiled(model, out, "--scheme=none", "--force")[1] == []
