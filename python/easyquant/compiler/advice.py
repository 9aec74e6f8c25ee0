# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which method does better than round to nearest, for those who named none."""

import shlex
from pathlib import Path

from easyquant.compiler.options import CALIBRATED_METHODS


def better_method(options, scheme: str, model: Path, output: Path) -> str | None:
    """One line with the command that keeps more of the model than what CompileOptions asked for without naming a method; the scheme is what became of them."""
    method = CALIBRATED_METHODS.get(scheme)
    if method is None:
        return None
    said_otherwise = ("--scheme=", "--work=", "--force")
    others = [argument for argument in options.arguments() if not argument.startswith(said_otherwise)]
    text = options.calibration.arguments() if options.calibration else ["--calib", "FILE"]
    command = ["easyquant", "compile", model, "-o", f"{output}-{method}", "--scheme", scheme, "--method", method, *others, *text]
    return f"note: {method} keeps more of the model at {scheme}: {shlex.join(map(str, command))}"
