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
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from easyquant.evaluation.breakdown import PARTS, breakdown, print_breakdown
from easyquant.evaluation.protocol import machine_stamp
from easyquant.runtime.artifact import Artifact, BatchSize, load_model_on_ranks, open_batch
from easyquant.runtime.device import AUTO, Device, DeviceOption, Placement, SimtChipOption, ThreadsOption
from easyquant.runtime.extension import runtime
from easyquant.support.children import ends_with_me
from easyquant.support.errors import UserError
from easyquant.support.files import check_writable, scratch_folder, write_json
from easyquant.support.memory import peak_rss_bytes
from easyquant.terminal import console

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


def measure_rounds(batch, prompts: np.ndarray, follow: np.ndarray) -> tuple[float, float]:
    """Seconds in which a row of `prompts` is read for each sequence, and then in which the rows of `follow` are decoded, a column a step."""
    sequences = [batch.add() for _ in prompts]
    try:
        steps = [list(zip(sequences, tokens, strict=True)) for tokens in follow.T[:, :, np.newaxis]]
        begin = time.perf_counter()
        _check(batch.append(list(zip(sequences, prompts, strict=True))))
        middle = time.perf_counter()
        for step in steps:
            _check(batch.append(step))
        return middle - begin, time.perf_counter() - middle
    finally:
        for sequence in sequences:
            batch.remove(sequence)


def tokens_to_measure(model, sequences: int, prefill: int, decode: int) -> tuple[np.ndarray, np.ndarray]:
    """Prompts and what follows them. Which tokens they are does not matter for the time; that they are the same in every run does."""
    random = np.random.default_rng(0)
    return tuple(random.integers(0, model.vocab_size, (sequences, count), dtype=np.int32) for count in (prefill, decode))


def _check(results: list) -> None:
    for failed in results:
        if failed is not None:
            raise failed


def rates(seconds: list[tuple[float, float]], tokens: tuple[int, int]) -> dict:
    """Medians and ranges of tokens/s over rounds, for prefill and for decode."""
    figures = {}
    for part, (name, count) in enumerate(zip(PARTS, tokens, strict=True)):
        values = [count / times[part] for times in seconds]
        figures |= {f"{name}_tokens_per_s": statistics.median(values), f"{name}_tokens_per_s_range": spread(values)}
    return figures


def batch_figures(seconds: dict[int, list[tuple[float, float]]], prefill: int, decode: int) -> list[dict]:
    """The rates for each number of sequences together, and how many times as fast as one sequence they are, round by round."""
    table = []
    for sequences, times in seconds.items():
        row = {"sequences": sequences} | rates(times, (sequences * prefill, sequences * decode))
        for part, name in enumerate(PARTS):
            ratios = [sequences * one[part] / many[part] for one, many in zip(seconds[1], times, strict=True)]
            row |= {f"{name}_ratio": statistics.median(ratios), f"{name}_ratio_range": spread(ratios)}
        table.append(row)
    return table


