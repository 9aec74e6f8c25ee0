#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Accuracy and speed at a size: EasyQuant's recipes beside llama.cpp's files, in one run.

    .venv/bin/python benchmarks/front.py MODEL --calib FILE --text FILE [--text FILE] -o FOLDER

MODEL is a Hugging Face folder of the llama architecture, or a GGUF file; best off any grid. The script

  * judges llama.cpp's files (PEERS), our artifacts (OURS) and those of every recipe in the folders that --recipes names, by KL divergence from
    the float model as quality_per_byte.py does: the same windows of the same texts, an importance matrix from the windows that calibrate ours;
  * measures them as peers_llama_cpp.py does, in turn, round by round: prefill of 512 tokens and decode of 128 behind it, then 16 sequences
    at a time, decoded from positions 64 and 512 on; llama.cpp with flash attention on and off, of which the better one of each round counts;
  * prints for each of llama.cpp's files the most accurate of ours that has no more bytes, with ratios and the goals they miss (GOALS);
  * writes FOLDER/front.json and FOLDER/front.svg, and ends with status 1 where a goal is missed.

Artifacts and judgements are kept in FOLDER, and the same command goes on from there. Speeds are always measured anew.
"""

import argparse
import itertools
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from peer import Worker, cache_folder, fail, peer_environment
from peers_llama_cpp import Variant, cpu_model, measure_all
from quality_fronts import COLOURS, Point, ratio, rivals
from quality_per_byte import Bench, add_protocol, check_protocol, chosen, slug
from rich.console import Console
from rich.table import Table

from easyquant.support.files import write_json

# File types of llama.cpp, and whether their quantizer gets an importance matrix.
PEERS = {"IQ4_XS": True, "Q4_0": True, "Q4_K_M": True, "Q5_K_M": True, "Q6_K": False}
BATCH_PEERS = ("Q4_0", "Q8_0")  # its quickest ones
OURS = {mix: (f"--scheme={mix}",) for mix in ("Q4", "Q5", "Q6")} | {"W8A8": ("--scheme=W8A8", "--method=absmax")}
LARGE = 106e6  # bytes, above which goals are those of large files


@dataclass(frozen=True)
class Load:
    """Sequences that are prefilled with so many tokens each, and then decoded together."""

    name: str
    sequences: int
    prefill: int
    decode: int


ONE = Load("1", 1, 512, 128)
BATCHES = (Load("16 at 64", 16, 64, 32), Load("16 at 512", 16, 512, 32))


class FrontBench(Bench):
    """Keeps files and artifacts: their speeds are measured, too."""

    def __init__(self, args: argparse.Namespace, scratch: Path):
        super().__init__(args, scratch, PEERS)
        self.ours = chosen(OURS, args)
        self.artifacts: dict[str, Path] = {}
        self.isa = ""  # of ours, known when one is loaded

    @contextmanager
    def artifact_folder(self, name: str, source: list) -> Iterator[Path]:
        made_of = sha256(repr([self.setting, source]).encode()).hexdigest()[:12]
        folder = self.args.output / "artifacts" / f"{slug(name)}-{made_of}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.compile(folder, self.ours[name])
        self.artifacts[name] = folder
        yield folder


def speeds_of(bench: FrontBench, load: Load, kinds: tuple[str, ...], args: argparse.Namespace) -> dict[str, list[tuple[float, float]]]:
    """{name: (prefill, decode) in tokens/s of each round} of our artifacts, and llama.cpp's files in the better setting of each round."""
    numbers = {"threads": args.threads, "context": load.prefill + load.decode, "sequences": load.sequences}
    peer = Worker(args.peer_python or peer_environment(cache_folder(args.cache), args.isa), "llama_cpp_worker.py")
    us = Worker(sys.executable, "easyquant_worker.py")
    variants = {}
    for kind, flash in itertools.product(kinds, (True, False)):
        name = f"{kind}, flash attention {'on' if flash else 'off'}"
        vocab_size = peer.ask("load", id=name, path=str(bench.peer_file(kind)[0]), flash=flash, **numbers)["vocab_size"]
        variants[name] = Variant(peer, kind, load.sequences, is_peer=True)
    for name, artifact in bench.artifacts.items():
        bench.isa = us.ask("load", id=name, path=str(artifact), isa=args.isa, **numbers)["isa"]
        variants[name] = Variant(us, name, load.sequences, is_peer=False)
    print(f"speed of {load.name}: {', '.join(variants)}", file=sys.stderr)
    measured = measure_all(variants, load.prefill, load.decode, args.rounds, vocab_size)
    for worker in (peer, us):
        worker.close()
    found = {}
    for name, variant in variants.items():
        own = measured[name]
        other = found.get(variant.kind, own)
        found[variant.kind] = [tuple(map(max, a, b)) for a, b in zip(own, other)]
    return found


