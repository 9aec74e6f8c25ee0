# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads packed weights back, for reports and tests.

The layouts are those of include/easyquant/Codegen/CPU/Kernels.h: panels of 32 output rows, codes stored
with an offset, columns padded to a multiple of 8.
"""

import numpy as np

PANEL_ROWS = 32


def unpack_i8(packed: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """u8[NP, Kp/4, 32, 4], byte = code + 128 → int8[rows, columns]."""
    panels, steps = packed.shape[:2]
    codes = packed.view(np.uint8).astype(np.int16) - 128
    matrix = codes.transpose(0, 2, 1, 3).reshape(panels * PANEL_ROWS, steps * 4)
    return matrix[:rows, :columns].astype(np.int8)


def unpack_i4(packed: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """u8[NP, Kp/8, 32, 4]: low nibbles are columns 8j + i, high ones 8j + 4 + i, each code + 8 → int8[rows, columns]."""
    panels, steps = packed.shape[:2]
    data = packed.view(np.uint8)
    codes = np.stack([data & 15, data >> 4], axis=3).astype(np.int8) - np.int8(8)  # [NP, Kp/8, 32, 2, 4]
    matrix = codes.transpose(0, 2, 1, 3, 4).reshape(panels * PANEL_ROWS, steps * 8)
    return matrix[:rows, :columns]


def unpack_scales(scales: np.ndarray, rows: int, columns: int, group_size: int) -> np.ndarray:
    """f32[NP, G, 32] → the scale of every weight, f32[rows, columns]; group size 0 is one scale a row."""
    panels, groups = scales.shape[:2]
    per_row = scales.transpose(0, 2, 1).reshape(panels * PANEL_ROWS, groups)[:rows]
    return np.repeat(per_row, group_size or columns, axis=1)[:, :columns]


def dequantize(packed: np.ndarray, scales: np.ndarray, rows: int, columns: int, bits: int, group_size: int) -> np.ndarray:
    """The weights that the artifact computes with, f32[rows, columns]."""
    unpack = {8: unpack_i8, 4: unpack_i4}[bits]
    return unpack(packed, rows, columns) * unpack_scales(scales, rows, columns, group_size)


def relative_error(before: np.ndarray, after: np.ndarray) -> float:
    """‖W − Ŵ‖ / ‖W‖ in fp64."""
    difference = before.astype(np.float64) - after
    return float(np.linalg.norm(difference) / np.linalg.norm(before.astype(np.float64)))
