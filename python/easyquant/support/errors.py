# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mistakes that a user can make or mend."""

import numbers

_LONGEST = 300  # characters of what was found


class UserError(Exception):
    """An error whose message is all that the user needs: what was found, what was expected, what to do.

    The command line prints the message without a traceback and exits with status 1.
    """


def expect(name: str, found, holds: bool, expected: str) -> None:
    if not holds:
        text = repr(found)
        raise UserError(f"{name}: found {text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}, expected {expected}")


def is_whole(value) -> bool:
    """Whether it is a whole number, of Python or NumPy; True and False are none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
