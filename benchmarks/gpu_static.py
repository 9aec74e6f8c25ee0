#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the machine code of the GPU kernels says of their speed, for every chip, without a GPU.

    .venv/bin/python benchmarks/gpu_static.py > docs/benchmarks/gpu-static.md

Compiles linears of 4096 x 4096 and attention of 32 heads with easyquant-opt (EASYQUANT_TOOLS, or build/bin), assembles them with
ptxas, reads the main loops out of nvdisasm's text, and prints the page: how the page counts stands on the page.
"""

import argparse
import math
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sass import CHIPS, access_bytes, compile_kernels, count, cuda_program, functions_of, main_loop, main_path, matching

SIZE = 4096  # N and K of the linears

# site, type of the codes, scheme of the weights, groups, of int8 activations
LINEARS = [("w8a8", "i8", "i8, symmetric, channel", 1, True), ("w4a8", "i4", "i4, symmetric, group = 128", 32, True),
           ("w4a16", "i4", "i4, symmetric, group = 128", 32, False), ("w8a16", "i8", "i8, symmetric, channel", 1, False),
           ("w3a16", "i3", "i3, symmetric, group = 128", 32, False), ("w2a16", "i2", "i2, symmetric, group = 128", 32, False)]
TITLES = {"i8_q": "W8A8", "i4_g128_q": "W4A8, groups of 128", "i4_g128_bf16": "W4A16, groups of 128", "i8_bf16": "W8A16",
          "i3_g128_bf16": "W3A16, groups of 128", "i2_g128_bf16": "W2A16, groups of 128", "bf16_bf16": "bf16"}
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
# What the names of the kernels say of the cache, type of its codes.
CACHES = {"f16": ("", None), "int8": ("kv8_group64_residual128_sinks4_", "i8"), "int4": ("kv4_group64_residual128_sinks4_", "i4")}


@dataclass
class Machine:
    """Of a multiprocessor, in a cycle. Sources: products from the dense rates of NVIDIA's data sheets (A100, A40, AGX Orin, L40S,
    H100 SXM), divided by multiprocessors and boost clock; lanes from "Arithmetic instructions" of the CUDA C++ Programming Guide;
    memory from the same data sheets, H200 for sm_90a."""

    device: str
    half_products: int  # multiply-adds of f16 or bf16 with sums in f32, in the tensor cores
    byte_products: int  # of int8
    half_lanes: int  # threads whose pair of bf16 is multiplied and added
    float_lanes: int
    memory_bytes: float


MACHINES = {
    "sm_80": Machine("A100 80 GB", 1024, 2048, 64, 64, 2039 / 108 / 1.41),
    "sm_86": Machine("A40", 512, 1024, 64, 128, 696 / 84 / 1.74),
    "sm_87": Machine("AGX Orin", 1024, 2048, 64, 128, 204.8 / 16 / 1.3),
    "sm_89": Machine("L40S", 512, 1024, 64, 128, 864 / 142 / 2.52),
    "sm_90a": Machine("H200", 2048, 4096, 128, 128, 4800 / 132 / 1.83),
}
ISSUE_SLOTS = 4  # schedulers
INTEGER_LANES = 64
SPECIAL_LANES = 16
SHARED_BYTES = 128
# The pipe of bits, sums and comparisons; products of integers have another.
INTEGER = "LOP3|SHF|LEA|PRMT|SEL|ISETP|IADD3|IMNMX|FMNMX|FSEL|FSETP"


def model_text():
    """A function of one linear after another, on the same input, and one of attention for each cache."""
    x, s = f"%x: tensor<?x{SIZE}xf32>", SIZE
    arguments, lines = [x, f"%wf: tensor<{s}x{s}xf32>"], []
    for name, codes, scheme, groups, quantized in LINEARS:
        types = f"tensor<{s}x{s}x{codes}>, tensor<{s}x{groups}xf32>"
        arguments += [f"%w_{name}: tensor<{s}x{s}x{codes}>", f"%s_{name}: tensor<{s}x{groups}xf32>"]
        inputs = ", input_scheme = #equant.scheme<i8, symmetric, token, dynamic>" if quantized else ""
        lines.append(f'  %y_{name} = equant.linear %x, %w_{name} scale(%s_{name}) {{sites = ["{name}"], '
                     f"weight_scheme = #equant.scheme<{scheme}>{inputs}}} : (tensor<?x{s}xf32>, {types}) -> tensor<?x{s}xf32>")
    lines.append(f'  %y_float = lm.linear %x, %wf {{site = "float"}} : (tensor<?x{s}xf32>, tensor<{s}x{s}xf32>) -> tensor<?x{s}xf32>')
    results = [f"%y_{name}" for name, *_ in LINEARS] + ["%y_float"]
    types = ", ".join([f"tensor<?x{s}xf32>"] * len(results))
    return "\n".join([f"func.func @linears({', '.join(arguments)}) -> ({types}) {{", *lines,
                      f"  return {', '.join(results)} : {types}", "}", *(attention_text(*cache) for cache in CACHES.items()), ""])


def attention_text(name, cache):
    q, kv, handle = (f"tensor<?x{HEADS * HEAD_DIM}xf32>", f"tensor<?x{KV_HEADS * HEAD_DIM}xf32>",
                     f"!lm.kv_cache<layers = 1, kv_heads = {KV_HEADS}, head_dim = {HEAD_DIM}>")
    codes = cache[1]
    scheme = f", kv_scheme = #equant.kv_scheme<code = {codes}, group = 64, residual = 128, sinks = 4, keys = channel>" if codes else ""
    return "\n".join([f"func.func @attention_{name}(%q: {q}, %k: {kv}, %v: {kv}, %cache: {handle}, %position: index) -> {q} {{",
                      f"  %y = {'equant' if codes else 'lm'}.attention %q, %k, %v, %cache, %position {{layer = 0, num_heads = {HEADS}, "
                      f"num_kv_heads = {KV_HEADS}, head_dim = {HEAD_DIM}, scale = {HEAD_DIM ** -0.5}{scheme}}} : {q}, {kv}, {handle}",
                      f"  return %y : {q}", "}"])


def attention_kernel(functions, cache, form):
    """The name of the kernel that attends: `form` is split (few tokens) or blocked."""
    pattern = rf"attention_{HEADS}of{KV_HEADS}x{HEAD_DIM}_scale[0-9a-f]+_{CACHES[cache][0]}{form}"
    [name] = [name for name in functions if re.match(pattern, name)]
    return name


def cycles_of(body, warps, machine):
    """Cycles of a multiprocessor that `warps` warps need at least for one turn of the loop, by resource."""
    products = count(body, "HMMA") * 16 * 8 * 16 / machine.half_products + count(body, "IMMA") * 16 * 8 * 32 / machine.byte_products
    moved = sum(32 * access_bytes(i) for i in matching(body, "LDS|LDSM|LDGSTS|STS") if "RZ, [RZ]" not in i)
    of_a_warp = {
        "tensor cores": products,
        "issue": len(body) / ISSUE_SLOTS,
        "integer": count(body, INTEGER) * 32 / INTEGER_LANES,
        "integer products": count(body, "IMAD|IDP") * 32 / INTEGER_LANES,
        "half": count(body, "HFMA2|HADD2|HMUL2") * 32 / machine.half_lanes,
        "float": count(body, "FFMA|FADD|FMUL") * 32 / machine.float_lanes,
        "special": count(body, "MUFU") * 32 / SPECIAL_LANES,
        "shared memory": moved / SHARED_BYTES,
    }
    return {resource: warps * cycles for resource, cycles in of_a_warp.items()}


def kernels_of(opt, model, chip, folder):
    """{kernel: (instructions, threads of a block)}"""
    cubin, ptx = folder / f"{chip}.cubin", folder / f"{chip}.ptx"
    result = compile_kernels(opt, model, chip, cubin, ptx)
    if result.returncode != 0:
        sys.exit(f"error: easyquant-opt for {chip}: {result.stderr}")
    threads = dict(re.findall(r"\.entry (\w+)\(.*?\.(?:req|max)ntid (\d+)", ptx.read_text(), re.S))
    return {name: (code, int(threads[name])) for name, code in functions_of(cubin).items() if name in threads}


def title_of(kernel):
    return TITLES[re.match(rf"linear_{SIZE}x{SIZE}_(.*?)(_f32)?_(mma|stream|dp4a)_", kernel)[1].removesuffix("_f32")]


def matrix_row(chip, kernel, code, threads):
    rows, columns, slab = map(int, re.search(r"_mma_(\d+)x(\d+)x(\d+)", kernel).groups())
    body, warps, machine = main_loop(code), threads // 32, MACHINES[chip]
    tensor = count(body, "HMMA|IMMA")
    depth = 16 if count(body, "HMMA") else 32
    slabs = tensor / (rows * columns * slab / (warps * 16 * 8 * depth))
    cycles = {resource: total / slabs for resource, total in cycles_of(body, warps, machine).items()}
    bound = max(cycles, key=cycles.get)
    loads = [access_bytes(i) for i in matching(body, "LDS|LDSM") if "RZ, [RZ]" not in i]
    return [title_of(kernel), f"{rows} × {columns} × {slab}", chip, f"{len(body)}", f"{100 * tensor / len(body):.0f} %",
            f"{sum(loads) / len(loads):.0f}", f"{count(body, 'LDGSTS')}", f"{count(code, 'LDL|STL')}",
            *(f"{cycles[r]:.0f}" for r in ("tensor cores", "issue", "integer", "half", "shared memory")),
            f"{cycles[bound] * math.ceil(SIZE / slab):.0f}", bound, f"{100 * cycles['tensor cores'] / cycles[bound]:.0f} %"]


def stream_row(chip, kernel, code):
    body, machine = main_loop(code, "HMMA|IDP"), MACHINES[chip]
    whole = body is None
    if whole:
        body = [line for line in code if not line.endswith(":")]
    cycles = cycles_of(body, 1, machine)
    bound = max(cycles, key=cycles.get)
    weights = sum(32 * access_bytes(i) for i in matching(body, "LDG") if access_bytes(i) >= 8)
    rate = weights / cycles[bound]
    return [title_of(kernel), chip, f"{len(body)}{' (all)' if whole else ''}", f"{weights}", f"{count(code, 'LDL|STL')}",
            f"{cycles[bound]:.0f}", bound, f"{rate:.1f}", f"{machine.memory_bytes:.1f}", f"{rate / machine.memory_bytes:.1f}"]


def attention_rows(chip, cache, form, name, code, threads):
    body, warps, machine = main_path(code), threads // 32, MACHINES[chip]
    tensor, cycles = count(body, "HMMA"), cycles_of(body, warps, machine)
    bound = max(cycles, key=cycles.get)
    loads = [access_bytes(i) for i in matching(body, "LDS|LDSM") if "RZ, [RZ]" not in i]
    brought = [access_bytes(i) for i in matching(body, "LDG|LDGSTS")]
    row = [cache, chip, f"{len(body)}", f"{100 * tensor / len(body):.0f} %", f"{sum(loads) / len(loads):.0f}",
           f"{sum(brought) / len(brought):.0f}", f"{count(body, 'LDGSTS')}", f"{count(code, 'LDL|STL')}",
           *(f"{cycles[r]:.0f}" for r in ("tensor cores", "issue", "integer", "half", "float", "special", "shared memory")), bound]
    if form == "blocked":
        return [*row, f"{100 * cycles['tensor cores'] / cycles[bound]:.0f} %"]
    rate = warps * 32 * sum(brought) / cycles[bound]
    return [*row, f"{rate:.1f}", f"{machine.memory_bytes:.1f}", f"{rate / machine.memory_bytes:.1f}"]


def table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


TEXT = f"""# What the machine code says

    .venv/bin/python benchmarks/gpu_static.py > docs/benchmarks/gpu-static.md

