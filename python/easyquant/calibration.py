# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calibration: the tokens that methods look at, and `easyquant calibrate`, which gathers statistics on them."""

import contextlib
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from safetensors.numpy import save

from easyquant import console
from easyquant.compile import check_model, run_compiler, tokenizer_files
from easyquant.errors import UserError
from easyquant.files import check_writable, sha256, write_atomically
from easyquant.protocol import read_text
from easyquant.tokenizer import load_tokenizer


@dataclass(frozen=True)
class CalibrationText:
    """Which tokens of which text: `samples` windows of `length` tokens."""

    text: Path
    samples: int = 64
    length: int = 1024
    seed: int = 0
    bos: bool = False  # every window begins with the token that begins texts, which no statistic counts


def choose_windows(tokens: np.ndarray, samples: int, length: int, seed: int, bos_token: int | None = None) -> np.ndarray:
    """int32 [samples, length]: disjoint windows of the text from random places, in the order of the text.

    The seed chooses where the grid of windows starts and which of them are taken.
    """
    body = length if bos_token is None else length - 1
    if samples < 1 or body < 1:
        raise UserError(f"--nsamples {samples} --seqlen {length}: expected at least one sample of at least one token besides BOS")
    if len(tokens) < samples * body:
        raise UserError(
            f"the calibration text has {len(tokens)} tokens, but --nsamples {samples} x --seqlen {length} takes {samples * body}; "
            "give a longer text, or ask for fewer or shorter samples"
        )
    generator = np.random.default_rng(seed)
    count = len(tokens) // body
    first = int(generator.integers(len(tokens) - count * body + 1))
    chosen = np.sort(generator.choice(count, size=samples, replace=False))
    windows = tokens[first : first + count * body].reshape(count, body)[chosen]
    if bos_token is not None:
        windows = np.concatenate([np.full((samples, 1), bos_token), windows], axis=1)
    return np.ascontiguousarray(windows, dtype=np.int32)


def write_tokens(path: Path, calibration: CalibrationText, tokenizer_folder: Path) -> np.ndarray:
    """Writes the tokens file that `equant-calibrate` reads: `tokens` I32 [samples, length], and where they are from.

    `tokenizer_folder` has the tokenizer.json of the model.
    """
    tokenizer = load_tokenizer(tokenizer_folder)
    if calibration.bos and tokenizer.bos_token_id is None:
        raise UserError("--calib-bos: the model's tokenizer has no beginning-of-text token")
    tokens = np.asarray(tokenizer.encode(read_text(calibration.text), add_special_tokens=False), dtype=np.int32)
    bos_token = tokenizer.bos_token_id if calibration.bos else None
    try:
        windows = choose_windows(tokens, calibration.samples, calibration.length, calibration.seed, bos_token)
    except UserError as error:
        raise UserError(f"{calibration.text}: {error}") from None
    metadata = {
        "text": calibration.text.name,
        "text_hash": sha256(calibration.text),
        "tokenizer_hash": sha256(tokenizer_folder / "tokenizer.json"),
        "samples": str(calibration.samples),
        "length": str(calibration.length),
        "seed": str(calibration.seed),
        "bos": "1" if calibration.bos else "0",
    }
    write_atomically(path, save({"tokens": windows}, metadata=metadata))
    return windows


@contextlib.contextmanager
def tokens_of(model: Path, calibration: CalibrationText):
    """The tokens file of `calibration` for the model (a folder or a GGUF file), for as long as it is needed."""
    with tokenizer_files(model) as files, tempfile.TemporaryDirectory(prefix="easyquant-tokens-") as folder:
        if not any(file.name == "tokenizer.json" for file in files):
            raise UserError(f"{model}: has no tokenizer.json, without which the calibration text is no tokens")
        path = Path(folder) / "tokens.safetensors"
        write_tokens(path, calibration, files[0].parent)
        yield path


class Statistic(str, Enum):
    absmax = "absmax"
    minmax = "minmax"
    mean_abs = "mean_abs"
    moments = "moments"
    histogram = "histogram"
    hessian = "hessian"
    ema = "ema"
    sinks = "sinks"


def quoted(value: Path | str) -> str:
    """A value of an option in a pass pipeline."""
    if '"' in str(value):
        raise UserError(f"{value}: a path with a quotation mark cannot be passed on")
    return f'"{value}"'


def calibrate(model: Path, calibration: CalibrationText, output: Path, statistics: list[str], sites: list[str], work: Path | None, threads: int) -> None:
    """Writes the statistics file `output`; shows its progress on stderr."""
    check_model(model)
    check_writable(output)
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(console.progress())
        task = bar.add_task("tokenizing", total=None)
        tokens = stack.enter_context(tokens_of(model, calibration))
        folder = work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent)))
        observers = f"statistics={','.join(statistics)}"
        if sites:
            observers += f" sites={','.join(map(quoted, sites))}"
        pipeline = (
            f"equant-insert-observers{{{observers}}},"
            f"equant-calibrate{{tokens={quoted(tokens)} work={quoted(folder)} statistics={quoted(output)} threads={threads}}}"
        )

        def follow(phase: str, done: int, total: int) -> None:
            bar.update(task, description=phase, completed=done, total=total or None)

        run_compiler([str(model), f"--pipeline={pipeline}"], follow)


@console.command
def calibrate_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A Hugging Face folder (safetensors, config.json) or a GGUF file.")],
    calib: Annotated[Path, typer.Option("--calib", metavar="FILE", help="The text to calibrate on, UTF-8.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="STATISTICS", help="The statistics file to write (safetensors).")],
    nsamples: Annotated[int, typer.Option(min=1, metavar="N", help="Windows of the text.")] = 64,
    seqlen: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens of a window.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Chooses the windows.")] = 0,
    bos: Annotated[bool, typer.Option("--calib-bos", help="Begin every window with the beginning-of-text token, which no statistic counts.")] = False,
    statistics: Annotated[list[Statistic], typer.Option("--statistic", help="What to gather. Repeatable.")] = [Statistic.absmax, Statistic.minmax],
    sites: Annotated[list[str], typer.Option("--site", metavar="P", help="Observe only these sites: a name or re:PATTERN. Repeatable.")] = [],
    work: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the journal here: a run that was ended goes on from it.")] = None,
    threads: Annotated[int, typer.Option(min=0, metavar="N", help="Threads; 0: all CPUs.")] = 0,
) -> None:
    """Gather statistics of a model's activations on a text.

    Example: [bold]easyquant calibrate SmolLM2-135M --calib novels.txt -o statistics.safetensors --statistic mean_abs[/bold]
    """
    calibration = CalibrationText(calib, nsamples, seqlen, seed, bos)
    calibrate(model, calibration, output, [item.value for item in statistics], sites, work, threads)
    console.out.print(f"{output}: {console.human_bytes(output.stat().st_size)} of statistics on {nsamples} x {seqlen} tokens", markup=False)
