# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calibration text: which tokens of which text methods look at."""

import contextlib
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from easyquant.compiler.driver import tokenizer_files
from easyquant.formats.model_files import vocabulary_of
from easyquant.support.errors import UserError
from easyquant.support.files import read_text, scratch_folder, sha256, write_atomically
from easyquant.terminal import console
from easyquant.text.tokenizer import load_tokenizer
from easyquant.text.tokenizer_checks import LARGEST_VOCABULARY

# What of a text says how many characters a token has, and how much longer than a window by that a stretch of text is.
PROBED_CHARACTERS = 20_000
STRETCH_MARGIN = 1.5
# Experts that have seen too little text make it so many times --nsamples windows at most.
EXPERT_WINDOWS = 4


@dataclass(frozen=True)
class CalibrationText:
    """Which tokens of which text: `samples` windows of `length` tokens."""

    text: Path
    samples: int = 64
    length: int = 1024
    seed: int = 0
    bos: bool = False  # every window begins with the token that begins texts, which no statistic counts

    def arguments(self) -> list[str]:
        """The options of the command line that mean it; defaults are left out."""
        named = {"samples": "--nsamples", "length": "--seqlen", "seed": "--seed"}
        given = [part for field, name in named.items() if (value := getattr(self, field)) != getattr(CalibrationText, field) for part in (name, str(value))]
        return ["--calib", str(self.text), *given, *(["--calib-bos"] if self.bos else [])]


def most_windows(calibration: CalibrationText, expert_tokens: int | None) -> int:
    """How many windows may be taken where experts are to see so many tokens each; None and 0: they need not."""
    return calibration.samples * (EXPERT_WINDOWS if expert_tokens else 1)


def check_windows(samples: int, body: int) -> None:
    if samples < 1 or body < 1:
        raise UserError(f"--nsamples {samples} --seqlen {body}: expected at least one sample of at least one token besides BOS")


def choose_places(count: int, slack: int, samples: int, seed: int, more: int = 0) -> tuple[int, np.ndarray]:
    """Where a grid of `count` equal windows begins, up to `slack` behind the start, and which of them are taken, in order; then up to `more`
    of the others, as they are drawn."""
    generator = np.random.default_rng(seed)
    first = int(generator.integers(slack + 1))
    chosen = np.sort(generator.choice(count, size=samples, replace=False))
    others = generator.permutation(np.setdiff1d(np.arange(count), chosen)) if more else chosen[:0]
    return first, np.concatenate([chosen, others[:more]])


def choose_windows(tokens: np.ndarray, samples: int, body: int, seed: int, more: int = 0) -> np.ndarray:
    """[samples, body]: disjoint windows from random places of a text that is tokens already, in the order of the text; then up to `more` others."""
    check_windows(samples, body)
    if len(tokens) < samples * body:
        raise UserError(
            f"the calibration text has {len(tokens)} tokens, but --nsamples {samples} x --seqlen {body} takes {samples * body}; "
            "give a longer text, or ask for fewer or shorter samples"
        )
    count = len(tokens) // body
    first, chosen = choose_places(count, len(tokens) - count * body, samples, seed, more)
    return tokens[first : first + count * body].reshape(count, body)[chosen]


def read_windows(
    text: str, encode: Callable[[str], list[int]], samples: int, body: int, seed: int, advance: Callable[[], None], more: int = 0
) -> np.ndarray | None:
    """The same from a text of which only what is taken becomes tokens: each window is the beginning of a stretch of characters.

    None where stretches of the length that the text's beginning suggests are too many for it, or too short for a window. Such stretches
    among `more` are left out.
    """
    check_windows(samples, body)
    probe = text[:PROBED_CHARACTERS]
    stretch = math.ceil(STRETCH_MARGIN * body * len(probe) / max(1, len(encode(probe))))
    count = len(text) // max(1, stretch)
    if count < samples:
        return None
    first, chosen = choose_places(count, len(text) - count * stretch, samples, seed, more)
    windows = []
    for number, place in enumerate(chosen):
        begin = first + int(place) * stretch
        piece = text[begin : begin + stretch]
        if begin > 0:  # not in the middle of a word
            piece = piece[next((index for index, character in enumerate(piece) if character.isspace()), 0) :]
        tokens = encode(piece)
        if len(tokens) <= body:  # the last one may be half a word
            if number < samples:
                return None
            continue
        windows.append(tokens[:body])
        advance()
    return np.asarray(windows)


def windows_of_text(
    text: str, encode: Callable[[str], list[int]], samples: int, length: int, seed: int, bos_token: int | None = None, more: int = 0
) -> np.ndarray:
    """int32 [samples, length]: disjoint windows from random places of the text, in its order; then up to `more` others. The seed chooses the places."""
    body = length if bos_token is None else length - 1
    with console.progress() as bar:
        task = bar.add_task("tokenizing", total=samples + more)
        windows = read_windows(text, encode, samples, body, seed, lambda: bar.advance(task), more)
        if windows is None:
            bar.reset(task, total=None)
            windows = choose_windows(np.asarray(encode(text)), samples, body, seed, more)
    if bos_token is not None:
        windows = np.concatenate([np.full((len(windows), 1), bos_token), windows], axis=1)
    return np.ascontiguousarray(windows, dtype=np.int32)


def write_tokens(
    path: Path, calibration: CalibrationText, tokenizer_folder: Path, vocabulary: int = LARGEST_VOCABULARY, expert_tokens: int | None = None
) -> np.ndarray:
    """Writes the tokens file that `equant-calibrate` reads: `tokens` I32 [samples, length], and where they are from.

    `tokenizer_folder` has the tokenizer.json of the model, which knows so many tokens. With `expert_tokens` windows follow that `equant-take-windows` may
    take, too.
    """
    tokenizer = load_tokenizer(tokenizer_folder, vocabulary)
    if calibration.bos and tokenizer.bos_token_id is None:
        raise UserError("--calib-bos: the model's tokenizer has no beginning-of-text token")
    text, encode = read_text(calibration.text), partial(tokenizer.encode, add_special_tokens=False)
    bos_token = tokenizer.bos_token_id if calibration.bos else None
    more = most_windows(calibration, expert_tokens) - calibration.samples
    try:
        windows = windows_of_text(text, encode, calibration.samples, calibration.length, calibration.seed, bos_token, more)
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
def tokens_of(model: Path, calibration: CalibrationText, keep: bool = False, expert_tokens: int | None = None):
    """The tokens file of `calibration` for the model (a folder or a GGUF file), as write_tokens writes it.

    It is temporary, unless a printed command is going to name it (`keep`).
    """
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(tokenizer_files(model))
        if not any(file.name == "tokenizer.json" for file in files):
            raise UserError(f"{model}: has no tokenizer.json, which makes tokens of the calibration text")
        folder = tempfile.mkdtemp(prefix="easyquant-tokens-") if keep else stack.enter_context(scratch_folder())
        path = Path(folder) / "tokens.safetensors"
        write_tokens(path, calibration, files[0].parent, vocabulary_of(model), expert_tokens)
        if keep:
            console.note(f"the calibration tokens are in {path}")
        yield path