Nothing here was timed. The kernels of linears of {SIZE} × {SIZE}, and of attention, are compiled for each chip, and the main loop of
each is read from the machine code: the innermost loop with products. From its instructions follows the least number of cycles that a
multiprocessor takes for it, whatever else happens; a kernel is slower by what it waits.

For a loop of a block of w warps, the cycles of a multiprocessor are at least the largest of

- **tensor cores**: w × (products of the HMMA and IMMA of a warp) / (dense products a cycle);
- **issue**: w × (instructions of a warp) / {ISSUE_SLOTS};
- **integer**: w × ({INTEGER.replace("|", ", ")}) × 32 / {INTEGER_LANES};
- **integer products**: w × (IMAD, IDP) × 32 / {INTEGER_LANES}, which are made elsewhere;
- **half**: w × (HFMA2, HADD2, HMUL2) × 32 / lanes; **float** likewise of FFMA, FADD and FMUL;
- **special**: w × MUFU × 32 / {SPECIAL_LANES}, the exponentials of attention;
- **shared memory**: w × bytes of LDS, LDSM, LDGSTS and STS / {SHARED_BYTES}.

Of a multiprocessor, a cycle (dense rates and memory bandwidth of the data sheet over multiprocessors and boost clock; lanes of bf16
pairs and of f32 from the CUDA C++ Programming Guide):

