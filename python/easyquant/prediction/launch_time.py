# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The model of time: how long a launch takes, and what of it is what.

    time = launch + latency + the longest of
           bytes of memory / bandwidth of a copy             bandwidth
           bytes / (bytes under way / latency), by time      latency
           bytes that a multiprocessor asks for / its rate   caches
           issue slots                                       issue
           cycles of the busiest unit                        arithmetic
         + where blocks share K, what the last one does: a fence, a counter and a read, and the bytes of the others' sums

Issue, arithmetic and what is waited for are those of the multiprocessor that has most blocks. It is an estimate, and too short wherever two of these wait for each other."""

import math
from dataclasses import dataclass

from easyquant.prediction import chips
from easyquant.prediction.chips import Chip
from easyquant.prediction.kernels import Kernel, cycles_of
from easyquant.prediction.machine_code import access_bytes, matching
from easyquant.prediction.warp_time import WIDE_BYTES, MemoryCycles, cycles_through

PARTS = ("launch", "latency", "bandwidth", "caches", "issue", "arithmetic")
_TURNS = 8  # of a loop, until it goes on evenly
COMBINING_TRIPS = 3  # to the second-level cache, one after the other: sums are there, a counter says that all are, others' sums come


@dataclass(frozen=True)
class Traffic:
    """Bytes of a launch."""

    memory: float  # of the device, each counted once
    streamed: float = 0.0  # that the kernel's loop brings, as often as blocks read them; 0: there is no such loop
    asked: float = 0.0  # that multiprocessors ask for, as often as blocks read them
    combined: float = 0.0  # that the block which comes last reads of the sums of others, behind its loop


@dataclass(frozen=True)
class LaunchTime:
    """Seconds by PARTS. Only the longest of what goes on at a time has any."""

    parts: dict[str, float]

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def binds(self) -> str:
        return max(self.parts, key=self.parts.get)


def bytes_of_turn(loop: list[str], warps: int) -> int:
    """That a block brings from memory in one turn of its loop, numbers that many blocks read left out."""
    return warps * 32 * sum(width for load in matching(loop, "LDG|LDGSTS") if (width := access_bytes(load)) >= WIDE_BYTES)


def memory_cycles(chip: Chip) -> MemoryCycles:
    return MemoryCycles(chips.LATENCY * chip.hertz, chips.CACHE_LATENCY * chip.hertz)


def launch_time(kernel: Kernel, chip: Chip, blocks: int, traffic: Traffic, dynamic_shared: int = 0, overlapped: bool = False) -> LaunchTime:
    """`dynamic_shared`: bytes that the launch asks for; `overlapped`: the launch before lets this one begin early."""
    busiest = math.ceil(blocks / chip.multiprocessors)
    asking = min(blocks, chip.multiprocessors)
    rounds = busiest / max(1, min(busiest, kernel.resident(chip, dynamic_shared)))
    loop, memory = kernel.loop() if traffic.streamed else None, memory_cycles(chip)
    if loop and (brought := bytes_of_turn(loop, kernel.warps)):
        turns = traffic.streamed / blocks / brought
        waiting = rounds * turns * cycles_through(loop, memory, _TURNS)
        busy = cycles_of(loop, kernel.warps * busiest * turns, chip)
    else:
        code = [line for line in kernel.code if not line.endswith(":")]
        # What it reads, launches before have written: the second-level cache has it. The first load is in the constant latency.
        waiting = rounds * cycles_through(code, MemoryCycles(memory.narrow, memory.narrow)) - memory.narrow
        busy = cycles_of(code, kernel.warps * busiest, chip)
    issue = busy.pop("issue")
    work = {
        "bandwidth": traffic.memory / chip.copy_bandwidth,
        "latency": max(0.0, waiting) / chip.hertz,
        "caches": traffic.asked / asking / chips.ASKED_BYTES / chip.hertz,
        "issue": issue / chip.hertz,
        "arithmetic": max(busy.values()) / chip.hertz,
    }
    longest = max(work, key=work.get)
    parts = dict.fromkeys(PARTS, 0.0) | {"launch": chips.OVERLAPPED_LAUNCH if overlapped else chips.LAUNCH, "latency": chips.LATENCY}
    parts[longest] += work[longest]
    if traffic.combined:
        parts["latency"] += COMBINING_TRIPS * chips.CACHE_LATENCY
        parts["caches"] += traffic.combined / chips.ASKED_BYTES / chip.hertz
    return LaunchTime(parts)
