#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies what runs on a GPU into a folder, for a machine without EasyQuant: `runtime`, easyquant-run; `python`, for `easyquant eval` and
`bench`, the Python package, this interpreter and the packages that are imported; and the libraries of each. Used by gpu_all.sh --prepare.

    .venv/bin/python benchmarks/gpu_bundle.py runtime|python FOLDER
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("EASYQUANT_BUILD", REPO / "build"))
OF_THE_SYSTEM = re.compile(r"(libc|libm|libdl|librt|libpthread|libutil|libgcc_s|libstdc\+\+|ld-linux.*)\.so")
# With the modules of the standard library that would bring large libraries along, for windows, terminals, databases and encryption.
NOT_CARRIED = shutil.ignore_patterns("__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo",
                                     "ensurepip", "lib2to3", "pydoc_data", "config-*", "*.a", "*.pyc", "_tkinter.*.so", "_curses*.so", "readline.*.so",
                                     "_sqlite3.*.so", "_dbm.*.so", "_gdbm.*.so", "nis.*.so", "_ssl.*.so", "_hashlib.*.so", "_crypt.*.so", "_test*.so")


def libraries_of(path):
    """Shared libraries that it is linked with, but for those that every machine with a C++ program has."""
    text = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    found = re.findall(r"^\s*(\S+) => (/\S+)", text, re.M)
    return {name: Path(place) for name, place in found if not OF_THE_SYSTEM.match(name)}


def copy_libraries(of, folder):
    for path in of:
        for name, place in libraries_of(path).items():
            if not (folder / name).exists():
                shutil.copyfile(place.resolve(), folder / name)


def distributions():
    """The distributions of the packages that the commands need, and of the packages that these need."""
    found, wanted = {}, ["jinja2", "numpy", "pyyaml", "rich", "safetensors", "tokenizers", "typer"]
    while wanted:
        name = wanted.pop()
        # tokenizers asks it for downloads alone.
        if name in found or name == "huggingface-hub":
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform or another Python
        for requirement in found[name].requires or ():
            if "extra ==" not in requirement:
                wanted.append(re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-").replace(".", "-"))
    return found.values()


def copy_packages(folder):
    for distribution in distributions():
        for file in distribution.files:
            if file.suffix != ".pyc" and not {"..", "tests"} & set(file.parts):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), folder / file)


def need(what, found):
    if not found or not found.exists():
        sys.exit(f"error: {what} is missing; build first (scripts/setup.sh)")


def copy_runtime(out):
    """Returns the programs and libraries whose own libraries are needed too."""
    tool = BUILD / "bin" / "easyquant-run"
    need(tool, tool)
    (out / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(tool, out / "bin")
    return [tool]


def copy_python(out):
    """Likewise."""
    extension = next((REPO / "python" / "easyquant" / "runtime").glob("_runtime*.so"), None)
    need("python/easyquant/runtime/_runtime*.so", extension)
    for folder in ("packages", "interpreter/bin", "interpreter/lib"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    shutil.copytree(REPO / "python" / "easyquant", out / "python" / "easyquant", ignore=NOT_CARRIED, dirs_exist_ok=True)
    copy_packages(out / "packages")

    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = Path(sys.executable).resolve()
    shutil.copy(interpreter, out / "interpreter" / "bin" / "python3")
    standard = Path(sysconfig.get_paths()["stdlib"])
    shutil.copytree(standard, out / "interpreter" / "lib" / version, ignore=NOT_CARRIED, dirs_exist_ok=True)
    modules = out / "interpreter" / "lib" / version / "lib-dynload"
    return [extension, interpreter, *(standard / "lib-dynload" / path.name for path in modules.glob("*.so"))]


PARTS = {"runtime": copy_runtime, "python": copy_python}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in PARTS:
        sys.exit(__doc__)
    out = Path(sys.argv[2])
    linked = PARTS[sys.argv[1]](out)
    (out / "lib").mkdir(exist_ok=True)
    copy_libraries(linked, out / "lib")
    if stripper := shutil.which("strip"):
        shared = [path for folder in ("bin", "lib", "python", "interpreter") for path in (out / folder).rglob("*") if ".so" in path.name or path.parent.name == "bin"]
        subprocess.run([stripper, "--strip-debug", *(path for path in shared if path.is_file())], check=True)


if __name__ == "__main__":
    main()
