#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How weights of few bits are rounded: to nearest, by GPTQ in each metric, learned; in the plain basis with float activations and rotated with int8.

    .venv/bin/python benchmarks/rounding.py MODEL [MODEL] --calib FILE --text FILE [--text FILE] -o FOLDER [--ours REGEX]

MODEL is a Hugging Face folder or a GGUF file. The script compiles each model in every way (POINTS) that --ours matches, has `easyquant eval` judge each
artifact by the float model, and prints mean KL divergences with standard errors over windows, their ratio to GPTQ's of the plain basis (BASE), and the
time and memory of each compilation. The Hessians of the loss are gathered once a model, for all points that take them; their time and memory stand below
the table.

A run of hours may be stopped and killed: what is finished is kept in FOLDER, and the same command goes on from there. A point that was being made
begins anew, so that costs are of whole runs; seconds count the time that a run was stopped, processor seconds do not. FOLDER/points.jsonl has a line of
JSON for every finished point: its model, name and options, what it cost, and on each text its mean KL and that of each window.
"""

import argparse
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

from peer import fail
from quality_fronts import Point, ratio, with_error
from quality_per_byte import Bench, add_protocol, check_protocol, chosen, slug
from rich.console import Console
from rich.table import Table

from easyquant.evaluation.comparison import store, stored
from easyquant.support.children import ends_with_me
from easyquant.support.files import write_atomically

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
SCRATCH = ".scratch-"


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
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=ends_with_me())
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
        statistics = [f"--statistics={self.hessians}"] if takes_hessians(arguments) else []
        self.run(arguments, "compile", self.args.model, "-o", artifact, *arguments, *statistics)

    def cost(self, arguments: tuple[str, ...]) -> dict | None:
        return stored(self.cost_file(arguments), self.cost_stamp(arguments))


def takes_hessians(arguments: tuple[str, ...]) -> bool:
    return any(argument.startswith("--hessian=loss") for argument in arguments)


def cells_of(cost: dict | None) -> tuple[str, str, str]:
    return (f"{cost['seconds']:.0f}", f"{cost['processor_seconds']:.0f}", f"{cost['peak_bytes'] / 1e9:.2f}") if cost else ("", "", "")


def show(model: Path, points: dict[str, Point], texts: list[str], costs: dict[str, dict | None], hessians: dict | None) -> None:
    table = Table(title=f"{model.name}: mean KL divergence from float, and over '{BASE}' of the same bits and groups")
    for heading in ("", *(f"KL, {text}" for text in texts), *(f"ratio, {text}" for text in texts), "s", "processor s", "GB"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, point in points.items():
        base = points.get(" ".join([*name.split()[:2], BASE]))
        ratios = [with_error(*ratio(point, base, text), 2) if base else "" for text in texts]
        table.add_row(name, *(with_error(point.kl(text), point.kl_error(text), 4) for text in texts), *ratios, *cells_of(costs[name]))
    table.add_section()
    table.add_row("the Hessians of the loss", *[""] * (2 * len(texts)), *cells_of(hessians))
    Console(width=160).print(table)


class Lines:
    """A file of one JSON value a line, each of them whole whenever the run ends."""

    def __init__(self, path: Path):
        self.path = path
        self.lines = path.read_text().splitlines() if path.exists() else []

    def add(self, value: dict) -> None:
        """Where it is not in the file yet."""
        line = json.dumps(value, allow_nan=False)
        if line not in self.lines:
            self.lines.append(line)
            write_atomically(self.path, "".join(f"{each}\n" for each in self.lines).encode())


def line_of(point: Point, options: tuple[str, ...], bench: RoundingBench) -> dict:
    texts = {
        text: {"kl": point.kl(text), "kl_error": point.kl_error(text), "top1_agreement": point.top1(text), "windows": point.figures[text]["windows"]["kl"]}
        for text in point.figures
    }
    hessians = bench.cost(HESSIANS) if takes_hessians(options) else None
    return {"model": bench.args.model.name, "point": point.name, "options": [*options, *bench.samples], "bytes": point.bytes, "texts": texts,
            "cost": bench.cost(options), "hessians_cost": hessians}  # fmt: skip


@contextmanager
def folder_alone(folder: Path) -> Iterator[None]:
    """The folder, which no other run has now; what a run left that was killed goes."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"-o {folder}: another run is at work there; give this one a folder of its own, or wait")
        for left in folder.glob(f"{SCRATCH}*"):
            shutil.rmtree(left)
        yield


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser, Path("rounding"), several=True)
    args = parser.parse_args()
    names = [slug(model.stem) for model in args.models]
    if len(set(names)) < len(names):
        fail(f"{' '.join(map(str, args.models))}: expected models of different names, by which what is kept is told apart")
    return args


def main() -> None:
    args = read_arguments()
    runs = {model: argparse.Namespace(**{**vars(args), "model": model, "output": args.output / slug(model.stem)}) for model in args.models}
    for run in runs.values():
        check_protocol(run)
    ours = chosen(POINTS, args)
    if not ours:
        fail(f"--ours {args.ours}: matches none of {', '.join(POINTS)}")
    with ExitStack() as stack:
        stack.enter_context(folder_alone(args.output))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.output, prefix=SCRATCH)))
        lines = Lines(args.output / "points.jsonl")
        benches, points = {}, {model: {} for model in runs}
        for model, run in runs.items():
            run.output.mkdir(exist_ok=True)
            (scratch / run.output.name).mkdir()
            benches[model] = RoundingBench(run, scratch / run.output.name, peers={})
        for name, options in ours.items():
            for model, bench in benches.items():
                points[model][name] = bench.our_point(name, options)
                lines.add(line_of(points[model][name], options, bench))
        for model, bench in benches.items():
            costs = {name: bench.cost(options) for name, options in ours.items()}
            show(model, points[model], [text.name for text in args.text], costs, bench.cost(HESSIANS))


if __name__ == "__main__":
    main()
