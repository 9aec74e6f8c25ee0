# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant compile`: hands a model to the C++ compiler and shows how far it is."""

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from easyquant import console
from easyquant.advice import better_method
from easyquant.artifact import Artifact
from easyquant.calibration import CalibrationText, tokens_of
from easyquant.compiler import CompileCost, compiler_progress, find_model, run_compiler, tokenizer_files, warn_without_tokenizer
from easyquant.errors import UserError
from easyquant.memory import age_seconds, peak_rss_bytes
from easyquant.options import CompileOptions, check_table, groups, takes_options
from easyquant.plans import plans_of, print_dry_run
from easyquant.ranks import ALONE, Comm, CommOption, CommTimeoutOption, Ranks, model_of_rank
from easyquant.recipe import recipe_as_json
from easyquant.usage import Command


def help_compile(model: Path, output: Path, options: CompileOptions, ranks: Ranks) -> None:
    """The part of a rank that writes nothing: it has the same options, and gets from rank 0 what it lacks."""
    with contextlib.ExitStack() as stack:
        if options.recipe is not None and options.recipe.is_file():
            options = replace(options, recipe=stack.enter_context(recipe_as_json(options.recipe)))
        run_compiler([str(model_of_rank(model)), *options.arguments(), "-o", str(output)], ranks=ranks)


def compile_model(model: Path, output: Path | None, options: CompileOptions, ranks: Ranks = ALONE) -> CompileCost:
    """Compiles with a progress bar on stderr."""
    begin = time.monotonic()
    model = find_model(model)
    with contextlib.ExitStack() as stack:
        if options.recipe is not None:
            options = replace(options, recipe=stack.enter_context(recipe_as_json(options.recipe, keep=options.dump_pipeline)))
        arguments = [str(model), *options.arguments()]
        if output is not None:
            arguments += ["-o", str(output)]
        files = stack.enter_context(tokenizer_files(model, keep=options.dump_pipeline))
        arguments += [f"--copy-file={file}" for file in files]
        if output is not None:
            warn_without_tokenizer(model, files)
        if options.calibration is not None:
            arguments.append(f"--tokens={stack.enter_context(tokens_of(model, options.calibration, keep=options.dump_pipeline))}")
        if options.dump_pipeline or options.emit_ir_after:
            return run_compiler(arguments)
        cost = run_compiler(arguments, stack.enter_context(compiler_progress()), ranks)
    return replace(cost, wall_seconds=time.monotonic() - begin)


class CompileCommand(Command):
    groups = groups({
        "What to make": ("--output",), "Calibration": ("--calib", "--nsamples", "--seqlen", "--seed", "--calib-bos"), "Options of methods": ("--lkd",),
        "Ranks": ("--comm", "--comm-timeout"),
    })  # fmt: skip


@console.command
@takes_options
def compile_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A Hugging Face folder (safetensors, config.json) or a GGUF file.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="OUT", help="The artifact folder to write.")] = None,
    calib: Annotated[Path | None, typer.Option("--calib", metavar="FILE", help="The text that methods and static activations are calibrated on, UTF-8.")] = None,
    nsamples: Annotated[int, typer.Option(min=1, metavar="N", help="Windows of the calibration text.")] = 64,
    seqlen: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens of a window.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Chooses the windows.")] = 0,
    calib_bos: Annotated[bool, typer.Option("--calib-bos", help="Begin every window with the beginning-of-text token, which no statistic counts.")] = False,
    lkd: Annotated[bool, typer.Option("--lkd", help="Distill layer by layer at the end: METHOD+lkd.")] = False,
    comm: CommOption = Comm.auto,
    comm_timeout: CommTimeoutOption = None,
    **given,
) -> None:
    """Quantize and compile a model into an artifact.

    Example: [bold]easyquant compile SmolLM2-135M -o smol-w8a8 --scheme W8A8[/bold]
    """
    check_table()
    options = CompileOptions(calibration=CalibrationText(calib, nsamples, seqlen, seed, calib_bos) if calib else None, **given)
    if lkd:
        options.method = f"{options.method or 'absmax'}+lkd"
    ranks = Ranks(comm, comm_timeout)
    prints_only = options.dump_pipeline or options.emit_ir_after is not None
    if ranks.rank and (prints_only or options.dry_run):
        return
    if options.dry_run:
        return print_dry_run(plans_of(model, options), options)
    if output is None and not prints_only:
        raise UserError("-o OUT is missing: the folder to write the artifact to")
    if ranks.rank:
        return help_compile(model, output, options, ranks)
    cost = compile_model(model, output, options, ranks)
    if prints_only:
        return
    artifact = Artifact.open(output)
    console.out.print(
        f"{output}: {artifact.describe()}, {console.human_bytes(artifact.total_bytes)}, "
        f"compiled in {age_seconds():.1f} s with at most {console.human_bytes(max(cost.total_peak_bytes, peak_rss_bytes()))} of memory",
        markup=False,
        soft_wrap=True,
    )
    if options.method is None and options.recipe is None and (advice := better_method(options, model, output)):
        console.note(advice)
