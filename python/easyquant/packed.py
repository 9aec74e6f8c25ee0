# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads packed weights back, for reports and tests.

The layouts are those of include/easyquant/Numerics/Packing.h: panels of 32 output rows, codes stored
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


def _fields_i2(blocks: np.ndarray) -> np.ndarray:
    """u8[NP, J, 16, 4] → the two bits of each code, u8[NP, 32, J, 8]."""
    panels, steps = blocks.shape[:2]
    fields = np.stack([(blocks >> shift) & 3 for shift in (0, 2, 4, 6)], axis=2)  # [NP, J, (row half, column half), 16, 4]
    fields = fields.reshape(panels, steps, 2, 2, 16, 4).transpose(0, 2, 4, 1, 3, 5)  # [NP, row half, 16, J, column half, 4]
    return fields.reshape(panels, PANEL_ROWS, steps, 8)


def unpack_i2(packed: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """u8[NP, Kp/8, 16, 4] → int8[rows, columns]."""
    panels, steps = packed.shape[:2]
    matrix = _fields_i2(packed.view(np.uint8)).reshape(panels * PANEL_ROWS, steps * 8).astype(np.int8) - np.int8(2)
    return matrix[:rows, :columns]


def unpack_i3(packed: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """u8[NP, Kp/8, 24, 4]: the upper two bits of each code as in int2, then the lowest ones → int8[rows, columns]."""
    panels, steps = packed.shape[:2]
    data = packed.view(np.uint8)
    upper = _fields_i2(data[:, :, :16])
    low = np.stack([(data[:, :, 16:] >> bit) & 1 for bit in range(8)], axis=2)  # [NP, J, (row quarter, column half), 8, 4]
    low = low.reshape(panels, steps, 4, 2, 8, 4).transpose(0, 2, 4, 1, 3, 5).reshape(panels, PANEL_ROWS, steps, 8)
    matrix = (2 * upper + low).reshape(panels * PANEL_ROWS, steps * 8).astype(np.int8) - np.int8(4)
    return matrix[:rows, :columns]


def unpack_scales(scales: np.ndarray, rows: int, columns: int, group_size: int) -> np.ndarray:
    """[NP, G, 32] → the scale or zero point of every weight, [rows, columns]; group size 0 is one a row."""
    panels, groups = scales.shape[:2]
    per_row = scales.transpose(0, 2, 1).reshape(panels * PANEL_ROWS, groups)[:rows]
    return np.repeat(per_row, group_size or columns, axis=1)[:, :columns]


def dequantize(
    packed: np.ndarray, scales: np.ndarray, rows: int, columns: int, bits: int, group_size: int, zero_points: np.ndarray | None = None
) -> np.ndarray:
    """The weights that the artifact computes with, f32[rows, columns]: s · (q − z)."""
    unpack = {8: unpack_i8, 4: unpack_i4, 3: unpack_i3, 2: unpack_i2}[bits]
    codes = unpack(packed, rows, columns).astype(np.float32)
    if zero_points is not None:
        codes -= unpack_scales(zero_points, rows, columns, group_size).astype(np.float32)
    return codes * unpack_scales(scales, rows, columns, group_size)


def relative_error(before: np.ndarray, after: np.ndarray) -> float:
    """‖W − Ŵ‖ / ‖W‖ in fp64."""
    difference = before.astype(np.float64) - after
    return float(np.linalg.norm(difference) / np.linalg.norm(before.astype(np.float64)))
