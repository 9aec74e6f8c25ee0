# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How commands explain themselves: help that fits 80 columns, completion, and what is wrong with a command line in one line."""

import re
import shutil
import textwrap
from collections.abc import Iterable
from difflib import get_close_matches

import typer
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperGroup

from easyquant.support.errors import UserError
from easyquant.terminal import console

NAMES_WIDTH = 26  # of the column with options and their values
WIDEST = 120


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """'; did you mean W8A8?' where `found` is a misspelling, or begins with a name as Q4_K_M does. Other digits are another thing."""
    digits = [character for character in found if character.isdigit()]
    folded = {name.casefold(): name for name in known if [character for character in name if character.isdigit()] == digits}
    near = get_close_matches(found.casefold(), folded, n=1) or [name for name in folded if found.casefold().startswith((f"{name}_", f"{name}-"))]
    return f"; did you mean {folded[near[0]]}?" if near else ""


# ---------------------------------------------------------------------------------------------------------------- errors


def _name(parameter) -> str:
    if isinstance(parameter, TyperArgument):
        return parameter.metavar or parameter.name.upper()
    return next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0])


def _choices(parameter) -> list[str]:
    return [str(getattr(choice, "value", choice)) for choice in parameter.type_descriptor.choices or ()]


def _expected(parameter) -> str:
    """What values a parameter takes."""
    if choices := _choices(parameter):
        return f"one of {', '.join(choices)}"
    annotation, info = parameter.type_descriptor.annotation, parameter.type_descriptor.parameter_info
    if annotation not in (int, float):
        return "another value"
    kind = "a whole number" if annotation is int else "a number"
    if info.min is not None and info.max is not None:
        return f"{kind} from {info.min} to {info.max}"
    return f"{kind} of at least {info.min}" if info.min is not None else kind


def _explain(error: typer.TyperException) -> str:
    """An error of the command line in the words of this project. Typer's own are those of the libraries that it is made of."""
    context = getattr(error, "ctx", None)
    see = f"; see {context.command_path} --help" if context else ""
    if (possibilities := getattr(error, "possibilities", ...)) is not ...:  # an unknown option
        return f"unknown option {error.option_name}" + (f"; did you mean {possibilities[0]}?" if possibilities else see)
    if option := getattr(error, "option_name", None):
        return f"{option} " + ("takes no value" if "does not take" in error.message else "needs a value") + see
    parameter = getattr(error, "param", None)
    if parameter is None:
        return error.message[:1].lower() + error.message[1:].rstrip(".") + see
    details = getattr(error.__cause__, "errors", None)  # of the library that reads values
    if details is None:
        return f"{_names(parameter)} is missing{see}" if not error.message else f"{_name(parameter)}: {error.message}{see}"
    found = str(details()[0]["input"])
    return f"{_name(parameter)} {found}: expected {_expected(parameter)}{did_you_mean(found, _choices(parameter))}"


# ------------------------------------------------------------------------------------------------------------ completion


def completes(names: Iterable[str], joint: str | None = None):
    """Shell completion of an option that takes one of `names`, or several with `joint` between them."""

    def complete(incomplete: str) -> list[str]:
        begun = incomplete[: incomplete.rfind(joint) + 1] if joint else ""
        return [begun + name for name in names]

    return complete


# ------------------------------------------------------------------------------------------------------------------ help


def _names(parameter, all_names: bool = True) -> str:
    """'-o, --output OUT', '--clip, --no-clip'; or by the shortest name alone, '-o OUT'."""
    if isinstance(parameter, TyperArgument):
        return _name(parameter)
    names = sorted([*parameter.opts, *parameter.secondary_opts], key=lambda name: name.startswith("--"))
    names = ", ".join(names) if all_names else names[0]
    return names if parameter.is_flag else f"{names} {parameter.metavar or parameter.name.split('_')[-1].upper()}"


