# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an exported checkpoint says beside its weights: activations, the schemes of a mix, factors that methods have folded, rotations."""

import json
import re

import numpy as np
import pytest
from oracles import clients
from oracles.checkpoint import read_folder
from oracles.llama import Llama

from calibrating import write_tokens
from easyquant.evaluation.weights import read_site, read_tensor
from easyquant.runtime.artifact import Artifact
from exporting import GROUP, MODELS, PLAIN, ROTATED, Weights, assert_same_weight, export, read_checkpoint, write_models
from helpers import ISA, compile_model, kl, random_tokens, run_tool


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return write_tokens(tmp_path_factory.mktemp("tokens") / "tokens.safetensors", [random_tokens(seed, 48, 97) for seed in range(4)])


@pytest.mark.parametrize("scheme, options, strategy", [
    ("W8A8", [], {"strategy": "token", "dynamic": True, "type": "int", "num_bits": 8, "symmetric": True}),
    ("W8A8", ["--activation-group-size=32"], {"strategy": "group", "group_size": 32, "dynamic": True, "type": "int", "num_bits": 8, "symmetric": True}),
    ("W8A8", ["--activations=static"], {"strategy": "tensor", "dynamic": False, "type": "int", "num_bits": 8, "symmetric": True}),
    ("W8A8_ASYM", ["--activations=static"], {"strategy": "tensor", "dynamic": False, "type": "int", "num_bits": 8, "symmetric": False}),
    ("FP8", [], {"strategy": "tensor", "dynamic": False, "type": "float", "num_bits": 8, "symmetric": True}),
    ("FP8_DYNAMIC", [], {"strategy": "token", "dynamic": True, "type": "float", "num_bits": 8, "symmetric": True}),
    ("NVFP4", [], {"strategy": "tensor_group", "group_size": 16, "dynamic": "local", "type": "float", "num_bits": 4, "symmetric": True,
                   "scale_dtype": "torch.float8_e4m3fn"}),
])  # fmt: skip
def test_activations_are_said_and_their_scales_stored(models, tokens, tmp_path, scheme, options, strategy):
    is_static = strategy["dynamic"] in (False, "local")
    calibrated = [f"--tokens={tokens}"] if is_static else []
    config, tensors, _ = read_checkpoint(export(models["llama"], tmp_path / "out", "compressed-tensors", f"--scheme={scheme}", *options, *calibrated))
    (group,) = config["config_groups"].values()
    assert group["input_activations"] == strategy and group["targets"] == ["Linear"] and config["ignore"] == ["lm_head"]
    scales = [name for name in tensors if name.endswith((".input_scale", ".input_global_scale"))]
    assert len(scales) == (14 if is_static else 0)
    if not is_static:
        return
    # The IR says with what the artifact would round.
    ir = run_tool("easyquant-compile", models["llama"], "--export=compressed-tensors", f"--scheme={scheme}", *options, *calibrated,
                  "--emit-ir-after=quantize", f"--work={tmp_path / 'work'}")  # fmt: skip
    assert ir.returncode == 0, ir.stderr
    found = re.findall(r"input_scale = ([^ ]+) : f32, .*?(?:input_zero_point = (-?[0-9]+) : i32, )?sites = \[\"([^\"]+)\"", ir.stdout)
    assert len(found) == 14
    for scale, zero, site in found:
        if scheme == "NVFP4":
            assert tensors[f"{site}.input_global_scale"] == np.float32(1) / np.float32(scale)
        else:
            assert tensors[f"{site}.input_scale"] == np.float32(scale)
        assert not zero or tensors[f"{site}.input_zero_point"] == int(zero)


MIX = {
    "scheme": "W4A16", "group_size": 32, "scale_type": "f16", "head": "float", "activation_basis": "plain",
    "sites": [{"match": "re:.*down_proj", "scheme": "W8A16", "group_size": 0, "scale_type": "f16"}, {"match": "re:.*v_proj", "scheme": "W4A16_ASYM", "group_size": 32},
              {"match": "model.layers.1.self_attn.o_proj", "scheme": "none"}],
}  # fmt: skip


@pytest.mark.parametrize("format", ["compressed-tensors", "gptq"])
def test_every_scheme_of_a_mix_is_said(models, tmp_path, format):
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(MIX))
    config, tensors, _ = read_checkpoint(export(models["llama"], tmp_path / "out", format, f"--recipe={recipe}"))
    assert config.get("format", "pack-quantized") == "pack-quantized"
    for layer in (0, 1):
        for name, bits, group in [("self_attn.q_proj", 4, 32), ("self_attn.v_proj", 4, 32), ("mlp.down_proj", 8, -1)]:
            site = f"model.layers.{layer}.{name}"
            if format == "gptq":
                rules = [value for pattern, value in config["dynamic"].items() if pattern[:2] == "+:" and re.search(pattern[2:], site)]
                own = config | (rules[0] if rules else {})
                assert (own["bits"], own["group_size"], own["sym"]) == (bits, group, name != "self_attn.v_proj")
                clients.gptq(tensors, site, own)
            else:
                (own,) = [entry["weights"] for entry in config["config_groups"].values() if site in entry["targets"]]
                assert (own["num_bits"], own.get("group_size", -1), own["symmetric"]) == (bits, group, name != "self_attn.v_proj")
                clients.compressed_tensors(tensors, site, config)
    floats = {site for site in ("lm_head", "model.layers.1.self_attn.o_proj")}
    if format == "gptq":
        assert [pattern for pattern in config["dynamic"] if pattern[:2] == "-:"] == [r"-:^model\.layers\.1\.self_attn\.o_proj$"]
        assert config["meta"] == {"quantizer": ["gptqmodel:0.9.0"]}  # there are zero points
    else:
        assert set(config["ignore"]) == floats
    assert all(f"{site}.weight" in tensors for site in floats)


