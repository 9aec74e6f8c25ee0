# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant cache`: the artifacts that commands have made of models and keep."""

import datetime
from typing import Annotated

import typer

from easyquant.compiler.cache import artifacts_folder, clear, kept_artifacts
from easyquant.terminal import console


@console.command
def cache_command(
    clear_it: Annotated[bool, typer.Option("--clear", help="Remove them; a model that is asked for again is compiled again.")] = False,
) -> None:
    """Show the artifacts of models that were compiled on the way, or remove them.

    Example: [bold]easyquant cache --clear[/bold]
    """
    folder = artifacts_folder()
    if clear_it:
        console.out.print(f"{folder}: {console.human_bytes(clear())} removed", markup=False, soft_wrap=True)
        return
    artifacts = kept_artifacts()
    console.out.print(f"{folder}: {console.human_bytes(sum(artifact.total_bytes for artifact in artifacts))}", markup=False, soft_wrap=True)
    table = console.table("")
    for heading in ("artifact", "what it is", "last used"):
        table.add_column(heading)
    table.add_column("bytes", justify="right")
    for artifact in artifacts:
        used = datetime.datetime.fromtimestamp(artifact.path.stat().st_mtime)
        table.add_row(artifact.path.name, artifact.describe(), f"{used:%Y-%m-%d %H:%M}", console.human_bytes(artifact.total_bytes))
    console.out.print(table)
