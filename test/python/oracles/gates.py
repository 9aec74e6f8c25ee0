# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of gates."""

import numpy as np


def sigmoid(x):
    with np.errstate(over="ignore"):  # exp of a large number: the quotient is then 0, as it should be
        return 1 / (1 + np.exp(-x))


def silu(x):
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


def gelu(x):
    """The approximation by tanh."""
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi, dtype=x.dtype) * (x + x.dtype.type(0.044715) * x**3)))


def clamped(gate, up):
    """gpt_oss: (up + 1) gate sigmoid(1.702 gate), gate at most 7, up from -7 to 7."""
    gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
    return (up + 1) * gate * sigmoid(1.702 * gate)