@pytest.mark.parametrize("name", MODELS)
def test_a_mix_by_its_name_has_float_activations_and_embeddings(models, tmp_path, name):
    config, tensors, _ = read_checkpoint(export(models[name], tmp_path / "out", "compressed-tensors", "--scheme=Q4"))
    groups = config["config_groups"].values()
    assert {entry["weights"]["num_bits"] for entry in groups} == {5, 6} and config["ignore"] == ["lm_head"]  # both layers are at an end
    assert all(entry["input_activations"] is None and entry["weights"]["group_size"] == GROUP for entry in groups)
    sites = [site for entry in groups for site in entry["targets"]]
    assert len(sites) == 14 and all(clients.read_linear(tensors, site, config) for site in sites)
    assert tensors["model.embed_tokens.weight"].dtype == np.float16


def test_a_head_of_its_own_may_be_quantized(models, tmp_path):
    config, tensors, _ = read_checkpoint(export(models["llama"], tmp_path / "out", "compressed-tensors", "--scheme=W4A16", "--head=int8"))
    assert config["ignore"] == [] and {entry["weights"]["num_bits"] for entry in config["config_groups"].values()} == {4, 8}
    linear, source = clients.read_linear(tensors, "lm_head", config), read_folder(models["llama"])[1]["lm_head.weight"]
    assert np.all(np.abs(linear.weight.astype(np.float32) - source) <= 0.501 * linear.scales.astype(np.float32))


@pytest.mark.parametrize("format, scheme, method", [("awq", "W4A16_ASYM", "awq"), ("compressed-tensors", "W8A8", "smoothquant"),
                                                    ("gptq", "W4A16", "gptq")])  # fmt: skip
def test_methods_go_along(models, tokens, tmp_path, format, scheme, method):
    """Factors that are folded into norms are in the floats of the checkpoint; codes are those that the method chose."""
    options = [f"--scheme={scheme}", f"--method={method}", f"--tokens={tokens}"] + ([f"--group-size={GROUP}"] if scheme != "W8A8" else [])
    config, tensors, _ = read_checkpoint(export(models["llama"], tmp_path / "out", format, *options))
    scales = ["--scale-type=f16"] if scheme != "W8A8" else []
    artifact = Artifact.open(compile_model(models["llama"], tmp_path / "artifact", *options, *scales, *PLAIN, ISA))
    for site in artifact.manifest["sites"]:
        if site["weight"] is not None:
            linear = clients.read_linear(tensors, site["name"], config)
            np.testing.assert_array_equal(linear.weight, read_site(artifact, site["name"]).astype(linear.weight.dtype))
    norms = [name for name in tensors if name.endswith("norm.weight")]
    source = read_folder(models["llama"])[1]
    folded = 0
    for name in norms:
        ours = read_tensor(artifact, name)
        np.testing.assert_array_equal(tensors[name], ours.astype(np.float16))
        folded += not np.array_equal(ours, source[name])
    assert len(norms) == 5 and (folded > 0) == (method != "gptq")


def rotation(columns, block):
    """deterministic_hadamard_matrix over blocks of columns, divided by the root of its size."""
    matrix = np.ones((1, 1))
    while len(matrix) < block:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.kron(np.eye(columns // block), matrix / np.sqrt(block))


@pytest.mark.parametrize("scheme", ["W8A8", "W8A8_ASYM", "W8A16"])
@pytest.mark.parametrize("name", MODELS)
def test_the_rotated_basis_is_a_transform_of_inputs(models, tmp_path, name, scheme):
    """Codes are the artifact's, and the model that a client computes, rotating what the configuration says, is the model."""
    checkpoint = tmp_path / "out"
    done = run_tool("easyquant-compile", models[name], "--export=compressed-tensors", "-o", checkpoint, f"--scheme={scheme}", "--activation-basis=hadamard")
    assert done.returncode == 0 and "note: the checkpoint is in a rotated basis: clients have to heed its transform_config" in done.stderr, done.stderr
    expected = Weights(models[name], tmp_path / "weights", scheme, *(["--scale-type=f16"] if scheme == "W8A16" else []), basis=ROTATED)
    config, tensors, _ = read_checkpoint(checkpoint)
    assert [entry["targets"] for entry in config["config_groups"].values()] == [["Linear"]]
    blocks = {}
    for group in config["transform_config"]["config_groups"].values():
        into, back = group["apply"]
        assert group["type"] == "hadamard" and (into["location"], back["location"], back["inverse"]) == ("input", "weight_input", True)
        assert into["targets"] == back["targets"] and not blocks.keys() & set(into["targets"])
        blocks |= dict.fromkeys(into["targets"], group["head_dim"])
    # What o_proj reads comes rotated from v_proj.
    sites = [site for site in expected.sites if site["weight"] is not None]
    assert set(blocks) == {site["name"] for site in sites if "o_proj" not in site["name"]}
    assert {blocks[site] for site in blocks if "down_proj" in site} == {32} and {blocks[site] for site in blocks if "q_proj" in site} == {64}
    plain = dict(tensors)
    for site in sites:
        linear = clients.read_linear(tensors, site["name"], config)
        assert_same_weight(linear, expected.tensors, site, "compressed-tensors")
        weight = linear.weight.astype(np.float64)
        plain[f"{site['name']}.weight"] = weight @ rotation(weight.shape[1], blocks[site["name"]]) if site["name"] in blocks else weight
    source, read = read_folder(models[name]), random_tokens(2, 40, 97)
    logits = [Llama(source[0], {key: value for key, value in model.items() if key in source[1]}, dtype=np.float64).logits(read) for model in (source[1], plain)]
    assert kl(*logits) < 2e-3
