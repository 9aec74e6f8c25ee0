# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the demo finds out and the report shows."""

from dataclasses import dataclass

import numpy as np

BF16_BYTES, F32_BYTES = 2, 4


@dataclass
class Result:
    """One artifact and everything measured of it."""

    label: str  # "float", "W8A8", ...
    folder: str
    how: str  # what was done to the weights and activations
    is_float: bool
    figures: dict  # of `easyquant eval`
    speed: dict  # of `easyquant bench`
    compile_seconds: float
    compile_peak_bytes: int

    @property
    def deployed_bytes(self) -> int:
        """Bytes of the weights. A float model counts as bf16, in which one would deploy it, though its artifact computes in f32."""
        size = self.speed["weights_bytes"]
        return size * BF16_BYTES // F32_BYTES if self.is_float else size


@dataclass
class WeightExample:
    """One layer's weights, as stored in the model and as every quantized artifact computes with them."""

    site: str
    before: np.ndarray
    after: list[tuple[str, np.ndarray, float]]  # label, weights, relative error


@dataclass
class Answer:
    label: str
    text: str
    speed: str
