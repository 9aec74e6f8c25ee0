# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Threads are bounded by the CPUs at hand, wherever they can be asked for."""

import os

import pytest

from command_line import run_command_line
from easyquant import _runtime
from helpers import ISA, assert_refused, compile_model, run_tool

MOST = 8 * len(os.sched_getaffinity(0))


def test_the_bound():
    assert _runtime.max_threads() == MOST


@pytest.mark.parametrize("command", [
    ("run", "OUT", "--prompt=a"), ("eval", "OUT", "--text=FILE"), ("bench", "OUT"), ("compile", "MODEL", "-o", "OUT"),
    ("calibrate", "MODEL", "--calib=FILE", "-o", "OUT"), ("compare", "MODEL", "--text=FILE", "-o", "OUT"), ("demo", "-o", "OUT"),
])  # fmt: skip
def test_commands(command):
    refused = run_command_line(*command, f"--threads={MOST + 1}")
    assert refused.returncode != 0 and "Traceback" not in refused.stderr
    assert f"found {MOST + 1}, expected 1 to {MOST}" in " ".join(refused.stderr.replace("│", " ").split())


def test_tools(tiny_llama, tmp_path):
    words = f"threads: found {MOST + 1}, expected 1..{MOST} (8 for each CPU"
    assert_refused(run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", "--scheme=W8A8", f"--threads={MOST + 1}"), words)
    assert not (tmp_path / "out").exists()
    assert compile_model(tiny_llama, tmp_path / "out", "--scheme=none", ISA, f"--threads={MOST}").exists()
    refused = run_tool("easyquant-run", tmp_path / "out", "--tokens=1", f"--threads={MOST + 1}")
    assert_refused(refused, words)
