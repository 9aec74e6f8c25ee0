# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""EasyQuant's front desk: the class `Model`, the function `quantize`, the command line, tokenizers, evaluation and reports.

The work is done elsewhere: `easyquant-compile` (C++, MLIR) writes artifacts, and the runtime's C ABI,
bound as `easyquant._runtime`, executes them. Nothing in this package quantizes or multiplies.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from easyquant.api.model import Model, Score
    from easyquant.api.quantize import Quantized, quantize
    from easyquant.runtime.generation import Completion
    from easyquant.support.errors import UserError

__version__ = "0.1.0"

# Imported when they are asked for: the command line is quick to start.
_PLACES = {
    "Model": "api.model", "Score": "api.model", "Completion": "runtime.generation", "UserError": "support.errors",
    "quantize": "api.quantize", "Quantized": "api.quantize",
}  # fmt: skip
__all__ = [*_PLACES, "__version__"]


def __getattr__(name: str):
    if name == "_runtime":
        return importlib.import_module("easyquant.runtime._runtime")
    if name not in _PLACES:
        raise AttributeError(f"module 'easyquant' has no attribute {name!r}")
    return getattr(importlib.import_module(f"easyquant.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
