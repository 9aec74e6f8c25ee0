# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of the compiler, from the table that it prints with --describe-options: one table for both command lines.

The build writes it into options.json, so that no command has to ask the compiler.
"""

import inspect
import json
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from easyquant.formats import hub
from easyquant.runtime.device import check_threads
from easyquant.support.errors import UserError
from easyquant.terminal.usage import completes

FILE = Path(__file__).with_name("options.json")


@dataclass(frozen=True)
class Option:
    """A row of the table: include/easyquant/Recipe/Options.h says what its fields mean."""

    name: str  # of the command line
    kind: str
    help: str
    default: str | None = None
    negatable: bool = False
    choices: list[str] = field(default_factory=list)
    joint: str | None = None
    least: float | None = None
    most: float | None = None
    value: str | None = None
    group: str | None = None
    owner: str | None = None
    section: str | None = None
    key: str | None = None
    per_site: bool = False
    internal: bool = False

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")

    @property
    def is_path(self) -> bool:
        return self.value in ("FILE", "DIR", "FOLDER")

    @property
    def annotation(self):
        if self.kind == "list":
            return list[str]
        if self.kind == "choice":
            return Literal[tuple(self.choices)] | None
        kinds = {"switch": bool, "integer": int, "number": float}
        return kinds.get(self.kind, Path if self.is_path else str) | None

    @property
    def parameter(self) -> inspect.Parameter:
        """What typer makes an option of the command line of."""
        names = [f"--{self.name}" + (f"/--no-{self.name}" if self.negatable else "")]
        text = self.help + (f": {', '.join(self.choices)}" if self.joint else "") + "." + (" Repeatable." if self.kind == "list" else "")
        whole = self.kind == "integer" and self.least is not None
        info = typer.Option(
            *names,
            metavar=None if self.kind == "switch" else self.value,
            min=int(self.least) if whole else self.least if self.kind == "number" else None,
            callback=check_threads if self.name == "threads" else None,
            autocompletion=completes(self.choices, self.joint) if self.joint else None,
            help=text + (f" (default: {self.default})" if self.default else ""),
        )  # fmt: skip
        default = [] if self.kind == "list" else False if self.kind == "switch" and not self.negatable else None
        return inspect.Parameter(self.field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[self.annotation, info])

    def arguments(self, value) -> list[str]:
        """Arguments of easyquant-compile. A value that was not given is left to it. The folder of a model may be a download's name."""
        if value is None or value is False and not self.negatable:
            return []
        if self.value == "FOLDER":
            value = hub.locate(Path(value))
        if self.kind == "switch":
            return [f"--{'' if value else 'no-'}{self.name}"]
        return [f"--{self.name}={item}" for item in (value if self.kind == "list" else [value])]


def _read() -> dict:
    try:
        return json.loads(FILE.read_text())
    except FileNotFoundError:
        return {"methods": [], "calibrated_methods": {}, "options": [], "statistics": []}  # of a build without the compiler, where check_table() says so


_TABLE = _read()
STATISTICS = tuple(statistic["name"] for statistic in _TABLE["statistics"])
METHODS = tuple(method["name"] for method in _TABLE["methods"])
# Parts of a method that read calibration text; the others look at weights alone.
CALIBRATED = frozenset(method["name"] for method in _TABLE["methods"] if method["stage"] != "base")
TRANSFORMS = frozenset(method["name"] for method in _TABLE["methods"] if method["stage"] == "transform")
# By scheme, the method that keeps clearly more of a model than round to nearest, where there is text.
CALIBRATED_METHODS: dict[str, str] = _TABLE["calibrated_methods"]
OPTIONS = {option.name: option for option in (Option(**row) for row in _TABLE["options"]) if not option.internal}
# The options in which artifacts that are used at once can differ: they are no checkpoints, lie where the cache puts them, and are as long as the model allows.
_OTHER = frozenset(("export", "closest", "opset", "context", "tensor-parallel", "threads", "max-shard-bytes", "force", "work"))
LOOKS = "Look, and stop"  # the group of options that compile nothing
MODEL_OPTIONS = {name: option for name, option in OPTIONS.items() if option.group != LOOKS and name not in _OTHER}
# What a command with these options leaves to check_table() where there is no table.
SETTINGS = {} if OPTIONS else {"allow_extra_args": True, "ignore_unknown_options": True}


def check_table() -> None:
    if not OPTIONS:
        raise UserError(f"{FILE}: the table of the compiler's options is missing; build it with scripts/setup.sh")


def choices_of(name: str) -> list[str]:
    return OPTIONS[name].choices if name in OPTIONS else []


def default_of(name: str) -> str | None:
    return OPTIONS[name].default if name in OPTIONS else None


def groups(own: dict[str, tuple[str, ...]], options: dict[str, Option] = OPTIONS) -> dict[str, tuple[str, ...]]:
    """Headings of the help and the options below them; `own` are options of the command itself."""
    titles = dict.fromkeys([*dict.fromkeys(option.group for option in options.values()), *own])
    return {title: (*own.get(title, ()), *(f"--{option.name}" for option in options.values() if option.group == title)) for title in titles}


def takes_options(function, options: dict[str, Option] = OPTIONS):
    """Gives a command, which takes them as keywords, a parameter for each of the options."""
    signature = inspect.signature(function)
    named = [option.field for option in options.values()]
    own = [parameter for parameter in signature.parameters.values() if parameter.kind != inspect.Parameter.VAR_KEYWORD and parameter.name not in named]
    function.__signature__ = signature.replace(parameters=[*own, *(option.parameter for option in options.values())])
    return function


def takes_option(name: str):
    """The same of one of them; nothing where there is no table."""
    return lambda function: takes_options(function, {name: OPTIONS[name]} if name in OPTIONS else {})


_FIELDS = [(option.field, option.annotation, field(default_factory=list) if option.kind == "list" else None) for option in OPTIONS.values()]


class CompileOptions(make_dataclass("Fields", [("calibration", object, None), *_FIELDS])):
    """The options of easyquant-compile; None leaves its default. `calibration` is a CalibrationText."""

    def arguments(self) -> list[str]:
        return [argument for option in OPTIONS.values() for argument in option.arguments(getattr(self, option.field))]
