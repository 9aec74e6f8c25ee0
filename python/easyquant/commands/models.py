# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Commands that take a model as they take an artifact: what they are given, and where its artifact is."""

from pathlib import Path
from typing import Annotated

import typer

from easyquant.compiler import cache, options
from easyquant.compiler.calibration import CalibrationText
from easyquant.runtime.artifact import Artifact
from easyquant.runtime.drafts import DRAFT_TOKENS, MOST_DRAFT_TOKENS, Speculation
from easyquant.support.errors import UserError

ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="An artifact; or a Hugging Face folder, a GGUF file or a name in the Hub's cache, which is compiled once and kept."),
]
CalibOption = Annotated[Path | None, typer.Option("--calib", metavar="FILE", help="The text that a model is calibrated on, UTF-8.")]
SpeculateOption = Annotated[
    str | None,
    typer.Option(
        "--speculate", metavar="head|ngram|none|ARTIFACT",
        help="Guess tokens and verify them in one step, with the same answers, on GPUs where activations are int8: head: by the head for drafts that the model has; ngram: from the text itself; "
        "or by a smaller artifact of the same tokenizer. (default: on CPUs head, where there is one)",
    ),
]
DraftTokensOption = Annotated[
    int | None, typer.Option("--draft-tokens", min=1, max=MOST_DRAFT_TOKENS, metavar="N", help=f"With --speculate: tokens guessed in a step, at most. (default: {DRAFT_TOKENS})")
]
KeptStatesOption = Annotated[
    int,
    typer.Option(
        "--kept-states", min=0, metavar="N",
        help="Where layers have a recurrent state: states that each sequence keeps at page ends, so that texts which begin in the same way share what "
        "was read; 0: none. Where they read a window of the newest tokens: pages that are kept behind it, beside one.",
    ),
]


def speculation(source: str | None, draft_tokens: int | None) -> Speculation | None:
    if source is None and draft_tokens is not None:
        raise UserError("--draft-tokens: goes with --speculate")
    return Speculation.of(source, draft_tokens)


def takes_models(function):
    """Gives a command, which takes them as keywords, the options of a compilation that is kept; --calib is its own."""
    return options.takes_options(function, options.MODEL_OPTIONS)


def groups(own: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Headings of the help, those of the command first."""
    found = options.groups({"Calibration": ("--calib",)}, options.MODEL_OPTIONS)
    return own | {f"{title}, where MODEL is compiled": names for title, names in found.items()}


def artifact_of(model: Path, calib: Path | None, given: dict) -> Artifact:
    return cache.artifact_of(model, options.CompileOptions(calibration=CalibrationText(calib) if calib else None, **given))
