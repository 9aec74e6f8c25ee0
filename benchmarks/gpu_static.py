#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the machine code of the GPU kernels says of their speed, for every chip, without a GPU.

    .venv/bin/python benchmarks/gpu_static.py > docs/benchmarks/gpu-static.md

Compiles linears of 4096 x 4096 and attention of 32 heads with easyquant-opt, and linears of few rows with easyquant-gpu-kernel-bench
(EASYQUANT_TOOLS, or build/bin), assembles them with ptxas, reads the main loops out of nvdisasm's text, and prints the page: how the page
counts stands on the page.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from easyquant.prediction import chips
from easyquant.prediction.chips import CHIPS
from easyquant.prediction.kernels import INTEGER, INTEGER_LANES, INTEGER_PRODUCTS, ISSUE_SLOTS, SHARED_BYTES, SPECIAL, SPECIAL_LANES, cycles_of
from easyquant.prediction.launch_list import Happening, ListedKernel, ListedLaunch
from easyquant.prediction.launch_time import Traffic, bytes_of_turn, launch_time, memory_cycles
from easyquant.prediction.machine_code import access_bytes, count, loads_of_waits, main_loop, main_path, matching, waits
from easyquant.prediction.traffic import CacheRead, traffic_of
from easyquant.prediction.warp_time import cycles_through
from easyquant.support.tools import cuda_program
from sass import kernels_in

SIZE = 4096  # N and K of the linears

# site, type of the codes, type of the scales, groups of a row, of int8 activations
LINEARS = [("w8a8", "i8", "f32", 1, True), ("w4a8", "i4", "f32", 32, True), ("w4a8_f16", "i4", "f16", 32, True),
           ("w2a8_f16", "i2", "f16", 32, True), ("w4a16", "i4", "f32", 32, False), ("w4a16_f16", "i4", "f16", 32, False),
           ("w8a16", "i8", "f32", 1, False), ("w3a16", "i3", "f32", 32, False), ("w2a16", "i2", "f32", 32, False)]
TITLES = {"i8_q": "W8A8", "i4_g128_q": "W4A8, groups of 128", "i4_sf16_g128_q": "W4A8, groups of 128, f16 scales",
          "i2_sf16_g128_q": "W2A8, groups of 128, f16 scales", "i4_g128_bf16": "W4A16, groups of 128",
          "i4_sf16_g128_bf16": "W4A16, groups of 128, f16 scales", "i8_bf16": "W8A16", "i3_g128_bf16": "W3A16, groups of 128",
          "i2_g128_bf16": "W2A16, groups of 128", "bf16_bf16": "bf16"}
FAMILIES = dict(zip([*(name for name, *_ in LINEARS), "bf16"], TITLES.values()))  # of the benchmark: their titles
FEW_ROWS = (1, 4, 16)
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
WEIGHT_BYTES = 8  # a lane's least load of weights; loads of activations, which come from a cache, are of four
# What the names of the kernels say of the cache, type of its codes.
CACHES = {"f16": ("", None), "int8": ("kv8_group64_residual128_sinks4_", "i8"), "int4": ("kv4_group64_residual128_sinks4_", "i4")}


UNDER_WAY = ["loads", "blocks", "under way", "by time", "wanted"]
# The page of the H200's times, and the kernels of it that estimates stand beside.
MEASURED = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "gpu-h200.md"
MEASURED_CHIP, MEASURED_ROWS = "sm_90a", (1, 16, 128)
MEASURED_FAMILIES = ("w8a8", "w4a8", "w4a8_f16", "w2a8_f16", "w8a16", "w4a16", "w4a16_f16", "w3a16", "w2a16", "bf16")
SHAPES = ("4096x4096", "11008x4096", "4096x11008", "17408x5120")


