#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tuning scales, zero points and norm gains end to end would add behind a rounding.

    .venv/bin/python benchmarks/tuning.py MODEL --calib FILE --text FILE [--text FILE] -o FOLDER [--ours REGEX] [--rates 1e-4,3e-4,1e-3]

MODEL is a Hugging Face folder (`easyquant-translate --export-hf` makes one of a GGUF file). The script exports it as compressed-tensors, 4 bits with zero
points in groups of 64, rounded in every way (POINTS) that --ours matches. torch then keeps all codes and tunes scales, zero points, which become real
numbers, and the gains of norms: Adam by the KL divergence from the float model, a step a window of the calibration text. The rate is the one of --rates
that leaves the least on the last windows of that text, on which no step is made; none at all is among them. Every --text is judged before and after, by
torch in f32. Head and embedding stay float.

torch and its libraries are installed into an environment in --cache (--torch names an interpreter that has torch already). What was found is kept in
FOLDER, and the same command goes on from there.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from interop_clients import CLIENTS, Environments, Unavailable
from peer import WORKERS, Worker, cache_folder, fail
from quality_fronts import Point, ratio, with_error
from quality_per_byte import Bench, add_protocol, check_protocol, chosen, easyquant, slug
from rich.console import Console
from rich.table import Table
from rounding import takes_hessians

from easyquant.evaluation.comparison import store, stored
from easyquant.evaluation.protocol import Corpus
from easyquant.support.files import sha256
from easyquant.text.tokenizer import load_tokenizer

POINTS = {f"gptq {metric}": ("--scheme=W4A16_ASYM", "--group-size=64", "--method=zeropoint+gptq", f"--hessian={metric}")
          for metric in ("inputs", "loss", "loss-both")}  # fmt: skip
CLIENT, WORKER = "compressed-tensors", "torch_tuning.py"
HELD_OUT = 8  # windows of the calibration text


class TuningBench(Bench):
    """Rounds, has torch tune, and keeps what it found."""

    def __init__(self, args: argparse.Namespace, scratch: Path):
        super().__init__(args, scratch, peers={})
        tokens = Corpus.read(args.calib, load_tokenizer(self.reference, self.vocab_size), None).windows(args.seqlen, None)
        if len(tokens) < args.steps + HELD_OUT:
            fail(f"--calib {args.calib}: has {len(tokens)} windows of {args.seqlen} tokens; expected {args.steps + HELD_OUT} or more, one a step and {HELD_OUT} to choose by")
        order = np.random.default_rng(0).permutation(len(tokens) - HELD_OUT)[: args.steps]
        np.save(self.scratch / "steps.npy", tokens[order])
        np.save(self.scratch / "held-out.npy", tokens[-HELD_OUT:])

    def hessians(self) -> Path:
        path = self.args.statistics or self.args.output / "hessians.safetensors"
        if not path.exists():
            easyquant("calibrate", self.args.model, "--calib", self.args.calib, "-o", path, "--statistic=fisher", *self.samples)
        return path

    def found(self, name: str, arguments: tuple[str, ...], environments: Environments) -> dict:
        file = self.args.output / f"{slug(name)}.json"
        source = [self.compiler, self.samples, arguments, self.args.steps, self.args.rates, sha256(WORKERS / WORKER), CLIENTS[CLIENT]]
        stamp = repr([self.setting, self.texts, source])
        if (kept := stored(file, stamp)) is not None:
            return kept
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            rounded = Path(folder) / "rounded"
            statistics = [f"--statistics={self.hessians()}"] if takes_hessians(arguments) else []
            easyquant("export", self.args.model, f"--format={CLIENT}", "-o", rounded, *arguments, *statistics, "--calib", self.args.calib, *self.samples)
            worker = Worker(environments.python(CLIENT), WORKER)
            found = worker.ask("tune", model=str(self.args.model), rounded=str(rounded), steps=str(self.scratch / "steps.npy"),
                               held_out=str(self.scratch / "held-out.npy"), texts={text.name: str(self.windows_of(text)) for text in self.texts},
                               rates=self.args.rates, threads=self.args.threads)  # fmt: skip
            worker.close()
        store(file, stamp, found)
        return found


def point(name: str, figures: dict[str, list[float]]) -> Point:
    return Point(name, False, 0, {text: {"kl_mean": float(np.mean(values)), "windows": {"kl": values}} for text, values in figures.items()})


def show(model: Path, found: dict[str, dict], texts: list[str]) -> None:
    table = Table(title=f"{model.name}, 4 bits, groups of 64: mean KL divergence from float before and after tuning end to end")
    for heading in ("", *(column for text in texts for column in (f"before, {text}", "after", "ratio")), "rate", "s"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, figures in found.items():
        before, after = point(name, figures["before"]), point(name, figures["after"])
        cells = [cell for text in texts for cell in (
            with_error(before.kl(text), before.kl_error(text), 4), with_error(after.kl(text), after.kl_error(text), 4),
            with_error(*ratio(after, before, text), 2))]  # fmt: skip
        table.add_row(name, *cells, f"{figures['rate']:g}", f"{figures['seconds']:.0f}")
    Console(width=160).print(table)
    for name, figures in found.items():
        print(f"{name}: KL on the held-out windows by rate: {', '.join(f'{rate:g}: {kl:.4f}' for rate, kl in figures['rates'])}")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser, Path("tuning"))
    parser.add_argument("--statistics", type=Path, metavar="FILE", help="Hessians of the loss that `easyquant calibrate --statistic fisher` has gathered")
    parser.add_argument("--steps", type=int, default=49, metavar="N", help="windows to tune on (49)")
    parser.add_argument("--rates", type=lambda text: [float(rate) for rate in text.split(",")], default=[1e-4, 3e-4, 1e-3], metavar="R,...",
                        help="of Adam, each a run of --steps (1e-4,3e-4,1e-3)")  # fmt: skip
    parser.add_argument("--torch", type=Path, metavar="PYTHON", help="an interpreter that has torch already")
    args = parser.parse_args()
    check_protocol(args)
    if not args.model.is_dir():
        fail(f"{args.model}: expected a Hugging Face folder; `easyquant-translate --export-hf FOLDER {slug(args.model.stem)}.gguf` makes one")
    return args


def main() -> None:
    args = read_arguments()
    ours = chosen(POINTS, args)
    if not ours:
        fail(f"--ours {args.ours}: matches none of {', '.join(POINTS)}")
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.output, prefix=".scratch-") as scratch:
        bench, environments = TuningBench(args, Path(scratch)), Environments(cache_folder(args.cache), args.torch)
        try:
            found = {name: bench.found(name, options, environments) for name, options in ours.items()}
        except Unavailable as error:
            fail(f"{CLIENT}: {error}")
    show(args.model, found, [text.name for text in args.text])


if __name__ == "__main__":
    main()
