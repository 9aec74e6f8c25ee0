# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Children that end with this process, even where it is killed."""

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>
_C = ctypes.CDLL(None)


def ends_with_me() -> Callable[[], None]:
    """The `preexec_fn` of such a child: SIGTERM comes to it when the thread that starts it ends."""
    parent = os.getpid()

    def ask() -> None:
        _C.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before it was asked
            os._exit(128 + signal.SIGTERM)

    return ask
