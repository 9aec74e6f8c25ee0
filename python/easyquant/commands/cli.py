# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `easyquant`. One module a command; this one only lists them."""

from typing import Annotated

import typer

from easyquant import __version__
from easyquant.commands.bench import bench_command
from easyquant.commands.cache import cache_command
from easyquant.commands.calibrate import calibrate_command
from easyquant.commands.chat import ChatCommand, chat_command
from easyquant.commands.compare import compare_command
from easyquant.commands.compile import CompileCommand, compile_command
from easyquant.commands.convert import ConvertCommand, convert_command
from easyquant.commands.demo import demo_command
from easyquant.commands.eval import eval_command
from easyquant.commands.export import ExportCommand, export_command
from easyquant.commands.inspect import inspect_command
from easyquant.commands.plan import plan_command
from easyquant.commands.predict import predict_command
from easyquant.commands.recipes import app as recipe_app
from easyquant.commands.run import RunCommand, run_command
from easyquant.commands.search import search_command
from easyquant.commands.serve import ServeCommand, serve_command
from easyquant.compiler.options import SETTINGS
from easyquant.terminal import console
from easyquant.terminal.usage import Command, Commands

app = typer.Typer(
    name="easyquant",
    cls=Commands,
    help="Quantize, compile, run and judge large language models.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("compile", cls=CompileCommand, context_settings=SETTINGS)(compile_command)
app.command("export", cls=ExportCommand, context_settings=SETTINGS)(export_command)
app.command("convert", cls=ConvertCommand)(convert_command)
app.command("calibrate", cls=Command)(calibrate_command)
app.command("run", cls=RunCommand)(run_command)
app.command("chat", cls=ChatCommand)(chat_command)
app.command("serve", cls=ServeCommand)(serve_command)
app.command("eval", cls=Command)(eval_command)
app.command("bench", cls=Command)(bench_command)
app.command("inspect", cls=Command)(inspect_command)
app.command("plan", cls=Command)(plan_command)
app.command("predict", cls=Command)(predict_command)
app.command("compare", cls=Command)(compare_command)
app.command("search", cls=Command)(search_command)
app.command("demo", cls=Command)(demo_command)
app.command("cache", cls=Command)(cache_command)
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
    app()
