# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which kernels OpenBLAS has: those of its day on CPUs that came later."""

import os
import re
from pathlib import Path

import pytest

from helpers import run_tool


def cores(tool, **variables):
    """What OpenBLAS says each time that it is loaded."""
    env = {key: value for key, value in os.environ.items() if key != "OPENBLAS_CORETYPE"} | {"OPENBLAS_VERBOSE": "2"} | variables
    done = run_tool(tool, "--version", env=env)
    assert done.returncode == 0 and "LLVM" in done.stdout, done.stderr
    return re.findall(r"^Core: (\w+)", done.stderr + done.stdout, re.MULTILINE)


@pytest.mark.skipif(" avx2 " not in Path("/proc/cpuinfo").read_text(), reason="unsupported: this CPU has no AVX2")
@pytest.mark.parametrize("tool", ["easyquant-compile", "easyquant-opt"])
def test_kernels_use_what_the_cpu_has(tool):
    assert cores(tool)[-1] not in ("Prescott", "Core2", "Nehalem", "Barcelona", "Sandybridge")


@pytest.mark.parametrize("tool", ["easyquant-compile", "easyquant-opt"])
def test_what_the_user_asks_for_stays(tool):
    assert cores(tool, OPENBLAS_CORETYPE="Prescott") == ["Prescott"]
