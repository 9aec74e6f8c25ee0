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
    """Loops, from a label to a branch back to it: (label, body)."""
    places = {line[:-1]: i for i, line in enumerate(instructions) if line.endswith(":")}
    for i, line in enumerate(instructions):
        if (target := branch_target(line)) and places.get(target, i) < i:
            yield target, [word for word in instructions[places[target] : i + 1] if not word.endswith(":")]


def branch_target(instruction):
    branch = re.search(r"\bBRA\b.*?`\((\.L_x_\d+)\)", instruction)
    return branch[1] if branch else None


def matching(body, opcode):
    """The instructions of that opcode, a regular expression, whatever guards and suffixes they have."""
    return [instruction for instruction in body if re.match(rf"{GUARD}(?:{opcode})\b", instruction)]


def count(body, opcode):
    return len(matching(body, opcode))


def main_loop(instructions, opcode="IMMA|HMMA"):
    """The innermost loop with products: the shortest of those that have any. None if there is none."""
    return min((body for _, body in loops(instructions) if count(body, opcode)), key=len, default=None)


def basic_blocks(instructions):
    """Instructions without a branch between them, and of each the blocks that may follow, by number."""
    blocks, labels = [[]], {}
    for line in instructions:
        if line.endswith(":"):
            if blocks[-1]:
                blocks.append([])
            labels[line[:-1]] = len(blocks) - 1
        else:
            blocks[-1].append(line)
            if re.match(rf"{GUARD}(BRA|EXIT|RET)\b", line):
                blocks.append([])
    successors = []
    for i, block in enumerate(blocks):
        last = block[-1] if block else ""
        ends = re.match(r"(BRA|EXIT|RET)\b", last)  # a guarded one may let it pass
        target = labels.get(branch_target(last))
        successors.append(([] if ends or i + 1 == len(blocks) else [i + 1]) + ([] if target is None else [target]))
    return blocks, successors, labels


def main_path(instructions, opcode="HMMA"):
    """One turn of the main loop where it has branches: of all ways from its first instruction back there the one with most products,
    then most stores to shared memory, then fewest branches. In a loop that takes a short way where all is alike, and else decides
    anew for each element, that is the short way."""
    label, _ = min(((label, body) for label, body in loops(instructions) if count(body, opcode)), key=lambda loop: len(loop[1]))
    blocks, successors, labels = basic_blocks(instructions)
    head, best, under_way = labels[label], {}, set()

    def way(block):
        """(products, stores, -blocks), blocks from `block` back to the head; None if no way leads there."""
        if block in best:
            return best[block]
        under_way.add(block)
        ways = [((0, 0, 0), [])] if head in successors[block] else []
        ways += [found for next in successors[block] if next not in under_way and (found := way(next))]
        under_way.remove(block)
        best[block] = None
        if ways:
            score, rest = max(ways, key=lambda found: found[0])
            own = (count(blocks[block], opcode), count(blocks[block], "STS|LDGSTS"), -1)
            best[block] = (tuple(map(sum, zip(own, score))), [block, *rest])
        return best[block]

    return [instruction for block in way(head)[1] for instruction in blocks[block]]


def access_bytes(instruction):
    """Bytes that a lane moves with a load, store or copy."""
    opcode = re.match(rf"{GUARD}(\S+)", instruction)[2]  # addresses have suffixes too
    if opcode.startswith("LDSM"):
        return 4 * int(re.search(r"\.MT?88(?:\.(\d))?", opcode)[1] or 1)
    width = re.search(r"\.(?:U|S)?(128|64|16|8)(?=\.|$)", opcode)
    return int(width[1]) // 8 if width else 4
