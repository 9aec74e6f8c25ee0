#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How weights of few bits are rounded: to nearest, by GPTQ in each metric, learned; in the plain basis with float activations and rotated with int8.

    .venv/bin/python benchmarks/rounding.py MODEL --calib FILE --text FILE [--text FILE] -o FOLDER [--ours REGEX]

MODEL is a Hugging Face folder or a GGUF file. The script compiles it in every way (POINTS) that --ours matches, has `easyquant eval` judge each
artifact by the float model, and prints mean KL divergences with standard errors over windows, their ratio to GPTQ's of the plain basis (BASE), and the
time and memory of each compilation. The Hessians of the loss are gathered once, for all points that take them; their time and memory stand below the
table. Points are kept in FOLDER, and so is the file of Hessians; the same command goes on from there.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from functools import cached_property
from pathlib import Path

from peer import fail
from quality_fronts import Point, ratio, with_error
from quality_per_byte import Bench, add_protocol, check_protocol, chosen, slug
from rich.console import Console
from rich.table import Table

from easyquant.evaluation.comparison import store, stored

ROUNDINGS = {"nearest": ("--method=zeropoint",)}
ROUNDINGS |= {f"gptq {metric}": ("--method=zeropoint+gptq", f"--hessian={metric}") for metric in ("inputs", "sinks", "loss", "loss-both")}
ROUNDINGS |= {method: (f"--method={method}",) for method in ("zeropoint+signround", "awq+signround")}
BASES = {"plain": ("A16", "--activation-basis=plain"), "rotated": ("A8", "--activation-basis=hadamard")}
POINTS = {
    f"W{bits} g{group} {basis} {rounding}": (f"--scheme=W{bits}{activations}_ASYM", f"--group-size={group}", of_basis, *options)
    for bits in (4, 3)
    for group in (64, 128)
    for basis, (activations, of_basis) in BASES.items()
    for rounding, options in ROUNDINGS.items()
}
BASE = "plain gptq inputs"
HESSIANS = ("--statistic=fisher",)


class RoundingBench(Bench):
    """Keeps what compilations cost."""

    def cost_file(self, arguments: tuple[str, ...]) -> Path:
        return self.args.output / f"cost-{slug(' '.join(arguments))}.json"

    def cost_stamp(self, arguments: tuple[str, ...]) -> str:
        return repr([self.setting, self.compiler, self.samples, arguments])

    def run(self, name: tuple[str, ...], *command: object) -> None:
        """`easyquant COMMAND`, whose cost is kept under the name."""
        command = [sys.executable, "-m", "easyquant", *map(str, command), "--calib", str(self.args.calib), *self.samples]
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            fail(f"{shlex.join(command)}; its message is above")
        cost = {"seconds": time.monotonic() - begin, "processor_seconds": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss * 1024}
        store(self.cost_file(name), self.cost_stamp(name), cost)

    @cached_property
    def hessians(self) -> Path:
        path = self.args.output / "hessians.safetensors"
        if not (path.exists() and self.cost(HESSIANS)):
            self.run(HESSIANS, "calibrate", self.args.model, "-o", path, *HESSIANS)
        return path

    def compile(self, artifact: Path, arguments: tuple[str, ...]) -> None:
        if artifact.exists():
            return
        statistics = [f"--statistics={self.hessians}"] if any(argument.startswith("--hessian=loss") for argument in arguments) else []
        self.run(arguments, "compile", self.args.model, "-o", artifact, *arguments, *statistics)

    def cost(self, arguments: tuple[str, ...]) -> dict | None:
        return stored(self.cost_file(arguments), self.cost_stamp(arguments))


def cells_of(cost: dict | None) -> tuple[str, str, str]:
    return (f"{cost['seconds']:.0f}", f"{cost['processor_seconds']:.0f}", f"{cost['peak_bytes'] / 1e9:.2f}") if cost else ("", "", "")


def show(points: list[Point], texts: list[str], costs: dict[str, dict | None], hessians: dict | None) -> None:
    by_name = {point.name: point for point in points}
    table = Table(title=f"mean KL divergence from float, and over '{BASE}' of the same bits and groups")
    for heading in ("", *(f"KL, {text}" for text in texts), *(f"ratio, {text}" for text in texts), "s", "processor s", "GB"):
        table.add_column(heading, justify="right" if heading else "left")
    for point in points:
        base = by_name.get(" ".join([*point.name.split()[:2], BASE]))
        ratios = [with_error(*ratio(point, base, text), 2) if base else "" for text in texts]
        table.add_row(point.name, *(with_error(point.kl(text), point.kl_error(text), 4) for text in texts), *ratios, *cells_of(costs[point.name]))
    table.add_section()
    table.add_row("the Hessians of the loss", *[""] * (2 * len(texts)), *cells_of(hessians))
    Console(width=160).print(table)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser, Path("rounding"))
    args = parser.parse_args()
    check_protocol(args)
    return args


def main() -> None:
    args = read_arguments()
    ours = chosen(POINTS, args)
    if not ours:
        fail(f"--ours {args.ours}: matches none of {', '.join(POINTS)}")
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.output, prefix=".scratch-") as scratch:
        bench = RoundingBench(args, Path(scratch), peers={})
        points = [bench.our_point(name, options) for name, options in ours.items()]
        costs = {name: bench.cost(options) for name, options in ours.items()}
        hessians = bench.cost(HESSIANS)
    show(points, [text.name for text in args.text], costs, hessians)


if __name__ == "__main__":
    main()
