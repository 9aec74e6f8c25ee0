# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exported checkpoints, read back as their clients do: the codes, zero points and scales of an artifact of the same recipe, and its weights
rounded once to the client's type."""

import json
import re

import ml_dtypes
import numpy as np
import pytest
from oracles import clients
from oracles.checkpoint import read_folder, read_safetensors

from calibrating import write_tokens
from easyquant.evaluation.weights import read_site, read_tensor
from easyquant.formats.packed import code_values, scale_values, unpack_codes, unpack_zero_points
from easyquant.runtime.artifact import Artifact
from helpers import ISA, compile_model, folder_contents, random_llama, random_tokens, run_tool, write_model

GROUP = 32
SIZES = {"hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2, "layers": 2}  # of which 3 bits fill words
MODELS = {"llama": {"tied": False}, "qwen2": {"arch": "qwen2", "tied": True}}
# What --export takes by default, said to the compiler of artifacts.
PLAIN = ("--activation-basis=plain", "--head=float")
INTEGERS = [f"W{bits}A16{zeros}" for bits in (2, 3, 4, 5, 6, 8) for zeros in ("", "_ASYM")]
CASES = [
    *[("gptq", scheme) for scheme in ("W2A16", "W3A16", "W4A16", "W8A16", "W3A16_ASYM", "W4A16_ASYM", "W8A16_ASYM")],
    *[("gptq_v2", scheme) for scheme in ("W4A16", "W2A16_ASYM", "W3A16_ASYM", "W4A16_ASYM")],
    *[("awq", scheme) for scheme in ("W4A16", "W4A16_ASYM")],
    *[("compressed-tensors", scheme) for scheme in (*INTEGERS, "W8A8", "W8A8_ASYM", "W4A8", "FP8_DYNAMIC", "NVFP4A16", "MXFP4A16")],
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {name: write_model(folder / name, *random_llama(seed=3, **SIZES, **fields)) for name, fields in MODELS.items()}


def export(model, out, format, *options):
    return compile_model(model, out, f"--export={format}", *options)


def read_checkpoint(folder):
    """(quantization_config, tensors, config.json)"""
    config, tensors = read_folder(folder)
    return config["quantization_config"], tensors, config


class Weights:
    """The weights that the compiler packs for CPUs, without the rest of an artifact."""

    def __init__(self, model, folder, scheme, *options):
        base = "zeropoint" if scheme.endswith("_ASYM") else "absmax"
        folder.mkdir()
        chosen = " ".join(option.removeprefix("--") for option in (f"scheme={scheme}", *options, *PLAIN))
        passes = f"equant-{base}{{{chosen}}},equant-quantize,equant-materialize-weights{{output={folder}}}"
        for arguments in ([f"--pipeline={passes}"], ["--dry-run", f"--scheme={scheme}", *options, *PLAIN]):
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
    else:  # the file has the reciprocal of the outer scale, rounded
        np.testing.assert_array_equal(linear.global_scale, 1 / outer[0])
        np.testing.assert_allclose(linear.weight, weight, rtol=2**-22)


def assert_same_floats(tensors, source, quantized, dtype):
    """What is no part of a quantized linear is the model's, in the type of the checkpoint."""
    floats = {name: value for name, value in tensors.items() if name.removesuffix(".weight") not in quantized and name in source}
    expected = {name for name in source if name.removesuffix(".weight") not in quantized}
    assert set(floats) == expected
    for name, value in floats.items():
        np.testing.assert_array_equal(value, source[name].astype(dtype))


@pytest.mark.parametrize("format, scheme", CASES)
def test_a_checkpoint_is_the_artifact(models, tmp_path, format, scheme):
    # Both models have what the other lacks: a head of its own, biases.
    name = "llama" if scheme.endswith("_ASYM") else "qwen2"
    group = [] if scheme.startswith(("W8A8", "FP8", "NVFP4", "MXFP4")) else [f"--group-size={GROUP}"]
    scales = ["--scale-type=f16"] if format != "compressed-tensors" else []
    checkpoint = export(models[name], tmp_path / "out", format, f"--scheme={scheme}", *group)
    expected = Weights(models[name], tmp_path / "weights", scheme, *group, *scales)
    config, tensors, _ = read_checkpoint(checkpoint)
    quantized = set()
    for site in expected.sites:
        linear = clients.read_linear(tensors, site["name"], config)
        assert (linear is None) == (site["weight"] is None), site["name"]
        if linear is not None:
            quantized.add(site["name"])
            assert_same_weight(linear, expected.tensors, site, config["quant_method"])
    assert len(quantized) == 14
    assert_same_floats(tensors, read_folder(models[name])[1], quantized, np.float16)


# ------------------------------------------------------------------------------------------ activations, mixes, methods


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


# --------------------------------------------------------------------------------------------------------------- folders


def test_floats_are_bf16_where_the_source_is_and_no_scale_is_half(tmp_path):
    config, tensors = random_llama(seed=5, **SIZES, tied=False)
    model = write_model(tmp_path / "bf16", config, {name: value.astype(ml_dtypes.bfloat16) for name, value in tensors.items()})
    for scheme, dtype, name in [("W8A8", ml_dtypes.bfloat16, "bfloat16"), ("W4A16", np.float16, "float16")]:
        _, stored, written = read_checkpoint(export(model, tmp_path / scheme, "compressed-tensors", f"--scheme={scheme}"))
        assert written["torch_dtype"] == name
        embedding = stored["model.embed_tokens.weight"]
        assert embedding.dtype == dtype
        np.testing.assert_array_equal(embedding, tensors["model.embed_tokens.weight"].astype(ml_dtypes.bfloat16).astype(dtype))


def test_weights_are_sharded_and_bytes_do_not_depend_on_threads(models, tmp_path):
    one = export(models["llama"], tmp_path / "one", "gptq", "--threads=1", "--max-shard-bytes=20000")
    two = export(models["llama"], tmp_path / "two", "gptq", "--threads=3", "--max-shard-bytes=20000")
    assert folder_contents(one) == folder_contents(two)
    index = json.loads((one / "model.safetensors.index.json").read_text())["weight_map"]
    whole = export(models["llama"], tmp_path / "whole", "gptq")
    tensors = read_safetensors(whole / "model.safetensors")
    assert set(index) == set(tensors) and len(set(index.values())) > 2
    for name, file in index.items():
        np.testing.assert_array_equal(read_safetensors(one / file)[name], tensors[name])


def test_the_configuration_is_the_model_s(models, tmp_path):
    source = json.loads((models["qwen2"] / "config.json").read_text())
    _, _, config = read_checkpoint(export(models["qwen2"], tmp_path / "out", "awq"))
    kept = ("model_type", "architectures", "hidden_size", "intermediate_size", "num_hidden_layers", "num_key_value_heads", "rope_theta",
            "tie_word_embeddings", "max_position_embeddings", "rms_norm_eps", "vocab_size", "eos_token_id")  # fmt: skip
    assert {key: config[key] for key in kept} == {key: source[key] for key in kept}
    assert config["quantization_config"] == {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 32, "zero_point": True,
                                             "modules_to_not_convert": ["lm_head"]}  # fmt: skip
