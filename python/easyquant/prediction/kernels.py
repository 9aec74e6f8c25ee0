# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels as machine code: what a multiprocessor has room for, and the cycles that their instructions take of it at least."""

import math
import re
from dataclasses import dataclass

from easyquant.prediction.chips import Chip
from easyquant.prediction.machine_code import access_bytes, count, main_loop, main_path, matching

REGISTERS = 65536  # of a multiprocessor
ISSUE_SLOTS = 4  # schedulers
INTEGER_LANES = 64
SPECIAL_LANES = 16
SHARED_BYTES = 128
LEAST_REGISTERS = 16  # of a thread
RESERVED_BYTES = 1024  # of shared memory, for each block
# The pipe of bits, sums and comparisons; products of integers have another.
INTEGER = "LOP3|SHF|LEA|PRMT|SEL|ISETP|IADD3|VIADD|IMNMX|VIMNMX|VIADDMNMX|VIMNMX3|FMNMX|FMNMX3|FSEL|FSETP|HMNMX2|HSETP2|SGXT|BMSK|IABS|VABSDIFF|P2R|R2P"
INTEGER_PRODUCTS = "IMAD|IDP"
HALF = "HFMA2|HADD2|HMUL2"
FLOAT = "FFMA|FADD|FMUL|FADD2|FFMA2|FMUL2|FCHK|FSWZADD"
SPECIAL = "MUFU|I2F|F2I|F2F|FRND|POPC|FLO|BREV|I2FP|F2FP|I2I|I2IP"
DOUBLE = "DADD|DMUL|DFMA|DSETP|DMNMX"
PRODUCTS = "HMMA|IMMA|QMMA"
SHARED = "LDS|LDSM|LDGSTS|STS|STSM|ATOMS"
# What takes an issue slot and no more of these pipes: memory beside shared memory, branches, barriers, constants, what is the same in a warp.
OTHER = (
    "LD|LDG|LDL|LDC|LDCU|ULDC|ST|STG|STL|ATOM|ATOMG|RED|REDG|REDUX|CREDUX|SHFL|VOTE|VOTEU|MATCH|MOV|UMOV|MOVM|CS2R|S2R|S2UR|CS2UR|R2UR|R2B|B2R|NOP|BRA|BRX|JMP|CALL|RET|EXIT|BSSY|BSYNC|BREAK|"
    "WARPSYNC|ENDCOLLECTIVE|COLLECTIVE|YIELD|NANOSLEEP|BAR|DEPBAR|LDGDEPBAR|LDGMC|ARRIVES|MEMBAR|ERRBAR|CCTL|FENCE|ACQBULK|PREEXIT|PLOP3|UPLOP3|LEPC|PSETP|UPSETP|KILL|BPT|"
    "CGAERRBAR|UCGABAR_ARV|UCGABAR_WAIT|SYNCS|ELECT|"
    "UIADD3|UIMAD|UISETP|ULEA|ULOP3|USEL|USHF|UPRMT|UP2UR|UR2UP|USGXT|UFLO|UPOPC|UBREV|UBMSK|UMNMX|UIMNMX|UVIMNMX|UIABS|UVIADD|UF2FP|UI2FP|UFADD|UFMUL|UFFMA|UFSEL|UFSETP"
)  # fmt: skip
_KNOWN = re.compile("|".join((INTEGER, INTEGER_PRODUCTS, HALF, FLOAT, SPECIAL, DOUBLE, PRODUCTS, SHARED, OTHER)))


def unknown_opcodes(code: list[str]) -> list[str]:
    """Opcodes that no rule here counts, in the order of their names."""
    opcodes = {re.match(rf"(?:@!?U?P(?:\d+|T) )?(\w+)", line)[1] for line in code if not line.endswith(":")}
    return sorted(opcode for opcode in opcodes if not _KNOWN.fullmatch(opcode))


def products_of(body: list[str], opcodes: str) -> int:
    """Multiply-adds of the matrix products of a warp: HMMA.16816 are 16 × 8 × 16."""
    shapes = (re.search(r"\.(16)(8)(8|16|32|64)\b", instruction) for instruction in matching(body, opcodes))
    return sum(math.prod(map(int, shape.groups())) for shape in shapes if shape)


def cycles_of(body: list[str], warps: float, chip: Chip) -> dict[str, float]:
    """Cycles of a multiprocessor that `warps` warps need at least for one turn of the loop, by resource."""
    moved = sum(32 * access_bytes(i) for i in matching(body, SHARED) if "RZ, [RZ]" not in i)
    of_a_warp = {
        "tensor cores": products_of(body, "HMMA") / chip.half_products + products_of(body, "IMMA|QMMA") / chip.byte_products,
        "issue": len(body) / ISSUE_SLOTS,
        "integer": count(body, INTEGER) * 32 / INTEGER_LANES,
        "integer products": count(body, INTEGER_PRODUCTS) * 32 / INTEGER_LANES,
        "half": count(body, HALF) * 32 / chip.half_lanes,
        "float": count(body, FLOAT) * 32 / chip.float_lanes,
        "special": count(body, SPECIAL) * 32 / SPECIAL_LANES,
        "shared memory": moved / SHARED_BYTES,
    }
    return {resource: warps * cycles for resource, cycles in of_a_warp.items()}


@dataclass(frozen=True)
class Kernel:
    code: list[str]  # instructions in order, labels among them as 'NAME:'
    threads: int  # of a block
    registers: int  # of a thread
    shared: int  # bytes, static
    asked: int = 0  # for so many blocks of a multiprocessor the assembler was asked to leave registers

    @property
    def warps(self) -> int:
        return self.threads // 32

    def resident(self, chip: Chip, dynamic: int = 0) -> int:
        """Blocks that a multiprocessor has room for; `dynamic`: bytes of shared memory that a launch asks for."""
        registers = math.ceil(self.registers * 32 / 256) * 256 * self.warps
        return min(REGISTERS // registers, chip.threads // self.threads, chip.shared_kb * 1024 // (self.shared + dynamic + RESERVED_BYTES))

    @property
    def begins_next(self) -> bool:
        """Whether the next launch's blocks may begin before it ends."""
        return count(self.code, "PREEXIT") > 0

    def loop(self) -> list[str] | None:
        """One turn of the loop that does the kernel's work; None where a warp goes through the code once."""
        if main_loop(self.code, PRODUCTS):
            return main_path(self.code, PRODUCTS)
        return main_loop(self.code, "IDP") or main_loop(self.code, "LDG|LDGSTS")


def read_kernels(ptx: str, functions: dict[str, list[str]]) -> dict[str, Kernel]:
    """{name: Kernel} of the text of PTX and of its machine code (`machine_code.functions_of`)."""
    kernels = {}
    for name, head, body in re.findall(r"\.entry (\w+)\((.*?)\n\{(.*?)\n\}", ptx, re.S):
        threads, asked = (int((re.search(rf"\.{word} (\d+)", head) or [0, 0])[1]) for word in ("maxntid", "minnctapersm"))
        shared = sum(map(int, re.findall(r"^\s*\.shared .*\[(\d+)\];", body, re.M)))
        kernels[name] = Kernel(functions[name], threads, _registers(functions[name]), shared, asked)
    return kernels


def _registers(code: list[str]) -> int:
    """Registers of a thread: up to the highest that the code names, and no fewer than the least that is allotted."""
    return max([LEAST_REGISTERS, *(int(number) + 1 for line in code for number in re.findall(r"(?<![\w.])R(\d+)", line))])
