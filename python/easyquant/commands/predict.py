# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant predict`: how long a decode step would take on a GPU that is not there."""

from pathlib import Path
from typing import Annotated

import typer

from easyquant.prediction.chips import CHIPS
from easyquant.prediction.launch_time import PARTS
from easyquant.prediction.step import Prediction, predict
from easyquant.runtime.artifact import Artifact
from easyquant.runtime.sites import pattern_of
from easyquant.support.files import check_writable, write_json
from easyquant.terminal import console
from easyquant.terminal.usage import completes

DEFAULT_CONTEXT = 1024
ESTIMATE = "an estimate: nothing was measured; docs/guide/predict.md has the model of time, the sources of its constants and how far off it was"


def rows_of(prediction: Prediction, every_site: bool) -> list[dict]:
    """Sites in the order of the step, those of all layers together unless each is wanted: launches, bytes, seconds and what they are of."""
    rows: dict[tuple[str, str], dict] = {}
    for each in prediction.launches:
        launch = each.happening.launch
        site = launch.site if every_site else pattern_of(launch.site)
        row = rows.setdefault((site, launch.phase), {"site": site, "phase": launch.phase, "launches": 0, "bytes": 0.0, "parts": dict.fromkeys(PARTS, 0.0)})
        row["launches"] += 1
        row["bytes"] += each.traffic.memory
        for part, seconds in each.time.parts.items():
            row["parts"][part] += seconds
    return [finish(row) for row in rows.values()]


def finish(row: dict) -> dict:
    parts = row.pop("parts")
    return row | {"bytes": round(row["bytes"]), "seconds": sum(parts.values()), "binds": max(parts, key=parts.get), "parts": parts}


def report(artifact: Artifact, prediction: Prediction, every_site: bool) -> dict:
    sites = rows_of(prediction, every_site)
    return {
        "estimate": ESTIMATE, "artifact": artifact.describe(), "chip": prediction.chip, "device": CHIPS[prediction.chip].device,
        "batch": prediction.sequences, "context": prediction.context, "launches": prediction.count, "bytes": round(prediction.bytes),
        "seconds": prediction.seconds, "tokens_per_s": prediction.sequences / prediction.seconds,
        "parts": {part: sum(site["parts"][part] for site in sites) for part in PARTS}, "sites": sites,
    }  # fmt: skip


def print_report(figures: dict) -> None:
    facts = console.pairs()
    facts.add_row("estimated for", f"{figures['device']} ({figures['chip']}); nothing was measured")
    facts.add_row("artifact", figures["artifact"])
    facts.add_row("step", f"{figures['batch']} × 1 token, each seeing {figures['context']:,} tokens")
    facts.add_row("time, estimated", f"{figures['seconds'] * 1e6:,.0f} µs, {figures['tokens_per_s']:,.0f} tokens/s")
    facts.add_row("launches", f"{figures['launches']:,}")
    facts.add_row("memory", f"{console.human_bytes(figures['bytes'])}")
    facts.add_row("of the time", ", ".join(f"{part} {seconds / figures['seconds']:.0%}" for part, seconds in figures["parts"].items() if seconds))
    console.out.print(facts)
    console.out.print()
    table = console.table("Estimate by site")
    table.add_column("site", overflow="fold")
    table.add_column("phase")
    for title in ("launches", "bytes", "µs", "share"):
        table.add_column(title, justify="right")
    table.add_column("binds")
    for site in figures["sites"]:
        table.add_row(site["site"], site["phase"], f"{site['launches']:,}", console.human_bytes(site["bytes"]), f"{site['seconds'] * 1e6:,.1f}",
                      f"{site['seconds'] / figures['seconds']:.1%}", site["binds"])  # fmt: skip
    console.out.print(table)
    console.note("binds: launch, the fixed time of each; latency, loads that are waited for; bandwidth, of memory; caches, what multiprocessors can ask for;\n"
                 "issue, slots of instructions; arithmetic, the busiest unit. Errors of single kernels: docs/benchmarks/gpu-static.md.")  # fmt: skip


@console.command
def predict_command(
    path: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="An artifact that was compiled for GPUs.")],
    chip: Annotated[str, typer.Option("--chip", metavar="CHIP", autocompletion=completes(CHIPS), help=f"One of {', '.join(CHIPS)}, for which it was compiled.")],
    batch: Annotated[int, typer.Option("--batch", metavar="B", min=1, help="Sequences, each with one new token.")] = 1,
    context: Annotated[int | None, typer.Option("--context", metavar="N", min=1, help=f"Tokens that each sees, the new one included (default: {DEFAULT_CONTEXT}, or all that the model takes).")] = None,
    every: Annotated[bool, typer.Option("--all", help="List every layer by itself.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures there too, in seconds and bytes.")] = None,
) -> None:
    """Estimate a decode step on a GPU, without one.

    Adds up the launches of a step by site and says what binds each. Nothing is run or measured: it is an estimate, from the
    launch list and the machine code in the artifact. It needs nvdisasm (pip install nvidia-cuda-nvdisasm).

    Example: [bold]easyquant predict llama-w8a8 --chip sm_90a --batch 16 --context 4096[/bold]
    """
    check_writable(json_file)
    artifact = Artifact.open(path)
    figures = report(artifact, predict(artifact, chip, batch, context or min(DEFAULT_CONTEXT, artifact.max_context)), every)
    print_report(figures)
    if json_file:
        write_json(json_file, figures)
