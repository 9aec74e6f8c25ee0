# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant export` and `compile --export`: what they do unasked, and how they explain themselves."""

import json
import re
import subprocess

import numpy as np
import pytest
from oracles import clients
from oracles.checkpoint import read_folder

from command_line import run_command_line as easyquant
from easyquant.compiler.options import choices_of
from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from helpers import BUILD, random_llama, run_tool, write_gguf, write_letters, write_model

FORMATS = ("compressed-tensors", "gptq", "gptq_v2", "awq")


@pytest.fixture(scope="module")
def llama():
    return random_llama(seed=3, hidden=64, ffn=96, heads=4, kv_heads=2, tied=True)


@pytest.fixture(scope="module")
def model(llama, tmp_path_factory):
    folder = write_letters(write_model(tmp_path_factory.mktemp("export") / "model", *llama))
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    return folder


@pytest.fixture(scope="module")
def plain(model, tmp_path_factory):
    """The artifact of what export does by default."""
    out = tmp_path_factory.mktemp("plain") / "artifact"
    options = ("--scheme=W4A16", "--activation-basis=plain", "--head=float", "--group-size=32", "--scale-type=f16")
    done = easyquant("compile", model, "-o", out, *options)
    assert done.returncode == 0, done.stderr
    return Artifact.open(out)


def test_the_formats_are_those_of_the_codecs():
    assert tuple(choices_of("export")) == (*FORMATS, "gguf", "onnx")


@pytest.mark.parametrize("format", FORMATS)
def test_the_defaults_are_what_every_client_takes(model, plain, tmp_path, format):
    done = easyquant("export", model, "--format", format, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"{tmp_path / 'out'}: checkpoint in {format}, [0-9.]+ KB, written in .* of memory\n", done.stdout)
    config, tensors = read_folder(tmp_path / "out")
    for site in plain.manifest["sites"]:
        linear = clients.read_linear(tensors, site["name"], config["quantization_config"])
        assert (linear is None) == (site["weight"] is None)
        if linear is not None:
            np.testing.assert_array_equal(linear.weight, read_site(plain, site["name"]).astype(np.float16))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (model / name).read_bytes()


def test_compile_exports_the_same(model, tmp_path):
    for command in (("export", "--format=gptq"), ("compile", "--export=gptq")):
        assert easyquant(command[0], model, command[1], "-o", tmp_path / command[0]).returncode == 0
    assert (tmp_path / "export" / "model.safetensors").read_bytes() == (tmp_path / "compile" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("format", ["gptq", "compressed-tensors"])
def test_an_artifact_names_the_command_that_makes_its_codes_again(model, plain, tmp_path, format):
    """That command, with the model in its place, writes the bytes that the artifact's options write."""
    done = easyquant("export", plain.path, "--format", format, "-o", tmp_path / "out")
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    message = " ".join(done.stderr.split())
    assert f"{plain.path}: is compiled already, and its codes are packed for kernels; give the model that it came from, model" in message
    command = re.search(r"easyquant (export MODEL --format .*)", message)[1].replace("MODEL", str(model)).split()
    assert easyquant(*command).returncode == 0
    options = ("--scheme=W4A16", "--activation-basis=plain", "--head=float", "--group-size=32", "--scale-type=f16")
    assert easyquant("export", model, "--format", format, *options, "-o", tmp_path / "same").returncode == 0
    files = sorted(file.name for file in (tmp_path / "same").iterdir())
    assert files == sorted(file.name for file in (tmp_path / "out").iterdir())
    for name in files:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "same" / name).read_bytes()
    again = easyquant("compile", plain.path, "-o", tmp_path / "again")
    assert again.returncode == 1 and "easyquant compile MODEL --recipe" in " ".join(again.stderr.split())


def test_a_gguf_file_becomes_a_folder_with_a_tokenizer(llama, tmp_path):
    gguf = write_gguf(tmp_path / "model.gguf", *llama)
    out = tmp_path / "out"
    result = run_tool("easyquant-compile", gguf, "--export=gptq", "-o", out)
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "folder"
    assert run_tool("easyquant-compile", write_model(tmp_path / "model", *llama), "--export=gptq", "-o", folder).returncode == 0
    assert (out / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_dry_run_predicts_the_bytes(model, tmp_path):
    for format in FORMATS:
        out = tmp_path / format
        plans = json.loads(run_tool("easyquant-compile", model, f"--export={format}", "--dry-run").stdout)
        assert run_tool("easyquant-compile", model, f"--export={format}", "-o", out).returncode == 0
        stored = sum(value.nbytes for value in read_folder(out)[1].values())
        assert plans["other_bytes"] + sum(site["bytes"] for site in plans["sites"]) == stored
        assert plans["passes"][-1] == "equant-quantize"
    done = easyquant("export", model, "--format=awq", "--dry-run")
    assert done.returncode == 0 and "int4/group 32, f16" in done.stdout and "KV cache" not in done.stdout, done.stderr


def test_the_pipeline_is_what_easyquant_opt_runs(model, tmp_path):
    printed = run_tool("easyquant-compile", model, "--export=gptq", "-o", tmp_path / "piped", "--dump-pipeline").stdout
    assert "equant-export-checkpoint{" in printed and "equant-fuse-shared-input" not in printed
    done = subprocess.run(["bash", "-o", "pipefail", "-c", printed], env={"PATH": f"{BUILD / 'bin'}:/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert run_tool("easyquant-compile", model, "--export=gptq", "-o", tmp_path / "out").returncode == 0
    assert (tmp_path / "piped" / "model.safetensors").read_bytes() == (tmp_path / "out" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("arguments, message", [
    (("--format=tflite",), "--format tflite: expected one of compressed-tensors, gptq, gptq_v2, awq, gguf, onnx"),
    ((), "--format FORMAT is missing"),
    (("--format=gptq", "--target=cpu"), "unknown option --target"),
])  # fmt: skip
def test_the_command_line_explains_itself(model, tmp_path, arguments, message):
    done = easyquant("export", model, "-o", tmp_path / "out", *arguments)
    assert done.returncode == 1 and message in done.stderr


def test_the_help_says_what_is_taken_by_default():
    page = " ".join(easyquant("export", "--help", COLUMNS="100").stdout.split())
    assert "--format FORMAT" in page and "One of compressed-tensors, gptq, gptq_v2, awq, gguf, onnx. (required)" in page
    assert "Q3, Q4, Q5, Q6. (default: W4A16, for gguf Q4_0)" in page and "(default: float, for gguf Q8_0)" in page and "plain, hadamard. (default: plain)" in page
    assert "--kv-scheme" not in page and "--target " not in page