def median_ratio(ours: list[tuple[float, float]], theirs: list[tuple[float, float]], phase: int) -> float:
    """The median over rounds; the phase: 0 prefill, 1 decode."""
    return statistics.median(a[phase] / b[phase] for a, b in zip(ours, theirs))


def goals(size: float, isa: str) -> dict[str, float]:
    """What is to be reached beside a file of `size` bytes: KL at most, speeds at least."""
    large, wide = size > LARGE, isa != "avx2"
    decode = 2.0 if size > 100e6 else 1.8 if wide else 1.6
    return {"KL": 0.55 if large else 0.45, "prefill": 2.2 if wide else 1.8, "decode": decode} | {batch.name: 2.2 for batch in BATCHES}


def rows_of(points: list[Point], texts: list[str], speeds: dict[str, dict], isa: str) -> list[dict]:
    """A row for each of the peer's files: both sizes, ratios by name, and the goals."""
    rows = []
    for theirs, ours in rivals(points, texts[0]):
        kind = theirs.name.split()[1].rstrip(",")
        row = {"file": kind, "bytes": theirs.bytes, "ours": None, "goals": goals(theirs.bytes, isa)}
        rows.append(row)
        if ours is None:
            continue
        own = speeds[ONE.name]
        row |= {"ours": ours.name, "our_bytes": ours.bytes, "KL": {text: ratio(ours, theirs, text) for text in texts}}
        row |= {phase: median_ratio(own[ours.name], own[kind], index) for index, phase in enumerate(("prefill", "decode"))}
        for batch in BATCHES:
            found = speeds[batch.name]
            best = [tuple(map(max, *rounds)) for rounds in zip(*(found[other] for other in BATCH_PEERS))]
            row[batch.name] = median_ratio(found[ours.name], best, 1)
    return rows


def misses_of(rows: list[dict]) -> list[str]:
    found = []
    for row in rows:
        if row["ours"] is None:
            found.append(f"{row['file']}: nothing of ours has at most its {row['bytes'] / 1e6:.1f} MB")
            continue
        beside = f"{row['ours']} beside {row['file']}"
        found += [f"{beside}: KL on {text} {value:.2f}, goal {row['goals']['KL']}" for text, (value, _) in row["KL"].items()
                  if value > row["goals"]["KL"]]  # fmt: skip
        found += [f"{beside}: {name} {row[name]:.2f}, goal {goal}" for name, goal in row["goals"].items() if name != "KL" and row[name] < goal]
    return found


