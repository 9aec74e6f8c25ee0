#!/usr/bin/env python3
"""Files of a work folder, as a method writes them: random factors, scales and codes.

    work_folder.py FOLDER/FILE STAMP NAME=TYPE:SHAPE ...

TYPE is f32 (factors and scales in [0.25, 4)), i4 or i8 (codes of the symmetric range), i32, or zero, huge and
tiny: f32 constants; SHAPE is like 40x16. The same arguments give the same file.
"""

import sys
import zlib
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def make(kind, shape, rng):
    if kind in ("i4", "i8"):
        limit = 2 ** (int(kind[1:]) - 1) - 1
        return rng.integers(-limit, limit + 1, shape).astype(np.int8)
    if kind == "i32":
        return rng.integers(-4, 5, shape).astype(np.int32)
    if kind == "f32":
        return np.exp2(rng.uniform(-2, 2, shape)).astype(np.float32)
    return np.full(shape, {"zero": 0.0, "huge": 3e38, "tiny": 1e-38}[kind], np.float32)


def main():
    path, stamp, *tensors = sys.argv[1:]
    made = {}
    for argument in tensors:
        name, _, kind = argument.partition("=")
        kind, _, shape = kind.partition(":")
        made[name] = make(kind, tuple(map(int, shape.split("x"))), np.random.default_rng(zlib.crc32(name.encode())))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    save_file(made, path, {"stamp": stamp})


if __name__ == "__main__":
    main()
