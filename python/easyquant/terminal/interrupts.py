# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ctrl-C: outside of commands it ends the process at once and in silence, within them it is an exception.

Python's own way, an exception at any moment, is a traceback out of whatever module is being imported. Nothing is
imported here that Python has not imported for itself.
"""

import os
import signal

STATUS = 130  # what shells say of a process that SIGINT ended


def _leave(number, frame) -> None:
    os._exit(STATUS)


def leave_quietly() -> None:
    """From here on, unless the parent wants SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


class AsException:
    """Within, Ctrl-C raises KeyboardInterrupt, so that what was begun is cleaned up."""

    def __enter__(self) -> None:
        self._quiet = signal.getsignal(signal.SIGINT) is _leave
        if self._quiet:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *error) -> None:
        if self._quiet:
            signal.signal(signal.SIGINT, _leave)
