# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calibration text: which tokens of which text methods look at."""

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from easyquant import console
from easyquant.compiler import tokenizer_files
from easyquant.errors import UserError
from easyquant.files import scratch_folder, sha256, write_atomically
from easyquant.models import vocabulary_of
from easyquant.protocol import read_text
from easyquant.tokenizer import load_tokenizer
from easyquant.tokenizer_checks import LARGEST_VOCABULARY


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


def write_tokens(path: Path, calibration: CalibrationText, tokenizer_folder: Path, vocabulary: int = LARGEST_VOCABULARY) -> np.ndarray:
    """Writes the tokens file that `equant-calibrate` reads: `tokens` I32 [samples, length], and where they are from.

    `tokenizer_folder` has the tokenizer.json of the model, which knows so many tokens.
    """
    tokenizer = load_tokenizer(tokenizer_folder, vocabulary)
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
def tokens_of(model: Path, calibration: CalibrationText, keep: bool = False):
    """The tokens file of `calibration` for the model (a folder or a GGUF file).

    It is temporary, unless a printed command is going to name it (`keep`).
    """
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(tokenizer_files(model))
        if not any(file.name == "tokenizer.json" for file in files):
            raise UserError(f"{model}: has no tokenizer.json, without which the calibration text is no tokens")
        folder = tempfile.mkdtemp(prefix="easyquant-tokens-") if keep else stack.enter_context(scratch_folder())
        path = Path(folder) / "tokens.safetensors"
        write_tokens(path, calibration, files[0].parent, vocabulary_of(model))
        if keep:
            console.note(f"the calibration tokens are in {path}")
        yield path
