# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the terminal sees: results on stdout, everything else (progress, speeds, errors) on stderr."""

import contextlib
import contextvars
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from easyquant.support.errors import UserError
from easyquant.terminal.interrupts import AsException, Interrupted


@contextlib.contextmanager
def may_be_lost() -> Iterator[None]:
    """Within, words that cannot be written end nothing: the disk of a log may be full."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


class _Remarks(Console):
    def print(self, *objects, **options) -> None:
        with may_be_lost():
            super().print(*objects, **options)


# A table that is piped into a file or a pager need not fit a terminal of 80 columns.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
err = _Remarks(stderr=True, highlight=False)


_SHOWS_PROGRESS: contextvars.ContextVar[bool] = contextvars.ContextVar("shows_progress", default=True)


@contextlib.contextmanager
def without_progress() -> Iterator[None]:
    """Within, no progress is shown: a library is quiet unless it is asked."""
    token = _SHOWS_PROGRESS.set(False)
    try:
        yield
    finally:
        _SHOWS_PROGRESS.reset(token)


def progress(shown: bool = True) -> Progress:
    """A progress display on stderr that disappears when it is done, so that only results stay."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not (shown and _SHOWS_PROGRESS.get() and err.is_terminal),
        redirect_stdout=out.is_terminal,  # else results would go where the display is
    )


class _Table(Table):
    """Cells are shown as they are: a name in a model file may hold what is markup to rich."""

    def add_row(self, *cells: str, **options) -> None:
        super().add_row(*map(Text, cells), **options)


@contextlib.contextmanager
def late_progress(title: str, after: float = 1.0) -> Iterator[Callable[[int, int], None]]:
    """A function to be told how much of how many is done; what takes longer than `after` seconds gets a progress display."""
    begin = time.monotonic()
    with contextlib.ExitStack() as shown:
        bars: list[Progress] = []

        def tell(done: int, total: int) -> None:
            if not bars:
                if time.monotonic() - begin < after:
                    return
                bars.append(shown.enter_context(progress()))
                bars[0].add_task(title, total=total)
            bars[0].update(bars[0].task_ids[0], completed=done)

        yield tell


def table(title: str, **options) -> Table:
    """A table with headings, for results."""
    return _Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, **options)


def pairs(style: str = "") -> Table:
    """Names and values, one pair a row."""
    result = _Table(show_header=False, box=None, pad_edge=False, style=style)
    result.add_column(style="bold")
    result.add_column(overflow="fold")
    return result


def note(message: str) -> None:
    """A remark that is not part of the result."""
    err.print(message, style="dim", markup=False, soft_wrap=True)


def note_new_folder(folder: Path) -> None:
    """A folder that is going to be made although nobody asked for it: its name may be misspelled."""
    if not folder.exists():
        note(f"note: {folder} is not there and is made")


def warn(message: str) -> None:
    err.print(f"[yellow]warning:[/yellow] {escape(message)}", soft_wrap=True)


def fail(message: str) -> None:
    # No wrapping at the terminal's width: a message is one line for those who search logs for it.
    err.print(f"[bold red]error:[/bold red] {escape(message)}", soft_wrap=True)


def command(function):
    """Makes a function a command: user errors and interrupts end it with one line and no traceback."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        try:
            with AsException():
                function(*args, **kwargs)
                sys.stdout.flush()
        except UserError as error:
            fail(str(error))
            raise typer.Exit(1) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                # The reader of our output went away (`easyquant ... | head`). Give the interpreter
                # something to flush at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(1) from None
            where = f"{error.filename}: " if error.filename else ""
            fail(f"{where}{error.strerror or error}")
            raise typer.Exit(1) from None
        except Interrupted as error:
            fail(error.message)
            raise typer.Exit(error.status) from None

    return wrapper


def human_bytes(count: int) -> str:
    """1536 → '1.5 KB': powers of 1000, as disks are sold."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")
