# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds and starts the project's C++ tools."""

import os
import shutil
from pathlib import Path

from easyquant.support.errors import UserError


def find_tool(name: str) -> Path:
    """The tool `name`: in $EASYQUANT_TOOLS, in the build that made this package, or on PATH."""
    folders = []
    if chosen := os.environ.get("EASYQUANT_TOOLS"):
        folders.append(Path(chosen))
    try:
        from easyquant.support._config import TOOLS_DIR  # written by CMake

        folders.append(Path(TOOLS_DIR))
    except ImportError:
        pass
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    if on_path := shutil.which(name):
        return Path(on_path)
    searched = ", ".join(str(folder) for folder in folders) or "no build folder is known"
    raise UserError(
        f"{name}: the tool was not found (searched: {searched}, PATH); "
        "build it with scripts/setup.sh, or name its folder in EASYQUANT_TOOLS"
    )
