# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machine code of GPU kernels as text: functions, loops, counts of instructions, and how long a warp takes through them.

The text is nvdisasm's. How long results take is in cycles of a multiprocessor. What is said of instructions that the tables here lack
would be a guess, so that `unknown_opcodes` finds them."""

import re

GUARD = r"(@!?U?P\d+ )?"


def functions_of(text):
    """{kernel: its instructions in order, labels among them as 'NAME:'} of what `nvdisasm -c` prints."""
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
    """One turn of the main loop where it has branches. Among all ways from its first instruction back there it is the one with most
    products, then most stores to shared memory, then fewest branches, and that stays in the loop. Some loops take a short way where all elements are alike and decide
    for each element elsewhere; then it is the short way."""
    label, _ = min(((label, body) for label, body in loops(instructions) if count(body, opcode)), key=lambda loop: len(loop[1]))
    blocks, successors, labels = basic_blocks(instructions)
    head = labels[label]
    # Ways around a loop that contains the main one are none of it.
    end = max(i for i, following in enumerate(successors) if head in following)
    outer = {target for i, following in enumerate(successors) for target in following if target < head and i >= end}
    best, under_way = {}, set(outer)

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


# -------------------------------------------------------------------------------------------------------- loads under way

LOADS = "LD|LDG|LDGSTS|LDS|LDSM|LDL|LDC|ULDC"
STORES = "ST|STG|STS|STL"
PRODUCTS = {"HMMA": (4, 4, 2, 4), "IMMA": (4, 4, 2, 4)}  # registers of the result and the operands: m16n8k16, m16n8k32


def registers(operand, count=1):
    """The numbers of the `count` general registers that an operand begins with; none, if it is no such register."""
    found = re.match(r"[-~|!]*R(\d+)", operand)
    return set(range(int(found[1]), int(found[1]) + count)) if found else set()


def reads_and_writes(instruction):
    """The general registers that an instruction reads and those that it writes."""
    name, rest = re.match(rf"{GUARD}(\S+)\s*(.*)", instruction).groups()[1:]
    opcode = name.split(".")[0]
    reads = set()
    for address in re.findall(r"\[[^\]]*\]", rest):
        for register, wide in re.findall(r"(?<!U)(R\d+)(\.64)?", address):
            reads |= registers(register, 2 if wide else 1)
    operands = [word for word in re.split(r",\s*", re.sub(r"\w*\[[^\]]*\](\[[^\]]*\])?", "[]", rest)) if word != "[]"]
    if re.fullmatch(STORES, opcode):
        return reads.union(*(registers(word, max(1, access_bytes(instruction) // 4)) for word in operands)), set()
    # Predicates that are results too stand before or behind the register.
    results = [word for word in operands[:1] if registers(word)]
    counts = [1] * len(operands)
    if opcode in PRODUCTS:
        counts = PRODUCTS[opcode]
    elif re.fullmatch(LOADS, opcode):
        counts[:1] = [max(1, access_bytes(instruction) // 4)]
    elif ".WIDE" in name:
        counts = [2, 1, 1, 2]
    elif opcode == "CS2R":
        counts[:1] = [2]
    pairs = list(zip(operands, counts))
    writes = set().union(*(registers(*pair) for pair in pairs[: len(results)]))
    return reads.union(*(registers(*pair) for pair in pairs[len(results) :])), writes


def waits(body, turns=8):
    """The places where a warp waits for global memory: for each, the loads and copies that are under way there. The code is one turn of a
    loop that the warp goes through again and again, or, if `turns` is 1, code that it goes through once. All loads take equally long and
    instructions no time, so that a load that has arrived brings along all loads that were begun before it."""
    body = [line for line in body if not re.match(r"@!U?PT|.*:$", line)]  # what never happens, labels
    under_way, found, group = [], [], 0  # (load, registers that it writes, the group of copies that it belongs to)
    for turn in range(turns):
        for instruction in body:
            opcode = re.match(rf"{GUARD}(\w+)", instruction)[2]
            reads, writes = reads_and_writes(instruction)
            if opcode == "DEPBAR":
                most = int(re.search(r"0x([0-9a-f]+)", instruction)[1], 16)
                late = [entry for entry in under_way if entry[2] is not None and entry[2] < group - most]
            else:
                late = [entry for entry in under_way if entry[1] & (reads | writes)]
            if late:
                if turn == turns - 1:
                    found.append([load for load, *_ in under_way])
                # Copies of later groups, which nobody waits for, stay under way.
                under_way = [entry for entry in under_way if opcode == "DEPBAR" and entry[2] is not None and entry[2] >= group - most]
            if opcode == "LDGDEPBAR":
                group += 1
            elif opcode in ("LD", "LDG", "LDGSTS"):
                under_way.append((instruction, writes, group if opcode == "LDGSTS" else None))
    return found


def loads_of_waits(found, least_bytes):
    """The bytes of each load at those places of `waits` where loads of so many bytes a lane are under way."""
    wide = [[access_bytes(load) for load in loads if access_bytes(load) >= least_bytes] for loads in found]
    return [loads for loads in wide if loads]