def _explanation(parameter) -> str:
    """The help text, with the choices and the default where it does not say them."""
    text = parameter.help or ""
    if isinstance(parameter, TyperArgument):
        return text
    text, default_said, rest = text.partition(" (default:")
    if choices := _choices(parameter):
        text += f" One of {', '.join(choices)}."
    text += default_said + rest
    default = parameter.default
    if isinstance(default, (list, tuple)):
        default = ", ".join(str(getattr(item, "value", item)) for item in default)
    default = getattr(default, "value", default)
    if isinstance(default, str):
        default = re.sub(",(?! )", ", ", default)  # so that a long list can be wrapped
    if not parameter.is_flag and default not in (None, "") and not default_said:
        text += f" (default: {default})"
    return f"{text} (required)" if parameter.required else text


def _section(title: str, entries: list[tuple[str, str]], width: int) -> Text:
    """Names on the left, what they mean on the right; below them where names are long."""
    section = Text(f"\n{title}\n", style="bold")
    for names, explanation in entries:
        lines = textwrap.wrap(explanation, width - NAMES_WIDTH - 2, break_on_hyphens=False) or [""]
        section.append(f"  {names}", style="not bold cyan")
        if len(names) > NAMES_WIDTH - 2:
            lines.insert(0, "")
        section.append(" " * (NAMES_WIDTH - len(names)) if lines[0] else "")
        section.append(f"\n{' ' * (NAMES_WIDTH + 2)}".join(lines) + "\n", style="not bold")
    return section


def _print_help(command, context) -> None:
    width = min(shutil.get_terminal_size().columns, WIDEST)
    parameters = [parameter for parameter in command.get_params(context) if not getattr(parameter, "hidden", False)]
    required = [_names(parameter, all_names=False) for parameter in parameters if parameter.required]
    subcommands = [(name, command.get_command(context, name).get_short_help_str(limit=200)) for name in getattr(command, "commands", ())]
    usage = [context.command_path, *required, *(["COMMAND"] if subcommands else []), "[OPTIONS]"]
    page = Text("Usage: ", style="bold").append(" ".join(usage) + "\n", style="not bold")
    page.append("\n").append(Text.from_markup(command.help or "", style="not bold")).append("\n")
    titles = {name: title for title, names in getattr(command, "groups", {}).items() for name in names}
    sections: dict[str, list[tuple[str, str]]] = {"Commands": subcommands, "Arguments": []} | {title: [] for title in titles.values()}
    order = list(titles)
    for parameter in sorted(parameters, key=lambda parameter: order.index(_name(parameter)) if _name(parameter) in titles else len(order)):
        title = "Arguments" if isinstance(parameter, TyperArgument) else titles.get(_name(parameter), "Options")
        sections.setdefault(title, []).append((_names(parameter), _explanation(parameter)))
    for title, entries in sections.items():
        if entries:
            page.append(_section(title, entries, width))
    console.out.print(page, width=width, end="")


class Command(TyperCommand):
    groups: dict[str, tuple[str, ...]] = {}  # headings of the help, and the options below them; the others are below "Options"

    def format_help(self, ctx, formatter) -> None:
        _print_help(self, ctx)


class Commands(TyperGroup):
    """A group of commands; the outermost one says what is wrong with a command line, and ends with status 1 for it."""

    command_class = Command

    def format_help(self, ctx, formatter) -> None:
        _print_help(self, ctx)

    def resolve_command(self, ctx, args):
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            see = did_you_mean(args[0], self.commands) or f"; see {ctx.command_path} --help"
            raise UserError(f"unknown command {args[0]}{see}")
        return super().resolve_command(ctx, args)

    def main(self, args=None, prog_name=None, complete_var=None, standalone_mode=True, **extra):
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except UserError as error:
            console.fail(str(error))
            status = 1
        except typer.TyperException as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                status = 1  # the help was the message
            else:
                console.fail(_explain(error))
                status = 1
        if standalone_mode:
            raise SystemExit(status or 0)
        return status
