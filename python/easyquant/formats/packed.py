# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads packed weights back, for reports and tests.

The layouts are those of include/easyquant/Numerics/Packing.h: panels of 32 output rows, codes and zero points
stored with an offset, columns padded to a multiple of 8. Formats are those of NumberFormats.h beside it.
"""

import re

import numpy as np

PANEL_ROWS = 32


def _plane_4(blocks: np.ndarray) -> np.ndarray:
    """u8[NP, J, 32, 4] → four bits of each code, u8[NP, 32, J, 8]: low nibbles are columns 8j + i, high ones 8j + 4 + i."""
    panels, steps = blocks.shape[:2]
    fields = np.stack([blocks & 15, blocks >> 4], axis=3)  # [NP, J, 32, column half, 4]
    return fields.transpose(0, 2, 1, 3, 4).reshape(panels, PANEL_ROWS, steps, 8)


def _plane_2(blocks: np.ndarray) -> np.ndarray:
    """u8[NP, J, 16, 4] → two bits of each code, u8[NP, 32, J, 8]."""
    panels, steps = blocks.shape[:2]
    fields = np.stack([(blocks >> shift) & 3 for shift in (0, 2, 4, 6)], axis=2)  # [NP, J, (row half, column half), 16, 4]
    fields = fields.reshape(panels, steps, 2, 2, 16, 4).transpose(0, 2, 4, 1, 3, 5)  # [NP, row half, 16, J, column half, 4]
    return fields.reshape(panels, PANEL_ROWS, steps, 8)


def _plane_1(blocks: np.ndarray) -> np.ndarray:
    """u8[NP, J, 8, 4] → a bit of each code, u8[NP, 32, J, 8]."""
    panels, steps = blocks.shape[:2]
    fields = np.stack([(blocks >> bit) & 1 for bit in range(8)], axis=2)  # [NP, J, (row quarter, column half), 8, 4]
    return fields.reshape(panels, steps, 4, 2, 8, 4).transpose(0, 2, 4, 1, 3, 5).reshape(panels, PANEL_ROWS, steps, 8)


def unpack_codes(packed: np.ndarray, bits: int, rows: int, columns: int) -> np.ndarray:
    """u8[NP, Kp/8, 8 · bits, 4], of 8 bits [NP, Kp/4, 32, 4] → int8[rows, columns]. The upper four bits of codes of 5 and 6, and the
    upper two of 3, lie in a plane before the lower ones."""
    data = packed.view(np.uint8)
    if bits == 8:
        fields = data.transpose(0, 2, 1, 3)
        return (fields.reshape(-1, fields.shape[2] * 4).astype(np.int16) - 128)[:rows, :columns].astype(np.int8)
    planes = {6: (_plane_4, 32, _plane_2), 5: (_plane_4, 32, _plane_1), 4: (_plane_4, 32, None), 3: (_plane_2, 16, _plane_1),
              2: (_plane_2, 16, None)}  # fmt: skip
    upper, length, lower = planes[bits]
    fields = upper(data[:, :, :length])
    if lower:
        low_bits = 2 if lower is _plane_2 else 1
        fields = fields << low_bits | lower(data[:, :, length:])
    codes = fields.reshape(-1, fields.shape[2] * 8).astype(np.int16) - 2 ** (bits - 1)
    return codes[:rows, :columns].astype(np.int8)


def unpack_scales(scales: np.ndarray, rows: int, columns: int, group_size: int) -> np.ndarray:
    """[NP, G, 32] → the scale or zero point of every weight, [rows, columns]; group size 0 is one a row."""
    panels, groups = scales.shape[:2]
    per_row = scales.transpose(0, 2, 1).reshape(panels * PANEL_ROWS, groups)[:rows]
    return np.repeat(per_row, group_size or columns, axis=1)[:, :columns]


def unpack_zero_points(fields: np.ndarray, bits: int) -> np.ndarray:
    """u8[NP, G, 4 · bits] → the zero points, i32[NP, G, 32]."""
    return _panel_fields(fields.view(np.uint8), bits) - 2 ** (bits - 1)


def _panel_fields(data: np.ndarray, bits: int) -> np.ndarray:
    """u8[NP, G, 4 · bits] → a number of each row, i32[NP, G, 32]: the upper bits, as many as the largest power of two, lie before the lower ones."""

    def plane(part: np.ndarray, width: int) -> np.ndarray:
        return np.concatenate([(part >> shift) & (2**width - 1) for shift in range(0, 8, width)], axis=2).astype(np.int32)

    upper = 1 << (bits.bit_length() - 1)
    lower = bits - upper
    fields = plane(data[:, :, : 4 * upper], upper)
    return fields << lower | plane(data[:, :, 4 * upper :], lower) if lower else fields


def _two_level_scales(scales: np.ndarray) -> np.ndarray:
    """u8[NP, 1, 64 S + 24 G]: S x 32 f16, then G x 24 bytes of six-bit fields, n/64 in units of the f16 of 8 groups → f32[NP, G, 32]."""
    panels, size = len(scales), scales.shape[-1]
    supers = -(-size // 256)
    rows = np.ascontiguousarray(scales.reshape(panels, size))
    units = rows[:, : 64 * supers].copy().view("<f2").reshape(panels, supers, PANEL_ROWS).astype(np.float32)
    fields = rows[:, 64 * supers :].reshape(panels, -1, 24)
    n = _panel_fields(fields, 6).astype(np.float32) / 64
    return n * np.repeat(units, 8, axis=1)[:, : n.shape[1]]


def scale_values(scales: np.ndarray, scale_type: str) -> np.ndarray:
    """Scales as they are stored, as f32[NP, G, 32]."""
    if scale_type == "ui6":
        return _two_level_scales(scales)
    if scale_type == "f8E8M0FNU":
        return np.exp2(scales.astype(np.float32) - 127)
    if scale_type == "f8E4M3FN":
        return code_values({"codes": "f8E4M3FN", "bits": 8})[scales]
    return scales.astype(np.float32)


def code_values(scheme: dict) -> np.ndarray:
    """What the fields of codes that are no integers stand for, in their order: f32[2^bits]."""
    if "table" in scheme:
        return np.array(scheme["table"], np.float32)
    exponent_bits, mantissa_bits = map(int, re.match(r"f\d+E(\d+)M(\d+)FN$", scheme["codes"]).groups())
    bias = 2 ** (exponent_bits - 1) - 1
    field = np.arange(2 ** scheme["bits"])
    mantissa, exponent = field & (2**mantissa_bits - 1), (field >> mantissa_bits) & (2**exponent_bits - 1)
    normal = np.where(exponent > 0, 2**mantissa_bits, 0) + mantissa
    magnitude = normal * np.exp2(np.maximum(exponent, 1) - bias - mantissa_bits)
    return np.where(field >= 2 ** (scheme["bits"] - 1), -magnitude, magnitude).astype(np.float32)


def rotate(rows: np.ndarray, block: int) -> np.ndarray:
    """Rows times the orthogonal Hadamard matrix over blocks of `block` columns, which is its own inverse: f32 like `rows`."""
    hadamard = np.ones((1, 1))
    while len(hadamard) < block:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    blocks = rows.astype(np.float64).reshape(len(rows), -1, block)
    return (blocks @ hadamard / np.sqrt(block)).reshape(rows.shape).astype(np.float32)


def dequantize(packed: np.ndarray, scales: np.ndarray, rows: int, columns: int, scheme: dict, zero_points: np.ndarray | None = None,
               outer: np.ndarray | None = None, minima: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """The weights that the artifact computes with, f32[rows, columns]: s · (q − z), or s · value(q), s being the product with the outer
    scale of the row where there is one; s · (q − lowest code) + m where there are minima. Weights in a rotated basis are brought back into the plain one. `scheme`: as in the manifest."""
    bits, group_size = scheme["bits"], scheme["group_size"]
    codes = unpack_codes(packed, bits, rows, columns)
    if scheme["codes"] == "integer":
        values = codes.astype(np.float32)
        if zero_points is not None:
            values -= unpack_scales(unpack_zero_points(zero_points, bits), rows, columns, group_size).astype(np.float32)
        if minima is not None:
            values += np.float32(2 ** (bits - 1))
    else:
        values = code_values(scheme)[codes.astype(np.int32) + 2 ** (bits - 1)]
    steps = unpack_scales(scale_values(scales, scheme["scale_type"]), rows, columns, group_size)
    weights = values * (steps if outer is None else steps * unpack_scales(outer, rows, columns, 0))
    if minima is not None:
        weights = weights + unpack_scales(minima.astype(np.float32), rows, columns, group_size)
    return rotate(weights, scheme["hadamard"]) if scheme.get("hadamard") else weights


def relative_error(before: np.ndarray, after: np.ndarray) -> float:
    """‖W − Ŵ‖ / ‖W‖ in fp64."""
    difference = before.astype(np.float64) - after
    return float(np.linalg.norm(difference) / np.linalg.norm(before.astype(np.float64)))
