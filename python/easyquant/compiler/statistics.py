# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statistics of a model's activations on a text, which the compiler gathers."""

import contextlib
from pathlib import Path

from easyquant.compiler.calibration import CalibrationText, tokens_of
from easyquant.compiler.driver import compiler_progress, find_model, run_compiler
from easyquant.runtime.ranks import ALONE, Ranks, model_of_rank
from easyquant.support.errors import UserError
from easyquant.support.files import check_writable, scratch_folder


# What the loss says of weights: gathered by a pass of its own, which runs the model backward.
FISHER = "fisher"


def quoted(value: Path | str) -> str:
    """A value of an option in a pass pipeline."""
    if '"' in str(value):
        raise UserError(f"{value}: a path with a quotation mark cannot be passed on")
    return f'"{value}"'


def calibrate(
    model: Path, calibration: CalibrationText, output: Path, statistics: list[str], sites: list[str], work: Path | None, threads: int, ranks: Ranks = ALONE
) -> None:
    """Writes the statistics file `output`; shows its progress on stderr. With several ranks the first one does."""
    is_fisher = FISHER in statistics
    if is_fisher and (len(statistics) > 1 or sites):
        raise UserError(f"--statistic {FISHER} is of all linears and in a file of its own; leave out --site and other statistics, and gather those in another run")
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
        walk = f"{{tokens={quoted(tokens)} work={quoted(folder)} statistics={quoted(output)} threads={threads}}}"
        pipeline = f"equant-calibrate-loss{walk}" if is_fisher else f"equant-insert-observers{{{observers}}},equant-calibrate{walk}"
        run_compiler([str(model), f"--pipeline={pipeline}"], follow, ranks)