def model_text():
    """A function of one linear after another, on the same input, one that rotates rows, and one of attention for each cache."""
    x, s = f"%x: tensor<?x{SIZE}xf32>", SIZE
    arguments, globals_, lines = [x, f"%wf: tensor<{s}x{s}xf32>"], [], []
    for name, codes, scales, groups, quantized in LINEARS:
        scheme = f"{codes}, symmetric, {'channel' if groups == 1 else f'group = {s // groups}'}{'' if scales == 'f32' else f', scale = {scales}'}"
        weight = f"!equant.weight<{s}x{s}, #equant.scheme<{scheme}>, #equant.layout<m16n8k{32 if quantized else 16}>>"
        globals_.append(f"ml_program.global private @w_{name}(#ml_program.extern : {weight}) : {weight} {{equant.offset = array<i64: 0, 0>}}")
        lines.append(f"  %w_{name} = ml_program.global_load_const @w_{name} : {weight}")
        inputs = ", input_scheme = #equant.scheme<i8, symmetric, token, dynamic>" if quantized else ""
        lines.append(f'  %y_{name} = equant.packed_linear %x, %w_{name} {{sites = ["{name}"]{inputs}}} : '
                     f"(tensor<?x{s}xf32>, {weight}) -> tensor<?x{s}xf32>")
    lines.append(f'  %y_float = lm.linear %x, %wf {{site = "float"}} : (tensor<?x{s}xf32>, tensor<{s}x{s}xf32>) -> tensor<?x{s}xf32>')
    results = [f"%y_{name}" for name, *_ in LINEARS] + ["%y_float"]
    types = ", ".join([f"tensor<?x{s}xf32>"] * len(results))
    return "\n".join([*globals_, f"func.func @linears({', '.join(arguments)}) -> ({types}) {{", *lines,
                      f"  return {', '.join(results)} : {types}", "}", f"func.func @rotated({x}) -> tensor<?x{s}xf32> {{",
                      f"  %y = equant.hadamard %x {{block = 512 : i64}} : tensor<?x{s}xf32>", f"  return %y : tensor<?x{s}xf32>", "}",
                      *(attention_text(*cache) for cache in CACHES.items()), ""])


def attention_text(name, cache):
    q, kv, handle = (f"tensor<?x{HEADS * HEAD_DIM}xf32>", f"tensor<?x{KV_HEADS * HEAD_DIM}xf32>",
                     f"!lm.kv_cache<layers = 1, kv_heads = {KV_HEADS}, head_dim = {HEAD_DIM}>")
    codes = cache[1]
    scheme = f", kv_scheme = #equant.kv_scheme<code = {codes}, group = 64, residual = 128, sinks = 4, keys = channel>" if codes else ""
    return "\n".join([f"func.func @attention_{name}(%q: {q}, %k: {kv}, %v: {kv}, %cache: {handle}, %batch: !lm.batch) -> {q} {{",
                      f"  %y = {'equant' if codes else 'lm'}.attention %q, %k, %v, %cache, %batch {{layer = 0, num_heads = {HEADS}, "
                      f"num_kv_heads = {KV_HEADS}, head_dim = {HEAD_DIM}, scale = {HEAD_DIM ** -0.5}{scheme}}} : {q}, {kv}, {handle}",
                      f"  return %y : {q}", "}"])


def attention_kernel(functions, cache, form):
    """The name of the kernel that attends: `form` is split (few tokens) or blocked."""
    pattern = rf"attention_{HEADS}of{KV_HEADS}x{HEAD_DIM}_scale[0-9a-f]+_{CACHES[cache][0]}{form}"
    [name] = [name for name in functions if re.match(pattern, name)]
    return name


def kernels_of(tools, model, chip, folder):
    """{name: Kernel} of the model, and the cases of the benchmark for few rows, with their kernels."""
    ptx, few = folder / f"{chip}.ptx", folder / f"few-{chip}"
    run([tools / "easyquant-opt", model, f"--easyquant-launches=target={chip}", f"--equant-lower-to-nvvm=target={chip}",
         f"--equant-emit-gpu-binary=ptx={ptx}", "-o", os.devnull])
    run([tools / "easyquant-gpu-kernel-bench", "--chip", chip, "--out", few, "--families", ",".join(FAMILIES), "--shapes", f"{SIZE}x{SIZE}",
         "--rows", ",".join(map(str, FEW_ROWS)), "--ptx-only", "--jobs", "1"])
    modules = {path.stem: kernels_in(path, chip) for path in few.glob("*.ptx")}
    cases = json.loads((few / "cases.json").read_text())["cases"]
    return kernels_in(ptx, chip), [(case, modules[case["module"]][case["kernel"]["name"]]) for case in cases]


