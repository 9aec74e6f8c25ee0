# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GPTQ's act-order without static groups: columns of a weight are in any order of groups, codes are kept in that of groups, and kernels gather
the activations so."""

import json

import numpy as np
import pytest

from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from exporting import GROUP, export, write_models
from helpers import ISA, Runner, assert_refused, compile_model, random_tokens, run_tool, sites_of, write_model
from test_kept_codes import SITES, assert_same_logits, dequantized, random_gptq, rewritten
from test_linalg import convert, logits


def random_order(columns):
    return np.random.default_rng(columns).permutation(columns)


def random_orders(seed=1):
    """An order of its own for each linear."""
    rng = np.random.default_rng(seed)
    return rng.permutation


def printed(folder, *options):
    result = run_tool("easyquant-compile", folder, "--emit-ir-after=quantize", *options)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_logits_are_those_of_the_weights(tmp_path, bits):
    """Against the model in double precision with weights that gptqmodel dequantizes, scale[g_idx] · (code − zero[g_idx])."""
    config, tensors = random_gptq(31 + bits, bits, order=random_order, desc_act=True)
    folder = write_model(tmp_path / "folder", config, tensors)
    artifact = compile_model(folder, tmp_path / "out", "--kv-cache=f32", ISA)
    sites = sites_of(artifact)
    assert all(sites[name]["kept"] and sites[name]["column_order"] for name in SITES)
    assert_same_logits(artifact, *dequantized(config, tensors))
    _, floats = dequantized(config, tensors)
    for name in SITES:
        np.testing.assert_array_equal(read_site(Artifact.open(artifact), name), floats[f"{name}.weight"])


def test_siblings_of_one_order_are_one_linear(tmp_path):
    """q, k and v, gate and up of one order share a gather and a weight. With different orders they share neither, and logits are right."""
    config, tensors = random_gptq(41, order=random_order, desc_act=True)
    together = write_model(tmp_path / "together", config, tensors)
    text = printed(together)
    assert text.count("equant.gather_columns") == 8  # in two layers one for q, k, v, one for o, one for gate, up, one for down
    artifact = compile_model(together, tmp_path / "a", "--kv-cache=f32", ISA)
    assert len({site["tensor"] for name, site in sites_of(artifact).items() if name in SITES}) == 8

    config, tensors = random_gptq(41, order=random_orders(), desc_act=True)
    apart = write_model(tmp_path / "apart", config, tensors)
    assert printed(apart).count("equant.gather_columns") == len(SITES)
    artifact = compile_model(apart, tmp_path / "b", "--kv-cache=f32", ISA)
    assert len({site["tensor"] for name, site in sites_of(artifact).items() if name in SITES}) == len(SITES)
    assert_same_logits(artifact, *dequantized(config, tensors))


def test_some_linears_are_in_order(tmp_path):
    """A file of both kinds, as with `dynamic`: only those out of order are gathered."""
    config, tensors = random_gptq(43, order=random_orders(2), desc_act=True)
    for site in SITES:
        if "k_proj" in site or "down_proj" in site:
            tensors[f"{site}.g_idx"] = np.sort(tensors[f"{site}.g_idx"])
    folder = write_model(tmp_path / "folder", config, tensors)
    artifact = compile_model(folder, tmp_path / "out", "--kv-cache=f32", ISA)
    sites = sites_of(artifact)
    assert all(("column_order" in sites[name]) == ("k_proj" not in name and "down_proj" not in name) for name in SITES)
    assert_same_logits(artifact, *dequantized(config, tensors))


@pytest.mark.parametrize("group", [0, 32])
def test_int8_activations_are_gathered_as_they_are_rounded(tmp_path, group):
    config, tensors = random_gptq(47, order=random_order, desc_act=True)
    folder = write_model(tmp_path / "folder", config, tensors)
    artifact = compile_model(folder, tmp_path / "out", "--scheme=keepA8", f"--activation-group-size={group}", "--kv-cache=f32", ISA)
    floats = compile_model(folder, tmp_path / "float", "--kv-cache=f32", ISA)
    tokens = random_tokens(3, 24, 97)
    a, b = Runner(artifact).score(tokens), Runner(floats).score(tokens)
    error = np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2))
    assert 1e-4 < error < 0.1


@pytest.mark.parametrize("options", [(), ("--scheme=keepA8", "--activation-group-size=0")])
def test_upstream_ops_gather_too(tmp_path, options):
    """In mlir-runner, where orders of columns are constants of i32."""
    config, tensors = random_gptq(67, order=random_orders(4), desc_act=True)
    folder, tokens = write_model(tmp_path / "folder", config, tensors), random_tokens(3, 9, 97)
    text = convert(folder, tmp_path / "out", *options)
    expected = Runner(compile_model(folder, tmp_path / "artifact", *options, "--kv-cache=f32", ISA)).score(tokens)
    rows = np.linalg.norm(expected - logits(text, tokens), axis=1) / np.linalg.norm(expected, axis=1)
    assert np.median(rows) < 1e-6 and rows.max() < 2e-2


@pytest.mark.parametrize("options", [["--target=sm_80,cpu"], ["--target=sm_80,cpu", "--scheme=keepA8", "--activation-group-size=0"]])
def test_gpus_gather_too(tmp_path, options):
    """In the simulator."""
    config, tensors = random_gptq(53, order=random_orders(3), desc_act=True)
    artifact = compile_model(write_model(tmp_path / "folder", config, tensors), tmp_path / "out", *options)
    tokens = random_tokens(5, 12, 97)
    a, b = Runner(artifact, device="simt").score(tokens), Runner(artifact, device="cpu").score(tokens)
    np.testing.assert_allclose(a, b, rtol=0, atol=0.02 * np.abs(b).max())


def test_old_files_of_compressed_tensors(tmp_path):
    """`weight_g_idx`, which says of each column which group it is of."""
    model = write_models(tmp_path)["llama"]
    folder = export(model, tmp_path / "folder", "compressed-tensors", "--scheme=W4A16_ASYM", f"--group-size={GROUP}")
    from oracles import clients
    from oracles.checkpoint import read_folder

    config, tensors = read_folder(folder)
    floats = {name: value for name, value in tensors.items() if not any(name.startswith(f"{site}.") for site in SITES)}
    rng = np.random.default_rng(7)
    for site in SITES:
        linear = clients.read_linear(tensors, site, config["quantization_config"])
        index = rng.permutation(np.arange(linear.codes.shape[1], dtype=np.int32) // GROUP)
        tensors[f"{site}.weight_g_idx"] = index
        values = linear.scales.astype(np.float64)[:, index] * (linear.codes.astype(np.float64) - linear.zero_points.astype(np.float64)[:, index])
        floats[f"{site}.weight"] = values.astype(np.float32)
    artifact = compile_model(rewritten(folder, tmp_path / "old", config, tensors), tmp_path / "out", "--kv-cache=f32", ISA)
    assert all(sites_of(artifact)[name]["column_order"] for name in SITES)
    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    assert_same_logits(artifact, plain, {name: value.astype(np.float32) for name, value in floats.items()})


def uneven(index):
    index = index.copy()
    index[np.flatnonzero(index == 0)[:3]] = 1
    return index


def test_groups_of_other_sizes_become_float(tmp_path):
    config, tensors = random_gptq(59, order=random_order, desc_act=True)
    tensors[f"{SITES[0]}.g_idx"] = uneven(tensors[f"{SITES[0]}.g_idx"])
    folder, out = write_model(tmp_path / "folder", config, tensors), tmp_path / "out"
    assert_refused(run_tool("easyquant-compile", folder, "-o", out, ISA),
                   "site 'model.layers.0.self_attn.q_proj': its codes cannot be kept: group 1 of its columns has 35, and the others do not have 32 each",
                   "--dequantize makes such sites float")  # fmt: skip
    assert not out.exists()
    artifact = compile_model(folder, out, "--dequantize", "--kv-cache=f32", ISA)
    assert [name for name in SITES if not sites_of(artifact)[name].get("kept")] == SITES[:1]
    assert_same_logits(artifact, *dequantized(config, tensors))


@pytest.mark.parametrize("options, expected", [
    (["--tensor-parallel=2"], "site 'model.layers.0.self_attn.o_proj' reads columns in the order of its groups (act-order without static groups), which ranks would have apart"),
    (["--export=gptq_v2"], "site 'model.layers.0.self_attn.q_proj': its columns are not in the order of their groups (act-order without static groups), and gptq_v2 is written in that order alone"),
])  # fmt: skip
def test_what_has_no_order_says_so(tmp_path, options, expected):
    config, tensors = random_gptq(61, order=random_order, desc_act=True)
    folder, out = write_model(tmp_path / "folder", config, tensors), tmp_path / "out"
    assert_refused(run_tool("easyquant-compile", folder, "-o", out, *options, *([] if "--export" in options[0] else [ISA])), expected)
    assert not out.exists()
