# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a process has needed: memory and time."""

import os
import time
from pathlib import Path


def _status(process: int | str, field: str) -> int:
    """Bytes that Linux reports; 0 for a process that has ended but was not waited for. OSError if there is no such process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


def rss_bytes() -> int:
    """The memory that this process holds now."""
    return _status("self", "VmRSS")


def peak_rss_bytes(process: int | str = "self") -> int:
    """The most memory that a process has held."""
    return _status(process, "VmHWM")


def age_seconds() -> float:
    """How long this process has been there, the start of the interpreter included."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started
