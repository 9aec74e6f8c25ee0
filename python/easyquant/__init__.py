# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""EasyQuant's front desk: the command line, tokenizers, evaluation and reports.

The work is done elsewhere: `easyquant-compile` (C++, MLIR) writes artifacts, and the runtime's C ABI,
bound as `easyquant._runtime`, executes them. Nothing in this package quantizes or multiplies.
"""

__version__ = "0.1.0"