def show(points: list[Point], texts: list[str], speeds: dict[str, dict], rows: list[dict]) -> None:
    console = Console(width=150)
    table = Table(title="tokens/s, medians of rounds (smallest to largest)")
    loads = [(f"{phase}, {load.name}", load, index) for load in (ONE, *BATCHES) for index, phase in enumerate(("prefill", "decode")) if load is ONE or index]
    for heading in ("", "MB", *(f"KL, {text}" for text in texts), *(name for name, _, _ in loads)):
        table.add_column(heading, justify="right" if heading else "left")
    for point in sorted(points, key=lambda point: point.bytes):
        name = point.label
        cells = []
        for _, load, index in loads:
            values = [rounds[index] for rounds in speeds[load.name].get(name, [])]
            cells.append(f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})" if values else "")
        table.add_row(point.name, f"{point.bytes / 1e6:.1f}", *(f"{point.kl(text):.4f}" for text in texts), *cells, style=None if point.is_peer else "bold")
    console.print(table)
    table = Table(title="ours over llama.cpp's file; batches over its best of " + " and ".join(BATCH_PEERS))
    for heading in ("file", "ours", *(f"KL, {text}" for text in texts), "prefill", "decode", *(batch.name for batch in BATCHES)):
        table.add_column(heading, justify="left" if heading in ("file", "ours") else "right")
    for row in rows:
        if row["ours"] is not None:
            ratios = [f"{value:.2f} ± {error:.2f}" for value, error in row["KL"].values()]
            table.add_row(row["file"], row["ours"], *ratios, *(f"{row[name]:.2f}" for name in row["goals"] if name != "KL"))
    console.print(table)


def draw(points: list[Point], text: str, speeds: dict[str, list], file: Path) -> None:
    """KL against bytes, and against both speeds of one sequence."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"svg.hashsalt": "easyquant", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, panels = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
        for point in points:
            name = point.label
            colour = COLOURS[point.maker]
            across = [point.bytes / 1e6, *(statistics.median(rounds[index] for rounds in speeds[name]) for index in (0, 1))]
            for axes, x in zip(panels, across):
                axes.plot(x, point.kl(text), "o", color=colour, markersize=4)
                axes.annotate(name, (x, point.kl(text)), (4, 4), textcoords="offset points", fontsize=7.5, color=colour)
        for axes, label in zip(panels, ("weights, MB", f"prefill of {ONE.prefill}, tokens/s", f"decode behind {ONE.prefill}, tokens/s")):
            axes.set(yscale="log", xlabel=label)
            axes.grid(alpha=0.3)
        panels[0].set_ylabel(f"mean KL divergence from float, nats ({text})")
        figure.suptitle("EasyQuant (blue) and llama.cpp (brown)", fontsize=9)
        figure.savefig(file, metadata={"Date": None})
        plt.close(figure)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser, Path("front"))
    parser.add_argument("--isa", choices=("avx2",), help="measure speeds with these instructions, llama.cpp's, too, not with the best that the CPU has")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="measurements of each speed (5)")
    args = parser.parse_args()
    check_protocol(args)
    if args.rounds < 1:
        fail(f"--rounds {args.rounds}: expected one or more")
    return args


def main() -> None:
    args = read_arguments()
    args.output.mkdir(parents=True, exist_ok=True)
    texts = [text.name for text in args.text]
    with tempfile.TemporaryDirectory(dir=args.output, prefix=".scratch-") as scratch:
        bench = FrontBench(args, Path(scratch))
        points = bench.peer_points() + [bench.our_point(name, options) for name, options in bench.ours.items()]
        bench.peers = bench.peers | {"Q8_0": False}
        speeds = {ONE.name: speeds_of(bench, ONE, tuple(PEERS), args)}
        speeds |= {batch.name: speeds_of(bench, batch, BATCH_PEERS, args) for batch in BATCHES}
    rows = rows_of(points, texts, speeds, bench.isa)
    problems = misses_of(rows)
    show(points, texts, speeds, rows)
    draw(points, texts[0], speeds[ONE.name], args.output / "front.svg")
    write_json(args.output / "front.json", {"cpu": cpu_model(), "isa": bench.isa, "threads": args.threads, "rows": rows, "speeds": speeds, "misses": problems})
    print("\n".join([*problems, f"{len(problems)} misses"]))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
