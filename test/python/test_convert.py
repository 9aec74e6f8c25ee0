# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant convert`: codes stay as they are; what changes because the other format has scales of another type is measured, and accepted only by
--closest."""

import re

import gguf
import numpy as np
import pytest
from oracles import clients
from oracles.checkpoint import read_folder
from safetensors.numpy import save_file

from command_line import run_command_line as easyquant
from exporting import GROUP
from helpers import assert_refused, random_llama, write_byte_level, write_model

SIZES = {"hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 2, "layers": 2, "vocab": 330}
SITES = [f"model.layers.{i}.{name}" for i in range(2) for name in (*(f"self_attn.{x}_proj" for x in "qkvo"), *(f"mlp.{x}_proj" for x in ("gate", "up", "down")))]

NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate", "up_proj": "ffn_up",
         "down_proj": "ffn_down"}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_byte_level(write_model(tmp_path_factory.mktemp("model") / "llama", *random_llama(seed=3, **SIZES, tied=False)))


def export(model, out, format, *options):
    done = easyquant("export", model, "--format", format, "-o", out, *options)
    assert done.returncode == 0, done.stderr
    return out


def convert(folder, out, format, *options):
    done = easyquant("convert", folder, "--format", format, "-o", out, *options)
    assert done.returncode == 0, done.stderr
    return done


def linears(folder):
    config, tensors = read_folder(folder)
    return {site: clients.read_linear(tensors, site, config["quantization_config"]) for site in SITES}


@pytest.mark.parametrize("scheme, kind, options", [("W4A16", "Q4_0", ["--group-size=64"]), ("W8A16", "Q8_0", [])])
def test_scales_are_repeated_for_smaller_groups(model, tmp_path, scheme, kind, options):
    """Groups of 64, and rows, are blocks of 32 that have the same scale: no number is another."""
    folder = export(model, tmp_path / "gptq", "gptq", f"--scheme={scheme}", *options)
    convert(folder, tmp_path / "gguf", "gguf")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "gguf" / "model.gguf").tensors}
    for site, linear in linears(folder).items():
        _, _, layer, part = site.split(".", 3)
        tensor = tensors[f"blk.{layer}.{NAMES[part.rpartition('.')[2]]}.weight"]
        assert tensor.tensor_type.name == kind
        steps = np.repeat(linear.scales.astype(np.float32), linear.codes.shape[1] // linear.scales.shape[1], axis=1)
        weight = steps * (linear.codes - 2 ** (int(scheme[1]) - 1))
        if part in ("self_attn.q_proj", "self_attn.k_proj"):  # llama.cpp's order of rows
            heads = SIZES["heads" if "q" in part else "kv_heads"]
            weight = weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
        np.testing.assert_array_equal(gguf.quants.dequantize(tensor.data, tensor.tensor_type), weight)
    convert(tmp_path / "gguf" / "model.gguf", tmp_path / "back", "gptq")
    for site, linear in linears(tmp_path / "back").items():
        np.testing.assert_array_equal(linear.weight, linears(folder)[site].weight)


def test_a_change_is_refused_with_its_size(model, tmp_path):
    """f32 scales become f16: the figures are those that numpy finds, and --closest accepts them."""
    folder = export(model, tmp_path / "ct", "compressed-tensors", "--scheme=W4A16", f"--group-size={GROUP}", "--scale-type=f32")
    before = linears(folder)
    refused = easyquant("convert", folder, "--format", "gptq", "-o", tmp_path / "out")
    assert_refused(refused, "gptq does not hold the numbers of ct: the closest that it holds, with which weights change by up to", "are accepted by --closest")
    assert not (tmp_path / "out").exists()
    changes = {site: np.abs(linear.scales.astype(np.float16) - linear.scales.astype(np.float64)) / linear.scales for site, linear in before.items()}
    largest = max(changes, key=lambda site: changes[site].max())
    moved = {site: linear.weight * np.repeat(changes[site], GROUP, axis=1) for site, linear in before.items()}
    norm = lambda matrices: np.sqrt(sum(np.sum(np.square(matrix, dtype=np.float64)) for matrix in matrices))  # noqa: E731
    relative = norm(moved.values()) / norm(linear.weight for linear in before.values())
    found = re.search(r"by up to (\S+) % \(site '(\S+)'\) and by (\S+) altogether", " ".join(refused.stderr.split()))
    assert found[2] == largest
    np.testing.assert_allclose([float(found[1]), float(found[3])], [100 * changes[largest].max(), relative], rtol=0.06)  # of two digits
    done = convert(folder, tmp_path / "out", "gptq", "--closest")
    assert "gptq holds the closest numbers: weights change by up to" in " ".join(done.stderr.split())
    for site, linear in linears(tmp_path / "out").items():
        np.testing.assert_array_equal(linear.codes - 8, before[site].codes)
        np.testing.assert_array_equal(linear.scales, before[site].scales.astype(np.float16))


def test_scales_that_fit_the_smaller_type_change_nothing(model, tmp_path):
    folder = export(model, tmp_path / "ct", "compressed-tensors", "--scheme=W4A16", f"--group-size={GROUP}", "--scale-type=f32")
    _, tensors = read_folder(folder)
    halves = {name: value.astype(np.float16).astype(np.float32) if name.endswith("weight_scale") else value for name, value in tensors.items()}
    save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    convert(folder, tmp_path / "out", "gptq")
    before = linears(folder)
    for site, linear in linears(tmp_path / "out").items():
        np.testing.assert_array_equal(linear.scales.astype(np.float32), before[site].scales)


def test_nvfp4_comes_back_with_its_outer_scales(model, tmp_path):
    """The divisor that is written has the reciprocal that was read."""
    folder = export(model, tmp_path / "ct", "compressed-tensors", "--scheme=NVFP4A16")
    convert(folder, tmp_path / "out", "compressed-tensors")
    before = linears(folder)
    for site, linear in linears(tmp_path / "out").items():
        np.testing.assert_array_equal(linear.codes, before[site].codes)
        np.testing.assert_array_equal(linear.scales, before[site].scales)
        np.testing.assert_array_equal(np.float32(1) / linear.global_scale, np.float32(1) / before[site].global_scale)


def test_zero_points_become_minima(model, tmp_path):
    """AWQ in Q4_1 has s · (lowest - z), rounded to f16, which is a change that --closest accepts."""
    folder = export(model, tmp_path / "awq", "awq", "--scheme=W4A16_ASYM", f"--group-size={GROUP}")
    assert_refused(easyquant("convert", folder, "--format", "gguf", "-o", tmp_path / "out"), "with which weights change by up to", "are accepted by --closest")
    assert not (tmp_path / "out").exists()
    done = convert(folder, tmp_path / "out", "gguf", "--closest")
    found = re.search(r"by up to \S+ % \(site '\S+'\) and by (\S+) altogether", " ".join(done.stderr.split()))
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "out" / "model.gguf").tensors}
    moved = whole = 0.0
    for site, linear in linears(folder).items():
        _, _, layer, part = site.split(".", 3)
        tensor = tensors[f"blk.{layer}.{NAMES[part.rpartition('.')[2]]}.weight"]
        assert tensor.tensor_type.name == "Q4_1"
        scales, zero_points = (values.astype(np.float32) for values in (linear.scales, linear.zero_points))
        minima = (scales * -zero_points).astype(np.float16).astype(np.float32)
        scales, zero_points, minima = (np.repeat(values, GROUP, axis=1) for values in (scales, zero_points, minima))
        expected = scales * linear.codes.astype(np.float32) + minima
        exact = scales.astype(np.float64) * (linear.codes - zero_points)
        moved, whole = moved + np.sum((expected - exact) ** 2), whole + np.sum(exact**2)
        if part in ("self_attn.q_proj", "self_attn.k_proj"):  # llama.cpp's order of rows
            heads = SIZES["heads" if "q" in part else "kv_heads"]
            expected = expected.reshape(heads, 2, -1, expected.shape[1]).swapaxes(1, 2).reshape(expected.shape)
        np.testing.assert_array_equal(gguf.quants.dequantize(tensor.data, tensor.tensor_type), expected)
    np.testing.assert_allclose(float(found[1]), np.sqrt(moved / whole), rtol=0.06)  # of two digits
    assert 1e-5 < float(found[1]) < 1e-3


def test_codes_that_the_other_format_lacks_are_refused(model, tmp_path):
    folder = export(model, tmp_path / "gptq", "gptq_v2", "--scheme=W3A16_ASYM", f"--group-size={GROUP}")
    for closest in ([], ["--closest"]):
        assert_refused(easyquant("convert", folder, "--format", "gguf", "-o", tmp_path / "out", *closest),
                       "site 'model.layers.0.self_attn.q_proj': gguf holds the schemes")  # fmt: skip
        assert not (tmp_path / "out").exists()
