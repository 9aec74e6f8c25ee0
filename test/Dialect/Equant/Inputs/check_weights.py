#!/usr/bin/env python3
"""Check a weights.safetensors against the checkpoint it was made from, with nothing but the standard library.

    check_weights.py MODEL_FOLDER WEIGHTS TENSOR=KIND:PART[+PART...] ...

KIND is copy, i8, or i4:GROUP. PART@R0..R1,C0..C1 is that part of a tensor, PART%R0..R1,C0..C1 of what it is quantized to. PART^R,C is a
tensor behind the orthogonal Hadamard matrix over blocks of R rows and of C columns; 1: not rotated; PART^R,C,F leaves rows before F. Each
named tensor must hold exactly the bytes that an independent absmax quantization and packing of the checkpoint's tensors PART gives (the
sentences of Kernels.h and the methods page), be 64-byte aligned in the data section, and have its scales beside it under TENSOR_scale.
Prints the relative RMS error of every part.
"""

import json
import math
import struct
import sys
from pathlib import Path


def load(path):
    data = Path(path).read_bytes()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    base = 8 + size
    return {name: (t["dtype"], t["shape"], t["data_offsets"][0], data[base + t["data_offsets"][0]:base + t["data_offsets"][1]])
            for name, t in header.items()}, base


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def f16(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


def quantize(row, limit, group):
    """Scales and codes of one row; scales of groups are those of f16."""
    scales, codes = [], []
    for start in range(0, len(row), group):
        part = row[start:start + group]
        largest = max(map(abs, part))
        scale = f32(largest / limit) if largest else 1.0
        scale = f16(scale) if group < len(row) else scale
        scales.append(scale)
        codes += [max(-limit, min(limit, round(f32(x / scale)))) for x in part]
    return scales, codes


def cut(rows, place):
    (r0, r1), (c0, c1) = (map(int, extent.split("..")) for extent in place.split(","))
    return [row[c0:c1] for row in rows[r0:r1]]


def hadamard(vector, block):
    """By its definition; in double."""
    return [sum((-1) ** (i & j).bit_count() * x for i, x in enumerate(vector[first:first + block]))
            for first in range(0, len(vector), block) for j in range(block)]


def rotated(matrix, blocks):
    """Both sides, rounded once."""
    rows, columns, *first = map(int, blocks.split(","))
    if first:
        return rotated(matrix[:first[0]], f"1,{columns}") + rotated(matrix[first[0]:], f"{rows},{columns}")
    across = [hadamard(row, columns) for row in matrix]
    both = zip(*(hadamard(column, rows) for column in zip(*across)))
    return [[f32(x / math.sqrt(rows * columns)) for x in row] for row in both]


def parts_of(text, source):
    """For each part its matrix, of which columns from `first` to `end` are taken once it is quantized."""
    for part in text.split("+"):
        name, _, place = part.replace("%", "@").partition("@")
        name, _, blocks = name.partition("^")
        values, columns = floats(source[name][3]), (source[name][1] + [1])[1]
        matrix = [values[i:i + columns] for i in range(0, len(values), columns)]
        if blocks:
            matrix = rotated(matrix, blocks)
        if "@" in part:
            matrix = cut(matrix, place)
        first, end = 0, len(matrix[0])
        if "%" in part:
            rows, taken = place.split(",")
            first, end = map(int, taken.split(".."))
            matrix = cut(matrix, f"{rows},0..{columns}")
        yield part, matrix, first, end


def expected(rows, bits, group, first, end):
    limit = 2 ** (bits - 1) - 1
    whole, columns = group >= len(rows[0]), end - first
    padded, panels = -(-columns // 8) * 8, -(-len(rows) // 32)
    groups = 1 if whole else -(-columns // group)
    codes = bytearray([128 if bits == 8 else 0x88]) * (panels * padded * 32 * bits // 8)
    scales = [1.0] * (panels * groups * 32)
    restored = []
    for n, row in enumerate(rows):
        row_scales, row_codes = quantize(row, limit, group)
        row_scales = row_scales if whole else row_scales[first // group:][:groups]
        row_codes = row_codes[first:end]
        for g, scale in enumerate(row_scales):
            scales[(n // 32 * groups + g) * 32 + n % 32] = scale
        for k, code in enumerate(row_codes):
            if bits == 8:
                codes[((n // 32 * (padded // 4) + k // 4) * 32 + n % 32) * 4 + k % 4] = code + 128
            else:
                at = ((n // 32 * (padded // 8) + k // 8) * 32 + n % 32) * 4 + k % 4
                high = k % 8 >= 4
                codes[at] = codes[at] & (0x0F if high else 0xF0) | (code + 8) << (4 if high else 0)
        restored.append([code * row_scales[0 if whole else k // group] for k, code in enumerate(row_codes)])
    return bytes(codes), struct.pack(f"<{len(scales)}{'f' if whole else 'e'}", *scales), restored


def relative_rms(before, after):
    error = sum((a - b) ** 2 for x, y in zip(before, after) for a, b in zip(x, y))
    return math.sqrt(error / sum(a * a for x in before for a in x))


def main():
    source, _ = load(Path(sys.argv[1]) / "model.safetensors")
    written, base = load(sys.argv[2])
    assert base % 4096 == 0, base
    for argument in sys.argv[3:]:
        name, _, rest = argument.partition("=")
        kind, _, parts = rest.rpartition(":")
        dtype, shape, offset, data = written[name]
        if kind == "copy":
            if "@" in parts or "^" in parts:
                [(_, matrix, _, _)] = parts_of(parts, source)
                matrix = [x for row in matrix for x in row]
                assert dtype == "F32" and data == struct.pack(f"<{len(matrix)}f", *matrix), name
                continue
            assert dtype == "F32" and shape == source[parts][1] and data == source[parts][3], name
            continue
        parts = list(parts_of(parts, source))
        _, matrix, first, end = parts[0]
        bits, group = (8, len(matrix[0])) if kind == "i8" else (4, int(kind.removeprefix("i4:")))
        codes, scales, restored = expected([row for _, matrix, _, _ in parts for row in matrix], bits, group, first, end)
        assert data == codes, f"{name}: codes differ"
        assert written[name + "_scale"][3] == scales, f"{name}: scales differ"
        assert offset % 64 == 0 and written[name + "_scale"][2] % 64 == 0, f"{name}: not aligned"
        for part, matrix, first, end in parts:
            taken = [row[first:end] for row in matrix]
            print(f"{part} {relative_rms(taken, restored[:len(matrix)]):.9f}")
            restored = restored[len(matrix):]


if __name__ == "__main__":
    main()
