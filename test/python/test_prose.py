# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/check_prose.py finds what it is for, in each kind of file and at its line."""

import subprocess
import sys

import pytest
from helpers import REPO

QUOTES = '"' * 3


def check(path):
    return subprocess.run([sys.executable, REPO / "scripts/check_prose.py", path], capture_output=True, text=True)


@pytest.mark.parametrize("name, text, line, finding", [
    ("page.md", "A page.\n\n- Of a kernel\n  over rows.\n", 3, "genitive"),
    ("page.md", "A page;\nof its lines, one.\n", 1, "genitive"),
    ("page.md", "See [there](nowhere.md).\n", 1, "link"),
    ("page.md", "See [there](#nowhere).\n", 1, "link"),
    ("code.h", "int x;\n/// Of a kernel over rows.\nint y; // a row\n", 2, "genitive"),
    ("code.cpp", "int x; // Whoever reads\n       // this, releases it.\n", 1, "headless"),
    ("ops.td", 'def A {\n  let description = [{\n    The the op.\n    Of an op op.\n  }];\n}\n', 4, "repeated"),
    ("module.py", f"def f():\n    {QUOTES}Does it.\n\n    Of two rows the first.{QUOTES}\n", 4, "genitive"),
    ("script.sh", "x=1\n# Free gift.\n", 2, "redundancy"),
])
def test_finds(tmp_path, name, text, line, finding):
    path = tmp_path / name
    path.write_text(text)
    result = check(path)
    assert result.returncode == 1
    assert any(report.startswith(f"{path}:{line}: ") and f": {finding}" in report for report in result.stdout.splitlines()), result.stdout


@pytest.mark.parametrize("name, text", [
    ("page.md", "# A kernel\n\n```\nOf a kernel\n```\n\nSee `Of a` and [above](#a-kernel).\n"),
    ("code.cpp", 'const char *text = "Of a kernel"; // a kernel\n'),
    ("module.py", 'TEXT = "Of a kernel"\n'),
])
def test_lets_pass(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    result = check(path)
    assert result.returncode == 0, result.stdout
