# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant convert`: a quantized checkpoint in another format, with the same codes, scales and zero points."""

from pathlib import Path
from typing import Annotated

import typer

from easyquant.commands.compile import compile_command
from easyquant.commands.export import Format
from easyquant.compiler.options import OPTIONS
from easyquant.terminal import console
from easyquant.terminal.usage import Command


class ConvertCommand(Command):
    groups = {"What to make": ("--output", "--format", "--closest", "--dequantize")}


@console.command
def convert_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A Hugging Face folder or a GGUF file that is quantized.")],
    format: Format,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="The folder to write.")],
    closest: Annotated[bool, typer.Option("--closest", help="Numbers that the format does not hold become the closest that it holds, instead of an error.")] = False,
    dequantize: Annotated[bool, typer.Option("--dequantize", help="Sites whose codes no scheme has become float, instead of an error.")] = False,
    threads: Annotated[int | None, typer.Option(min=0, metavar="N", help="Threads to convert with (default: all CPUs).")] = None,
) -> None:
    """Write a quantized checkpoint in another format, its codes as they are.

    Nothing is rounded again: what the other format does not hold is an error, which says by how much weights would change.

    Example: [bold]easyquant convert smol-gptq --format compressed-tensors -o smol-ct[/bold]
    """
    others = {option.field: [] if option.kind == "list" else None for option in OPTIONS.values()}
    given = {"export": format, "scheme": "keep", "closest": closest, "dequantize": dequantize, "threads": threads}
    compile_command.__wrapped__(model=model, output=output, **others | given)
