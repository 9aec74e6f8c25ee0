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


def quoted(value: Path | str) -> str:
    """A value of an option in a pass pipeline."""
    if '"' in str(value):
        raise UserError(f"{value}: a path with a quotation mark cannot be passed on")
    return f'"{value}"'


def calibrate(
    model: Path, calibration: CalibrationText, output: Path, statistics: list[str], sites: list[str], work: Path | None, threads: int, ranks: Ranks = ALONE
) -> None:
    """Writes the statistics file `output`; shows its progress on stderr. With several ranks the first one does."""
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
