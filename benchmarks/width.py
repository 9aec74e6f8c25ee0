#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What compiling costs at the width of real models, and how it grows with depth.

    .venv/bin/python benchmarks/width.py --shape llama-7b --layers 2,4,8 [--scheme W8A8] [--method absmax] [--vocab 2000] [--streams 1,16] [--json FILE]

For each depth a random checkpoint with the layers of the model is written (sharded bf16), compiled, and decodes random tokens of one
stream and of several together, each in a process of its own. Methods that calibrate (--method gptq, awq, smoothquant) do so on --samples x --length
random tokens. The table shows peak resident memory and time. What a layer adds
is the difference to the depth before. Memory should follow the largest layer, not the depth; time and bytes of all layers
of the model are those of a layer times their number.

Share of the roof: the bytes of weights and recurrent states that a step reads, at the speed at which the same threads read cold memory before and behind it, over the
time of the step. Experts count where streams choose them; for several streams it is the mean of tokens that choose independently of each other.
The share behind "ms a layer" is that of what these layers add, which the head of a cut vocabulary is no part of.

Peak resident memory counts mapped pages of files too: what the system may drop at any time. "anonymous" is what it may not.
The folder (--folder, by default a temporary one) needs about three times the bytes of the deepest checkpoint.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from safetensors.numpy import save_file

from easyquant.compiler.footprint import footprint_of
from easyquant.compiler.options import CompileOptions
from easyquant.support.memory import peak_rss_bytes
from easyquant.support.tools import find_tool

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "test" / "Inputs"))
from make_wide_checkpoint import SHAPES, write_checkpoint  # noqa: E402

FULL_DEPTH = {"llama-7b": 32, "qwen3-14b": 40, "qwen3-30b-a3b": 48, "qwen3.5-4b": 32, "qwen3.5-35b-a3b": 40}
PROMPT, STEPS, ROUNDS = 64, 16, 5  # tokens of a stream, steps of a round; one more round warms up
# Methods that look at weights alone.
ROUNDING = ("absmax", "zeropoint", "symmetric", "zeroquant")


def anonymous_bytes(process):
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def write_tokens(path, args):
    """Random calibration tokens."""
    vocabulary = args.vocab or SHAPES[args.shape]["vocab_size"]
    tokens = np.random.default_rng(0).integers(0, vocabulary, (args.samples, args.length), dtype=np.int32)
    save_file({"tokens": tokens}, path, metadata={"bos": "0", "seed": "0"})
    return path


def compile_model(model, out, args):
    """Wall seconds, CPU seconds, peak resident and peak anonymous bytes of easyquant-compile."""
    command = [find_tool("easyquant-compile"), model, "-o", out, f"--scheme={args.scheme}", f"--method={args.method}"]
    if args.method not in ROUNDING:
        command.append(f"--tokens={write_tokens(out.with_suffix('.tokens'), args)}")
    begin, peak, anonymous = time.monotonic(), 0, 0
    process = subprocess.Popen(command)
    ended = threading.Event()

    def watch():
        nonlocal peak, anonymous
        while not ended.wait(0.02):
            try:
                peak = max(peak, peak_rss_bytes(process.pid))
                anonymous = max(anonymous, anonymous_bytes(process.pid))
            except OSError:
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    status = process.wait()
    ended.set()
    watcher.join()
    if status != 0:
        sys.exit(f"error: easyquant-compile ended with status {status}")
    return {"compile_s": time.monotonic() - begin, "compile_peak_rss": peak, "compile_peak_anonymous": anonymous}


def decode(path, counts):
    """Seconds of a decode step of so many streams, the speed of memory at that time, and the memory of the process that made them."""
    from easyquant.commands.bench import measure_rounds, read_bandwidth, tokens_to_measure
    from easyquant.runtime.artifact import Artifact, BatchSize, load_model, open_batch

    artifact = Artifact.open(path)
    model = load_model(artifact)
    batch = open_batch(model, BatchSize.of(artifact, model.device, [PROMPT + STEPS] * counts[-1], counts[-1]))
    prompts, follow = tokens_to_measure(model, counts[-1], PROMPT, STEPS)
    times, anonymous, speeds = {count: [] for count in counts}, 0, []
    for turn in range(ROUNDS + 1):
        for count in counts:
            _, seconds = measure_rounds(batch, prompts[:count], follow[:count])
            if turn:
                times[count].append(seconds / STEPS)
        peak, anonymous = (peak_rss_bytes(), anonymous_bytes("self")) if not turn else (peak, anonymous)  # without the buffer of read_bandwidth
        speeds.append(read_bandwidth(len(os.sched_getaffinity(0)), repeats=1))
    return {"decode_s": {count: statistics.median(values) for count, values in times.items()}, "read_bytes_per_s": statistics.median(speeds),
            "decode_peak_rss": peak, "decode_peak_anonymous": anonymous, "weights_bytes": model.weights_bytes}