def run(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"error: {command[0]}: {result.stderr}")


def title_of(kernel):
    return TITLES[re.match(rf"linear_{SIZE}x{SIZE}_(.*?)(_f32)?_(mma|stream|dp4a)_", kernel)[1].removesuffix("_f32")]


def matrix_row(chip, name, kernel):
    rows, columns, slab = map(int, re.search(r"_mma_(\d+)x(\d+)x(\d+)", name).groups())
    body, warps, machine = main_loop(kernel.code), kernel.threads // 32, CHIPS[chip]
    tensor = count(body, "HMMA|IMMA")
    depth = 16 if count(body, "HMMA") else 32
    slabs = tensor / (rows * columns * slab / (warps * 16 * 8 * depth))
    cycles = {resource: total / slabs for resource, total in cycles_of(body, warps, machine).items()}
    bound = max(cycles, key=cycles.get)
    loads = [access_bytes(i) for i in matching(body, "LDS|LDSM") if "RZ, [RZ]" not in i]
    return [title_of(name), f"{rows} × {columns} × {slab}", chip, f"{len(body)}", f"{100 * tensor / len(body):.0f} %",
            f"{sum(loads) / len(loads):.0f}", f"{count(body, 'LDGSTS')}", f"{count(kernel.code, 'LDL|STL')}",
            *(f"{cycles[r]:.0f}" for r in ("tensor cores", "issue", "integer", "half", "shared memory")),
            f"{cycles[bound] * math.ceil(SIZE / slab):.0f}", bound, f"{100 * cycles['tensor cores'] / cycles[bound]:.0f} %"]


