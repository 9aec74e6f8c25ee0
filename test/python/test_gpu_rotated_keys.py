# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys as codes in a rotated basis on a simulated GPU, with all its checks: beside the CPU, and beside a numpy decoder."""

import json

import numpy as np
import pytest
from oracles.checkpoint import read_folder
from oracles.kv_cache import QuantizedCacheLlama

from helpers import Runner, kl, random_gpt2, random_llama, random_tokens, with_slow, write_model

CONTEXT = 64
BOUND = 0.05  # of a cache of codes: test_gpu.py
CACHE = ("--kv-group=16", "--kv-residual=16", "--kv-sinks=3")
ROTATED = "--kv-keys=hadamard"
# Queries and keys are rotated by their positions side by side, behind norms of heads, apart, in some layers, or never.
MODELS = {
    "llama": {"head_dim": 32},
    "heads of 64": {"head_dim": 64, "heads": 2, "kv_heads": 1},
    "heads of 128": {"head_dim": 128, "heads": 2, "kv_heads": 1},
    "qwen3": {"arch": "qwen3", "head_dim": 16},
    "olmo2": {"arch": "olmo2", "head_dim": 16},
    "smollm3": {"arch": "smollm3", "head_dim": 16, "no_rope_layer_interval": 2},
    "gpt2": None,
}
# The kernels that take queries and keys to the basis in the layers of a model: a stage of what rotates them, where something does.
KERNELS = {
    "llama": ["heads_4_2x32_rope96_h32"] * 2,
    "heads of 64": ["heads_2_1x64_rope96_h64"] * 2,
    "heads of 128": ["heads_2_1x128_rope96_h128"] * 2,
    "qwen3": ["heads_4_2x16_rope96_h16"] * 2,
    "olmo2": ["heads_4x16_rope96_h16", "heads_2x16_rope96_h16"] * 2,
    "smollm3": ["heads_4_2x16_rope96_h16", "copy_64_h16_f32_to_f32", "copy_32_h16_f32_to_f32"],
    "gpt2": ["copy_64_h16_f32_to_f32"] * 4,
}


@pytest.fixture(scope="module")
def model(workspace):
    """model(name): the folder of a seeded checkpoint, with a channel of each head of keys that is large in every token."""

    def make(name):
        folder = workspace / f"rotated-keys-{name.replace(' ', '-')}"
        if folder.exists():
            return folder
        if name == "gpt2":
            return write_model(folder, *random_gpt2(7, width=64))
        config, tensors = random_llama(27, **{"hidden": 64, "ffn": 64, "heads": 4, "kv_heads": 2} | MODELS[name])
        for site, weight in tensors.items():
            for name, factor in (("k_proj", 12), ("q_proj", 1 / 12)):
                if site.endswith(f"{name}.weight"):
                    weight[5 :: config["head_dim"]] *= factor
        return write_model(folder, config, tensors)

    return make


@pytest.fixture(scope="module")
def compiled(artifact, model):
    """compiled(name, chip, ...): for a chip and for CPUs."""
    return lambda name, chip, *options: artifact(model(name), f"--target={chip},cpu", "--isa=avx2", "--kv-cache=f16", *CACHE, *options)


def open_on(device, out):
    return Runner(out, context=CONTEXT, device=device, **({"simt_checks": True} if device == "simt" else {}))


def decode(runner, tokens):
    return np.concatenate([runner.session.score(np.array([token], np.int32)) for token in tokens])


@pytest.mark.parametrize("name", with_slow(MODELS, "heads of 64", "heads of 128", "qwen3", "olmo2"))
def test_gpus_rotate_keys_as_cpus_do(compiled, name):
    """A prompt, decoded tokens, a chunk that sees what they left, and a session that goes back to where its window has codes."""
    out = compiled(name, "sm_80", "--scheme=W8A8", "--kv-scheme=int8", ROTATED)
    tokens, found = random_tokens(3, 60, 97), {}
    for device in ("cpu", "simt"):
        runner = open_on(device, out)
        parts = [runner.session.score(np.array(tokens[:20], np.int32)), decode(runner, tokens[20:50])]
        parts.append(runner.session.score(np.array(tokens[50:], np.int32)))
        runner.session.truncate(38)
        parts.append(decode(runner, tokens[40:44]))
        found[device] = np.concatenate(parts)
    assert np.abs(found["simt"] - found["cpu"]).max() <= BOUND * np.abs(found["cpu"]).max()
    program = json.loads((out / "program.gpu.json").read_text())["chips"]["sm_80"]
    kernels = [program["kernels"][launch["kernel"]]["name"] for launch in program["launches"] if launch["phase"] == "attention"]
    assert [kernel for kernel in kernels if "_rope" in kernel or kernel.startswith("copy_")] == KERNELS[name]


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_int4_keys_match_a_numpy_decoder(compiled, model, chip):
    """Codes move at ties, but the logits are those of rotated keys, and far from those of keys with one scale a token as they are."""
    tokens, kv = random_tokens(4, 56, 97), {"bits": 4, "group": 16, "residual": 16, "sinks": 3}
    weights = read_folder(model("llama"))
    expected = QuantizedCacheLlama(*weights, kv={**kv, "hadamard": True}, dtype=np.float64).logits(tokens)
    plain = QuantizedCacheLlama(*weights, kv={**kv, "keys_per_token": True}, dtype=np.float64).logits(tokens)
    out = compiled("llama", chip, "--scheme=none", "--kv-scheme=int4", ROTATED)
    found = {device: decode(open_on(device, out), tokens) for device in ("cpu", "simt")}
    apart = {device: kl(expected, logits) for device, logits in found.items()} | {"devices": kl(found["cpu"], found["simt"])}
    assert max(apart.values()) < 0.1 * kl(expected, plain), apart
