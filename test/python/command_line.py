# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `easyquant` in this process, which spares every test the start of an interpreter."""

from dataclasses import dataclass

from typer.testing import CliRunner

from easyquant.commands.cli import app


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def run_command_line(*arguments, stdin: str = "", **environment) -> Done:
    """An exception that the command lets through fails the test, as a traceback would embarrass it."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin, env={"COLUMNS": "200"} | environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)
