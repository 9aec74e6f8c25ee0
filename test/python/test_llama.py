# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small random llama of awkward sizes against the numpy oracle, in every scheme and from every kind of checkpoint."""

import json

import numpy as np
import pytest
from safetensors import safe_open

from helpers import ALL_ISAS, Runner, random_llama, random_tokens, supported_isas, with_slow, write_model
from oracles.checkpoint import read_folder
from oracles.llama import Llama
from oracles.schemes import FLOAT, Scheme, W8A8, W8A16, w4a8, w4a16

SCHEMES = {
    "W8A8": (W8A8, ("--scheme=W8A8",)),
    "W8A16": (W8A16, ("--scheme=W8A16",)),
    "W4A16 in 32s": (w4a16(32), ("--scheme=W4A16", "--group-size=32")),
    "W4A8 in 32s": (w4a8(32), ("--scheme=W4A8", "--group-size=32")),
    "W4A8 in 48s": (w4a8(48), ("--scheme=W4A8", "--group-size=48")),  # longer than some rows, short last group in others
    "W8A8, float head": (Scheme(8, 8), ("--scheme=W8A8", "--head=float")),
    "W6A16 in 32s": (Scheme(6, None, 32, 8), ("--scheme=W6A16", "--group-size=32")),
    "W5A16 in 32s": (Scheme(5, None, 32, 8), ("--scheme=W5A16", "--group-size=32")),
    "W6A8 in 48s": (Scheme(6, 8, 48, 8), ("--scheme=W6A8", "--group-size=48")),
    "W5A8 in 32s": (Scheme(5, 8, 32, 8), ("--scheme=W5A8", "--group-size=32")),
    "W3A16 in 16s": (Scheme(3, None, 16, 8), ("--scheme=W3A16", "--group-size=16")),
    "W2A16 in 8s": (Scheme(2, None, 8, 8), ("--scheme=W2A16", "--group-size=8")),
    "W4A16 a row": (Scheme(4, None, 0, 8), ("--scheme=W4A16", "--group-size=0")),
    "W8A8 with zero points": (Scheme(8, 8, 0, 8, "zeropoint"), ("--scheme=W8A8_ASYM", "--method=zeropoint")),
    "W8A16 with zero points": (Scheme(8, None, 0, 8, "zeropoint"), ("--scheme=W8A16_ASYM", "--method=zeropoint")),
    "W4A8 with zero points": (Scheme(4, 8, 16, 8, "zeropoint"), ("--scheme=W4A8", "--method=zeropoint", "--group-size=16")),
    "W4A16 with zero points": (Scheme(4, None, 32, 8, "zeropoint"), ("--scheme=W4A16", "--method=zeropoint", "--group-size=32")),
    "W6A8 with zero points": (Scheme(6, 8, 16, 8, "zeropoint"), ("--scheme=W6A8", "--method=zeropoint", "--group-size=16")),
    "W5A16 with zero points": (Scheme(5, None, 24, 8, "zeropoint"), ("--scheme=W5A16", "--method=zeropoint", "--group-size=24")),
    "W3A16 with zero points": (Scheme(3, None, 24, 8, "zeropoint"), ("--scheme=W3A16", "--method=zeropoint", "--group-size=24")),
    "W2A16 with zero points": (Scheme(2, None, 16, 8, "zeropoint"), ("--scheme=W2A16", "--method=zeropoint", "--group-size=16")),
    "W8A8, all codes": (Scheme(8, 8, 0, 8, "symmetric"), ("--scheme=W8A8", "--method=symmetric")),
    "W4A16, all codes": (Scheme(4, None, 32, 8, "symmetric"), ("--scheme=W4A16", "--method=symmetric", "--group-size=32")),
    "zeroquant in 16s": (Scheme(8, 8, 16, 8), ("--scheme=W8A8", "--method=zeroquant", "--group-size=16")),
}
# These vary what the others test.
SLOW = (
    "W8A16", "W4A16 in 32s", "W8A8, float head", "W6A16 in 32s", "W6A8 in 48s", "W3A16 in 16s", "W4A16 a row", "W8A16 with zero points",
    "W4A8 with zero points", "W6A8 with zero points", "W5A16 with zero points", "zeroquant in 16s")


def relative_error(found, expected):
    return np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2))


@pytest.mark.parametrize("isa", supported_isas())
def test_float_logits(artifact, tiny_llama, isa):
    if isa not in supported_isas():
        pytest.skip(f"this CPU has no {isa}")
    tokens = random_tokens(5, 96, 97)
    expected = Llama(*read_folder(tiny_llama), dtype=np.float64).logits(tokens)
    assert np.abs(expected).max() > 1
    found = Runner(artifact(tiny_llama, "--scheme=none", ALL_ISAS), isa=isa).score(tokens)
    assert np.abs(found - expected).max() < 1e-4