"""

MATRIX = f"""
## Tiles

The tile for many rows. Cycles are of one slab of one block; "a tile" is all of K = {SIZE}, without what is before and after
the loop and, with groups, between the groups. "share" is the tensor cores' part of the issue slots, "bound" what takes longest,
"busy" how much of that time the tensor cores work at most. "load": bytes a lane of a load from shared memory.

"""

STREAM = """
## Few rows

The kernels for one row. "bytes" of weights that a warp reads in one turn of the loop; "allowed" is how many bytes a cycle its
instructions leave time for on a multiprocessor full of warps, "memory" what the device's memory delivers to each. Where allowed
is more than memory, memory is the bound. "(all)": each warp has so few groups that there is no loop, and the whole kernel is counted.

"""

ATTENTION = f"""
## Attention

{HEADS} heads on {KV_HEADS} key/value heads of {HEAD_DIM} dimensions, over a cache of f16 or of codes (groups of 64, scales of keys per
channel). A turn of the loop takes 64 tokens of the cache. Of a cache of codes it has a short way for 64 tokens that are all codes, and
a long one for those at the window's edge; the short one is counted. "load": bytes a lane of a load from shared memory, "global": of
one from global memory.

"""

ATTENTION_FEW = """
Of few tokens, 16 queries (4 of a token and key/value head) a block; the cache is read once, so that memory is to be the bound: columns
as for the linears of few rows.

