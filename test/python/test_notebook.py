# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The notebook of docs/ shows what its cells put out."""

import json
import os
import subprocess
import sys

from helpers import REPO, supported_isas

SCRIPT, NOTEBOOK = REPO / "scripts" / "run_notebook.py", REPO / "docs" / "notebooks" / "model.ipynb"


def run(notebook, folder, *options, **environment):
    command = [sys.executable, str(SCRIPT), str(notebook), *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | environment)


def test_outputs_are_those_of_its_cells(smollm2_gguf, tmp_path):
    cache = tmp_path / ".cache" / "easyquant"
    cache.mkdir(parents=True)
    (cache / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(smollm2_gguf)
    done = run(NOTEBOOK, tmp_path, HOME=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_differs_is_shown_and_can_be_written(tmp_path):
    def cell(source, *tags):
        return {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {"tags": list(tags)}, "outputs": [], "source": [source]}

    cells = [cell("x = 6"), cell("print(x)\nx * 7"), cell("!echo {x + 1} '!'"), cell("id(x)", "varies")]
    file = tmp_path / "notebook.ipynb"
    notebook = {"cells": cells, "metadata": {"instruction_set": "mmx"}, "nbformat": 4, "nbformat_minor": 5}
    file.write_text(json.dumps(notebook))
    assert run(file, tmp_path).returncode == 0 and "a CPU with mmx" in run(file, tmp_path).stdout
    notebook["metadata"]["instruction_set"] = supported_isas()[-1]
    file.write_text(json.dumps(notebook))
    assert run(file, tmp_path).returncode == 1 and "+42" in run(file, tmp_path).stdout
    assert run(file, tmp_path, "--write").returncode == 0 and run(file, tmp_path).returncode == 0
    notebook = json.loads(file.read_text())
    written = notebook["cells"]
    assert [output["output_type"] for output in written[1]["outputs"]] == ["stream", "execute_result"]
    assert written[2]["outputs"][0]["text"] == ["7 !\n"] and [entry["execution_count"] for entry in written] == [1, 2, 3, 4]
    written[2]["source"] = ["!exit 3"]
    file.write_text(json.dumps(notebook))
    assert "status 3 of !exit 3" in run(file, tmp_path).stderr
