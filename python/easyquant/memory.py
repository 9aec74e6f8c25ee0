# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much memory a process has needed."""

from pathlib import Path


def peak_rss_bytes(process: int | str = "self") -> int:
    """The most memory that a process has held (Linux's VmHWM); 0 for one that has ended but was not waited for.

    OSError if there is no such process.
    """
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
