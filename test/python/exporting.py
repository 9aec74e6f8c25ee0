# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exporting small models, reading the checkpoints, and what the compiler packs for CPUs by the same recipe."""

import json

import numpy as np
from oracles.checkpoint import read_folder, read_safetensors

from easyquant.formats.packed import code_values, scale_values, unpack_codes, unpack_zero_points
from helpers import compile_model, random_llama, run_tool, write_model

GROUP = 32
SIZES = {"hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2, "layers": 2}  # of which 3 bits fill words
MODELS = {"llama": {"tied": False}, "qwen2": {"arch": "qwen2", "tied": True}}
# What --export takes by default, said to the compiler of artifacts.
PLAIN = ("--activation-basis=plain", "--head=float")
ROTATED = ("--activation-basis=hadamard", "--head=float")


def write_models(folder):
    return {name: write_model(folder / name, *random_llama(seed=3, **SIZES, **fields)) for name, fields in MODELS.items()}


def export(model, out, format, *options):
    return compile_model(model, out, f"--export={format}", *options)


def read_checkpoint(folder):
    """(quantization_config, tensors, config.json)"""
    config, tensors = read_folder(folder)
    return config["quantization_config"], tensors, config


class Weights:
    """The weights that the compiler packs for CPUs, without the rest of an artifact."""

    def __init__(self, model, folder, scheme, *options, basis=PLAIN):
        base = "zeropoint" if scheme.endswith("_ASYM") else "absmax"
        folder.mkdir()
        chosen = " ".join(option.removeprefix("--") for option in (f"scheme={scheme}", *options, *basis))
        passes = f"equant-{base}{{{chosen}}},equant-rotate,equant-quantize,equant-materialize-weights{{output={folder}}}"
        for arguments in ([f"--pipeline={passes}"], ["--dry-run", f"--scheme={scheme}", *options, *basis]):
            result = run_tool("easyquant-compile", model, *arguments)
            assert result.returncode == 0, result.stderr
        self.sites = [site | {"tensor": f"{site['name']}.weight"} for site in json.loads(result.stdout)["sites"]]
        self.tensors = read_safetensors(folder / "weights.safetensors")


def unpack(weights, site):
    """Codes, scales and zero points, out x in and out x groups, and the outer scale; None where there are none."""
    scheme, name, rows = site["weight"], site["tensor"], site["out_features"]

    def per_row(panels):
        return panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])[:rows]

    codes = unpack_codes(weights[name], scheme["bits"], rows, site["in_features"])
    scales = per_row(scale_values(weights[f"{name}_scale"], scheme["scale_type"]))
    zeros = None if scheme["symmetric"] else per_row(unpack_zero_points(weights[f"{name}_zero_point"], scheme["bits"]))
    outer = per_row(weights[f"{name}_outer"]) if scheme.get("outer") else None
    return codes.astype(int), scales, zeros, outer


def assert_same_weight(linear, weights, site, method):
    scheme, half = site["weight"], 2 ** (site["weight"]["bits"] - 1)
    codes, scales, zeros, outer = unpack(weights, site)
    values = (codes if zeros is None else codes - np.repeat(zeros, codes.shape[1] // zeros.shape[1], axis=1)).astype(np.float32)
    if scheme["codes"] != "integer":
        codes = values = code_values(scheme)[codes + half]
    steps = scales if outer is None else scales * outer
    weight = values * np.repeat(steps, codes.shape[1] // steps.shape[1], axis=1)
    if method in ("gptq", "awq"):  # which count from 0 on, and always have zero points
        codes, zeros = codes + half, np.full(scales.shape, half) if zeros is None else zeros + half
    np.testing.assert_array_equal(linear.codes, codes)
    np.testing.assert_array_equal(linear.scales.astype(np.float32), scales)
    assert (linear.zero_points is None) == (zeros is None)
    if zeros is not None:
        np.testing.assert_array_equal(linear.zero_points, zeros)
    if outer is None:
        np.testing.assert_array_equal(linear.weight, weight.astype(linear.weight.dtype))
    else:  # the file has a divisor whose reciprocal is the outer scale, or where there is none the closest
        closest = 1 / outer[0]
        exact = [one for one in (closest, np.nextafter(closest, np.float32(0)), np.nextafter(closest, np.float32(np.inf))) if 1 / one == outer[0]]
        assert linear.global_scale in (exact or [closest])
        np.testing.assert_allclose(linear.weight, weight, rtol=2**-22)
