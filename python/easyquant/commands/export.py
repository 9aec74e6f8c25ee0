# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant export`: a quantized checkpoint that other software loads. It is `easyquant compile --export` under its own name."""

import copy
import inspect
import re
from typing import Annotated, Literal

import typer

from easyquant.commands.compile import CompileCommand, compile_command
from easyquant.compiler.options import OPTIONS, choices_of
from easyquant.terminal import console

# What only artifacts have.
ARTIFACT = {"export", "target", "context", "tensor_parallel", "force", "emit_ir_after"} | {
    option.field for option in OPTIONS.values() if option.group == "KV cache"
}  # fmt: skip
# What is taken by default where it is not what artifacts take.
DEFAULTS = {
    "scheme": "W4A16, for gguf Q4_0", "group_size": "128 below 8 bits, or the largest power of two below that divides the columns of all linears",
    "scale_type": "f16 beside float activations and of groups, else f32; for onnx f32", "activation_basis": "plain",
    "head": "float, for gguf Q8_0",
}  # fmt: skip
Format = Annotated[
    Literal[tuple(choices_of("export"))] if OPTIONS else str,
    typer.Option("--format", metavar="FORMAT", help="What the checkpoint is for; docs/guide/export.md says what each format holds."),
]  # fmt: skip


def _parameter(parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter of `compile` with the help of `export`."""
    kind, info = parameter.annotation.__origin__, copy.copy(parameter.annotation.__metadata__[0])
    if default := DEFAULTS.get(parameter.name):
        info.help = re.sub(r" \(default: .*\)$", f" (default: {default})", info.help)
    if parameter.name == "output":
        info.help = "The folder to write."
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info])


def exports_as_compile_does(function):
    """Gives a command the parameters of `compile`, but for those of artifacts."""
    own = [parameter for parameter in inspect.signature(function).parameters.values() if parameter.kind != inspect.Parameter.VAR_KEYWORD]
    others = [parameter for name, parameter in inspect.signature(compile_command).parameters.items() if name not in ARTIFACT]
    model, *rest = others
    function.__signature__ = inspect.Signature([model, *own, *map(_parameter, rest)])
    return function


@console.command
@exports_as_compile_does
def export_command(format: Format, **given) -> None:
    """Quantize a model and write a checkpoint in a format of vLLM, transformers and others.

    Example: [bold]easyquant export SmolLM2-135M --format gptq -o smol-gptq[/bold]
    """
    compile_command.__wrapped__(export=format, **given)


class ExportCommand(CompileCommand):
    groups = CompileCommand.groups | {"What to make": ("--output", "--format", "--opset", "--threads", "--max-shard-bytes")}
