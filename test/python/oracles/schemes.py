# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Round-to-nearest quantization, simulated.

    absmax     s = max|x| / (2^(b-1) - 1)      z = 0        1 for an all-zero slice
               q = clamp(rne(x / s), -(2^(b-1) - 1), 2^(b-1) - 1)
    symmetric  s = max|x| / (2^(b-1) - 1/2)    z = 0        codes from -2^(b-1) on
    zeropoint  s = (max - min) / (2^b - 1)     z = rne(-2^(b-1) - min / s), the range stretched to contain 0
               q = clamp(rne(x / s) + z, -2^(b-1), 2^(b-1) - 1)

    a table    s = max(max / t_last, min / t_first)    the nearest value, ties to the lower; t = n u of integers n, u a power of two

Weights have one scale per output channel, or per group of neighbouring inputs of a channel (the last group may be short);
activations have one scale per token, or per group of its columns, taken when the token arrives, or one that is given. Codes stay integers held in floating
point, so that a product of codes is what integer arithmetic gives as long as it is exactly representable; scales are fp32, of groups fp16.
"""

import numpy as np


def absmax_scale(x, bits):
    """Scale over the last axis (kept), fp32."""
    top = np.max(np.abs(x), axis=-1, keepdims=True).astype(np.float32)
    return np.where(top > 0, top / np.float32(2 ** (bits - 1) - 1), np.float32(1)).astype(np.float32)


def codes_of(x, scale, bits, dtype):
    limit = 2 ** (bits - 1) - 1
    # x / s in fp32, as the arithmetic that is simulated does it: np.rint rounds half to even.
    return np.clip(np.rint(x.astype(np.float32) / scale), -limit, limit).astype(dtype)


def table_unit(table):
    """The power of two that the largest magnitude is 64 to 127 of."""
    return np.float32(2.0 ** (np.floor(np.log2(np.abs(table).max())) - 6))


def table_codes(x, table, dtype, scale_type):
    """The nearest values of a table as the integers that they are, and scales times its unit."""
    x, unit = x.astype(np.float32), table_unit(table)
    scale = np.maximum(x.max(axis=-1, keepdims=True) / table[-1], x.min(axis=-1, keepdims=True) / table[0])
    scale = scale.astype(scale_type).astype(np.float32)
    middles = ((table[1:].astype(np.float64) + table[:-1]) / 2).astype(np.float32)
    integers = table / unit
    assert np.all(integers == np.rint(integers)) and np.abs(integers).max() <= 127
    return integers[np.searchsorted(middles, x / scale, side="left")].astype(dtype), scale * unit


def weight_codes(x, bits, rule, dtype, scale_type=np.float32):
    """Codes less zero points and scales over the last axis; scales are those of their type. A rule may be a table."""
    if isinstance(rule, np.ndarray):
        return table_codes(x, rule, dtype, scale_type)
    if rule == "absmax":
        scale = absmax_scale(x, bits).astype(scale_type).astype(np.float32)
        return codes_of(x, scale, bits, dtype), scale
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    x = x.astype(np.float32)
    if rule == "symmetric":
        scale = np.max(np.abs(x), axis=-1, keepdims=True) / np.float32(high + 0.5)
        scale = scale.astype(scale_type).astype(np.float32)
        zero = np.zeros_like(scale)
    else:
        least = np.minimum(x.min(axis=-1, keepdims=True), 0)
        most = np.maximum(x.max(axis=-1, keepdims=True), 0)
        scale = ((most.astype(np.float64) - least) / (high - low)).astype(np.float32)
        scale = np.where(scale > 0, scale, np.float32(1)).astype(scale_type).astype(np.float32)
        zero = np.clip(np.rint(np.float32(low) - least / scale), low, high)
    scale = np.where(scale > 0, scale, np.float32(1)).astype(np.float32)
    codes = np.clip(np.rint(x / scale) + zero, low, high)
    return (codes - zero).astype(dtype), scale


class QuantizedWeight:
    """Codes (less their zero points) and scales of a matrix (out, in). Groups have scales of f16; group_size 0: one f32 per output channel."""

    def __init__(self, weight, bits, group_size, dtype, rule="absmax"):
        rows, columns = weight.shape
        size = group_size or columns
        self.bounds = [(at, min(at + size, columns)) for at in range(0, columns, size)]
        self.codes = np.empty((rows, columns), dtype)
        self.scales = np.empty((rows, len(self.bounds)), np.float32)
        for group, (start, stop) in enumerate(self.bounds):
            part = weight[:, start:stop]
            codes, scale = weight_codes(part, bits, rule, dtype, np.float16 if group_size else np.float32)
            self.scales[:, group] = scale[:, 0]
            self.codes[:, start:stop] = codes

    def dequantized(self):
        out = np.empty_like(self.codes)
        for group, (start, stop) in enumerate(self.bounds):
            out[:, start:stop] = self.codes[:, start:stop] * self.scales[:, group:group + 1].astype(out.dtype)
        return out


def block_of(columns, limit):
    """The largest power of two from 16 to `limit` that divides the columns; 0 if there is none."""
    return next((block for block in (512, 256, 128, 64, 32, 16) if block <= limit and columns % block == 0), 0)


def rotate(x, block):
    """Rows times the orthogonal Hadamard matrix over blocks of columns, by its definition; in the type of `x`."""
    i = np.arange(block)
    signs = np.array([[-1 if int(a & b).bit_count() % 2 else 1 for b in i] for a in i])
    rotated = x.astype(np.float64).reshape(*x.shape[:-1], -1, block) @ (signs / np.sqrt(block))
    return rotated.reshape(x.shape).astype(x.dtype)


def rotate_from(first, x, block):
    """Rotates columns, or elements of a vector, from `first` on; those before stay."""
    return np.concatenate([x[..., :first], rotate(x[..., first:], block)], axis=-1)


class Linear:
    """y = x W^T with W and x quantized as asked. weight: (out, in); weight_bits or input_bits None: left in float. With `hadamard`, the most
    columns that are rotated together, both are quantized in that basis. What it reads is `rotated` where it comes in that basis, and what
    it gives is rotated in blocks of `out_block`, from column `first_out` on."""

    def __init__(self, weight, dtype, weight_bits=None, group_size=0, input_bits=None, rule="absmax", hadamard=0, rotated=False, out_block=0, first_out=0,
                 input_group=0, input_rule="absmax"):
        self.dtype, self.input_bits, self.input_group, self.input_rule = dtype, input_bits, input_group, input_rule
        self.input_scale = None  # for all tokens
        block = block_of(weight.shape[1], hadamard) if weight_bits else 0
        exact = np.asarray(weight, np.float64)
        if block:
            exact = rotate(exact, block)
        if out_block:
            exact = rotate_from(first_out, exact.T, out_block).T
        weight = exact.astype(np.float32)
        self.block = 0 if rotated else block
        self.quantized = None
        if weight_bits is None:
            if input_bits is not None:
                raise ValueError("quantized activations need quantized weights")
            self.weight = np.asarray(weight, dtype)
            return
        self.quantized = QuantizedWeight(np.asarray(weight), weight_bits, group_size, dtype, rule)
        if input_bits is None:
            self.weight = self.quantized.dequantized()
            self.quantized.codes = None  # only one of the two is needed again

    def __call__(self, x):
        if self.block:
            x = rotate(x, self.block)
        if self.input_bits is None:
            return x @ self.weight.T
        total = 0
        for group, (start, stop) in enumerate(self.quantized.bounds):
            weight_scale = self.quantized.scales[:, group].astype(self.dtype)
            size = self.input_group or stop - start
            for first in range(start, stop, size):
                last = min(first + size, stop)
                if self.input_rule == "absmax":
                    scale = self.input_scale
                    if scale is None:
                        scale = absmax_scale(x[:, first:last] if self.input_group else x, self.input_bits)
                    codes = codes_of(x[:, first:last], scale, self.input_bits, self.dtype)
                else:
                    codes, scale = weight_codes(x[:, first:last], self.input_bits, self.input_rule, self.dtype)
                product = codes @ self.quantized.codes[:, first:last].T
                total = total + product * weight_scale * scale.astype(self.dtype)
        return total

    def rows(self, index):
        """Rows of the (dequantized) weight: the embedding of those tokens."""
        if self.input_bits is None:
            rows = self.weight[index]
        else:
            rows = self.quantized.codes[index] * self.quantized.scales[index].astype(self.dtype)
        return rotate(rows, self.block) if self.block else rows


class Scheme:
    """What a preset means: bits of the linears, of their inputs, and of the head and tied embedding. Where inputs have bits, rows are rotated in
    the largest blocks by default."""

    def __init__(self, weight_bits=None, input_bits=None, group_size=0, head_bits=None, rule="absmax", hadamard=None, input_group=0,
                 input_rule="absmax"):
        hadamard = (512 if input_bits else 0) if hadamard is None else hadamard
        self.weight_bits, self.input_bits = weight_bits, input_bits
        self.group_size, self.head_bits, self.rule, self.hadamard = group_size, head_bits, rule, hadamard
        self.input_group, self.input_rule = input_group, input_rule

    def linear(self, weight, dtype, **basis):
        basis = {"hadamard": self.hadamard, "input_group": self.input_group, "input_rule": self.input_rule} | basis
        return Linear(weight, dtype, self.weight_bits, self.group_size, self.input_bits, self.rule, **basis)

    def value_block(self, head_dim):
        """In what blocks values are rotated, so that what reads attention's output finds it in its basis."""
        return block_of(head_dim, self.hadamard) if self.weight_bits else 0

    def head(self, weight, dtype):
        """Per channel whatever the group size; its input is quantized when the linears' inputs are."""
        rule = "absmax" if isinstance(self.rule, np.ndarray) else self.rule
        return Linear(weight, dtype, self.head_bits, 0, self.input_bits if self.head_bits else None, rule, self.hadamard,
                      input_group=self.input_group, input_rule=self.input_rule)

    def table(self, weight, dtype):
        """An embedding that is no head is float."""
        return Linear(weight, dtype)


class Calibrated(Scheme):
    """Linears of W8A8 with these scales of activations, in the order in which a model makes them; None: one a token."""

    def __init__(self, scales, hadamard=None):
        super().__init__(8, 8, 0, 8, hadamard=hadamard)
        self.scales = iter(scales)

    def linear(self, weight, dtype, **basis):
        linear = super().linear(weight, dtype, **basis)
        linear.input_scale = next(self.scales)
        return linear


FLOAT = Scheme()
W8A8 = Scheme(8, 8, 0, 8)
W8A16 = Scheme(8, None, 0, 8)


def w4a16(group_size):
    return Scheme(4, None, group_size, 8)


def w4a8(group_size):
    return Scheme(4, 8, group_size, 8)
