# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A calibration that is killed, given bad input, or asked for again; and how much memory it takes."""

import json
import signal
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibrating import calibrate, pipeline, write_tokens
from easyquant.compiler.driver import wait_and_watch
from helpers import assert_refused, random_llama, run_tool, tool, write_model


# A layer has more lines of progress than fit into the pipe that they are read from one by one, so that a run waits in it.
SAMPLES, PIPE = 160, 4096


@pytest.fixture
def deep(tmp_path):
    """A model of 12 layers, and tokens."""
    config, tensors = random_llama(seed=4, layers=12)
    tokens = np.random.default_rng(3).integers(0, config["vocab_size"], (SAMPLES, 16))
    return write_model(tmp_path / "deep", config, tensors), write_tokens(tmp_path / "tokens", tokens)


def test_any_number_of_threads_gives_the_same_bytes(deep, tmp_path):
    model, tokens = deep
    one = calibrate(model, tmp_path / "one", tokens, threads=1).read_bytes()
    assert one == calibrate(model, tmp_path / "three", tokens, threads=3).read_bytes()


@pytest.mark.parametrize("step", [1, 7, 12])
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(deep, tmp_path, step):
    model, tokens = deep
    expected = calibrate(model, tmp_path / "whole", tokens).read_bytes()
    folder = tmp_path / "killed"
    folder.mkdir()
    command = [tool("easyquant-compile"), model, f"--pipeline={pipeline(folder, tokens)}", "--progress=json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, bufsize=0, pipesize=PIPE) as process:
        for line in iter(process.stderr.readline, b""):
            assert len(line) * (SAMPLES - 8) > PIPE, line
            if json.loads(line)["done"] >= step * SAMPLES + 3:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert (folder / "work" / f"step_{step - 1}.safetensors").is_file()
    assert not (folder / "statistics.safetensors").exists()
    result = run_tool("easyquant-compile", model, f"--pipeline={pipeline(folder, tokens)}", "--progress=json")
    assert result.returncode == 0, result.stderr
    first = next(json.loads(line) for line in result.stderr.splitlines() if '"calibrate"' in line)
    assert first["done"] == step * SAMPLES  # nothing that was finished is done again
    assert (folder / "statistics.safetensors").read_bytes() == expected
    assert not list((folder / "work").iterdir())


def test_a_journal_of_other_tokens_is_none(deep, tmp_path):
    model, tokens = deep
    expected = calibrate(model, tmp_path / "run", tokens).read_bytes()
    other = write_tokens(tmp_path / "others", load_file(tokens)["tokens"][:, ::-1])
    assert calibrate(model, tmp_path / "run", other).read_bytes() != expected
    assert calibrate(model, tmp_path / "run", tokens).read_bytes() == expected
    written = (tmp_path / "run/statistics.safetensors").stat().st_mtime_ns
    assert calibrate(model, tmp_path / "run", tokens).stat().st_mtime_ns == written, "what is there is not computed again"


def refused(model, tmp_path, tokens, *expected, **options):
    (tmp_path / "run").mkdir(exist_ok=True)
    assert_refused(run_tool("easyquant-compile", model, f"--pipeline={pipeline(tmp_path / 'run', tokens, **options)}"), *expected)
    assert not (tmp_path / "run" / "statistics.safetensors").exists()


def test_bad_tokens_are_refused(tiny_llama, tmp_path):
    vocabulary = json.loads((tiny_llama / "config.json").read_text())["vocab_size"]
    good = write_tokens(tmp_path / "good", [[1, 2, 3]])
    refused(tiny_llama, tmp_path, write_tokens(tmp_path / "big", [[1, vocabulary]]), "sample 0, token 1", str(vocabulary))
    refused(tiny_llama, tmp_path, good, "1 samples of up to 3 tokens", "64 x 3", samples=64, length=3)
    refused(tiny_llama, tmp_path, tmp_path / "none", "none")
    refused(tiny_llama, tmp_path, write_tokens(tmp_path / "long", [[1] * 100000]), "the model's context")


def test_an_activation_that_overflows_is_named(tmp_path):
    config, tensors = random_llama(seed=11)
    tensors["model.layers.1.mlp.up_proj.weight"] = tensors["model.layers.1.mlp.up_proj.weight"] * np.float32(3e38)
    model = write_model(tmp_path / "model", config, tensors)
    refused(model, tmp_path, write_tokens(tmp_path / "tokens", [[1, 2, 3]]), "model.layers.1.mlp.down_proj", "expected a finite number")


def test_memory_grows_with_the_largest_layer_not_with_depth(tmp_path):
    """Twenty more layers of 4.7 MB, and no more than half of them can be seen in the peak."""
    peaks = {}
    tokens = write_tokens(tmp_path / "tokens", np.random.default_rng(3).integers(0, 97, (8, 64)))
    for layers in (4, 24):
        model = write_model(tmp_path / f"model-{layers}", *random_llama(seed=4, layers=layers, hidden=320, ffn=800, heads=5, kv_heads=5))
        (tmp_path / f"run-{layers}").mkdir()
        command = [tool("easyquant-compile"), model, f"--pipeline={pipeline(tmp_path / f'run-{layers}', tokens, 'absmax')}"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        _, peaks[layers], _ = wait_and_watch(process)
        assert process.returncode == 0
    assert peaks[24] - peaks[4] < 10 * 4 * (4 * 320 * 320 + 3 * 800 * 320), peaks
