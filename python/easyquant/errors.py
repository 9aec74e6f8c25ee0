# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mistakes that a user can make or mend."""


class UserError(Exception):
    """An error whose message is all that the user needs: what was found, what was expected, what to do.

    The command line prints the message without a traceback and exits with status 1.
    """
