# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Number formats by their definitions, with ml_dtypes for every conversion: what oracles/schemes.py is for integers with f32 scales.

    codes   values of a format; x / s to the nearest of them, ties to even (a table: to the lower), beyond the ends to an end
    scales  max|x| / max value, rounded to their format; f8E8M0FNU: 2^(floor(log2 max|x|) - floor(log2 max value))
    ui6     n/64, n = 1 .. 63, in units of one f16 for every 8 groups of a row: 64/63 of the largest of their max|x| / max value
    outer   of a tensor: max|x| / max value / 448, so that the scales of its groups, in units of it, are f8E4M3FN (NVFP4)
"""

import ml_dtypes
import numpy as np

NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32)  # fmt: skip
IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def to_dtype(dtype, largest):
    return largest, lambda steps: np.clip(steps, -largest, largest).astype(dtype).astype(np.float32)


def to_table(values):
    middles = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    return float(np.abs(values).max()), lambda steps: values[np.searchsorted(middles, steps, side="left")]


def to_integers(bits):
    limit = 2 ** (bits - 1) - 1
    return float(limit), lambda steps: np.clip(np.rint(steps), -limit, limit)


FORMATS = {"f8E4M3FN": to_dtype(ml_dtypes.float8_e4m3fn, 448.0), "f4E2M1FN": to_dtype(ml_dtypes.float4_e2m1fn, 6.0), "nf4": to_table(NF4), "iq4_nl": to_table(IQ4_NL),
           "i2": to_integers(2), "i3": to_integers(3), "i4": to_integers(4), "i5": to_integers(5), "i6": to_integers(6), "i8": to_integers(8)}  # fmt: skip


def outer_of(top, codes):
    return np.float32(top) / np.float32(FORMATS[codes][0]) / np.float32(448)


def scales_of(x, largest, scale, outer=None):
    """The scales of the slices along the last axis, float32."""
    top = np.max(np.abs(x), axis=-1, keepdims=True).astype(np.float32)
    if outer is not None:
        steps = np.clip(top / np.float32(largest) / outer, 2.0**-9, 448).astype(ml_dtypes.float8_e4m3fn)
        return np.where(top > 0, steps.astype(np.float32), np.float32(1)) * outer
    safe = np.where(top > 0, top, np.float32(largest))
    if scale == "f8E8M0FNU":
        return np.exp2(np.floor(np.log2(safe)) - np.floor(np.log2(largest))).astype(np.float32)
    dtype = {"f32": np.float32, "f16": np.float16}[scale]
    return (safe / np.float32(largest)).astype(dtype).astype(np.float32)


def two_level_scales(x, largest, size):
    """The scales of each group of `size` columns: a list of float32 (rows, 1)."""
    starts = range(0, x.shape[-1], size)
    exact = [np.max(np.abs(x[:, start : start + size]), axis=1, keepdims=True) / np.float32(largest) for start in starts]
    scales = []
    for first in range(0, len(exact), 8):
        group = exact[first : first + 8]
        top = np.max(group, axis=0)
        unit = np.where(top > 0, np.maximum(top * np.float32(64) / np.float32(63), np.float32(2**-14)), np.float32(1)).astype(np.float16).astype(np.float32)
        scales += [np.where(s > 0, np.clip(np.rint(s / unit * 64), 1, 63), 63).astype(np.float32) / 64 * unit for s in group]
    return scales


def rounded(x, codes, scale, group_size=0, outer=None):
    """x (rows, columns) as its codes give it back, float32; scales in units of `outer`, if it is given."""
    largest, nearest = FORMATS[codes]
    x, size = x.astype(np.float32), group_size or x.shape[-1]
    out = np.empty_like(x)
    shared = two_level_scales(x, largest, size) if scale == "ui6" else None
    for start in range(0, x.shape[-1], size):
        part = x[..., start : start + size]
        scales = scales_of(part, largest, scale, outer) if shared is None else shared[start // size]
        if codes == "iq4_nl":  # whose ends differ
            scales = np.maximum(part.max(1, keepdims=True) / np.float32(113), part.min(1, keepdims=True) / np.float32(-127))
            scales = scales.astype(np.float16).astype(np.float32)
        out[..., start : start + size] = scales * nearest(part / scales)
    return out


class Linear:
    """y = x W^T of rounded weights and, with `inputs`, activations rounded per token; with `outer` in groups of 16, with `scale` by it."""

    def __init__(self, weight, dtype, inputs, outer=None, scale=None):
        self.weight, self.dtype, self.inputs, self.outer, self.scale = weight.astype(dtype), dtype, inputs, outer, scale

    def __call__(self, x):
        if self.scale is not None:
            x = (self.scale * FORMATS[self.inputs][1](x.astype(np.float32) / self.scale)).astype(self.dtype)
        elif self.inputs:
            x = rounded(x, self.inputs, "f32", 0 if self.outer is None else 16, self.outer).astype(self.dtype)
        return x @ self.weight.T

    def rows(self, index):
        return self.weight[index]


class Peaks:
    """A float model's: the largest magnitude that each linear has read, in the order in which a model makes them."""

    def __init__(self):
        self.tops = []

    def linear(self, weight, dtype):
        index, weight = len(self.tops), np.asarray(weight, dtype)
        self.tops.append(0.0)

        def apply(x):
            self.tops[index] = max(self.tops[index], float(np.abs(x).max()))
            return x @ weight.T

        return apply

    @staticmethod
    def value_block(_):
        return 0

    def head(self, weight, dtype):
        return Linear(np.asarray(weight), dtype, None)

    table = head


class Formats:
    """Weights of the linears, of the head and the tied embedding (a scale a row, or f16 ones of groups), of an embedding of its own, and
    activations. `outer`: groups have scales of f8E4M3FN in units of one of the tensor. That of activations is static with `tops`, the
    largest that calibration saw of each linear's."""

    def __init__(self, codes, scale, group_size, head, inputs=None, head_inputs=None, outer=False, tops=(), head_group=0, table=None, table_group=0):
        self.head_group, self.table_codes, self.table_group = head_group, table, table_group
        self.codes, self.scale, self.group_size, self.head_codes, self.inputs = codes, scale, group_size, head, inputs
        self.head_inputs, self.outer, self.tops = head_inputs or inputs, outer, iter(tops)

    def linear(self, weight, dtype):
        weight = np.asarray(weight)
        outer = outer_of(np.abs(weight).max(), self.codes) if self.outer else None
        weight = rounded(weight, self.codes, self.scale, self.group_size, outer)
        top = next(self.tops, None)
        if top is None:
            return Linear(weight, dtype, self.inputs)
        if self.outer:
            return Linear(weight, dtype, self.inputs, outer=outer_of(top, self.inputs))
        return Linear(weight, dtype, self.inputs, scale=np.float32(top) / np.float32(FORMATS[self.inputs][0]))

    @staticmethod
    def value_block(_):
        return 0  # in the plain basis

    def head(self, weight, dtype):
        return Linear(self.rows(weight, self.head_codes, self.head_group), dtype, self.head_inputs)

    def table(self, weight, dtype):
        return Linear(np.asarray(weight) if self.table_codes is None else self.rows(weight, self.table_codes, self.table_group), dtype, None)

    @staticmethod
    def rows(weight, codes, group_size):
        return rounded(np.asarray(weight), codes, "f16" if group_size else "f32", group_size)
