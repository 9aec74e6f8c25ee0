# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the demo finds out and the report shows."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Result:
    """One artifact and everything measured of it."""

    label: str  # "float", "W8A8", ...
    folder: str
    figures: dict  # of `easyquant eval`
    speed: dict  # of `easyquant bench`
    compile_seconds: float
    compile_peak_bytes: int


@dataclass
class WeightExample:
    """One layer's weights, as stored in the model and as every quantized artifact computes with them."""

    site: str
    before: np.ndarray
    after: list[tuple[str, np.ndarray, float]]  # label, weights, relative error


@dataclass
class Answer:
    label: str
    prompt: str
    text: str
    speed: str
