# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statistics of a model's activations on a text, which the compiler gathers."""

import contextlib
from pathlib import Path

from easyquant.compiler.calibration import CalibrationText, most_windows, tokens_of
from easyquant.compiler.driver import compiler_progress, find_model, run_compiler
from easyquant.compiler.plans import LOSS_FORWARDS, Plans, describe_time, describe_windows, forward_seconds, loss_memory_of_text, read_plans, walk_bytes
from easyquant.runtime.ranks import ALONE, Ranks, model_of_rank
from easyquant.support.errors import UserError
from easyquant.support.files import check_writable, scratch_folder
from easyquant.support.memory import available_bytes
from easyquant.terminal import console


# What the loss says of weights: gathered by a pass of its own, which runs the model backward.
FISHER = "fisher"


def quoted(value: Path | str) -> str:
    """A value of an option in a pass pipeline."""
    if '"' in str(value):
        raise UserError(f"{value}: a path with a quotation mark cannot be passed on")
    return f'"{value}"'


def check_statistics(statistics: list[str], sites: list[str]) -> None:
    if FISHER in statistics and (len(statistics) > 1 or sites):
        raise UserError(f"--statistic {FISHER} is of all linears and in a file of its own; leave out --site and other statistics, and gather those in another run")


def plans_of_float(model: Path) -> Plans:
    return read_plans(model, ["--scheme=none"])


def print_dry_run(model: Path, calibration: CalibrationText, statistics: list[str], sites: list[str], expert_tokens: int | None) -> None:
    """What `calibrate` would take, with nothing run."""
    check_statistics(statistics, sites)
    plans = plans_of_float(model)
    tokens = most_windows(calibration, expert_tokens) * calibration.length
    table = console.pairs()
    table.add_row("text", describe_windows(calibration, expert_tokens))
    if FISHER in statistics:
        memory = loss_memory_of_text(plans, calibration, 1, expert_tokens, to_file=True)
        table.add_row("memory", f"about {console.human_bytes(memory.needed)}, beside pages of the model's file and of statistics")
        for part, size in memory.parts.items():
            table.add_row("", f"{console.human_bytes(size)} for {part}")
        table.add_row("statistics", f"about {console.human_bytes(memory.file)}, and as much in the journal until they are whole")
        seconds = (LOSS_FORWARDS + bool(expert_tokens)) * forward_seconds(plans, tokens)
    else:
        table.add_row("memory", f"about {console.human_bytes(walk_bytes(plans, tokens))} and what statistics take, beside pages of the model's file")
        seconds = forward_seconds(plans, tokens) * (2 if expert_tokens else 1)  # once to count
    if (available := available_bytes()) is not None:
        table.add_row("available", console.human_bytes(available))
    table.add_row("time", f"{describe_time(seconds)} on this machine")
    console.out.print(table)


def calibrate(
    model: Path, calibration: CalibrationText, output: Path, statistics: list[str], sites: list[str], work: Path | None, threads: int, ranks: Ranks = ALONE,
    expert_tokens: int | None = None,
) -> None:
    """Writes the statistics file `output`; shows its progress on stderr. With several ranks the first one does."""
    check_statistics(statistics, sites)
    is_fisher = FISHER in statistics
    with contextlib.ExitStack() as stack:
        if ranks.rank == 0:
            model = find_model(model)
            check_writable(output)
            if is_fisher:
                loss_memory_of_text(plans_of_float(model), calibration, ranks.size, expert_tokens, to_file=True).check()
            follow = stack.enter_context(compiler_progress())
            follow("tokenizing", 0, 0)
            tokens = stack.enter_context(tokens_of(model, calibration, expert_tokens=expert_tokens))
            folder = work or stack.enter_context(scratch_folder(output.parent))
        else:
            model, follow = model_of_rank(model), None
            folder = ranks.own_folder(work) if work else stack.enter_context(scratch_folder())
            tokens, output = folder / "tokens.safetensors", folder / "statistics.safetensors"
        observers = f"statistics={','.join(statistics)}"
        if sites:
            observers += f" sites={','.join(map(quoted, sites))}"
        run = f"work={quoted(folder)} threads={threads}"
        windows = f"equant-take-windows{{tokens={quoted(tokens)} expert-tokens={expert_tokens} {run}}}," if expert_tokens else ""
        read = folder / "windows.safetensors" if expert_tokens else tokens
        walk = f"{{tokens={quoted(read)} statistics={quoted(output)} {run}}}"
        pipeline = windows + (f"equant-calibrate-loss{walk}" if is_fisher else f"equant-insert-observers{{{observers}}},equant-calibrate{walk}")
        run_compiler([str(model), f"--pipeline={pipeline}"], follow, ranks)
