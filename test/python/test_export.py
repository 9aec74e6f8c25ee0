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
from oracles.llama import Llama

from exporting import GROUP, SIZES, Weights, assert_same_weight, export, read_checkpoint, write_models
from helpers import folder_contents, kl, random_gemma4, random_llama, random_tokens, write_model

INTEGERS = [f"W{bits}A16{zeros}" for bits in (2, 3, 4, 5, 6, 8) for zeros in ("", "_ASYM")]
CASES = [
    *[("gptq", scheme) for scheme in ("W2A16", "W3A16", "W4A16", "W8A16", "W3A16_ASYM", "W4A16_ASYM", "W8A16_ASYM")],
    *[("gptq_v2", scheme) for scheme in ("W4A16", "W2A16_ASYM", "W3A16_ASYM", "W4A16_ASYM")],
    *[("awq", scheme) for scheme in ("W4A16", "W4A16_ASYM")],
    *[("compressed-tensors", scheme) for scheme in (*INTEGERS, "W8A8", "W8A8_ASYM", "W4A8", "FP8_DYNAMIC", "NVFP4A16", "MXFP4A16")],
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


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
    scales = ["--scale-type=f16"] if re.fullmatch(r"W\dA16.*", scheme) else []
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
    assert_same_floats(tensors, read_folder(models[name])[1], quantized, ml_dtypes.bfloat16 if "FP4" in scheme else np.float16)


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


@pytest.mark.parametrize("arch", ["mistral", "qwen3", "olmo2", "smollm3", "gemma3_text", "gemma4_text", "granite"])
def test_every_architecture_of_linears_goes_out(tmp_path, arch):
    """With its own names, norms and sizes: what a client computes is the model, but for 8 bits of each weight."""
    fields = {"mistral": {"sliding_window": 8}, "smollm3": {"no_rope_layers": [1, 0]}}.get(arch, {})
    made = random_gemma4(4, **SIZES, attention_k_eq_v=True, tied=False) if arch == "gemma4_text" else random_llama(seed=4, arch=arch, **SIZES, tied=False, **fields)
    model = write_model(tmp_path / "model", *made)
    config, tensors, _ = read_checkpoint(export(model, tmp_path / "out", "compressed-tensors", "--scheme=W8A16"))
    source = read_folder(model)
    stored = {}
    for name in source[1]:
        linear = clients.read_linear(tensors, name.removesuffix(".weight"), config)
        stored[name] = (tensors[name] if linear is None else linear.weight).astype(np.float64)
    read = random_tokens(2, 40, 97)
    assert kl(*(Llama(source[0], weights, dtype=np.float64).logits(read) for weights in (source[1], stored))) < 2e-3


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
