#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the machine code of linears says of its speed on Arm CPUs, without one.

    .venv/bin/python benchmarks/arm_static.py > docs/benchmarks/arm-static.md

Compiles a random layer of 1024 columns for aarch64 with easyquant-compile (EASYQUANT_TOOLS, or build/bin), reads the loops of its
linears out of the disassembly (llvm-objdump-22), lets llvm-mca-22 tell the cycles of each loop, and prints the page: how the page
counts stands on the page. llama.cpp's loops for the formats of its files are compiled by aarch64-linux-gnu-g++ from the sources in the
sdist of llama-cpp-python, which are fetched from PyPI into the cache folder at first, and read by the same tools.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from easyquant.support.tools import find_tool
from peer import PEER_PACKAGES, cache_folder, llama_sources

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "test" / "python"), str(REPO / "test" / "Inputs")]
from helpers import write_byte_level  # noqa: E402
from make_wide_checkpoint import SHAPES, write_checkpoint  # noqa: E402

WIDTH = 1024
# of each instruction set
CPUS = {"neon-dot": ("cortex-a78", "neoverse-n1", "neoverse-v1", "neoverse-v2", "apple-m1"), "neon-i8mm": ("neoverse-v1", "neoverse-n2", "neoverse-v2", "apple-m2")}
# title, options, columns of a group of sums (0: whole rows), bits of a weight
FORMATS = [("W8A8", ("--scheme=W8A8",), 0, 8),
           ("W8A8, groups of 32 of activations", ("--scheme=W8A8", "--activation-group-size=32"), 32, 8),
           ("W4A8, groups of 128", ("--scheme=W4A8",), 128, 4),
           ("W4A8, groups of 32 on both sides", ("--scheme=W4A8", "--group-size=32", "--activation-group-size=32"), 32, 4),
           ("W2A8, groups of 128", ("--scheme=W2A8",), 128, 2),
           ("NF4A8, groups of 128", ("--scheme=NF4A8",), 128, 4)]
PRODUCTS = {"sdot": 16, "smmla": 32}  # of an instruction
PANEL = 32  # outputs that a GEMV makes; and rows times outputs of a tile of sums over groups


@dataclass
class PeerFormat:
    """A format of llama.cpp's files. Its functions repack weights for several outputs and go over blocks of columns."""

    name: str
    columns: int  # of a block
    rows: int  # of the tile of many rows
    outputs: int  # of a tile and of one row
    functions: dict  # instruction set → the shape in the names of its functions


PEER_FORMATS = [PeerFormat("Q8_0", 32, 4, 4, {"neon-dot": "4x4", "neon-i8mm": "4x8"}),
                PeerFormat("Q4_0", 32, 16, 4, {"neon-dot": "4x4", "neon-i8mm": "4x8"}),
                PeerFormat("Q4_K", 256, 4, 8, {"neon-dot": "8x4", "neon-i8mm": "8x8"})]
GROUP = 32  # columns that share a scale in each of them
PEER_FLAGS = {"neon-dot": "armv8.2-a+fp16+dotprod", "neon-i8mm": "armv8.2-a+fp16+dotprod+i8mm"}
ITERATIONS = 200


@dataclass
class Instruction:
    address: int
    name: str
    operands: str

    def target(self):
        """The address that a branch goes to, or None."""
        found = re.search(r"0x([0-9a-f]+)$", self.operands)
        return int(found[1], 16) if found and re.match(r"b(\.\w+)?$|cbn?z$|tbn?z$", self.name) else None

    def text(self):
        return f"{self.name} {self.operands if self.target() is None else re.sub('0x[0-9a-f]+$', 'next', self.operands)}"


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"error: {command[0]}: {done.stderr}")
    return done.stdout


def functions_of(library):
    functions, code = {}, []
    for line in run(["llvm-objdump-22", "-d", "--no-show-raw-insn", library]).splitlines():
        if found := re.match(r"[0-9a-f]+ <(.*)>:", line):
            code = functions.setdefault(found[1], [])
        elif found := re.match(r"\s*([0-9a-f]+):\s+(\S+)\s*(.*)", line):
            code.append(Instruction(int(found[1], 16), found[2], found[3].split(" <")[0].strip()))
    return functions


def loops_of(code):
    """(first, last) of each loop: from where a branch goes back to, to the branch."""
    places = {instruction.address: i for i, instruction in enumerate(code)}
    back = [(places.get(instruction.target()), i) for i, instruction in enumerate(code)]
    return [(first, last) for first, last in back if first is not None and first <= last]


def dots(code):
    return sum(instruction.name in PRODUCTS for instruction in code)


def products(code):
    return sum(PRODUCTS.get(instruction.name, 0) for instruction in code)


def inner_loops(code):
    """Loops of dot products that have no such loop in them."""
    loops = [loop for loop in loops_of(code) if dots(code[loop[0]:loop[1] + 1])]
    return [loop for loop in loops if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in loops)]


