# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The header of a GGUF file: its metadata and its list of tensors.

The package gguf reads headers too, but it makes several numpy arrays of every string, which takes seconds for
a vocabulary, and it believes the counts that it finds. Here every length is checked against the bytes that are
left before anything is read, so that a damaged file ends in a UserError and never in a loop or out of memory.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from easyquant.support.errors import UserError

MAGIC = b"GGUF"
VERSIONS = (2, 3)  # They differ only in that 3 has a big-endian variant, which nobody writes.
SCALARS = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
STRING, ARRAY = 8, 9
MAX_NESTING = 4
MAX_DIMENSIONS = 4


@dataclass(frozen=True)
class GgufTensor:
    name: str
    shape: tuple[int, ...]  # outermost dimension first, as in numpy; GGUF stores the reverse
    ggml_type: int
    offset: int  # into the data section


@dataclass(frozen=True)
class GgufHeader:
    path: Path
    version: int
    fields: dict[str, object]  # int, float, bool, str, numpy array of these, list of str or list of arrays
    tensors: list[GgufTensor]


class _Reader:
    def __init__(self, path: Path, stream):
        self.path, self.stream = path, stream
        self.left = os.fstat(stream.fileno()).st_size

    def fail(self, what: str):
        raise UserError(f"{self.path}: {what}; the file is truncated or damaged, fetch it again")

    def take(self, count: int, what: str) -> bytes:
        if count > self.left:
            self.fail(f"{what} needs {count} bytes at byte {self.stream.tell()}, but {self.left} are left")
        data = self.stream.read(count)
        if len(data) != count:
            self.fail(f"{what}: the file ended after {len(data)} of {count} bytes")
        self.left -= count
        return data

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def count(self, smallest: int, what: str) -> int:
        """A number of things, each of at least `smallest` bytes."""
        number = self.u64(what)
        if number * smallest > self.left:
            self.fail(f"{what} is {number}, but only {self.left} bytes are left")
        return number

    def string(self, what: str) -> str:
        data = self.take(self.u64(what), what)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"{what} is not UTF-8 ({error.reason} at byte {error.start} of {data[:40]!r})")

    def value(self, kind: int, what: str, depth: int = 0):
        if kind in SCALARS:
            dtype = SCALARS[kind]
            return np.frombuffer(self.take(dtype.itemsize, what), dtype)[0].item()
        if kind == STRING:
            return self.string(what)
        if kind != ARRAY:
            self.fail(f"{what} has value type {kind}, expected 0 to 12")
        if depth == MAX_NESTING:
            self.fail(f"{what} nests arrays more than {MAX_NESTING} deep")
        element = self.u32(what)
        if element in SCALARS:
            dtype = SCALARS[element]
            length = self.count(dtype.itemsize, f"the length of {what}")
            return np.frombuffer(self.take(length * dtype.itemsize, what), dtype)
        if element not in (STRING, ARRAY):
            self.fail(f"{what} is an array of value type {element}, expected 0 to 12")
        length = self.count(8, f"the length of {what}")
        if element == STRING:
            return [self.string(what) for _ in range(length)]
        return [self.value(ARRAY, what, depth + 1) for _ in range(length)]

    def tensor(self, index: int) -> GgufTensor:
        name = self.string(f"the name of tensor {index}")
        dimensions = self.u32(f"tensor {name!r}")
        if dimensions > MAX_DIMENSIONS:
            self.fail(f"tensor {name!r} has {dimensions} dimensions, expected at most {MAX_DIMENSIONS}")
        shape = struct.unpack(f"<{dimensions}Q", self.take(8 * dimensions, f"the shape of tensor {name!r}"))
        return GgufTensor(name, shape[::-1], self.u32(f"tensor {name!r}"), self.u64(f"tensor {name!r}"))


def read_gguf_header(path: Path) -> GgufHeader:
    """Reads the header of a GGUF file. UserError when it is none, or is damaged."""
    path = Path(path)
    try:
        with open(path, "rb") as stream:
            reader = _Reader(path, stream)
            magic = stream.read(4)
            if magic != MAGIC:
                raise UserError(f"{path}: begins with {magic!r}, expected {MAGIC!r}; it is no GGUF file")
            reader.left -= 4
            version = reader.u32("the version")
            if version not in VERSIONS:
                hint = "it is big-endian; convert it" if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS else "convert it again"
                raise UserError(f"{path}: GGUF version {version}, expected 2 or 3; {hint}")
            tensor_count = reader.count(24, "the number of tensors")
            field_count = reader.count(13, "the number of metadata fields")
            fields: dict[str, object] = {}
            for index in range(field_count):
                key = reader.string(f"the key of metadata field {index}")
                if key in fields:
                    reader.fail(f"metadata field {key!r} occurs twice")
                fields[key] = reader.value(reader.u32(f"metadata field {key!r}"), f"metadata field {key!r}")
            return GgufHeader(path, version, fields, [reader.tensor(index) for index in range(tensor_count)])
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
