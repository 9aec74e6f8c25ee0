#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks and times the generated GPU kernels, beside torch and the device's own copies. Needs the driver, numpy and torch.

    build/bin/easyquant-gpu-kernel-bench --chip sm_90a --out KERNELS     # where the compiler is
    python3 benchmarks/gpu_kernels.py KERNELS --json results.json        # where the GPU is

Every kernel is checked first, on layers of at most 2^24 weights: integers to the bit, floats within their bound. A time is the median of
several runs of a CUDA graph that goes through at least 1 GB of weights, interleaved with the same of torch and a copy. --simt checks the
small layers on the driver of the tests, which simulates a GPU, and times nothing. What fails is said, and the rest goes on; the exit status
is 1 then. --once launches every kernel that is timed once and does nothing else, for a profiler:

    ncu --set full --clock-control none python3 benchmarks/gpu_kernels.py KERNELS --once --families w4a16
"""

import argparse
import ctypes
import datetime
import json
import math
import os
import statistics
import sys
import time
from itertools import groupby
from pathlib import Path

import numpy as np

import gpu_reference as reference
from cuda_driver import CLOCK_KHZ, LIBRARY, MULTIPROCESSORS, OVERLAPPING_CAPABILITY, CudaError, Driver
from easyquant.prediction.chips import CHIPS
from torch_peers import NoTorch, Peers, epilogue, import_torch

COLD_BYTES = 10**9  # several times the largest L2
MOST_LAUNCHES = 1024  # of a graph
CHECKED_ROWS = 130  # more than the tallest tile, no multiple of it
CHECKED_WEIGHTS, SIMULATED_WEIGHTS = 1 << 24, 1 << 18
TIMED_WEIGHTS = 1 << 20  # smaller layers are there to be checked
TYPES = {"i8": np.int8, "u8": np.uint8, "i32": np.int32, "f32": np.float32, "f16": np.float16, "bf16": np.uint16}

# Family, rows, peer and least ratio, as the issue that this benchmark belongs to asks for the H200.
TARGETS = [("w8a8", 4096, "bf16", 1.0), ("w8a8", 4096, "int8", 1.0), ("w4a16", 1, "copy", 0.6), ("w4a16", 1, "bf16", 2.3),
           ("rms_norm_quantize", 4096, "copy", 0.8)]
AGAINST = {"copy": "of the copy bandwidth", "bf16": "times torch in bf16", "int8": "times torch._int_mm with its epilogue"}
_POOL = np.random.default_rng(1).standard_normal(4_194_301, dtype=np.float32)  # a prime number: rows differ


def random_values(argument, seed):
    """The contents of an argument, on the host."""
    dtype, count = TYPES[argument["type"]], argument["count"]
    if argument["fill"] == "zero":
        return np.zeros(count, dtype)
    values = np.resize(np.roll(_POOL, 977 * seed), count)
    if argument["fill"] == "scale":
        return (np.float32(1e-3) + np.float32(1e-2) * np.abs(values)).astype(dtype)
    if dtype == np.uint8:
        return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)
    if dtype == np.int8:
        return np.clip(np.rint(values * 40), -127, 127).astype(np.int8)
    return reference.to_bf16(values) if dtype == np.uint16 else values


class Launch:
    """A case on the device: memory, arguments and the function."""

    def __init__(self, driver, module, case, copies):
        self.driver, self.case, self.host, self.memory = driver, case, {}, []
        self.function = driver.function(module, case["kernel"]["name"], case["kernel"]["shared_bytes"])
        self.sets = [[] for _ in range(copies)]  # arguments of each copy
        self.places = {}
        for seed, argument in enumerate(case["arguments"]):
            if "value" in argument:
                for values in self.sets:
                    values.append(ctypes.c_int32(argument["value"]))
                continue
            for values, address in zip(self.sets, self.place(argument, copies if argument["rotated"] else 1, copies, seed)):
                values.append(ctypes.c_uint64(address))

    def place(self, argument, different, copies, seed):
        size = argument["count"] * np.dtype(TYPES[argument["type"]]).itemsize
        stride = max(256, (size + 255) // 256 * 256)
        begin = self.driver.allocate(stride * different)
        self.memory.append(begin)
        self.places[argument["name"]] = begin
        if argument["fill"] != "none":
            self.host[argument["name"]] = values = random_values(argument, seed)
            self.driver.upload(begin, values)
            for i in range(1, different):
                self.driver.copy(begin + i * stride, begin, size)
            self.driver.synchronize()
        return [begin + i % different * stride for i in range(copies)]

    def run(self, copy=0, rows=None):
        kernel = self.case["kernel"]
        rows = rows or self.case["rows"]
        grid = [factor * math.ceil(rows / per_block) if per_block else factor for factor, per_block in kernel["grid"]]
        values = list(self.sets[copy])
        for i, argument in enumerate(self.case["arguments"]):
            if argument["name"] == "rows":
                values[i] = ctypes.c_int32(rows)
        self.driver.launch(self.function, grid, kernel["threads"], kernel["shared_bytes"], values)

    def graph(self):
        return self.driver.capture(lambda: [self.run(i) for i in range(len(self.sets))])

    def result(self, name, count):
        dtype = next(TYPES[a["type"]] for a in self.case["arguments"] if a["name"] == name)
        return self.driver.download(self.places[name], count, dtype)

    def close(self):
        for address in self.memory:
            self.driver.free(address)


# --------------------------------------------------------------------------------------------------------------------- checks


class Checker:
    """Compares results with numpy's. The weights of a layer are unpacked once, as they are the same for all its cases."""

    def __init__(self):
        self.layer, self.weights = None, None

    def weights_of(self, launch):
        case, facts, packed = launch.case, launch.case["facts"], launch.host["w"]
        key = (case["module"], packed.size)
        if self.layer != key:
            n, k = case["n"], case["k"]
            self.weights = (reference.unpack_floats(packed, n, k) if facts["bits"] == 16 else
                            reference.unpack_codes(packed, facts["order"], facts["bits"], n, k))
            self.layer = key
        return self.weights

    def check(self, launch, rows):
        """None, or what is wrong with the results of the first `rows` rows."""
        case = launch.case
        n, k, facts = case["n"], case["k"], case["facts"]
        if n == 0:
            return self.check_rows(launch, rows)
        scales = reference.scale_rows(launch.host["wscales"], n) if "wscales" in launch.host else None
        found = launch.result("y", rows * n).reshape(rows, n)
        if facts["order"] == "m16n8k32":
            codes = launch.host["codes"].reshape(case["rows"], -1)[:rows, :k]
            expected = reference.integer_linear(codes, launch.host["scales"][:rows], self.weights_of(launch), scales, facts["group_size"])
            wrong = found != expected
            return f"{wrong.sum()} of {wrong.size} results differ from numpy's, expected none" if wrong.any() else None
        x = reference.from_bf16(launch.host["x"]).reshape(case["rows"], -1)[:rows, :k]
        expected, bound = reference.float_linear(x, self.weights_of(launch), scales, facts["group_size"])
        excess = np.abs(reference.from_bf16(found) - expected) / bound
        return None if excess.max() <= 1 else f"an error of {excess.max():.3g} times the bound"

    def check_rows(self, launch, rows):
        case, k = launch.case, launch.case["k"]
        x = launch.host["x"].reshape(case["rows"], k)[:rows]
        codes = launch.result("codes", rows * ((k + 15) // 16 * 16)).reshape(rows, -1)[:, :k]
        scales = launch.result("scales", rows)
        if case["family"] == "quantize":
            expected, expected_scales = reference.quantize(x)
            wrong = int((codes != expected).sum() + (scales != expected_scales).sum())
            return f"{wrong} codes or scales differ from numpy's, expected none" if wrong else None
        expected = reference.rms_norm(x, launch.host["weight"], case["facts"]["epsilon"])
        largest = np.abs(expected).max(axis=1) / 127
        if (error := np.abs(scales / largest - 1).max()) > 1e-5:
            return f"a scale is off by {error:.2g} of itself, expected at most 1e-5"
        steps = np.abs(codes - expected / largest[:, None]).max()
        return None if steps <= 0.502 else f"a code is {steps:.3f} steps from the exact value, expected at most 0.502"


def weights_in(case):
    return max(1, case["n"]) * case["k"]


def check_all(driver, modules, cases, simulated):
    """The number of kernels checked, and what is wrong. An error of the driver that leaves it usable is one of a kernel."""
    checker, checked, failures = Checker(), 0, []
    limit = SIMULATED_WEIGHTS if simulated else CHECKED_WEIGHTS
    for case in cases:
        if weights_in(case) > limit:
            continue
        rows = min(case["rows"], CHECKED_ROWS)
        # The taller kernels are launched for only so many rows, so that memory for more is not needed.
        checked += 1
        try:
            problem = check_case(driver, modules[case["module"]], shortened(case, rows), checker)
        except CudaError as error:
            problem = str(error)
        if problem:
            failures.append(f"{case['kernel']['name']}, {rows} rows: {problem}")
            if driver.is_lost():
                failures.append("the GPU is lost, and nothing more can be checked in this process")
                break
    return checked, failures


def check_case(driver, module, case, checker):
    launch = Launch(driver, module, case, copies=2)
    try:
        launch.run()
        problem = checker.check(launch, case["rows"])
        if problem:
            return problem
        # The same through a graph, as it is timed, into memory without the first results.
        for argument in case["arguments"]:
            if argument.get("fill") == "none":
                driver.fill(launch.places[argument["name"]], 0xFF, argument["count"] * np.dtype(TYPES[argument["type"]]).itemsize)
        graph = launch.graph()
        driver.replay(graph)
        driver.synchronize()
        driver.destroy(graph)
        return checker.check(launch, case["rows"])
    finally:
        if not driver.is_lost():
            launch.close()


def shortened(case, rows):
    """The same kernel on fewer rows. Memory of activations shrinks in proportion."""
    arguments = []
    for argument in case["arguments"]:
        argument = dict(argument)
        if argument["name"] == "rows":
            argument["value"] = rows
        elif argument["name"] in ("codes", "scales", "x", "y"):
            argument["count"] = argument["count"] // case["rows"] * rows
        arguments.append(argument)
    return case | {"rows": rows, "arguments": arguments}


# --------------------------------------------------------------------------------------------------------------------- timing


class CopyRoof:
    """What the device copies in its own memory, in bytes/s, read and written ones counted."""

    def __init__(self, driver):
        self.driver, self.bytes = driver, COLD_BYTES
        self.source, self.to = driver.allocate(self.bytes), driver.allocate(self.bytes)
        driver.fill(self.source, 0x5A, self.bytes)
        self.measure()

    def measure(self):
        return 2 * self.bytes / self.driver.seconds(lambda: self.driver.copy(self.to, self.source, self.bytes))


def product_roof(driver, integer):
    """Multiply-adds a second of the tensor cores at the clock that the driver states, or None for a chip or a clock that is not known."""
    for chip, machine in CHIPS.items():
        if int("".join(c for c in chip if c.isdigit())) == driver.capability:
            products = machine.byte_products if integer else machine.half_products
            try:
                return products * driver.attribute(MULTIPROCESSORS) * driver.attribute(CLOCK_KHZ) * 1e3
            except CudaError:
                return None
    return None


def time_case(driver, module, case, peers, copy_roof, rounds):
    rotated = sum(a["count"] * np.dtype(TYPES[a["type"]]).itemsize for a in case["arguments"] if a.get("rotated"))
    copies = min(MOST_LAUNCHES, math.ceil(COLD_BYTES / rotated))
    launch = Launch(driver, module, case, copies)
    launch.run()
    driver.synchronize()
    graph = launch.graph()
    try:
        for _ in range(2):
            driver.replay(graph)
        driver.synchronize()
        ours, copied, theirs = [], [], {name: [] for name in peers.names} if peers else {}
        for _ in range(rounds):
            ours.append(driver.seconds(lambda: driver.replay(graph)) / copies)
            for name, times in theirs.items():
                times.append(peers.seconds(name))
            copied.append(copy_roof.measure())
    finally:
        if not driver.is_lost():
            driver.destroy(graph)
            launch.close()
    seconds, bandwidth = statistics.median(ours), statistics.median(copied)
    result = {key: case[key] for key in ("family", "n", "k", "rows", "bytes", "operations")}
    result |= {"kernel": case["kernel"]["name"], "seconds": seconds, "seconds_range": [min(ours), max(ours)], "launches": copies,
               "cold": copies * rotated >= COLD_BYTES, "copy_bytes_per_s": bandwidth,
               "ratios": {"copy": case["bytes"] / seconds / bandwidth}}
    floor = case["bytes"] / bandwidth
    if case["operations"] and (products := product_roof(driver, case["facts"].get("order") == "m16n8k32")):
        floor = max(floor, case["operations"] / 2 / products)
    result["roof_share"] = floor / seconds
    if peers:
        # Ratios of the same round: the clock drifts between rounds.
        result["ratios"] |= {name: statistics.median(t / o for t, o in zip(times, ours)) for name, times in theirs.items()}
        result["peer_seconds"] = {name: statistics.median(times) for name, times in theirs.items()}
        result["peer_missing"], result["peer_kernels"] = peers.missing, peers.kernels
    return result


HEADER = "| kernel | N × K | M | µs | GB/s | TOP/s | of its roof | of copy | × bf16 | × int8 | × fp8 |\n|" + "---|" * 11


def row_of(result):
    shape = f"{result['n']} × {result['k']}" if result["n"] else f"{result['k']}"
    seconds, ratios = result["seconds"], result["ratios"]
    cells = [result["family"] + ("" if result["cold"] else " (warm)"), shape, f"{result['rows']}", f"{seconds * 1e6:.1f}",
             f"{result['bytes'] / seconds / 1e9:.0f}", f"{result['operations'] / seconds / 1e12:.1f}" if result["operations"] else "",
             f"{result['roof_share']:.2f}", f"{ratios['copy']:.2f}", *(f"{ratios[name]:.2f}" if name in ratios else "" for name in ("bf16", "int8", "fp8"))]
    return "| " + " | ".join(cells) + " |"


def timed_cases(cases):
    """By shape and rows: the large layers, and rows as long as theirs."""
    return sorted((case for case in cases if weights_in(case) >= TIMED_WEIGHTS or case["n"] == 0 and case["k"] >= 4096),
                  key=lambda case: (case["n"], case["k"], case["rows"]))


def launch_once(driver, modules, cases, end):
    for case in timed_cases(cases):
        if time.monotonic() > end:
            print("not launched, as --seconds had passed:", case["kernel"]["name"], case["n"], case["k"], case["rows"])
            continue
        launch = Launch(driver, modules[case["module"]], case, copies=1)
        print(case["kernel"]["name"], case["n"], case["k"], case["rows"], flush=True)
        launch.run()
        driver.synchronize()
        launch.close()


def time_all(driver, modules, cases, torch, rounds, end, save, failures):
    """Results of all cases that were begun before `end`; `save` is given those so far after every shape. What fails is appended to
    `failures`."""
    timed = timed_cases(cases)
    if not timed:
        print(f"No layer of {TIMED_WEIGHTS} weights or more is there to be timed.")
        return []
    scaled, how = epilogue(torch) if torch else (None, "no torch")
    copy_roof = CopyRoof(driver)
    print(f"Copies of {COLD_BYTES / 1e9:.0f} GB in device memory: {copy_roof.measure() / 1e9:.0f} GB/s, read and written bytes counted. "
          f"{f'torch {torch.__version__}, {how}.' if torch else 'Without torch.'}\n\n{HEADER}", flush=True)
    results, kernels, late, lost = [], {}, [], False
    for (n, k, rows), group in groupby(timed, key=lambda case: (case["n"], case["k"], case["rows"])):
        if time.monotonic() > end or lost:
            late.append(f"{n} × {k}, M = {rows}" if n else f"{k}, M = {rows}")
            continue
        peers = Peers(torch, scaled, n, k, rows, COLD_BYTES) if torch and n else None
        for case in group:
            try:
                results.append(time_case(driver, modules[case["module"]], case, peers, copy_roof, rounds))
                print(row_of(results[-1]), flush=True)
            except CudaError as error:
                failures.append(f"{case['kernel']['name']}, {rows} rows: {error}")
                if lost := driver.is_lost():
                    break
        save(results)
        if peers and not lost:
            for name in peers.kernels:
                kernels.setdefault((name, tuple(peers.kernels[name])), []).append(f"{n} × {k}, M = {rows}")
            for name, why in peers.missing.items():
                kernels.setdefault((name, (f"none: {why}",)), []).append(f"{n} × {k}, M = {rows}")
            peers.close()
    if late:
        print(f"\nNot timed, as {'the GPU was lost' if lost else '--seconds had passed'}: {'; '.join(late)}.")
    print("\n(warm): fewer than 1 GB was gone through, so that caches may have helped.")
    if kernels:
        print("\nKernels that torch ran:\n")
    for (name, used), shapes in kernels.items():
        print(f"- {name}: {', '.join(f'`{kernel}`' for kernel in used)} for {'; '.join(shapes)}")
    return results


def print_targets(results):
    """Targets beside what was measured; the worst shape counts."""
    print("\n| target | measured, worst to best shape | |\n|---|---|---|")
    verdicts = []
    for family, rows, against, least in TARGETS:
        ratios = sorted(r["ratios"][against] for r in results if r["family"] == family and r["rows"] == rows and against in r["ratios"])
        measured = f"{ratios[0]:.2f} to {ratios[-1]:.2f}" if ratios else "nothing"
        verdict = "not measured" if not ratios else "reached" if ratios[0] >= least else "**not reached**"
        verdicts.append({"family": family, "rows": rows, "against": against, "least": least, "ratios": ratios, "verdict": verdict})
        print(f"| {family}, M = {rows}: at least {least} {AGAINST[against]} | {measured} | {verdict} |")
    return verdicts


# ---------------------------------------------------------------------------------------------------------------------- main


def read_cases(folder):
    try:
        document = json.loads((folder / "cases.json").read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"error: {folder}/cases.json: {error}; make the folder with easyquant-gpu-kernel-bench --out {folder}")
    return document


def load_modules(driver, folder, names, machine_code, failures):
    """Machine code where it is for this GPU, else PTX, which the driver assembles. What cannot be loaded is left out."""
    modules = {}
    for name in sorted(names):
        fatbin, ptx = folder / f"{name}.fatbin", folder / f"{name}.ptx"
        if machine_code:
            try:
                modules[name] = driver.load(fatbin.read_bytes())
                continue
            except CudaError:
                pass  # of another chip; if the PTX is too, its message says so
        try:
            modules[name] = driver.load(ptx.read_bytes())
        except CudaError as error:
            failures.append(f"{ptx}: {error}; this GPU is sm_{driver.capability}: prepare a folder for its chip")
    return modules


def torch_or_none(args, failures):
    if args.no_torch:
        return None
    try:
        return import_torch()
    except NoTorch as error:  # our own times are worth having without it
        failures.append(str(error))
        return None


def write_report(path, report):
    if path:
        path.write_text(json.dumps(report, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what easyquant-gpu-kernel-bench wrote")
    parser.add_argument("--simt", action="store_true", help="check the small layers in the simulator (EASYQUANT_BUILD, or build)")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--check-only", action="store_true", help="time nothing")
    part.add_argument("--time-only", action="store_true", help="check nothing, as that has been done")
    part.add_argument("--once", action="store_true", help="launch every kernel that is timed once, for a profiler, and neither check nor time it")
    parser.add_argument("--serial", action="store_true", help="begin each launch when the one before it has ended, on chips that can do else, too")
    parser.add_argument("--no-torch", action="store_true", help="without peers")
    parser.add_argument("--families", help="only these, separated by commas")
    parser.add_argument("--rounds", type=int, default=7, help="measurements to take the median of")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no shape after so long")
    parser.add_argument("--json", type=Path, help="write all results here")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    document = read_cases(args.folder)
    families = args.families.split(",") if args.families else None
    cases = [case for case in document["cases"] if families is None or case["family"] in families]
    if not cases:
        sys.exit(f"error: --families {args.families}: found none of them in {args.folder}/cases.json")
    library = LIBRARY
    if args.check_only:
        cases = [case for case in cases if weights_in(case) <= CHECKED_WEIGHTS]
    if args.simt:
        cases = [case for case in cases if weights_in(case) <= SIMULATED_WEIGHTS]
        build = Path(os.environ.get("EASYQUANT_BUILD", Path(__file__).resolve().parent.parent / "build"))
        library = build / "unittests" / "fake-cuda" / "libcuda.so.1"
        if not cases:
            sys.exit(f"error: {args.folder}: no layer has at most {SIMULATED_WEIGHTS} weights; prepare one, as --shapes 256x512")
    try:
        driver = Driver(library)
    except CudaError as error:
        sys.exit(f"error: {error}")
    # As the runtime launches them.
    driver.overlaps = driver.can_overlap and not args.serial and int("".join(filter(str.isdigit, document["chip"]))) >= OVERLAPPING_CAPABILITY
    where = "the simulator" if args.simt else f"{driver.name} (sm_{driver.capability}), driver for CUDA {driver.version // 1000}.{driver.version % 1000 // 10}"
    failures = []
    report = {"date": datetime.date.today().isoformat(), "device": where, "chip": document["chip"], "failures": failures}
    try:
        modules = load_modules(driver, args.folder, {case["module"] for case in cases}, document["machine_code"], failures)
        cases = [case for case in cases if case["module"] in modules]
        if args.once:
            launch_once(driver, modules, cases, end)
        elif not args.time_only:
            checked, wrong = check_all(driver, modules, cases, args.simt)
            failures += wrong
            report["checked"] = checked
            print(f"{max(0, checked - len(wrong))} of {checked} kernels for {document['chip']} gave numpy's results on {where}.\n", flush=True)
        if not args.simt and not args.check_only and not args.once:
            report["results"] = time_all(driver, modules, cases, torch_or_none(args, failures), args.rounds, end,
                                         lambda results: write_report(args.json, report | {"results": results}), failures)
            report["targets"] = print_targets(report["results"])
    except CudaError as error:
        failures.append(str(error))
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    write_report(args.json, report)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
