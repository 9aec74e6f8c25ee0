# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mistakes that a user can make or mend."""

import numbers


class UserError(Exception):
    """An error whose message is all that the user needs: what was found, what was expected, what to do.

    The command line prints the message without a traceback and exits with status 1.
    """


def expect(name: str, found, holds: bool, expected: str) -> None:
    if not holds:
        raise UserError(f"{name}: found {found!r}, expected {expected}")


def is_whole(value) -> bool:
    """Whether it is a whole number, of Python or NumPy; True and False are none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
