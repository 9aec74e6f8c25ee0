# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`compile` without a method says which one would do better, with a command that works."""

import shlex

import pytest

from easyquant.runtime.artifact import Artifact
from command_line import run_command_line as easyquant


def notes(done) -> list[str]:
    """The advice among the notes."""
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("note: ") and "keeps more" in line]


def test_the_command_works_as_it_stands(stories, tmp_path):
    text = tmp_path / "text"
    text.write_text("Once upon a time there was a little girl. " * 200)
    out = tmp_path / "an artifact"
    (line,) = notes(easyquant("compile", stories, "-o", out, "--scheme", "W4A16", "--group-size", "32", "--force"))
    assert line.startswith("note: awq+signround keeps more of the model at W4A16: easyquant compile ")
    words = shlex.split(line.partition("W4A16: ")[2].replace("FILE", shlex.quote(str(text))))
    assert words[0] == "easyquant" and "--group-size=32" in words and "--force" not in words
    assert not notes(easyquant(*words[1:], "--nsamples", "4", "--seqlen", "32"))
    quantization = Artifact.open(f"{out}-awq+signround").manifest["quantization"]
    assert quantization["method"] == "awq+signround" and quantization["scheme"].startswith("W4A16")


@pytest.mark.parametrize("options", [("--scheme", "none"), ("--scheme", "W8A16"), ("--scheme", "W8A8", "--method", "absmax"), ("--recipe",)])
def test_quiet_where_nothing_is_better_or_a_method_was_named(tiny_llama, tmp_path, options):
    if options == ("--recipe",):
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text("scheme: W8A8\n")
        options = ("--recipe", recipe)
    assert notes(easyquant("compile", tiny_llama, "-o", tmp_path / "out", *options)) == []


def test_what_a_text_gives_is_advised(tiny_llama, tmp_path):
    (line,) = notes(easyquant("compile", tiny_llama, "-o", tmp_path / "out"))
    assert "--scheme W8A8 --method smoothquant --calib FILE" in line