def around(code, loop):
    """The least loop around this one."""
    outer = [other for other in loops_of(code) if other != loop and other[0] <= loop[0] and loop[1] <= other[1]]
    return min(outer, key=lambda other: other[1] - other[0])


def turns(code, loop, group):
    """One turn of the loop over groups: what is around the loop over a group's columns, and that loop repeated as often as it runs.
    Without groups, a turn of the loop itself."""
    if not group:
        return code[loop[0]:loop[1] + 1]
    first, last = around(code, loop)
    turn = code[loop[0]:loop[1] + 1]
    return code[first:loop[0]] + turn * (group * PANEL // products(turn)) + code[loop[1] + 1:last + 1]


def cycles(code, cpu, folder):
    """Cycles of one turn, in the mean of many that follow each other, by llvm-mca."""
    source = folder / "loop.s"
    source.write_text("\n".join(instruction.text() for instruction in code) + "\nnext:\n")
    told = run(["llvm-mca-22", "-mtriple=aarch64", f"-mcpu={cpu}", f"-iterations={ITERATIONS}", source])
    return int(re.search(r"Total Cycles:\s+(\d+)", told)[1]) / ITERATIONS


def rate(name, cpu, folder):
    """Instructions of this name a cycle, by llvm-mca, of registers that do not depend on each other."""
    code = [Instruction(0, name, f"v{i}.4s, v30.16b, v31.16b") for i in range(24)]
    return len(code) / cycles(code, cpu, folder)


def linear_of(folder, model, options, isa):
    run([find_tool("easyquant-compile"), model, "-o", folder / "out", "--force", "--target=aarch64", f"--isa={isa}", "--progress=none", *options])
    functions = functions_of(folder / "out" / "model.aarch64.so")
    [name] = [name for name in functions if name.startswith(f"linear_{WIDTH}x{WIDTH}_")]
    return functions[name]


def table(header, rows):
    return "\n".join(["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)])


def our_loops(code, group):
    """A turn over many rows, and one over one row."""
    inner = inner_loops(code)
    is_streamed = {loop: any(instruction.name == "prfm" for instruction in code[loop[0]:loop[1] + 1]) for loop in inner}
    tile = max((loop for loop in inner if not is_streamed[loop]), key=lambda loop: products(code[loop[0]:loop[1] + 1]))
    [stream] = [loop for loop in inner if is_streamed[loop]]
    return turns(code, tile, group), turns(code, stream, group)


def peer_loop(code, all_products):
    """One turn of the loop over blocks, which makes so many products: that of the largest tile, by itself or around a loop over parts
    of a block."""
    loop = max(inner_loops(code), key=lambda loop: products(code[loop[0]:loop[1] + 1]))
    part = code[loop[0]:loop[1] + 1]
    if products(part) == all_products:
        return part
    first, last = around(code, loop)
    before, behind = code[first:loop[0]], code[loop[1] + 1:last + 1]
    times, rest = divmod(all_products - products(before + behind), products(part))
    assert rest == 0, f"{all_products} products are not whole turns of {products(part)}"
    return before + part * times + behind


def measure(folder, isa):
    """Rows of the two tables."""
    many, one = [], []
    for title, options, group, bits in FORMATS:
        body, streamed = our_loops(linear_of(folder, folder / "model", options, isa), group)
        [name] = {instruction.name for instruction in body if instruction.name in PRODUCTS}
        lines = products(streamed) * bits / 8 / 64
        shares, rates, streams = [], [], []
        for cpu in CPUS[isa]:
            time = cycles(body, cpu, folder)
            shares.append(f"{dots(body) / rate(name, cpu, folder) / time:.2f}")
            rates.append(f"{products(body) / time:.0f}")
            streams.append(f"{cycles(streamed, cpu, folder) / lines:.1f}")
        many.append([title, f"`{name}`", f"{len(body)}", f"{dots(body)}", *(f"{share} ({products_a_cycle})" for share, products_a_cycle in zip(shares, rates))])
        one.append([title, f"{len(streamed)}", f"{lines:g}", *streams])
    return many, one


def peer_functions(folder, sources, isa):
    ggml = sources / "ggml"
    run(["aarch64-linux-gnu-g++", "-O3", "-DNDEBUG", "-std=c++17", f"-march={PEER_FLAGS[isa]}", f"-I{ggml / 'include'}", f"-I{ggml / 'src'}", f"-I{ggml / 'src/ggml-cpu'}",
         "-c", ggml / "src/ggml-cpu/arch/arm/repack.cpp", "-o", folder / "peer.o"])
    functions = functions_of(folder / "peer.o")

    def function(kind, form):
        stem = form.name.lower().replace("_k", "_K")
        [name] = [name for name in functions if f"ggml_{kind}_{stem}_{form.functions[isa]}_q8" in name]
        return functions[name]

    return function


def compare(folder, sources, isa):
    """Rows of the two tables beside llama.cpp: ours, its, and how many times its speed ours is."""
    function = peer_functions(folder, sources, isa)
    many, one = [], []
    for form in PEER_FORMATS:
        file = folder / f"{form.name}-file"
        if not file.exists():
            run([sys.executable, "-m", "easyquant", "export", folder / "model", "-o", file, "--scheme", form.name, "--format", "gguf"])
        [gguf] = file.glob("*.gguf")
        body, streamed = our_loops(linear_of(folder, gguf, ["--scheme=keepA8"], isa), GROUP)
        made = form.rows * form.outputs * form.columns
        peer_many, peer_one = peer_loop(function("gemm", form), made), peer_loop(function("gemv", form), form.outputs * form.columns)
        both, lines = [], []
        for cpu in CPUS[isa]:
            ours, its = products(body) / cycles(body, cpu, folder), made / cycles(peer_many, cpu, folder)
            both.append(f"{ours:.0f} / {its:.0f} = {ours / its:.2f}")
            ours, its = products(streamed) / cycles(streamed, cpu, folder), form.outputs * form.columns / cycles(peer_one, cpu, folder)
            lines.append(f"{ours:.0f} / {its:.0f} = {ours / its:.2f}")
        many.append([f"`{form.name}`", *both])
        one.append([f"`{form.name}`", *lines])
    return many, one


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", default="neon-dot,neon-i8mm", help="instruction sets, with commas between them")
    parser.add_argument("--cache", type=Path, help="folder for the peer's sources (default: easyquant/benchmarks in the user's cache)")
    arguments = parser.parse_args()
    sources = llama_sources(cache_folder(arguments.cache))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        SHAPES["layer"] = SHAPES["llama-7b"] | {"hidden_size": WIDTH, "intermediate_size": 2816, "num_attention_heads": 8, "num_key_value_heads": 8}
        write_checkpoint(folder / "model", "layer", 1, vocab=512)
        write_byte_level(folder / "model")
        commit = run(["git", "rev-parse", "--short", "HEAD"]).strip()
        gcc = run(["aarch64-linux-gnu-g++", "-dumpfullversion"]).strip()
        version = re.search(r"LLVM version (\S+)", run(["llvm-mca-22", "--version"]))[1]
        print(f"""# Loops for Arm, read by llvm-mca

Nothing on this page was timed: there was no Arm machine. It is what llvm-mca {version} says of the loops of linears of {WIDTH} × {WIDTH} on {date.today()}
(commit {commit}), made by

```sh
.venv/bin/python benchmarks/arm_static.py > docs/benchmarks/arm-static.md
```

llvm-mca knows how many instructions of a kind a CPU issues in a cycle, and how long each takes. It knows no cache, takes every load as a hit of
the first level, and knows no branch that is guessed wrong. Its figures are bounds from below for cycles, by scheduling models that LLVM has for these CPUs.
""")
        for isa in arguments.isa.split(","):
            many, one = measure(folder, isa)
            print(f"""## {isa}: many rows

The loop over columns of a full tile. With groups a turn is one group: its products, their scaling to float, and what is around them. The figures are the
share of the cycles in which the CPU could issue no more dot products than it does (1 is the most), and behind it multiply-adds a cycle.
A tile's weights are unpacked before; that serves all rows of a chunk and is not in it.
""")
            print(table(["format", "by", "instructions", "dot products", *CPUS[isa]], many))
            print(f"""
## {isa}: one row

Cycles for a line of 64 bytes of weights, where a row meets all weights once, as in decoding.
""")
            print(table(["format", "instructions a turn", "lines a turn", *CPUS[isa]], one))
            many, one = compare(folder, sources, isa)
            print(f"""
## {isa}: beside llama.cpp

Multiply-adds a cycle, ours / llama.cpp's, and the ratio, of files in its formats: ours by `--scheme keepA8`, which has its codes and scales, and int8 activations in groups of 32;
llama.cpp's of the sources in {PEER_PACKAGES[0]}, compiled by aarch64-linux-gnu-g++ {gcc} with `-O3 -march={PEER_FLAGS[isa]}`: the functions that repack weights for this instruction set, a turn of
their loop over blocks. Loops in it that make no products, the two turns that unpack scales of `Q4_K`, are counted as one, in its favour. Many rows:
""")
            print(table(["format", *CPUS[isa]], many))
            print("""
One row:
""")
            print(table(["format", *CPUS[isa]], one))
            print()
        print("""A core has to be faster than its share of the memory. NVIDIA Grace, of Neoverse V2, has 72 cores and up to 500 GB/s of LPDDR5X (NVIDIA's data sheet of the Grace
CPU Superchip gives 144 cores and up to 1 TB/s), which is 6.9 GB/s a core where all of them read: a line in 9.2 ns, 29 cycles at 3.1 GHz.""")


if __name__ == "__main__":
    main()
