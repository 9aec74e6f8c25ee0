# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python distribution has a name of its own: `easyquant` on PyPI is somebody else's."""

import importlib.metadata
import re
import subprocess
import tomllib
from typing import get_overloads, get_type_hints

import easyquant
from easyquant import __version__
from helpers import BUILD, REPO

PYPROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def test_distribution_package_and_command():
    installed = importlib.metadata.distribution(PROJECT["name"])
    assert PROJECT["name"] == "easyquant-compiler" and installed.version == __version__
    assert {(entry.group, entry.name, entry.value) for entry in installed.entry_points} == {
        ("console_scripts", "easyquant", "easyquant.__main__:main"),
        ("lm_eval.models", "easyquant", "easyquant.evaluation.lm_eval_model:EasyQuant"),
    }
    assert "gpu" in PROJECT["optional-dependencies"]


def test_type_checkers_read_the_package():
    """What `generate` gives for one prompt and for several; tools look for py.typed."""
    assert (REPO / "python/easyquant/py.typed").exists()
    kinds = {get_type_hints(overload)["return"] for overload in get_overloads(easyquant.Model.generate)}
    assert kinds == {easyquant.Completion, list[easyquant.Completion]}


def test_the_version_stands_in_one_place():
    """Python's __init__.py, which CMake and the backend of pip read."""
    assert PROJECT["dynamic"] == ["version"] and "version" not in PROJECT
    cache = dict(line.rstrip().split("=", 1) for line in (BUILD / "CMakeCache.txt").read_text().splitlines() if re.match(r"\w+:\w+=", line))
    assert cache["CMAKE_PROJECT_VERSION:STATIC"] == __version__
    tracked = subprocess.run(["git", "-C", REPO, "grep", "-lF", f'"{__version__}"', "--", "*.py", "*.toml", "*.txt", "*.cmake", "*.in", "*.cpp", "*.h"], capture_output=True, text=True)
    assert [file for file in tracked.stdout.split() if not file.startswith("test/")] == ["python/easyquant/__init__.py"]


def test_no_text_asks_to_install_the_strangers_package():
    found = subprocess.run(["git", "-C", REPO, "grep", "-nIE", r"pip3? install[^|;]*\beasyquant\b|easyquant\[", "--", ".", f":!{__file__}"], capture_output=True, text=True)
    assert found.returncode == 1, found.stdout + found.stderr


def test_what_texts_say_of_the_gpu_assembler_works():
    """`pip install '.[gpu]'` in a checkout, which is what scripts/setup.sh does."""
    assert re.search(r"pip install .*-e '\.\[[a-z,]*gpu[a-z,]*\]'", (REPO / "scripts/setup.sh").read_text())
    for file in ("docs/guide/run.md", "lib/Emit/Assemble.cpp", "benchmarks/gpu_static.py"):
        assert ".[gpu]'" in (REPO / file).read_text(), file