def measure(
    artifact: Artifact,
    prefill: int = 512,
    decode: int = 128,
    threads: int = 0,
    repeats: int = 5,
    place: Placement = AUTO,
    phases: bool = False,
    sequences: Sequence[int] = (),
) -> dict | None:
    """Medians over `repeats`, each with its smallest and largest value; one repeat warms up and is not counted.

    `phases` adds the cost of each phase, in one more run; for a simulated GPU that is the only result. `sequences`: so many in one
    step, too, in turn with one. All ranks that share the artifact call this; it returns None on those that follow rank 0.
    """
    if prefill + decode > artifact.max_context:
        raise UserError(f"--prefill {prefill} --decode {decode}: together more than the context of {artifact.path}, {artifact.max_context} tokens")
    model = load_model_on_ranks(artifact, threads, place)
    if model is None:
        return None
    counts = sorted({1, *sequences})
    stamp = machine_stamp(artifact, model, threads) | {"prefill": prefill, "decode": decode, "batch": counts if sequences else 1}
    costs = {"breakdown": breakdown(model, prefill, decode, threads)} if phases or model.device == "simt" else {}
    if model.device == "simt":
        if sequences:
            raise UserError("--batch: a simulated GPU counts instructions and measures no time; give --device cpu or cuda")
        return costs | {"weights_bytes": model.weights_bytes, "protocol": stamp | {"statistic": "counts of one run"}}
    batch = open_batch(model, BatchSize.of(artifact, model.device, [prefill + decode] * counts[-1], counts[-1]), threads)
    prompts, follow = tokens_to_measure(model, counts[-1], prefill, decode)
    seconds = {count: [] for count in counts}
    with console.progress() as bar:
        task = bar.add_task("measuring", total=(repeats + 1) * len(counts))
        try:
            for repeat in range(repeats + 1):
                for count in counts if repeat % 2 else counts[::-1]:
                    times = measure_rounds(batch, prompts[:count], follow[:count])
                    if repeat > 0:
                        seconds[count].append(times)
                    bar.advance(task)
        except runtime().Error as error:
            raise UserError(str(error)) from None
    peak = peak_rss_bytes()  # before the roof's own buffer is allocated
    figures = rates(seconds[1], (prefill, decode))
    roof = {}
    # Which experts a step reads depends on its tokens.
    if model.device == "cpu" and not any(".experts." in site["name"] for site in artifact.manifest["sites"]):
        bandwidth = read_bandwidth(threads or len(os.sched_getaffinity(0)))
        roof = {"decode_share_of_roof": figures["decode_tokens_per_s"] * model.weights_bytes / bandwidth, "read_bandwidth_bytes_per_s": bandwidth}
    cache = artifact.cache_pages(model.device)
    return costs | roof | figures | ({"batch": batch_figures(seconds, prefill, decode)} if sequences else {}) | {
        "weights_bytes": model.weights_bytes,
        "artifact_bytes": artifact.total_bytes,
        "session_bytes": batch.bytes,
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
        if subprocess.run(command, stdout=subprocess.DEVNULL, preexec_fn=ends_with_me()).returncode != 0:
            raise UserError(f"{artifact.path}: could not be measured; the reason stands above")
        return json.loads(file.read_text())


def measure_in_turn(artifacts: Sequence[Artifact], prefill: int, decode: int, threads: int, rounds: int) -> list[dict]:
    """`measure_apart` of several artifacts, whose speeds are measured round by round in turn: what disturbs the machine disturbs all alike.

    Medians and ranges over `rounds`; one round before them warms up.
    """
    figures = [measure_apart(artifact, prefill, decode, threads, repeats=1) for artifact in artifacts]
    batches, tokens = [], []
    for artifact in artifacts:
        model = load_model_on_ranks(artifact, threads)
        batches.append(open_batch(model, BatchSize.of(artifact, model.device, [prefill + decode], 1), threads))
        tokens.append(tokens_to_measure(model, 1, prefill, decode))
    seconds = [[] for _ in artifacts]
    with console.progress() as bar:
        task = bar.add_task("measuring in turn", total=(rounds + 1) * len(artifacts))
        for turn in range(rounds + 1):
            for own, batch, (prompts, follow) in zip(seconds, batches, tokens, strict=True):
                own.append(measure_rounds(batch, prompts, follow))
                bar.advance(task)
    for found, own in zip(figures, seconds, strict=True):
        found |= rates(own[1:], (prefill, decode))
        if "decode_share_of_roof" in found:
            found["decode_share_of_roof"] = found["decode_tokens_per_s"] * found["weights_bytes"] / found["read_bandwidth_bytes_per_s"]
        found["protocol"] |= {"repeats": rounds, "statistic": "median and range, artifacts in turn,"}
    return figures


def with_range(figures: dict, key: str, digits: int) -> str:
    low, high = figures[f"{key}_range"]
    return f"{figures[key]:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def print_batch(table: list[dict], prefill: int, decode: int) -> None:
    shown = console.table(f"sequences in one step, together: prefill of {prefill}, decode of {decode} each, tokens/s")
    for title in ("sequences", "prefill", "times one", "decode", "times one"):
        shown.add_column(title, justify="right")
    for row in table:
        cells = [cell for part in PARTS for cell in (with_range(row, f"{part}_tokens_per_s", 1), with_range(row, f"{part}_ratio", 2))]
        shown.add_row(str(row["sequences"]), *cells)
    console.out.print(shown)


def print_result(result: dict) -> None:
    def rate(key: str) -> str:
        return f"{with_range(result, key, 1)} tokens/s"

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
        table.add_row("batch" if "batch" in result else "session", console.human_bytes(result["session_bytes"]))
        table.add_row("peak memory", console.human_bytes(result["peak_rss_bytes"]))
    table.add_row("artifact", protocol["artifact"])
    on = f"{protocol['cpu']}, {protocol['isa']}, {protocol['threads']} thread{'' if protocol['threads'] == 1 else 's'}" if protocol["device"] == "cpu" else f"{protocol['device']}, code for {protocol['isa']}"
    table.add_row("measured on", on)
    table.add_row("EasyQuant", protocol["easyquant"])
    console.out.print(table)
    if "batch" in result:
        print_batch(result["batch"], protocol["prefill"], protocol["decode"])
    if "breakdown" in result:
        print_breakdown(result["breakdown"], protocol["prefill"], protocol["decode"])


def read_counts(text: str | None) -> list[int]:
    """'1,4,16'"""
    counts = text.split(",") if text is not None else []
    if not all(count.strip().isdecimal() and int(count) > 0 for count in counts):
        raise UserError(f"--batch {text}: expected numbers of sequences joined by commas, such as 1,4,16")
    return [int(count) for count in counts]


@console.command
def bench_command(
    artifact_path: Annotated[Path, typer.Argument(metavar="OUT", help="An artifact folder.")],
    prefill: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens of the prompt.")] = 512,
    decode: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens decoded after it, one by one.")] = 128,
    threads: ThreadsOption = 0,
    batch: Annotated[str | None, typer.Option(metavar="N,…", help="So many sequences in one step as well, beside one: 1,4,16.")] = None,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Measurements to take the median of.")] = 5,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures here as well.")] = None,
    device: DeviceOption = Device.auto,
    simt_chip: SimtChipOption = None,
    phases: Annotated[bool, typer.Option("--breakdown", help="Show what each phase costs: seconds on cpu (by site, too) and cuda, instructions and bytes on simt, which shows nothing else.")] = False,
) -> None:
    """Measure prefill and decode speed, and memory.

    Example: [bold]easyquant bench smol-w8a8 --prefill 512 --decode 128 --threads 2[/bold]

    Example: [bold]easyquant bench smol-w8a8 --batch 1,4,16 --prefill 128 --decode 64[/bold]
    """
    artifact, sequences = Artifact.open(artifact_path), read_counts(batch)
    check_writable(json_file)
    result = measure(artifact, prefill, decode, threads, repeats, Placement.of(device, simt_chip), phases, sequences)
    if result is None:
        return
    if json_file:
        write_json(json_file, result)
    print_result(result)
