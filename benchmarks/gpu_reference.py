# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the benchmarked GPU kernels are to compute, in numpy, from the bytes that they are given. Integers are compared to the bit, sums of
floats within the bound that include/easyquant/Codegen/GPU/WeightOnly.h states. The layout of weights is that of
include/easyquant/Numerics/FragmentPacking.h."""

import numpy as np


def to_bf16(values):
    """Bits of the nearest bf16, ties to even; no NaN."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def signed(codes, bits):
    """Two's complement of so many bits, as int8."""
    sign = np.uint8(1 << (bits - 1))
    return ((codes.astype(np.uint8) ^ sign) - sign).view(np.int8)


def matrix(parts, rows, columns):
    """[row blocks, ... rows of a block ..., column blocks, ... columns of a block ...] as a matrix, without padding."""
    row_blocks = parts.shape[0]
    whole = parts.reshape(row_blocks, -1, (columns + 31) // 32 * 32)
    return whole.reshape(-1, whole.shape[2])[:rows, :columns]


def fields(words, shifts, bits):
    """Bit fields of words [NB, KB, g, q, t], one for each of `shifts` [r, i], as uint8 [NB, t, g, KB, r, q, i]."""
    found = (words[..., None, None] >> np.asarray(shifts, np.uint32)) & np.uint32((1 << bits) - 1)
    return found.astype(np.uint8).transpose(0, 4, 2, 1, 5, 3, 6)


REGISTERS, PAIR = np.arange(4)[:, None], np.arange(2)[None, :]  # r and i


def unpack_codes(packed, order, bits, rows, columns):
    """Codes [rows, columns] of packed bytes."""
    kb = (columns + 31) // 32
    if bits == 3:
        blocks = packed.reshape(-1, kb, 768)
        low = np.ascontiguousarray(blocks[..., :512]).view(np.uint32).reshape(-1, kb, 8, 4, 4)
        high = np.ascontiguousarray(blocks[..., 512:]).view(np.uint32).reshape(-1, kb, 8, 4, 2)
        parts = []
        for t in range(8):
            two = fields(low[..., t % 4 : t % 4 + 1], 16 * PAIR + 8 * (t // 4) + 2 * REGISTERS, 2)
            third = fields(high[..., t // 4 : t // 4 + 1], (16 * PAIR + 2 * REGISTERS + 2 + (0, 1, 8, 9)[t % 4]) % 32, 1)
            parts.append(two | third << np.uint8(2))
        return matrix(signed(np.concatenate(parts, axis=1), 3), rows, columns)
    if bits == 8:
        # A lane's bytes: M16N8K32 [t, h, i], i < 4; M16N8K16 [t, r / 2, r mod 2, i], i < 2. Columns of both are [h, q, i] or [r, q, i].
        last = (2, 2, 4) if order == "m16n8k32" else (2, 4, 2)
        parts = packed.view(np.int8).reshape(-1, kb, 8, 4, *last)
        return matrix(parts.transpose(0, 4, 2, 1, 5, 3, 6), rows, columns)
    if order == "m16n8k32" and bits in (2, 4):
        whole, mask, parts = packed.reshape(-1, kb, 8, 4, 4, 4), np.uint8((1 << bits) - 1), []
        for bit in range(0, 8, 2 * bits):
            part = np.stack([whole >> np.uint8(bit) & mask, whole >> np.uint8(bit + bits) & mask], axis=4)  # [NB, KB, g, q, h, t, i]
            parts.append(part.transpose(0, 5, 2, 1, 4, 3, 6))
        return matrix(signed(np.concatenate(parts, axis=1), bits), rows, columns)
    if order == "m16n8k16" and bits in (2, 4):
        words = packed.view(np.uint32).reshape(-1, kb, 8, 4, 4)
        parts = [fields(words, 16 * PAIR + 8 * upper + bits * REGISTERS, bits) for upper in range(2 if bits == 2 else 1)]
        return matrix(signed(np.concatenate(parts, axis=1), bits), rows, columns)
    raise ValueError(f"no layout of {bits} bits in the order {order}")


def unpack_floats(packed, rows, columns):
    """Weights [rows, columns] of bf16 fragments, as float32."""
    parts = packed.reshape(-1, (columns + 31) // 32, 8, 4, 4, 2)  # [NB, KB, g, q, r, i]
    return matrix(from_bf16(parts).transpose(0, 2, 1, 4, 3, 5), rows, columns)


def group_bounds(columns, group):
    return [(begin, min(begin + (group or columns), columns)) for begin in range(0, columns, group or columns)]


def scale_rows(scales, n):
    """[groups, n] of scales as they lie: rows padded to 64."""
    return scales.reshape(-1, (n + 63) // 64 * 64)[:, :n]


def integer_linear(codes, scales, weights, weight_scales, group):
    """Bits of bf16 results. The sums are exact integers, in float64; each fma is rounded once, which longdouble leaves room for."""
    k = weights.shape[1]
    t = np.zeros((codes.shape[0], weights.shape[0]), np.float32)
    for g, (begin, end) in enumerate(group_bounds(k, group)):
        sums = codes[:, begin:end].astype(np.float64) @ weights[:, begin:end].astype(np.float64).T
        t = (sums.astype(np.float32).astype(np.longdouble) * weight_scales[g].astype(np.longdouble) + t).astype(np.float32)
    return to_bf16(scales[:, None] * t)


def float_linear(x, weights, weight_scales, group):
    """Results in float64, and the largest error that a kernel may have, its rounding to bf16 included."""
    k = weights.shape[1]
    y, size = np.zeros((2, x.shape[0], weights.shape[0]))
    for g, (begin, end) in enumerate(group_bounds(k, group)):
        part, w = x[:, begin:end].astype(np.float64), weights[:, begin:end].astype(np.float64)
        scale = 1.0 if weight_scales is None else weight_scales[g].astype(np.float64)
        y += part @ w.T * scale
        size += np.abs(part) @ np.abs(w).T * scale
    return y, (k / 8 + 32) * 2.0**-22 * size + 2.0**-8 * np.abs(y)


def quantize(x):
    """Codes and scales, to the bit; no row is all zeros."""
    largest = np.abs(x).max(axis=1)
    inverse = np.float32(127) / largest
    return np.rint(x * inverse[:, None]).astype(np.int8), largest / np.float32(127)


def rms_norm(x, weight, epsilon):
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + epsilon) * weight
