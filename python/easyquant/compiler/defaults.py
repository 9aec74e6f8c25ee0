# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `easyquant compile` does for those who name no method: 8-bit activations of a chat model need one to answer well."""

import contextlib
from dataclasses import replace
from pathlib import Path

from easyquant.compiler.calibration import CalibrationText
from easyquant.compiler.options import CALIBRATED_METHODS, CompileOptions, default_of
from easyquant.formats.model_files import context_of
from easyquant.support.errors import UserError
from easyquant.text import shipped

SCHEME = default_of("scheme")
METHOD = CALIBRATED_METHODS.get(SCHEME)
SAMPLES, LENGTH = 32, 256  # of the text that ships; ranges of activations take no more


def takes_default_method(model: Path, options: CompileOptions) -> bool:
    if options.method is not None or options.recipe is not None or (options.scheme or SCHEME) != SCHEME:
        return False
    has_tokenizer = model.is_file() or (model / "tokenizer.json").is_file()
    return (options.activations or "dynamic") == "dynamic" and (has_tokenizer or options.calibration is not None)


def with_default_method(model: Path, options: CompileOptions) -> tuple[CompileOptions, str | None]:
    """The options with the method, and the text where none was given; what is to be said of that."""
    if not takes_default_method(model, options):
        return options, None
    if options.calibration is not None:
        return replace(options, method=METHOD), None
    length = LENGTH
    with contextlib.suppress(UserError):  # of a model that the compiler refuses, with its own words
        length = min(length, options.context or length, context_of(model) or length)
    remark = (
        f"note: {METHOD}, calibrated on {SAMPLES} x {length} tokens of {shipped.TITLE}, which come with EasyQuant; "
        "--calib FILE takes a text of yours, --method absmax needs none"
    )
    return replace(options, method=METHOD, calibration=CalibrationText(shipped.FILE, SAMPLES, length)), remark
