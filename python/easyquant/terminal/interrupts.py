# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Signals that ask a process to end: outside of commands they end it at once and in silence, within them they are an exception.

Python's own way with Ctrl-C, an exception at any moment, is a traceback out of whatever module is being imported; its way with
the others is to leave children and files behind. Nothing is imported here that Python has not imported for itself.
"""

import os
import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
UNCHANGED = (signal.SIG_DFL, signal.default_int_handler)


class Interrupted(KeyboardInterrupt):
    """A signal came."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.message = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        self.status = _status(number)


def _status(number: int) -> int:
    """What shells say of a process that a signal ended."""
    return 128 + number


def _leave(number, frame) -> None:
    os._exit(_status(number))


def _raise(number, frame) -> None:
    raise Interrupted(number)


def leave_quietly() -> None:
    """From here on, but for signals that the parent wants ignored (as nohup does with SIGHUP)."""
    for number in SIGNALS:
        if signal.getsignal(number) in UNCHANGED:
            signal.signal(number, _leave)


class AsException:
    """Within, a signal raises Interrupted, so that what was begun is cleaned up."""

    def __enter__(self) -> None:
        self._quiet = [number for number in SIGNALS if signal.getsignal(number) is _leave]
        for number in self._quiet:
            signal.signal(number, _raise)

    def __exit__(self, *error) -> None:
        for number in self._quiet:
            signal.signal(number, _leave)
