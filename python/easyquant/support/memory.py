# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a process has needed, memory and time, and what memory there is."""

import contextlib
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


def _number(file: Path, field: str | None = None) -> int | None:
    """The number that a file is, or that stands in it behind `field`; None where there is none, as in 'max'."""
    try:
        words = file.read_text().split()
        return int(words[words.index(field) + 1] if field else words[0])
    except (OSError, ValueError, IndexError):
        return None


def available_bytes(groups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup"), machine: Path = Path("/proc/meminfo")) -> int | None:
    """What this process can still get without swapping: the least that the machine and every control group (v2) around it have left. None: unknown."""
    kilobytes = _number(machine, "MemAvailable:")
    found = [] if kilobytes is None else [kilobytes * 1024]
    with contextlib.suppress(OSError):
        paths = [line.removeprefix("0::/") for line in membership.read_text().splitlines() if line.startswith("0::/")]
        for folder in (each for path in paths for each in ((groups / path), *(groups / path).parents) if each.is_relative_to(groups)):
            limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
            if limit is not None and used is not None:
                cached = _number(folder / "memory.stat", "inactive_file") or 0  # goes when memory is asked for
                found.append(max(0, limit - used + cached))
    return min(found, default=None)


def age_seconds() -> float:
    """How long this process has been there, the start of the interpreter included."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started
