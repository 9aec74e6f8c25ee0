# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant calibrate`: gathers statistics of a model's activations on a text."""

import contextlib
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from easyquant import console
from easyquant.calibration import CalibrationText, tokens_of
from easyquant.compiler import compiler_progress, find_model, run_compiler
from easyquant.device import ThreadsOption
from easyquant.errors import UserError
from easyquant.files import check_writable, scratch_folder
from easyquant.ranks import ALONE, Comm, CommOption, CommTimeoutOption, Ranks, model_of_rank


class Statistic(str, Enum):
    absmax = "absmax"
    minmax = "minmax"
    mean_abs = "mean_abs"
    moments = "moments"
    histogram = "histogram"
    hessian = "hessian"
    ema = "ema"
    sinks = "sinks"


def quoted(value: Path | str) -> str:
    """A value of an option in a pass pipeline."""
    if '"' in str(value):
        raise UserError(f"{value}: a path with a quotation mark cannot be passed on")
    return f'"{value}"'


def calibrate(
    model: Path, calibration: CalibrationText, output: Path, statistics: list[str], sites: list[str], work: Path | None, threads: int, ranks: Ranks = ALONE
) -> None:
    """Writes the statistics file `output`; shows its progress on stderr. Of several ranks the first one does."""
    with contextlib.ExitStack() as stack:
        if ranks.rank == 0:
            model = find_model(model)
            check_writable(output)
            follow = stack.enter_context(compiler_progress())
            follow("tokenizing", 0, 0)
            tokens = stack.enter_context(tokens_of(model, calibration))
            folder = work or stack.enter_context(scratch_folder(output.parent))
        else:
            model, follow = model_of_rank(model), None
            folder = ranks.own_folder(work) if work else stack.enter_context(scratch_folder())
            tokens, output = folder / "tokens.safetensors", folder / "statistics.safetensors"
        observers = f"statistics={','.join(statistics)}"
        if sites:
            observers += f" sites={','.join(map(quoted, sites))}"
        pipeline = (
            f"equant-insert-observers{{{observers}}},"
            f"equant-calibrate{{tokens={quoted(tokens)} work={quoted(folder)} statistics={quoted(output)} threads={threads}}}"
        )
        run_compiler([str(model), f"--pipeline={pipeline}"], follow, ranks)


@console.command
def calibrate_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A Hugging Face folder (safetensors, config.json) or a GGUF file.")],
    calib: Annotated[Path, typer.Option("--calib", metavar="FILE", help="The text to calibrate on, UTF-8.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="STATISTICS", help="The statistics file to write (safetensors).")],
    nsamples: Annotated[int, typer.Option(min=1, metavar="N", help="Windows of the text.")] = 64,
    seqlen: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens of a window.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Chooses the windows.")] = 0,
    bos: Annotated[bool, typer.Option("--calib-bos", help="Begin every window with the beginning-of-text token, which no statistic counts.")] = False,
    statistics: Annotated[list[Statistic], typer.Option("--statistic", metavar="NAME", help="What to gather. Repeatable.")] = [Statistic.absmax, Statistic.minmax],
    sites: Annotated[list[str], typer.Option("--site", metavar="P", help="Observe only these sites: a name or re:PATTERN. Repeatable.")] = [],
    work: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the journal here: a run that was ended goes on from it.")] = None,
    threads: ThreadsOption = 0,
    comm: CommOption = Comm.auto,
    comm_timeout: CommTimeoutOption = None,
) -> None:
    """Gather statistics of a model's activations on a text.

    Example: [bold]easyquant calibrate SmolLM2-135M --calib novels.txt -o statistics.safetensors --statistic mean_abs[/bold]
    """
    calibration = CalibrationText(calib, nsamples, seqlen, seed, bos)
    ranks = Ranks(comm, comm_timeout)
    calibrate(model, calibration, output, [item.value for item in statistics], sites, work, threads, ranks)
    if ranks.rank:
        return
    console.out.print(f"{output}: {console.human_bytes(output.stat().st_size)} of statistics on {nsamples} x {seqlen} tokens", markup=False)
