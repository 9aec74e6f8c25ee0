# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python distribution has a name of its own: `easyquant` on PyPI is somebody else's."""

import importlib.metadata
import re
import subprocess
import tomllib

from easyquant import __version__
from helpers import REPO

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]


def test_distribution_package_and_command():
    installed = importlib.metadata.distribution(PROJECT["name"])
    assert PROJECT["name"] == "easyquant-compiler" and installed.version == __version__
    assert [(entry.name, entry.value) for entry in installed.entry_points] == [("easyquant", "easyquant.__main__:main")]
    assert "gpu" in PROJECT["optional-dependencies"]


def test_no_text_asks_to_install_the_strangers_package():
    found = subprocess.run(["git", "-C", REPO, "grep", "-nIE", r"pip3? install[^|;]*\beasyquant\b|easyquant\[", "--", ".", f":!{__file__}"], capture_output=True, text=True)
    assert found.returncode == 1, found.stdout + found.stderr


def test_what_texts_say_of_the_gpu_assembler_works():
    """`pip install '.[gpu]'` in a checkout, which is what scripts/setup.sh does."""
    assert re.search(r"pip install .*-e '\.\[[a-z,]*gpu[a-z,]*\]'", (REPO / "scripts/setup.sh").read_text())
    for file in ("docs/guide/run.md", "lib/Target/Assemble.cpp", "benchmarks/gpu_static.py"):
        assert ".[gpu]'" in (REPO / file).read_text(), file
