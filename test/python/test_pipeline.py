# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The driver holds no algorithm: the commands that it prints make the artifact that it makes."""

import json
import os
import subprocess
import sys

import pytest

from helpers import ALL_ISAS, BUILD, ISA, compile_model, folder_contents, run_tool

SCHEMES = [("--scheme=W8A8", "--ignore=re:layers\\.0{1,2}\\.(mlp|x)\\..*", "--weight-observer=percentile", "--weight-percentile=99.1234567891", ISA),
           ("--scheme=W4A16", "--group-size=32", "--kv-cache=f32", ISA), ("--scheme=none", ALL_ISAS)]


def run_in_shell(command):
    environment = os.environ | {"PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-euo", "pipefail", "-c", command], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("options", SCHEMES)
def test_dumped_pipeline_makes_the_same_artifact(artifact, tiny_llama, tmp_path, options):
    out = tmp_path / "with a space"
    printed = run_tool("easyquant-compile", tiny_llama, "-o", out, *options, "--dump-pipeline")
    assert printed.returncode == 0, printed.stderr
    assert "easyquant-opt" in printed.stdout
    assert list(tmp_path.iterdir()) == [], "printing writes nothing"
    result = run_in_shell(printed.stdout)
    assert result.returncode == 0, result.stderr
    theirs, ours = folder_contents(out), folder_contents(artifact(tiny_llama, *options))
    assert theirs.keys() == ours.keys()
    for name in ours:
        assert theirs[name] == ours[name], f"{name} differs"


def test_dumped_pipeline_of_the_command_line(tiny_llama, tmp_path):
    command = [sys.executable, "-m", "easyquant", "compile", str(tiny_llama), "-o", str(tmp_path / "out"), "--scheme", "W8A8",
               "--dump-pipeline"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert run_in_shell(result.stdout).returncode == 0
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["quantization"]["scheme"] == "W8A8"


def test_numbers_reach_the_passes_with_all_digits(tiny_llama, tmp_path):
    (tmp_path / "tokens").touch()
    printed = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", "--scheme=W4A16", "--method=smoothquant+gptq", "--alpha=0.725",
                       "--damping=0.001", f"--tokens={tmp_path / 'tokens'}", "--dump-pipeline")
    assert printed.returncode == 0, printed.stderr
    assert "alpha=0.725" in printed.stdout and "damping=0.001" in printed.stdout


@pytest.mark.parametrize("phase, word", [
    ("import", "lm.linear"), ("quantize", "equant.linear"), ("materialize", "equant.offset"), ("kernels", "func.func private")])
def test_ir_after_a_phase_is_valid(tiny_llama, tmp_path, phase, word):
    """What is printed can be read back and holds the phase's own operations."""
    printed = run_tool("easyquant-compile", tiny_llama, "--scheme=W8A8", f"--emit-ir-after={phase}", cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert word in printed.stdout
    again = run_tool("easyquant-opt", "-", input=printed.stdout)
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip() == printed.stdout.strip()
    assert list(tmp_path.iterdir()) == []


def test_unknown_phase(tiny_llama):
    result = run_tool("easyquant-compile", tiny_llama, "--emit-ir-after=lunch")
    assert result.returncode == 1
    for word in ("lunch", "import", "quantize", "materialize", "kernels"):
        assert word in result.stderr


def test_one_instruction_set_alone(artifact, tiny_llama):
    for isa in ("avx2", "avx512vnni"):
        manifest = json.loads((artifact(tiny_llama, "--scheme=W8A8", f"--isa={isa}") / "manifest.json").read_text())
        assert set(manifest["program"]["entries"]) == {isa}


def test_files_that_go_along(tiny_llama, tmp_path):
    extra = tmp_path / "tokenizer.json"
    extra.write_text("{}")
    out = compile_model(tiny_llama, tmp_path / "out", "--scheme=none", "--isa=avx2", f"--copy-file={extra}")
    assert (out / "tokenizer.json").read_text() == "{}"
    assert json.loads((out / "manifest.json").read_text())["files"]["tokenizer.json"]["bytes"] == 2