"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="chips compiled at a time")
    parser.add_argument("--keep", type=Path, help="folder to leave the code of each chip in")
    args = parser.parse_args()
    for program in ("ptxas", "nvdisasm"):
        if not cuda_program(program):
            sys.exit(f"error: no {program}: install the extra `gpu` of this checkout (scripts/setup.sh, or pip install '.[gpu]')")
    opt = Path(os.environ.get("EASYQUANT_TOOLS", Path(__file__).resolve().parent.parent / "build" / "bin")) / "easyquant-opt"
    with tempfile.TemporaryDirectory(prefix="easyquant-static-") as folder, ThreadPoolExecutor(args.jobs) as pool:
        folder = args.keep or Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.mlir").write_text(model_text())
        kernels = dict(zip(CHIPS, pool.map(lambda chip: kernels_of(opt, folder / "model.mlir", chip, folder), CHIPS)))

    print(TEXT, end="")
    table(["chip", "as in", "products, 16 bits", "products, int8", "pairs of bf16", "f32", "bytes of memory"],
          [[chip, m.device, f"{m.half_products}", f"{m.byte_products}", f"{m.half_lanes}", f"{m.float_lanes}", f"{m.memory_bytes:.1f}"]
           for chip, m in MACHINES.items()])
    print("GeForce cards of sm_86 and sm_89 have half as many products of 16 bits. On sm_90a, mma.sync is known to reach about two\n"
          "thirds of these rates, which are those of wgmma.")
    print(MATRIX, end="")
    rows, few = [], []
    for title in TITLES.values():
        for chip in CHIPS:
            for name, (code, threads) in sorted(kernels[chip].items()):
                if not name.startswith("linear_") or title_of(name) != title:
                    continue
                if "_mma_128x128" in name:
                    rows.append(matrix_row(chip, name, code, threads))
                if re.search(r"_(stream|dp4a)_1$", name):
                    few.append(stream_row(chip, name, code))
    table(["weights", "tile", "chip", "instructions", "share", "load", "LDGSTS", "local", "tensor", "issue", "integer", "half", "shared",
           "a tile", "bound", "busy"], rows)
    print(STREAM.lstrip("\n"), end="")
    table(["weights", "chip", "instructions", "bytes", "local", "cycles", "bound", "allowed", "memory", "ratio"], few)
    print(ATTENTION.lstrip("\n"), end="")
    columns = ["cache", "chip", "instructions", "share", "load", "global", "LDGSTS", "local", "tensor", "issue", "integer", "half", "float",
               "special", "shared", "bound"]
    for form, text, more in (("blocked", "64 queries a block:\n\n", ["busy"]), ("split", ATTENTION_FEW.lstrip("\n"), ["allowed", "memory", "ratio"])):
        print(text, end="")
        found = []
        for cache in CACHES:
            for chip in CHIPS:
                name = attention_kernel(kernels[chip], cache, form)
                found.append(attention_rows(chip, cache, form, name, *kernels[chip][name]))
        table([*columns, *more], found)
    spilled = sorted(f"{name} ({chip})" for chip, found in kernels.items() for name, (code, _) in found.items()
                     if count(code, "LDL|STL"))
    print('"local": instructions that touch local memory (LDL, STL) in all of a kernel; ' +
          (f"there are some in {', '.join(spilled)}." if spilled else "of all these kernels, for any number of rows, none has any."))
    if slow := [f"{row[0].split(',')[0]} on {row[1]} ({row[-1]})" for row in few if float(row[-1]) < 1.05]:
        print(f"\nMemory is not what bounds {', '.join(slow)}: unpacking takes as long, or longer.")


if __name__ == "__main__":
    main()
