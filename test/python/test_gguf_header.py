# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GGUF headers: against the package gguf, and damaged in every way."""

import random
import struct
import time

import gguf
import numpy as np
import pytest

from easyquant.formats.gguf_header import read_gguf_header
from easyquant.support.errors import UserError


@pytest.fixture
def sample(tmp_path):
    """A small file with a value of every type, written by the package gguf."""
    path = tmp_path / "sample.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -100)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 4000000000)
    writer.add_int32("a.i32", -2000000000)
    writer.add_uint64("a.u64", 2**63 + 1)
    writer.add_int64("a.i64", -(2**62))
    writer.add_float32("a.f32", 0.1)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "Ünïcödé 🦙")
    writer.add_array("a.strings", ["", "a", "▁b"])
    writer.add_array("a.numbers", [1, -2, 3])
    writer.add_array("a.floats", [0.5, -1.5])
    writer.add_tensor("w", np.zeros((3, 5), np.float32))
    writer.add_tensor("b", np.zeros(7, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_agrees_with_the_package_gguf(sample):
    header = read_gguf_header(sample)
    reader = gguf.GGUFReader(sample)
    expected = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert list(header.fields) == list(expected)
    for key, value in expected.items():
        found = header.fields[key]
        assert (found.tolist() if isinstance(found, np.ndarray) else found) == value, key
        assert type(found) is type(value) or isinstance(found, np.ndarray), key
    assert header.version == 3
    assert [(t.name, t.shape, t.ggml_type) for t in header.tensors] == [("w", (3, 5), 0), ("b", (7,), 1)]
    assert header.tensors[1].offset == int(reader.tensors[1].data_offset - reader.tensors[0].data_offset)


def test_every_truncation_is_an_error(sample):
    data = sample.read_bytes()
    last = gguf.GGUFReader(sample).tensors[-1].field
    end = int(last.offset + sum(part.nbytes for part in last.parts))
    for length in range(end):
        sample.write_bytes(data[:length])
        with pytest.raises(UserError, match="sample.gguf"):
            read_gguf_header(sample)
    sample.write_bytes(data[:end])  # Without its data the file has a header still.
    assert len(read_gguf_header(sample).tensors) == 2


def test_damaged_bytes_never_crash_or_hang(sample):
    data = sample.read_bytes()
    generator = random.Random(1)
    begin, refused = time.monotonic(), 0
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(generator.choice((1, 1, 2, 8))):
            damaged[generator.randrange(len(data))] = generator.choice((0, 1, 8, 9, 0x7F, 0xFF, generator.randrange(256)))
        sample.write_bytes(damaged)
        try:
            read_gguf_header(sample)
        except UserError:
            refused += 1
    assert refused > 300
    assert time.monotonic() - begin < 60


def field(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


NESTED = struct.pack("<IQ", 9, 1) * 8 + struct.pack("<IQ", 0, 1) + b"\0"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "begins with b''"),
        (b"GGML" + bytes(20), "begins with b'GGML'"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1, expected 2 or 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "the number of tensors is 1152921504606846976"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "the number of metadata fields"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + field("k", 8, struct.pack("<Q", 2**63)), "needs 9223372036854775808 bytes"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + field("k", 8, struct.pack("<Q", 2) + b"\xff\xfe"), "'k' is not UTF-8"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + field("k", 9, struct.pack("<IQ", 8, 2**61)), "the length of metadata field 'k'"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + field("k", 9, struct.pack("<IQ", 10, 2**61)), "the length of metadata field 'k'"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + field("k", 77, b"\0"), "value type 77"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + field("k", 9, NESTED), "nests arrays"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * field("k", 0, b"\1"), "'k' occurs twice"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<QcI", 1, b"w", 9) + bytes(100), "9 dimensions"),
    ],
)
def test_hostile_headers(tmp_path, content, words):
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    with pytest.raises(UserError, match="hostile.gguf") as error:
        read_gguf_header(path)
    assert words in str(error.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read_gguf_header(tmp_path / "none.gguf")