def under_way(kernel, machine, blocks, resident, found, least_bytes, body=None):
    """Columns: loads, blocks, KB under way, on the average of waits and by time, KB wanted; and whether both are enough. `body`: one turn
    of the loop; without it the code is gone through once, and both are the same."""
    loads = loads_of_waits(found, least_bytes)
    on_each = min(resident, blocks / machine.multiprocessors)
    bytes_under_way = on_each * kernel.threads * sum(map(sum, loads)) / len(loads)
    by_time = bytes_under_way
    if body and (brought := bytes_of_turn(body, kernel.threads // 32)):
        memory = memory_cycles(machine)
        by_time = on_each * brought * memory.wide / cycles_through(body, memory, 8)
    return [f"{sum(map(len, loads)) / len(loads):.1f}", f"{on_each:.1f}", f"{bytes_under_way / 1000:.0f}", f"{by_time / 1000:.0f}",
            f"{machine.wanted_bytes / 1000:.0f}"], min(bytes_under_way, by_time) >= machine.wanted_bytes


def few_row(chip, case, kernel):
    body, machine = main_loop(kernel.code, "HMMA|IDP"), CHIPS[chip]
    whole = body is None
    if whole:
        body = [line for line in kernel.code if not line.endswith(":")]
    cycles = cycles_of(body, 1, machine)
    bound = max(cycles, key=cycles.get)
    weights = sum(32 * access_bytes(i) for i in matching(body, "LDG") if access_bytes(i) >= WEIGHT_BYTES)
    rate = weights / cycles[bound]
    blocks = math.prod(factor * (math.ceil(case["rows"] / rows) if rows else 1) for factor, rows in case["kernel"]["grid"])
    columns, enough = under_way(kernel, machine, blocks, kernel.resident(machine), waits(body, 1) if whole else waits(body), WEIGHT_BYTES,
                                None if whole else body)
    row = [FAMILIES[case["family"]], chip, f"{case['bytes'] / 1e6:.1f}", f"{len(body)}{' (all)' if whole else ''}", f"{weights}", f"{count(kernel.code, 'LDL|STL')}",
           f"{cycles[bound]:.0f}", bound, f"{rate:.1f}", f"{machine.memory_bytes:.1f}", f"{rate / machine.memory_bytes:.1f}", *columns]
    return row, enough


def attention_row(chip, cache, form, kernel):
    body, warps, machine = main_path(kernel.code), kernel.threads // 32, CHIPS[chip]
    tensor, cycles = count(body, "HMMA"), cycles_of(body, warps, machine)
    bound = max(cycles, key=cycles.get)
    loads = [access_bytes(i) for i in matching(body, "LDS|LDSM") if "RZ, [RZ]" not in i]
    brought = [access_bytes(i) for i in matching(body, "LDG|LDGSTS")]
    row = [cache, chip, f"{len(body)}", f"{100 * tensor / len(body):.0f} %", f"{sum(loads) / len(loads):.0f}",
           f"{sum(brought) / len(brought):.0f}", f"{count(body, 'LDGSTS')}", f"{count(kernel.code, 'LDL|STL')}",
           *(f"{cycles[r]:.0f}" for r in ("tensor cores", "issue", "integer", "half", "float", "special", "shared memory")), bound]
    if form == "blocked":
        return [*row, f"{100 * cycles['tensor cores'] / cycles[bound]:.0f} %"], True
    rate = warps * 32 * sum(brought) / cycles[bound]
    # Its shared memory is the launch's. Two blocks a multiprocessor take turns with the pieces of a step.
    columns, enough = under_way(kernel, machine, 2 * machine.multiprocessors, kernel.asked, waits(body), 1, body)
    return [*row, f"{rate:.1f}", f"{machine.memory_bytes:.1f}", f"{rate / machine.memory_bytes:.1f}", *columns], enough


def measured_times(page):
    """{(family, 'N × K', M): microseconds} of the page of a device's times."""
    rows = re.findall(r"^\| (\w+) \| (\d+ × \d+) \| (\d+) \| ([\d.]+) \|", page, re.M)
    return {(family, shape, int(rows)): float(time) for family, shape, rows, time in rows}


def traffic_of_case(case):
    """The bytes of a linear of the benchmark, as `easyquant.prediction.traffic` counts those of an artifact."""
    kernel = case["kernel"]
    listed = ListedKernel(kernel["name"], tuple(map(tuple, kernel["grid"])), kernel["shared_bytes"])
    launch = ListedLaunch(case["family"], "gemm", listed, 1, 0, tuple(range(len(case["arguments"]))), least_rows=1)
    sizes = {"i8": 1, "u8": 1, "f16": 2, "bf16": 2, "f32": 4, "i32": 4}
    weights = {i: argument["count"] * sizes[argument["type"]] if argument.get("rotated") and not argument["written"] else 0
               for i, argument in enumerate(case["arguments"])}  # fmt: skip
    return traffic_of(Happening(launch, case["rows"]), weights, CacheRead(1, {}, {}))


def estimates(tools, folder):
    """Rows of kernels with times measured and estimated, and the errors by number of rows."""
    measured, found, errors = measured_times(MEASURED.read_text()), [], {m: [] for m in MEASURED_ROWS}
    run([tools / "easyquant-gpu-kernel-bench", "--chip", MEASURED_CHIP, "--out", folder / "timed", "--families", ",".join(MEASURED_FAMILIES), "--shapes",
         ",".join(SHAPES), "--rows", ",".join(map(str, MEASURED_ROWS)), "--ptx-only", "--jobs", "1"])
    modules = {path.stem: kernels_in(path, MEASURED_CHIP) for path in (folder / "timed").glob("*.ptx")}
    for case in json.loads((folder / "timed" / "cases.json").read_text())["cases"]:
        time = measured.get((case["family"], f"{case['n']} × {case['k']}", case["rows"]))
        if time is None:
            continue
        traffic, blocks = traffic_of_case(case)
        estimate = launch_time(modules[case["module"]][case["kernel"]["name"]], CHIPS[MEASURED_CHIP], blocks, traffic, case["kernel"]["shared_bytes"])
        error = estimate.seconds * 1e6 / time - 1
        errors[case["rows"]].append(error)
        found.append([case["family"], f"{case['n']} × {case['k']}", f"{case['rows']}", f"{time:.1f}", f"{estimate.seconds * 1e6:.1f}",
                      f"{100 * error:+.0f} %".replace("-", "−"), estimate.binds])
    return found, errors


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
- **integer products**: w × ({INTEGER_PRODUCTS.replace("|", ", ")}) × 32 / {INTEGER_LANES}, which are made elsewhere;
- **half**: w × (HFMA2, HADD2, HMUL2) × 32 / lanes; **float** likewise of FFMA, FADD and FMUL;
- **special**: w × ({SPECIAL.replace("|", ", ")}) × 32 / {SPECIAL_LANES}, the exponentials of attention;
- **shared memory**: w × bytes of LDS, LDSM, LDGSTS and STS / {SHARED_BYTES}.

Rates of a multiprocessor in one cycle. Dense rates and memory bandwidth are those of the data sheet, divided by multiprocessors and boost
clock. Lanes of bf16 pairs and of f32 are those of the CUDA C++ Programming Guide.

"""

MATRIX = f"""
## Tiles

The tile for many rows. Cycles are of one slab of one block; "a tile" is all of K = {SIZE}, without what is before and after
the loop and, with groups, between the groups. "share" is the tensor cores' part of the issue slots, "bound" what takes longest,
"busy" how much of that time the tensor cores work at most. "load": bytes a lane of a load from shared memory.

"""

FEW = f"""
## Few rows

The kernels of the benchmark for M rows.

- "MB": codes, scales, activations and results, each counted once.
- "bytes": weights that a warp reads in one turn of the loop. "(all)": each warp has so few groups that there is no loop, and the whole
  kernel is counted.
- "allowed": the bytes a cycle for which the instructions leave time, on a multiprocessor full of warps. "memory": the bytes a cycle that the
  device's memory delivers to each multiprocessor. Where allowed is more than memory, memory is the bound.

Memory is busy only while enough loads are under way.

- "loads": loads of weights that a lane has under way when the loop waits for one of them. It is the average over the places where it waits, if
  all loads take equally long and instructions no time.
- "blocks": blocks of a layer of {SIZE} rows on a multiprocessor, as far as its registers, threads and shared memory have room.
- "under way": KB, both multiplied.
- "by time": KB on the average of the loop's time, not of its waits: what a turn brings, times the latency, over the time that a warp
  alone takes for a turn (`easyquant.prediction.warp_time`). A kernel that waits several times in a turn has less under way.
- "wanted": KB, the bandwidth times {chips.LATENCY * 1e9:.0f} ns, the time that memory is assumed to take under load.

"""

ATTENTION = f"""
## Attention

{HEADS} heads on {KV_HEADS} key/value heads of {HEAD_DIM} dimensions, over a cache of f16 or of codes (groups of 64, scales of keys per
channel). A turn of the loop takes 64 tokens of the cache. With a cache of codes the loop has a short way for 64 tokens that are all codes,
and a long one for tokens at the window's edge; the short one is counted. "load": bytes that a lane loads at once from shared memory.
"global": bytes that it loads at once from global memory.

"""

ATTENTION_FEW = """
With few tokens a block has 16 queries (4 of a token and key/value head). The cache is read once, so that memory should be the bound. Columns
are as for linears of few rows: "loads" counts those of keys or values with their scales, "blocks" is the number by design.

"""


TIMES = f"""
## Time

An estimate, by the model of `easyquant predict` ([the guide](../guide/predict.md)): a fixed time of {chips.LAUNCH * 1e6:.1f} µs a launch, a latency of
{chips.LATENCY * 1e6:.1f} µs, and the longest of what memory, bytes under way, caches, issue slots and units take. "measured" are the times of
[an H200](gpu-h200.md), by which the constants were chosen. They are times of the kernels of then: tiles for 5 to 256 rows have other sizes and deeper
rings since, and blocks share K, so that the "error" of 16 and 128 rows is what the new ones should gain and what the model misses, together. Where blocks share K, what the
last one adds up comes behind the longest. No published table of another kernel has been compared.

"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="chips compiled at a time")
    parser.add_argument("--keep", type=Path, help="folder to leave the code of each chip in")
    args = parser.parse_args()
    for program in ("ptxas", "nvdisasm"):
        if not cuda_program(program):
            sys.exit(f"error: no {program}: install the extra `gpu` of this checkout (scripts/setup.sh, or pip install '.[gpu]')")
    tools = Path(os.environ.get("EASYQUANT_TOOLS", Path(__file__).resolve().parent.parent / "build" / "bin"))
    with tempfile.TemporaryDirectory(prefix="easyquant-static-") as folder, ThreadPoolExecutor(args.jobs) as pool:
        folder = args.keep or Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.mlir").write_text(model_text())
        kernels = dict(zip(CHIPS, pool.map(lambda chip: kernels_of(tools, folder / "model.mlir", chip, folder), CHIPS)))
        beside, errors = estimates(tools, folder)

    print(TEXT, end="")
    table(["chip", "as in", "products, 16 bits", "products, int8", "pairs of bf16", "f32", "bytes of memory"],
          [[chip, m.device, f"{m.half_products}", f"{m.byte_products}", f"{m.half_lanes}", f"{m.float_lanes}", f"{m.memory_bytes:.1f}"]
           for chip, m in CHIPS.items()])
    print("GeForce cards of sm_86 and sm_89 have half as many products of 16 bits. On sm_90a, mma.sync is known to reach about two\n"
          "thirds of these rates, which are those of wgmma.")
    print(MATRIX, end="")
    rows, slow, idle = [], [], []
    for title in TITLES.values():
        for chip in CHIPS:
            rows += [matrix_row(chip, name, kernel) for name, kernel in sorted(kernels[chip][0].items())
                     if re.search(r"_mma_128x128x\d+$", name) and title_of(name) == title]
    table(["weights", "tile", "chip", "instructions", "share", "load", "LDGSTS", "local", "tensor", "issue", "integer", "half", "shared",
           "a tile", "bound", "busy"], rows)
    print(FEW.lstrip("\n"), end="")
    for m in FEW_ROWS:
        print(f"M = {m}{', where no tile is taken' if m > 1 else ''}:\n")
        found = []
        for family in FAMILIES:
            for chip in CHIPS:
                for case, kernel in kernels[chip][1]:
                    if (case["family"], case["rows"]) == (family, m) and "_mma_" not in case["kernel"]["name"]:
                        row, enough = few_row(chip, case, kernel)
                        found.append(row)
                        where = f"{row[0].replace(', groups of 128', '').replace(',', ' with')}, M = {m}, on {chip}"
                        slow += [f"{where} ({row[10]})"] if m == 1 and float(row[10]) < 1.05 else []
                        idle += [] if enough else [f"{where} ({row[-3]}, by time {row[-2]} of {row[-1]} KB)"]
        table(["weights", "chip", "MB", "instructions", "bytes", "local", "cycles", "bound", "allowed", "memory", "ratio", *UNDER_WAY], found)
    print(ATTENTION.lstrip("\n"), end="")
    columns = ["cache", "chip", "instructions", "share", "load", "global", "LDGSTS", "local", "tensor", "issue", "integer", "half", "float",
               "special", "shared", "bound"]
    for form, text, more in (("blocked", "64 queries a block:\n\n", ["busy"]),
                             ("split", ATTENTION_FEW.lstrip("\n"), ["allowed", "memory", "ratio", *UNDER_WAY])):
        print(text, end="")
        found = []
        for cache in CACHES:
            for chip in CHIPS:
                name = attention_kernel(kernels[chip][0], cache, form)
                row, enough = attention_row(chip, cache, form, kernels[chip][0][name])
                found.append(row)
                idle += [] if enough else [f"attention over {cache} on {chip} ({row[-3]}, by time {row[-2]} of {row[-1]} KB)"]
        table([*columns, *more], found)
    spilled = sorted(f"{name} ({chip})" for chip, (found, _) in kernels.items() for name, kernel in found.items()
                     if count(kernel.code, "LDL|STL"))
    print('"local": instructions that touch local memory (LDL, STL) in all of a kernel; ' +
          (f"there are some in {', '.join(spilled)}." if spilled else "none of these kernels has any, for any number of rows."))
    if slow:
        print(f"\nMemory is not what bounds {'; '.join(slow)}: unpacking takes as long, or longer.")
    if idle:
        print(f"\nLess is under way than wanted in {'; '.join(idle)}.")
    print(TIMES, end="")
    table(["rows", "kernels", "median of the error's size", "least", "greatest"],
          [[f"{m}", f"{len(found)}", f"{100 * statistics.median(map(abs, found)):.0f} %", *(f"{100 * value:+.0f} %".replace("-", "−") for value in (min(found), max(found)))]
           for m, found in errors.items()])
    table(["kernel", "N × K", "M", "measured, µs", "estimated, µs", "error", "binds"], beside)


if __name__ == "__main__":
    main()
