# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Servers under crowds that misbehave, by the scripts that do it for longer; benchmarks/serving.py says what they ask of a server."""

import ast
import subprocess
import sys

import pytest

from helpers import REPO, random_llama, write_letters, write_model


@pytest.fixture(scope="module")
def folder(artifact, workspace):
    model = write_letters(write_model(workspace / "soaked", *random_llama(seed=11, context=4096)))
    return artifact(model, "--scheme=W8A8", *(f"--copy-file={model / name}" for name in ("tokenizer.json", "tokenizer_config.json")))


def serving(mode, folder, *options):
    """What the script has counted."""
    done = subprocess.run([sys.executable, REPO / "benchmarks" / "serving.py", mode, folder, "--threads=1", *options], capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stdout + done.stderr
    counts = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert counts["wrong"] == "[]", counts
    return counts


def test_a_minute(folder):
    """64 clients that pause between requests, so that other tests go on beside it; fewer sequences and pages than they ask for."""
    counts = serving("soak", folder, "--seconds=60", "--clients=64", "--pause=12", "--requests=20", "--sequences=8", "--options=--cache-tokens=12288")
    assert all(int(counts[name]) > 0 for name in ("whole", "left", "garbage")), counts


def test_a_server_that_is_sent_nonsense(folder):
    counts = serving("fuzz", folder, "--bodies=300", "--clients=4")
    assert int(counts["bodies"]) == 300 and {200, 400} <= set(ast.literal_eval(counts["statuses"]))
