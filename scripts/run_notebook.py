#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the cells of a notebook, in the working directory and without Jupyter.

    scripts/run_notebook.py NOTEBOOK             shows what differs from the outputs that it has; status 1 if something does
    scripts/run_notebook.py NOTEBOOK --write     gives it those of now

Cells may have lines that begin with !, for a shell, in which {name} is a variable. What a cell with the tag "varies" puts out
is not compared: times, sizes, places. Nor is anything where the CPU has other instructions than the one that wrote the outputs,
since the last bits of floats depend on them, and so may a word.
"""

import argparse
import ast
import contextlib
import difflib
import io
import json
import os
import subprocess
import sys
from pathlib import Path


def instruction_set() -> str:
    """For which of those that EasyQuant makes code for this CPU runs it."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next(line for line in file if line.startswith("flags")).split()
    return "avx512vnni" if {"avx512_vnni", "avx512bw"} <= set(flags) else "avx2"


def shell(command: str) -> None:
    # Beside this interpreter is the command that belongs to it.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"PATH": path})
    if done.returncode != 0:
        raise RuntimeError(f"status {done.returncode} of !{command}")
    print(done.stdout, end="")


def run_cell(source: str, names: dict) -> list[dict]:
    """The outputs, as a notebook keeps them: what is printed, and the value of the last line if it is an expression."""
    lines = [f"__shell__(f{line[1:]!r})" if line.startswith("!") else line for line in source.splitlines()]
    tree = ast.parse("\n".join(lines))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        outputs.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return outputs


def text_of(outputs: list[dict]) -> list[str]:
    return "".join(line for output in outputs for line in output.get("text") or output["data"]["text/plain"]).splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--write", action="store_true", help="give the notebook the outputs of now")
    args = parser.parse_args()
    notebook = json.loads(args.notebook.read_text())
    written_on, here = notebook["metadata"].get("instruction_set"), instruction_set()
    names, differs, count = {"__name__": "__main__", "__shell__": shell}, False, 0
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        count += 1
        outputs = run_cell("".join(cell["source"]), names)
        for output in outputs:
            if "execution_count" in output:
                output["execution_count"] = count
        before, after = text_of(cell["outputs"]), text_of(outputs)
        if before != after and written_on == here and "varies" not in cell["metadata"].get("tags", []):
            differs = True
            print(*difflib.unified_diff(before, after, f"cell {number} of {args.notebook}", "now", lineterm=""), sep="\n")
        cell["outputs"], cell["execution_count"] = outputs, count
    if args.write:
        notebook["metadata"]["instruction_set"] = here
        args.notebook.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    elif written_on != here:
        print(f"{args.notebook}: ran; its outputs are those of a CPU with {written_on}, this one has {here}: not compared")
    elif differs:
        sys.exit(1)


if __name__ == "__main__":
    main()
