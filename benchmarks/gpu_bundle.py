#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies what `easyquant eval` and `bench` and easyquant-run need into a folder, for a machine without EasyQuant: the runtime, the Python
package, this interpreter and the packages that are imported. Used by gpu_all.sh --prepare.

    .venv/bin/python benchmarks/gpu_bundle.py FOLDER
"""

import importlib
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
NOT_CARRIED = shutil.ignore_patterns("__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo",
                                     "ensurepip", "lib2to3", "config-*", "*.a", "*.pyc")


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


def imported_packages():
    """Files and folders of the packages that the commands import."""
    for name in ("cli", "evaluate", "bench", "breakdown", "tokenizer"):
        importlib.import_module(f"easyquant.{name}")
    importlib.import_module("tokenizers")
    site = Path(sysconfig.get_paths()["purelib"])
    names = {name.split(".")[0] for name, module in list(sys.modules.items()) if site in Path(getattr(module, "__file__", None) or "/").parents}
    names |= {"pygments", "markdown_it", "mdurl", "typing_extensions"}  # imported by rich when it has something to show
    for name in sorted(names):
        for path in (site / name, site / f"{name}.py", site / f"{name}.libs"):
            if path.exists():
                yield path


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    tool = BUILD / "bin" / "easyquant-run"
    extension = next((REPO / "python" / "easyquant").glob("_runtime*.so"), None)
    openmp = next((path for path in map(Path, ("/usr/lib/llvm-22/lib/libomp.so.5", "/usr/lib/x86_64-linux-gnu/libomp.so.5")) if path.exists()), None)
    for what, found in ((tool, tool.exists()), ("python/easyquant/_runtime*.so", extension), ("libomp.so.5", openmp)):
        if not found:
            sys.exit(f"error: {what} is missing; build first (scripts/setup.sh)")
    for folder in ("bin", "lib", "packages", "interpreter/bin", "interpreter/lib"):
        (out / folder).mkdir(parents=True, exist_ok=True)

    shutil.copy(tool, out / "bin")
    shutil.copyfile(openmp, out / "lib" / "libomp.so.5")
    shutil.copytree(REPO / "python" / "easyquant", out / "python" / "easyquant", ignore=NOT_CARRIED, dirs_exist_ok=True)
    for path in imported_packages():
        if path.is_dir():
            shutil.copytree(path, out / "packages" / path.name, ignore=NOT_CARRIED, dirs_exist_ok=True)
        else:
            shutil.copy(path, out / "packages")

    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = Path(sys.executable).resolve()
    shutil.copy(interpreter, out / "interpreter" / "bin" / "python3")
    standard = Path(sysconfig.get_paths()["stdlib"])
    shutil.copytree(standard, out / "interpreter" / "lib" / version, ignore=NOT_CARRIED, dirs_exist_ok=True)
    copy_libraries([tool, extension, interpreter, *(standard / "lib-dynload").glob("*.so")], out / "lib")


if __name__ == "__main__":
    main()
