# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant calibrate`: gathers statistics of a model's activations on a text."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from safetensors import safe_open

from easyquant.compiler.calibration import CalibrationText
from easyquant.compiler.options import STATISTICS, takes_option
from easyquant.compiler.statistics import FISHER, calibrate, print_dry_run
from easyquant.runtime.device import ThreadsOption
from easyquant.runtime.ranks import Comm, CommOption, CommTimeoutOption, Ranks
from easyquant.support.errors import UserError
from easyquant.terminal import console


Statistic = Enum("Statistic", {name: name for name in (*STATISTICS, FISHER)}, type=str)


@console.command
@takes_option("expert-tokens")
def calibrate_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A Hugging Face folder (safetensors, config.json) or a GGUF file.")],
    calib: Annotated[Path, typer.Option("--calib", metavar="FILE", help="The text to calibrate on, UTF-8.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="STATISTICS", help="The statistics file to write (safetensors).")] = None,
    nsamples: Annotated[int, typer.Option(min=1, metavar="N", help="Windows of the text.")] = 64,
    seqlen: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens of a window.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Chooses the windows.")] = 0,
    bos: Annotated[bool, typer.Option("--calib-bos", help="Begin every window with the beginning-of-text token, which no statistic counts.")] = False,
    statistics: Annotated[list[Statistic], typer.Option("--statistic", metavar="NAME", help="What to gather. Repeatable; fisher, which takes gradients of the loss, stands alone.")] = [Statistic(name) for name in ("absmax", "minmax") if name in STATISTICS],
    sites: Annotated[list[str], typer.Option("--site", metavar="P", help="Observe only these sites: a name or re:PATTERN. Repeatable.")] = [],
    work: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the journal here: a run that was ended goes on from it.")] = None,
    threads: ThreadsOption = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the memory and the time that it would take, and stop.")] = False,
    comm: CommOption = Comm.auto,
    comm_timeout: CommTimeoutOption = None,
    expert_tokens: int | None = None,
) -> None:
    """Gather statistics of a model's activations on a text.

    Example: [bold]easyquant calibrate SmolLM2-135M --calib novels.txt -o statistics.safetensors --statistic mean_abs[/bold]
    """
    calibration = CalibrationText(calib, nsamples, seqlen, seed, bos)
    ranks = Ranks(comm, comm_timeout)
    names = [item.value for item in statistics]
    if dry_run:
        return None if ranks.rank else print_dry_run(model, calibration, names, sites, expert_tokens)
    if output is None:
        raise UserError("-o STATISTICS is missing: the file to write")
    calibrate(model, calibration, output, names, sites, work, threads, ranks, expert_tokens)
    if ranks.rank:
        return
    with safe_open(output, "numpy") as file:
        taken = file.metadata()["samples"]
    console.out.print(f"{output}: {console.human_bytes(output.stat().st_size)} of statistics on {taken} x {seqlen} tokens", markup=False)