def measure(folder, layers, args):
    model, out = folder / f"model-{layers}", folder / f"artifact-{layers}"
    try:
        size = write_checkpoint(model, args.shape, layers, args.vocab, shard_bytes=args.shard_bytes)
        row = {"layers": layers, "checkpoint_bytes": size} | compile_model(model, out, args)
        plans = {count: footprint_of(model, CompileOptions(scheme=args.scheme, method=args.method), PROMPT + STEPS, count) for count in args.streams}
        row["step_bytes"] = {count: plan.step_bytes - plan.cache_bytes for count, plan in plans.items()}
        shutil.rmtree(model)
        # A process of its own, so that the peak is this artifact's.
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            row |= pool.submit(decode, out, args.streams).result()
        return row
    finally:
        for path in (model, out):
            shutil.rmtree(path, ignore_errors=True)


def show(rows, args):
    table = Table(title=f"{args.shape}, {args.method} {args.scheme}, vocabulary of {args.vocab or SHAPES[args.shape]['vocab_size']}")
    for name in ("layers", "bf16 GB", "compile s", "s a layer", "peak RSS MB", "anonymous MB", "weights GB", "run RSS MB", "anonymous MB"):
        table.add_column(name, justify="right")
    for count in args.streams:
        for name in (f"ms a step of {count}", "share of the roof", "ms a layer", "share of the roof"):
            table.add_column(name, justify="right")
    before = None
    for row in rows:
        deeper = row["layers"] - before["layers"] if before else 0

        def added(value, unit):
            return f"{(value(row) - value(before)) / deeper / unit:.2f}" if before else ""

        def share_of_the_roof(count, before={}):
            data, seconds = (row[key][count] - before.get(key, {count: 0})[count] for key in ("step_bytes", "decode_s"))
            return f"{data / row['read_bytes_per_s'] / seconds:.2f}"

        steps = [
            cell
            for count in args.streams
            for cell in (f"{row['decode_s'][count] * 1e3:.1f}", share_of_the_roof(count),
                         added(lambda one: one["decode_s"][count], 1e-3), share_of_the_roof(count, before) if before else "")]
        table.add_row(
            str(row["layers"]), f"{row['checkpoint_bytes'] / 1e9:.2f}", f"{row['compile_s']:.1f}", added(lambda one: one["compile_s"], 1),
            f"{row['compile_peak_rss'] / 1e6:.0f}", f"{row['compile_peak_anonymous'] / 1e6:.0f}", f"{row['weights_bytes'] / 1e9:.2f}",
            f"{row['decode_peak_rss'] / 1e6:.0f}", f"{row['decode_peak_anonymous'] / 1e6:.0f}", *steps)
        before = row
    console = Console(width=max(Console().width, 180))  # a file is as wide as the table
    console.print(table)
    speeds = ", ".join(f"{row['read_bytes_per_s'] / 1e9:.1f}" for row in rows)
    console.print(f"memory read at {speeds} GB/s by {len(os.sched_getaffinity(0))} threads")
    if len(rows) < 2:
        return
    first, last = rows[0], rows[-1]
    more = FULL_DEPTH[args.shape] - last["layers"]

    def at_full_depth(value):
        return value(last) + more * (value(last) - value(first)) / (last["layers"] - first["layers"])

    steps = ", ".join(f"{at_full_depth(lambda one: one['decode_s'][count]) * 1e3:.0f} ms of {count}" for count in args.streams)
    console.print(f"{FULL_DEPTH[args.shape]} layers, by the difference: compile {at_full_depth(lambda one: one['compile_s']):.0f} s with "
                  f"{at_full_depth(lambda one: one['compile_peak_anonymous']) / 1e6:.0f} MB anonymous, weights "
                  f"{at_full_depth(lambda one: one['weights_bytes']) / 1e9:.1f} GB, a decode step {steps}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="llama-7b")
    parser.add_argument("--layers", default="2,4,8", help="depths, separated by commas")
    parser.add_argument("--scheme", default="W8A8")
    parser.add_argument("--method", default="absmax")
    parser.add_argument("--samples", type=int, default=8, help="calibration samples")
    parser.add_argument("--length", type=int, default=256, help="tokens of a sample")
    parser.add_argument("--vocab", type=int, help="a smaller vocabulary saves disk and time")
    parser.add_argument("--shard-bytes", type=int, default=5_000_000_000, help="of the checkpoint")
    parser.add_argument("--folder", type=Path, help="where checkpoints and artifacts are for a while")
    parser.add_argument("--streams", default="1,16", metavar="N,...", help="streams that are decoded together (1,16)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.streams = sorted({int(text) for text in args.streams.split(",")})
    rows = []
    if args.folder:
        args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="easyquant-width-", dir=args.folder) as folder:
        for layers in sorted({int(text) for text in args.layers.split(",")}):
            rows.append(measure(Path(folder), layers, args))
            print(json.dumps(rows[-1]), file=sys.stderr)
    show(rows, args)
    if args.json:
        args.json.write_text(json.dumps({"shape": args.shape, "scheme": args.scheme, "method": args.method, "samples": args.samples, "length": args.length, "vocab": args.vocab, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
