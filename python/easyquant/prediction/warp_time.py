# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long one warp takes through its instructions, alone on a multiprocessor: what it waits for, by time and not by the number of waits.

A warp issues its instructions in their order, one a cycle, and each waits for the registers that it reads and for those that it writes. A
copy to shared memory is waited for where its group is (DEPBAR). Barriers take no time, since all warps of a block do the same; predicates
and uniform registers are not followed."""

import re
from dataclasses import dataclass

from easyquant.prediction.machine_code import GUARD, access_bytes, reads_and_writes

WIDE_BYTES = 8  # a lane's least load of what streams by; narrower loads are of numbers that many blocks read
# Cycles from an instruction to what needs its result: dependent arithmetic, shuffles and special functions, shared memory and constants, matrix
# products of 16 x 8 x 16 and more. Rounded from microbenchmarks of A100 and H100 (the guide to `predict` names them).
_CYCLES = (("HMMA|IMMA|QMMA", 33), ("LDS|LDSM|LDC|ULDC|ATOMS", 29), ("SHFL|MUFU|S2R|S2UR|REDUX|VOTE|POPC|I2F|F2I|F2F", 23))
_ARITHMETIC_CYCLES = 4


@dataclass(frozen=True)
class MemoryCycles:
    """Cycles from a load to its value: wide loads and copies, and narrow ones."""

    wide: float
    narrow: float


def result_cycles(opcode: str, instruction: str, memory: MemoryCycles) -> float:
    if opcode in ("LD", "LDG", "LDGSTS"):
        return memory.wide if access_bytes(instruction) >= WIDE_BYTES else memory.narrow
    if opcode in ("ATOM", "ATOMG", "LDL"):
        return memory.narrow
    return next((cycles for opcodes, cycles in _CYCLES if re.fullmatch(opcodes, opcode)), _ARITHMETIC_CYCLES)


def cycles_through(body: list[str], memory: MemoryCycles, turns: int = 1) -> float:
    """Cycles of one turn of a loop, as it goes on and on; with one turn, from its beginning to its end."""
    body = [line for line in body if not re.match(r"@!U?PT|.*:$", line)]  # what never happens, labels
    parsed = [(re.match(rf"{GUARD}(\w+)", line)[2], line, *reads_and_writes(line)) for line in body]
    now, ready, copies, groups, ends = 0.0, {}, [], [], []
    for _ in range(turns):
        for opcode, line, reads, writes in parsed:
            now += 1
            now = max([now, *(ready[register] for register in reads | writes if register in ready)])
            if opcode == "DEPBAR":
                left = int(re.search(r"0x([0-9a-f]+)", line)[1], 16)
                now = max([now, *groups[: max(0, len(groups) - left)]])
            elif opcode == "LDGSTS":
                copies.append(now + result_cycles(opcode, line, memory))
            elif opcode == "LDGDEPBAR":
                groups.append(max(copies, default=now))
                copies = []
            if writes:
                done = now + result_cycles(opcode, line, memory)
                ready |= dict.fromkeys(writes, done)
        ends.append(now)
    if turns == 1:
        return ends[0]
    half = turns // 2  # until it goes on evenly
    return (ends[-1] - ends[half - 1]) / (turns - half)
