# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Python extension, through which everything here reaches the runtime."""

from easyquant.support.errors import UserError


def runtime():
    """The extension easyquant._runtime, or an error that says how to get it."""
    try:
        from easyquant.runtime import _runtime
    except ImportError as error:
        raise UserError(f"easyquant._runtime: the extension cannot be loaded ({error}); build it with scripts/setup.sh") from None
    return _runtime
