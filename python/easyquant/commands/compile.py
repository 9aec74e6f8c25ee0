# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant compile`: hands a model to the C++ compiler and shows how far it is."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from easyquant.compiler.advice import better_method
from easyquant.compiler.calibration import CalibrationText
from easyquant.compiler.compile import compile_model, help_compile
from easyquant.compiler.options import CompileOptions, check_table, choices_of, groups, takes_options
from easyquant.compiler.plans import plans_of, print_dry_run
from easyquant.runtime.artifact import Artifact, is_artifact
from easyquant.runtime.ranks import Comm, CommOption, CommTimeoutOption, Ranks
from easyquant.support.errors import UserError
from easyquant.support.memory import age_seconds, peak_rss_bytes
from easyquant.terminal import console
from easyquant.terminal.usage import Command


class CompileCommand(Command):
    groups = groups({
        "What to make": ("--output",), "Calibration": ("--calib", "--nsamples", "--seqlen", "--seed", "--calib-bos"), "Options of methods": ("--lkd",),
        "Ranks": ("--comm", "--comm-timeout"),
    })  # fmt: skip


def _refuse_artifact(path: Path, output: Path | None, format: str | None) -> NoReturn:
    """Codes of an artifact are packed for kernels, and it does not say all that config.json does. Its recipe makes them again."""
    artifact = Artifact.open(path)
    command = f"easyquant export MODEL --format {format}" if format else "easyquant compile MODEL"
    text = " --calib TEXT" if artifact.manifest["quantization"].get("calibration") else ""
    raise UserError(
        f"{path}: is compiled already, and its codes are packed for kernels; give the model that it came from, {artifact.manifest['source']['name']}, "
        f"with the artifact's recipe, which makes the same codes: {command} --recipe {path / 'recipe.json'}{text} -o {output or 'OUT'}"
    )


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

    Example: [bold]easyquant compile SmolLM2-135M -o smol-w8a8[/bold]
    """
    check_table()
    if is_artifact(model):
        _refuse_artifact(model, output, given.get("export"))
    options = CompileOptions(calibration=CalibrationText(calib, nsamples, seqlen, seed, calib_bos) if calib else None, **given)
    if mistaken := [name for name in options.targets if set(name.split(",")) <= set(choices_of("target"))]:
        raise UserError(f"--targets {mistaken[0]}: names sites to quantize; did you mean --target {mistaken[0]}?")
    if lkd:
        options.method = f"{options.method}+lkd" if options.method else "lkd"
    ranks = Ranks(comm, comm_timeout)
    prints_only = options.dump_pipeline or options.emit_ir_after is not None
    if ranks.rank and (prints_only or options.dry_run):
        return
    if options.dry_run:
        return print_dry_run(plans_of(model, options), options)
    if output is None and not prints_only:
        raise UserError(f"-o OUT is missing: the folder to write the {'checkpoint' if options.export else 'artifact'} to")
    if ranks.rank:
        return help_compile(model, output, options, ranks)
    cost = compile_model(model, output, options, ranks)
    if prints_only:
        return
    effort = f"in {age_seconds():.1f} s with at most {console.human_bytes(max(cost.total_peak_bytes, peak_rss_bytes()))} of memory"
    if options.export:
        size = console.human_bytes(sum(file.stat().st_size for file in output.iterdir()))
        console.out.print(f"{output}: checkpoint in {options.export}, {size}, written {effort}", markup=False, soft_wrap=True)
        return
    artifact = Artifact.open(output)
    console.out.print(
        f"{output}: {artifact.describe()}, {console.human_bytes(artifact.total_bytes)}, compiled {effort}", markup=False, soft_wrap=True
    )
    if options.method is None and options.recipe is None and (advice := better_method(options, artifact.scheme, model, output)):
        console.note(advice)
