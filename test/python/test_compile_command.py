# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant compile`: what it does unasked, and what it says of things that may not be meant."""

import pytest

from easyquant.runtime.artifact import Artifact
from command_line import run_command_line as easyquant
from helpers import random_llama, write_letters, write_model


@pytest.fixture(scope="module")
def model(workspace):
    return write_letters(write_model(workspace / "compile-command", *random_llama(seed=7, context=96)))


def compiled(model, out, *options):
    done = easyquant("compile", model, "-o", out, *options)
    assert done.returncode == 0, done.stderr
    return Artifact.open(out).manifest["quantization"], [line for line in done.stderr.splitlines() if line.startswith("note: ")]


def test_the_default_needs_no_text(model, tmp_path):
    quantization, _ = compiled(model, tmp_path / "out")
    assert (quantization["scheme"], quantization["method"], quantization["activation_basis"]) == ("W8A8", "absmax", "hadamard")


def test_targets_that_are_what_to_compile_for(model, tmp_path):
    for name in ("cpu", "sm_80,cpu"):
        done = easyquant("compile", model, "-o", tmp_path / "out", "--targets", name)
        assert done.returncode == 1 and done.stderr == f"error: --targets {name}: names sites to quantize; did you mean --target {name}?\n"


def test_a_folder_that_is_made_on_the_way(model, tmp_path):
    out = tmp_path / "new" / "folder" / "out"
    _, notes = compiled(model, out, "--scheme=none")
    assert notes == [f"note: {out.parent}: was missing and has been made"]
    assert compiled(model, out, "--scheme=none", "--force")[1] == []
