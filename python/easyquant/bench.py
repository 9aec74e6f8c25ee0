# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant bench`: how fast an artifact reads a prompt and writes an answer, and what it needs."""

import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from easyquant import console
from easyquant.artifact import Artifact, load_model, open_session
from easyquant.breakdown import breakdown, print_breakdown
from easyquant.device import AUTO, Device, DeviceOption, Placement, SimtChipOption, ThreadsOption
from easyquant.errors import UserError
from easyquant.extension import runtime
from easyquant.files import check_writable, scratch_folder, write_json
from easyquant.memory import peak_rss_bytes
from easyquant.protocol import machine_stamp

# More than the last-level caches of the CPUs in use.
_ROOF_BYTES = 640_000_000


def read_bandwidth(threads: int, repeats: int = 3) -> float:
    """Bytes/s at which `threads` threads read cold memory: the roof of decoding, which reads every weight once a token."""
    data = np.ones(_ROOF_BYTES // 8, dtype=np.int64)
    parts = np.array_split(data, threads)
    times = []
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for _ in range(repeats):
            begin = time.perf_counter()
            list(pool.map(np.max, parts))  # numpy releases the interpreter's lock
            times.append(time.perf_counter() - begin)
    return data.nbytes / min(times)


def spread(values: list[float]) -> list[float]:
    return [min(values), max(values)]


def measure(
    artifact: Artifact,
    prefill: int = 512,
    decode: int = 128,
    threads: int = 0,
    repeats: int = 5,
    place: Placement = AUTO,
    phases: bool = False,
) -> dict:
    """Medians over `repeats`, each with its smallest and largest value; one repeat warms up and is not counted.

    `phases` adds what each phase costs, in one more run. Of a simulated GPU there is nothing else.
    """
    if prefill + decode > artifact.max_context:
        raise UserError(f"--prefill {prefill} --decode {decode}: together more than the context of {artifact.path}, {artifact.max_context} tokens")
    model = load_model(artifact, place=place)
    stamp = machine_stamp(artifact, model, threads) | {"prefill": prefill, "decode": decode, "batch": 1}
    costs = {"breakdown": breakdown(model, prefill, decode, threads)} if phases or model.device == "simt" else {}
    if model.device == "simt":
        return costs | {"weights_bytes": model.weights_bytes, "protocol": stamp | {"statistic": "counts of one run"}}
    session = open_session(model, context=prefill + decode, threads=threads)
    # Which tokens they are does not matter for the time; that they are the same in every run does.
    random = np.random.default_rng(0)
    prompt = random.integers(0, model.vocab_size, prefill, dtype=np.int32)
    follow = [int(token) for token in random.integers(0, model.vocab_size, decode)]
    prefill_rates, decode_rates = [], []
    with console.progress() as bar:
        task = bar.add_task("measuring", total=repeats + 1)
        try:
            for repeat in range(repeats + 1):
                session.reset()
                begin = time.perf_counter()
                session.prefill(prompt)
                middle = time.perf_counter()
                for token in follow:
                    session.decode(token)
                end = time.perf_counter()
                if repeat > 0:
                    prefill_rates.append(prefill / (middle - begin))
                    decode_rates.append(decode / (end - middle))
                bar.advance(task)
        except runtime().Error as error:
            raise UserError(str(error)) from None
    peak = peak_rss_bytes()  # before the roof's own buffer is allocated
    decode_rate = statistics.median(decode_rates)
    roof = {}
    if model.device == "cpu":
        bandwidth = read_bandwidth(threads or len(os.sched_getaffinity(0)))
        roof = {"decode_share_of_roof": decode_rate * model.weights_bytes / bandwidth, "read_bandwidth_bytes_per_s": bandwidth}
    cache = artifact.manifest["program"]["cache"]
    return costs | roof | {
        "prefill_tokens_per_s": statistics.median(prefill_rates),
        "prefill_tokens_per_s_range": spread(prefill_rates),
        "decode_tokens_per_s": decode_rate,
        "decode_tokens_per_s_range": spread(decode_rates),
        "weights_bytes": model.weights_bytes,
        "artifact_bytes": artifact.total_bytes,
        "session_bytes": session.bytes,
        "cache_bytes": cache["window_bytes"],
        "cache_bytes_per_token": cache["page_bytes"] // cache["page_tokens"],
        "peak_rss_bytes": peak,
        "protocol": stamp | {"repeats": repeats, "warm_up": 1, "statistic": "median, range over repeats"},
    }


def measure_apart(artifact: Artifact, prefill: int, decode: int, threads: int, repeats: int) -> dict:
    """`measure` in a process of its own, so that the peak memory is this artifact's and nothing else's."""
    with scratch_folder() as folder:
        file = folder / "bench.json"
        options = {"prefill": prefill, "decode": decode, "threads": threads, "repeats": repeats, "device": "cpu", "json": file}
        command = [sys.executable, "-m", "easyquant", "bench", str(artifact.path.resolve())]
        command += [f"--{name}={value}" for name, value in options.items()]
        # stderr is inherited: it shows the progress, and in the end the error.
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            raise UserError(f"{artifact.path}: could not be measured; the reason stands above")
        return json.loads(file.read_text())


def print_result(result: dict) -> None:
    def rate(key: str) -> str:
        low, high = result[f"{key}_range"]
        return f"{result[key]:.1f} tokens/s ({low:.1f} to {high:.1f})"

    protocol = result["protocol"]
    table = console.pairs()
    if "prefill_tokens_per_s" in result:
        table.add_row(f"prefill of {protocol['prefill']}", rate("prefill_tokens_per_s"))
        table.add_row(f"decode of {protocol['decode']}", rate("decode_tokens_per_s"))
    if "decode_share_of_roof" in result:
        table.add_row(
            "share of the memory roof",
            f"{result['decode_share_of_roof']:.0%} of {result['read_bandwidth_bytes_per_s'] / 1e9:.1f} GB/s (decode, weights read once a token)",
        )
    table.add_row("weights", console.human_bytes(result["weights_bytes"]))
    if "session_bytes" in result:
        table.add_row("session", console.human_bytes(result["session_bytes"]))
        table.add_row("peak memory", console.human_bytes(result["peak_rss_bytes"]))
    table.add_row("artifact", protocol["artifact"])
    on = f"{protocol['cpu']}, {protocol['isa']}, {protocol['threads']} threads" if protocol["device"] == "cpu" else f"{protocol['device']}, code for {protocol['isa']}"
    table.add_row("measured on", on)
    table.add_row("EasyQuant", protocol["easyquant"])
    console.out.print(table)
    if "breakdown" in result:
        print_breakdown(result["breakdown"], protocol["prefill"], protocol["decode"])


@console.command
def bench_command(
    artifact_path: Annotated[Path, typer.Argument(metavar="OUT", help="An artifact folder.")],
    prefill: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens of the prompt.")] = 512,
    decode: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens decoded after it, one by one.")] = 128,
    threads: ThreadsOption = 0,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Measurements to take the median of.")] = 5,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures here as well.")] = None,
    device: DeviceOption = Device.auto,
    simt_chip: SimtChipOption = None,
    phases: Annotated[bool, typer.Option("--breakdown", help="Show what each phase costs: seconds on cpu (by site, too) and cuda, instructions and bytes on simt, which shows nothing else.")] = False,
) -> None:
    """Measure prefill and decode speed, and memory.

    Example: [bold]easyquant bench smol-w8a8 --prefill 512 --decode 128 --threads 2[/bold]
    """
    artifact = Artifact.open(artifact_path)
    check_writable(json_file)
    result = measure(artifact, prefill, decode, threads, repeats, Placement.of(device, simt_chip), phases)
    if json_file:
        write_json(json_file, result)
    print_result(result)