@pytest.mark.parametrize("name", with_slow(SCHEMES, *SLOW))
def test_scheme(runner, tiny_llama, name):
    scheme, options = SCHEMES[name]
    tokens = random_tokens(6, 96, 97)
    config, tensors = read_folder(tiny_llama)
    expected = Llama(config, tensors, scheme, np.float64).logits(tokens)
    found = runner(tiny_llama, *options, "--kv-cache=f32").score(tokens)
    # With float activations only float rounding differs. With quantized ones a value on the border of two codes may fall to
    # either side, and one such flip is 1/254 of its row's largest entry.
    assert relative_error(found, expected) < (8e-3 if scheme.input_bits else 1e-5)
    plain = Llama(config, tensors, FLOAT, np.float64).logits(tokens)
    assert relative_error(expected, plain) > 3 * relative_error(found, expected), "the scheme itself must be visible"


def test_half_cache_is_close(runner, tiny_llama):
    tokens = random_tokens(7, 96, 97)
    exact = runner(tiny_llama, "--scheme=none", "--kv-cache=f32").score(tokens)
    half = runner(tiny_llama, "--scheme=none", "--kv-cache=f16").score(tokens)
    assert 0 < relative_error(half, exact) < 3e-3


def test_head_of_its_own(runner, workspace):
    folder = write_model(workspace / "untied", *random_llama(3, tied=False, heads=4, kv_heads=2))
    tokens = random_tokens(8, 50, 97)
    expected = Llama(*read_folder(folder), dtype=np.float64).logits(tokens)
    assert np.abs(runner(folder, "--scheme=none").score(tokens) - expected).max() < 1e-4


def test_shards_are_the_same_model(artifact, tiny_llama, workspace):
    sharded = write_model(workspace / "sharded", *random_llama(), shards=3)
    one, three = artifact(tiny_llama, "--scheme=W8A8"), artifact(sharded, "--scheme=W8A8")
    for name in ("weights.safetensors", "model.so"):
        assert (one / name).read_bytes() == (three / name).read_bytes()


def write_bf16(folder, config, tensors):
    """numpy has no bfloat16, so this writes the container: a length, a JSON header, the upper halves of the floats."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    header, data = {}, b""
    for name, w in sorted(tensors.items()):
        upper = (w.view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(w.shape), "data_offsets": [len(data), len(data) + len(upper)]}
        data += upper
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder


def write_narrow(folder, stored, config, tensors):
    """Two checkpoints of the same numbers: in 16 bits, and in 32."""
    if stored == "F16":
        small = {name: w.astype(np.float16) for name, w in tensors.items()}
        wide = {name: w.astype(np.float32) for name, w in small.items()}
        narrow = write_model(folder / stored, config, small)
    else:
        wide = {name: (w.view(np.uint32) & 0xFFFF0000).view(np.float32) for name, w in tensors.items()}
        narrow = write_bf16(folder / stored, config, wide)
    return narrow, write_model(folder / f"f32-of-{stored}", config, wide)


@pytest.mark.parametrize("stored", ["F16", "BF16"])
def test_stored_types(artifact, tmp_path, stored):
    """A checkpoint in 16 bits gives the weights that its fp32 copy gives."""
    narrow, copy = write_narrow(tmp_path, stored, *random_llama(4))
    options = ("--scheme=none", "--isa=avx2")
    assert (artifact(narrow, *options) / "weights.safetensors").read_bytes() == \
        (artifact(copy, *options) / "weights.safetensors").read_bytes()


@pytest.mark.parametrize("stored", ["F16", "BF16"])
@pytest.mark.parametrize("isa", supported_isas())
def test_an_embedding_of_its_own_keeps_its_type(artifact, tmp_path, stored, isa):
    """Half of the bytes, the same bits. 44 columns, so that rows end amid a vector and no line of the file."""
    model = random_llama(3, tied=False, hidden=44, head_dim=8, heads=4, kv_heads=2)
    artifacts = [artifact(folder, "--scheme=W8A8", f"--isa={isa}") for folder in write_narrow(tmp_path, stored, *model)]
    name, table = "model.embed_tokens.weight", model[1]["model.embed_tokens.weight"]
    types, sizes = [], []
    for folder in artifacts:
        with safe_open(folder / "weights.safetensors", "numpy") as file:
            types.append(file.get_slice(name).get_dtype())
        sizes.append((folder / "weights.safetensors").stat().st_size)
    assert types == [stored, "F32"] and abs(sizes[1] - sizes[0] - 2 * table.size) < 64
    tokens = random_tokens(5, 40, 97)
    halves, floats = (Runner(folder).score(tokens) for folder in artifacts)
    np.testing.assert_array_equal(halves, floats)
