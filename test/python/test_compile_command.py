# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant compile`: the method that it takes unasked, and what it says of things that may not be meant."""

import gguf
import numpy as np
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
    assert notes == [f"note: {out.parent} is not there and is made"]
    assert compiled(model, out, "--scheme=none", "--force")[1] == []


@pytest.mark.parametrize("kind, words", [
    (gguf.GGMLQuantizationType.BF16, None), (gguf.GGMLQuantizationType.Q8_0, "(Q8_0 × 2), and its values are rounded once more; a float file of the model keeps more of it"),
])  # fmt: skip
def test_a_gguf_that_is_quantized_already(tmp_path, kind, words):
    """The compiler refuses this one; the note comes before it starts."""
    file = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    for name in ("token_embd.weight", "output.weight"):
        writer.add_tensor(name, gguf.quants.quantize(np.ones((4, 32), np.float32), kind), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for scheme in ("W8A16", "none"):
        done = easyquant("compile", file, "-o", tmp_path / "out", "--scheme", scheme)
        noted = f"note: {file} is quantized already " in done.stderr
        assert done.returncode == 1 and noted == (words is not None and scheme != "none") and (not noted or words in done.stderr), done.stderr
