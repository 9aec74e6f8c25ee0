# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the project's C++ tools, and what they need to start."""

import os
import re
import shutil
import sysconfig
from pathlib import Path

from easyquant.support.errors import UserError

# Where a wheel has them.
PACKAGED = Path(__file__).resolve().parent.parent / "bin"

# What tools and models need and a wheel leaves to the distribution: the compiler's libraries and linker, and OpenMP.
DEBIAN_PACKAGES = "libmlir-22 lld-22 libopenblas0-pthread libomp5-19"


def find_tool(name: str) -> Path:
    """The tool `name`: in $EASYQUANT_TOOLS, in the build or the wheel that made this package, or on PATH."""
    folders = []
    if chosen := os.environ.get("EASYQUANT_TOOLS"):
        folders.append(Path(chosen))
    try:
        from easyquant.support._config import TOOLS_DIR  # written by CMake

        folders.append(Path(TOOLS_DIR))
    except ImportError:
        folders.append(PACKAGED)
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    if on_path := shutil.which(name):
        return Path(on_path)
    searched = ", ".join(str(folder) for folder in folders)
    raise UserError(
        f"{name}: the tool was not found (searched: {searched}, PATH); "
        "build it with scripts/setup.sh, or name its folder in EASYQUANT_TOOLS"
    )


def cuda_program(name: str) -> Path | None:
    """A program of the extra `gpu` of this package (ptxas, nvdisasm), as far as it is installed."""
    found = sorted(Path(sysconfig.get_path("purelib")).glob(f"nvidia/cu*/bin/{name}"))
    return found[-1] if found else None


def tool_environment() -> dict[str, str]:
    """The environment to start tools in: they find the GPU assembler that the extra `gpu` has installed beside this package."""
    ptxas = cuda_program("ptxas")
    return ({"EASYQUANT_CUDA_BIN": str(ptxas.parent)} if ptxas else {}) | os.environ


def explain(tool: Path, returncode: int, text: str) -> str:
    """What a tool that has failed said, its error before its notes; where the system could not start it, what to install."""
    missing = re.search(r"error while loading shared libraries: (\S+): cannot open shared object file", text)
    if returncode == 127 and missing:
        return f"{tool}: needs {missing[1]}, which is not on this machine; on Debian 12: apt-get install {DEBIAN_PACKAGES}"
    said = text.strip() or f"{tool.name} failed with status {returncode} and no message"
    if found := re.match(r"((?:note: .*\n)*)error: ", said):
        said = f"{said[found.end():]}\n{found[1]}".strip()
    return said
