# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machine code of GPU kernels as text: functions, loops, counts of instructions. Needs ptxas and nvdisasm, both of the extra
`gpu`, which pins their versions: what is said of the code is said of the code of those."""

import re
import subprocess
import sysconfig
from pathlib import Path

CHIPS = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a")

GUARD = r"(@!?U?P\d+ )?"


def cuda_program(name):
    """Path of a program of the extra `gpu`, or None."""
    for path in Path(sysconfig.get_paths()["purelib"]).glob(f"nvidia/cu*/bin/{name}"):
        return path
    return None


def compile_kernels(opt, model, chip, cubin, ptx):
    """Writes the kernels of an MLIR file for a chip as machine code and as PTX; returns the finished process of easyquant-opt."""
    return subprocess.run([opt, model, f"--equant-emit-gpu-kernels=chip={chip}", f"--equant-lower-to-nvvm=chip={chip}",
                           f"--equant-emit-gpu-binary=cubin={cubin} ptx={ptx}", "-o", "/dev/null"], capture_output=True, text=True)


def functions_of(cubin):
    """{kernel: its instructions in order, labels among them as 'NAME:'}"""
    text = subprocess.run([cuda_program("nvdisasm"), "-c", cubin], check=True, capture_output=True, text=True).stdout
    found, current = {}, None
    for line in text.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.([\w$]+)", line):
            current = found.setdefault(section[1], [])
        elif label := re.match(r"(\.L_x_\d+):", line):
            current.append(f"{label[1]}:")
        elif (instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line)) and current is not None:
            current.append(instruction[1])
    return found


def loops(instructions):
    """Bodies of loops: from a label to a branch back to it."""
    places = {line[:-1]: i for i, line in enumerate(instructions) if line.endswith(":")}
    for i, line in enumerate(instructions):
        if (branch := re.search(r"\bBRA\b.*?`\((\.L_x_\d+)\)", line)) and places.get(branch[1], i) < i:
            yield [word for word in instructions[places[branch[1]] : i + 1] if not word.endswith(":")]


def matching(body, opcode):
    """The instructions of that opcode, a regular expression, whatever guards and suffixes they have."""
    return [instruction for instruction in body if re.match(rf"{GUARD}(?:{opcode})\b", instruction)]


def count(body, opcode):
    return len(matching(body, opcode))


def main_loop(instructions, opcode="IMMA|HMMA"):
    """The innermost loop with products: the shortest of those that have any. None if there is none."""
    return min((body for body in loops(instructions) if count(body, opcode)), key=len, default=None)


def access_bytes(instruction):
    """Bytes that a lane moves with a load, store or copy."""
    opcode = re.match(rf"{GUARD}(\S+)", instruction)[2]  # addresses have suffixes too
    if opcode.startswith("LDSM"):
        return 4 * int(re.search(r"\.M88(?:\.(\d))?", opcode)[1] or 1)
    width = re.search(r"\.(?:U|S)?(128|64|16|8)(?=\.|$)", opcode)
    return int(width[1]) // 8 if width else 4
