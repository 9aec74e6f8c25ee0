# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `easyquant`. One module a command; this one only lists them."""

from typing import Annotated

import typer

from easyquant import __version__, console
from easyquant.bench import bench_command
from easyquant.calibrate import calibrate_command
from easyquant.compare import compare_command
from easyquant.compile import compile_command
from easyquant.demo import demo_command
from easyquant.evaluate import eval_command
from easyquant.inspect import inspect_command
from easyquant.recipes import app as recipe_app
from easyquant.run import run_command

app = typer.Typer(
    name="easyquant",
    help="Quantize, compile, run and judge large language models.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("compile")(compile_command)
app.command("calibrate")(calibrate_command)
app.command("run")(run_command)
app.command("eval")(eval_command)
app.command("bench")(bench_command)
app.command("inspect")(inspect_command)
app.command("compare")(compare_command)
app.command("demo")(demo_command)
app.add_typer(recipe_app, name="recipe")


def show_version(wanted: bool) -> None:
    if wanted:
        console.out.print(f"easyquant {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    pass


def main() -> None:
    try:
        app()
    except SystemExit as end:
        # Typer ends with 2 where the command line itself is wrong; here every refusal is status 1.
        raise SystemExit(1 if end.code == 2 else end.code) from None
