# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packed weights against the sentences in Packing.h that define them, element by element."""

import ml_dtypes
import numpy as np
import pytest

from easyquant.formats.packed import code_values, dequantize, relative_error, unpack_codes, unpack_scales, unpack_zero_points

SHAPES = [(32, 8), (33, 8), (1, 1), (64, 24), (70, 41), (5, 100)]


def panels(rows: int) -> int:
    return -(-rows // 32)


def pack_i8(codes: np.ndarray) -> np.ndarray:
    rows, columns = codes.shape
    packed = np.full((panels(rows), -(-columns // 8) * 8 // 4, 32, 4), 128, dtype=np.uint8)
    for n in range(rows):
        for k in range(columns):
            packed[n // 32, k // 4, n % 32, k % 4] = codes[n, k] + 128
    return packed


def pack_i4(codes: np.ndarray) -> np.ndarray:
    rows, columns = codes.shape
    packed = np.full((panels(rows), -(-columns // 8), 32, 4), 0x88, dtype=np.uint8)
    for n in range(rows):
        for k in range(columns):
            place = (n // 32, k // 8, n % 32, k % 4)
            nibble = int(codes[n, k]) + 8
            byte = int(packed[place])
            packed[place] = (byte & 0xF0) | nibble if k % 8 < 4 else (byte & 0x0F) | nibble << 4
    return packed


def put_i2(packed: np.ndarray, n: int, k: int, field: int) -> None:
    packed[n // 32, k // 8, n % 16, k % 4] |= field << ((4 if n % 32 >= 16 else 0) + (2 if k % 8 >= 4 else 0))


def pack_i2(codes: np.ndarray) -> np.ndarray:
    rows, columns = codes.shape
    packed = np.zeros((panels(rows), -(-columns // 8), 16, 4), dtype=np.uint8)
    for n in range(rows):
        for k in range(columns):
            put_i2(packed, n, k, int(codes[n, k]) + 2)
    return packed


def pack_i3(codes: np.ndarray) -> np.ndarray:
    rows, columns = codes.shape
    packed = np.zeros((panels(rows), -(-columns // 8), 24, 4), dtype=np.uint8)
    for n in range(rows):
        for k in range(columns):
            field, row = int(codes[n, k]) + 4, n % 32
            put_i2(packed[:, :, :16], n, k, field >> 1)
            packed[n // 32, k // 8, 16 + row % 8, k % 4] |= (field & 1) << (2 * (row // 8) + (1 if k % 8 >= 4 else 0))
    return packed


def pack_planes(codes: np.ndarray, low: int) -> np.ndarray:
    """Codes of 4 + low bits: the upper four as pack_i4 has them, then the others."""
    rows, columns = codes.shape
    fields = codes + 2 ** (3 + low)
    packed = np.zeros((panels(rows), -(-columns // 8), 32 + 8 * low, 4), dtype=np.uint8)
    for n in range(rows):
        for k in range(columns):
            packed[n // 32, k // 8, n % 32, k % 4] |= (fields[n, k] >> low) << (0 if k % 8 < 4 else 4)
            if low == 2:
                put_i2(packed[:, :, 32:], n, k, fields[n, k] & 3)
            else:
                packed[n // 32, k // 8, 32 + n % 8, k % 4] |= (fields[n, k] & 1) << (2 * (n % 32 // 8) + (1 if k % 8 >= 4 else 0))
    return packed


PACKED = {8: pack_i8, 6: lambda codes: pack_planes(codes, 2), 5: lambda codes: pack_planes(codes, 1), 4: pack_i4, 3: pack_i3, 2: pack_i2}


@pytest.mark.parametrize("rows, columns", SHAPES)
@pytest.mark.parametrize("bits", PACKED)
def test_codes(rows, columns, bits):
    limit = 2 ** (bits - 1) - 1
    codes = np.random.default_rng(rows).integers(-limit, limit + 1, (rows, columns)).astype(np.int64)
    np.testing.assert_array_equal(unpack_codes(PACKED[bits](codes), bits, rows, columns), codes)


def scheme_of(bits):
    return {"bits": bits, "group_size": 0, "codes": "integer", "scale_type": "f32"}


@pytest.mark.parametrize("rows, columns", SHAPES)
@pytest.mark.parametrize("group_size", [0, 8, 32])
def test_scales(rows, columns, group_size):
    groups = 1 if group_size == 0 else -(-columns // group_size)
    stored = np.random.default_rng(1).random((panels(rows), groups, 32), dtype=np.float32)
    result = unpack_scales(stored, rows, columns, group_size)
    assert result.shape == (rows, columns)
    for n in range(rows):
        for k in range(columns):
            group = 0 if group_size == 0 else k // group_size
            assert result[n, k] == stored[n // 32, group, n % 32]


def test_dequantize_multiplies_codes_by_their_scales():
    codes = np.array([[-7, 0, 7, 3], [1, 2, 3, 4]])
    scales = np.ones((1, 1, 32), dtype=np.float32)
    scales[0, 0, :2] = 0.5, 2.0
    np.testing.assert_array_equal(dequantize(pack_i4(codes), scales, 2, 4, scheme_of(4)), [[-3.5, 0, 3.5, 1.5], [2, 4, 6, 8]])


def test_dequantize_takes_zero_points_off():
    codes = np.array([[-2, 0, 1], [-1, 1, 0]])
    scales, zeros = np.ones((1, 1, 32), dtype=np.float32), np.full((1, 1, 8), 0b10101010, dtype=np.uint8)
    scales[0, 0, 1] = 2.0
    zeros[0, 0, :2] = 0b10101001, 0b10101011  # -1 and 1 in their lowest fields, 0 in the others
    np.testing.assert_array_equal(dequantize(pack_i2(codes), scales, 2, 3, scheme_of(2), zeros), [[-1, 1, 2], [-4, 0, -2]])


@pytest.mark.parametrize("bits, planes", [(8, (8,)), (6, (4, 2)), (5, (4, 1)), (4, (4,)), (3, (2, 1)), (2, (2,))])
def test_zero_points_are_fields(bits, planes):
    """Each plane, the upper bits first, has bytes of fields: those of the next rows follow in the higher ones."""
    zeros = np.random.default_rng(bits).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (2, 3, 32))
    stored, below = [], bits
    for width in planes:
        below -= width
        part = (zeros + 2 ** (bits - 1)) >> below & (2**width - 1)
        stored.append(sum(part[:, :, f * 4 * width : (f + 1) * 4 * width] << (width * f) for f in range(8 // width)))
    np.testing.assert_array_equal(unpack_zero_points(np.concatenate(stored, axis=2).astype(np.uint8), bits), zeros)


@pytest.mark.parametrize("codes, dtype, bits", [("f8E4M3FN", ml_dtypes.float8_e4m3fn, 8), ("f4E2M1FN", ml_dtypes.float4_e2m1fn, 4)])
def test_code_values(codes, dtype, bits):
    expected = np.arange(2**bits).astype(np.uint8).view(dtype).astype(np.float32)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(code_values({"codes": codes, "bits": bits})[finite], expected[finite])


def test_dequantize_looks_up_values():
    table = [-2.0, -1.0, 0.5, 3.0]
    codes = np.array([[-2, 1, 0]])  # of fields 0, 3 and 2
    result = dequantize(pack_i2(codes), np.full((1, 1, 32), 128, np.uint8), 1, 3, scheme_of(2) | {"codes": "table", "table": table, "scale_type": "f8E8M0FNU"})
    np.testing.assert_array_equal(result, [[-4, 6, 1]])


def test_relative_error():
    assert relative_error(np.array([3.0, 4.0]), np.array([3.0, 4.5])) == pytest.approx(0.1)
