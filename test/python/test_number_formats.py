# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every number format of lib/Numerics against ml_dtypes and numpy: all bits, and all values that rounding could get wrong."""

import subprocess

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from helpers import BUILD

CODES = {"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f4E2M1FN": ml_dtypes.float4_e2m1fn}
SCALES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E8M0FNU": ml_dtypes.float8_e8m0fnu}
LARGEST = {"f8E4M3FN": 448.0, "f4E2M1FN": 6.0}


def all_values(dtype):
    """What all bits of a format stand for, as float32."""
    width = np.dtype(dtype).itemsize
    count = 16 if dtype is ml_dtypes.float4_e2m1fn else 1 << (8 * width)
    return np.arange(count).astype({1: np.uint8, 2: np.uint16}[width]).view(dtype).astype(np.float32)


def critical_values():
    """Values of all formats, the middles between neighbours, their neighbours among floats, and random bits."""
    random = np.random.default_rng(7)
    parts = [random.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32), random.normal(0, 3, 100_000).astype(np.float32)]
    for dtype in {*CODES.values(), *SCALES.values()}:
        values = np.unique(all_values(dtype)[np.isfinite(all_values(dtype))])
        middles = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
        parts += [values, middles]
    values = np.concatenate(parts)
    values = np.concatenate([values, -values])
    values = np.concatenate([values, np.nextafter(values, np.float32(np.inf)), np.nextafter(values, np.float32(-np.inf))])
    return np.unique(values[np.isfinite(values)])


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    folder, x = tmp_path_factory.mktemp("formats"), critical_values()
    save_file({"x": x}, folder / "x.safetensors")
    subprocess.run([BUILD / "unittests" / "EncodeFile", folder / "x.safetensors", folder / "bits.safetensors"], check=True)
    return x, load_file(folder / "bits.safetensors")


def same(found, expected):
    np.testing.assert_array_equal(found.view(np.uint32), expected.astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("name", CODES)
def test_codes(encoded, name):
    x, found = encoded
    decoded, expected = found[f"decoded_{name}"], all_values(CODES[name])
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isnan(decoded), ~finite)
    same(decoded[finite], expected[finite])
    # ml_dtypes makes NaNs of what is too large for f8E4M3FN; here it becomes the largest.
    nearest = np.clip(x, -LARGEST[name], LARGEST[name]).astype(CODES[name]).view(np.uint8)
    np.testing.assert_array_equal(found[name], nearest)


@pytest.mark.parametrize("name", SCALES)
def test_scales(encoded, name):
    x, found = encoded
    dtype, decoded = SCALES[name], found[f"decoded_scale_{name}"]
    expected = all_values(dtype)
    numbers = ~np.isnan(expected)
    same(decoded[numbers], expected[numbers])
    normal = np.abs(x) >= np.finfo(np.float32).tiny
    bits, magnitude = found[f"scale_{name}"][normal], np.abs(x[normal])
    if name == "f8E8M0FNU":  # the power of two not above
        _, exponent = np.frexp(magnitude)
        np.testing.assert_array_equal(bits, exponent - 1 + 127)
        return
    if name == "f8E4M3FN":  # neither too large nor zero
        magnitude = np.clip(magnitude, 2.0**-9, 448)
    with np.errstate(over="ignore"):
        nearest = magnitude.astype(dtype)
    np.testing.assert_array_equal(bits, nearest.view(np.uint8 if nearest.dtype.itemsize == 1 else np.uint16))


def test_powers_of_two_come_back(encoded):
    _, found = encoded
    powers = found["decoded_scale_f8E8M0FNU"][1:255]
    np.testing.assert_array_equal(powers.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8), np.arange(1, 255))
