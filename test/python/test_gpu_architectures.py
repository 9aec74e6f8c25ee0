# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What some architectures have in their attention and others have not, on a simulated GPU: soft caps, layers whose heads differ, values of the keys'
projection, keys and values of other layers, embeddings of layers, and caches of codes of these, beside the CPU and the numpy oracle.

GPUs round the activations and weights of float linears to bf16, and W8A8 rounds what it reads to codes, which a difference in the last bit may move.
So a model of codes has to be as near to the oracle as the CPU is, and a float one within the rounding of bf16.
"""

import numpy as np
import pytest

from helpers import Runner, random_gemma4, random_llama, random_tokens, write_model
from oracles.checkpoint import read_folder
from oracles.llama import Llama
from oracles.schemes import FLOAT, W8A8

SLIDING, FULL = "sliding_attention", "full_attention"
GEMMA2 = {"arch": "gemma2", "heads": 4, "kv_heads": 2, "head_dim": 16, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 3.0}
CODES = ["--kv-group=16", "--kv-residual=16"]
MODELS = {
    "gemma2": lambda: random_llama(11, **GEMMA2),
    "gemma4": lambda: random_gemma4(11, layer_types=[SLIDING, FULL, SLIDING, FULL], attention_k_eq_v=True, num_global_key_value_heads=1, final_logit_softcapping=4.0),
    "gemma4, odd heads, biases": lambda: random_gemma4(11, layers=3, layer_types=[SLIDING, SLIDING, FULL], heads=6, kv_heads=3, head_dim=12, full_head_dim=20,
                                                       attention_bias=True, tied=False, num_global_key_value_heads=2),
    "gemma4, shared keys": lambda: random_gemma4(11, layers=5, layer_types=[FULL, SLIDING, SLIDING, SLIDING, FULL], num_kv_shared_layers=2,
                                                 use_double_wide_mlp=True, attention_k_eq_v=True, num_global_key_value_heads=1, tied=False),
    "gemma4, E2B in small": lambda: random_gemma4(11, layers=4, layer_types=[SLIDING, FULL] * 2, heads=8, kv_heads=1, num_kv_shared_layers=2,
                                                  use_double_wide_mlp=True, hidden_size_per_layer_input=16, final_logit_softcapping=30.0),
    "gemma4, wide heads": lambda: random_gemma4(11, layers=2, layer_types=[SLIDING, FULL], heads=2, kv_heads=1, head_dim=256, full_head_dim=512,
                                                attention_k_eq_v=True),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(workspace):
    """model(name): the folder of MODELS[name], made once."""

    def make(name):
        folder = workspace / f"gpu-{name.replace(' ', '-').replace(',', '')}"
        return folder if folder.exists() else write_model(folder, *MODELS[name]())

    return make


def logits(out, tokens, prompt, **place):
    """Behind a prompt, and behind each token after it."""
    session = Runner(out, **place).session
    session.prefill(np.asarray(tokens[:prompt], np.int32))
    rows = [session.logits.copy()]
    for token in tokens[prompt:]:
        session.decode(token)
        rows.append(session.logits.copy())
    return np.array(rows)


def distances(artifact, folder, options, scheme):
    """Relative rms between the GPU and the CPU, then between either and the oracle. The text is longer than windows and what is float in the cache."""
    out = artifact(folder, *options, "--target=sm_80,cpu", "--isa=avx2")
    tokens = random_tokens(7, 44, 97)
    expected = Llama(*read_folder(folder), scheme, np.float64).logits(tokens)[19:]
    assert np.abs(expected).max() > 1
    gpu, cpu = logits(out, tokens, 20, device="simt"), logits(out, tokens, 20)
    return [np.linalg.norm(a - b) / np.linalg.norm(expected) for a, b in ((gpu, cpu), (gpu, expected), (cpu, expected))]


@pytest.mark.parametrize("name, options", [
    ("gemma2", []),
    ("gemma2", ["--kv-scheme=int8", *CODES]),
    ("gemma2", ["--kv-scheme=int4", "--kv-sinks=2", "--kv-keys=hadamard", *CODES]),
    ("gemma4", []),
    ("gemma4", ["--kv-scheme=int8", "--kv-keys=pre-rope", *CODES]),
    ("gemma4", ["--kv-scheme=int4", "--kv-sinks=2", *CODES]),
    ("gemma4, odd heads, biases", []),
    ("gemma4, shared keys", []),
])  # fmt: skip
def test_codes_are_as_near_to_the_oracle_as_on_a_cpu(artifact, model, name, options):
    apart, gpu, cpu = distances(artifact, model(name), ["--scheme=W8A8", *options], W8A8)
    assert gpu <= 1.5 * cpu + 0.002, (apart, gpu, cpu)
    assert apart <= 0.03, (apart, gpu, cpu)


@pytest.mark.parametrize("name", ["gemma2", "gemma4", "gemma4, E2B in small", "gemma4, wide heads"])
def test_floats_are_within_the_rounding_of_bf16(artifact, model, name):
    apart, gpu, cpu = distances(artifact, model(name), ["--scheme=none", "--kv-cache=f16"], FLOAT)
    assert cpu <= 0.002 and apart <= 0.01 and gpu <= 0.01, (apart, gpu, cpu)


@pytest.mark.parametrize("name, change", [
    ("gemma2", {"attn_logit_softcapping": None}),
    ("gemma4", {"sliding_window": 96}),
    ("gemma4, E2B in small", {"sliding_window": 96}),
])  # fmt: skip
def test_a_part_that_is_missing_would_be_seen(model, name, change):
    config, tensors = read_folder(model(name))
    tokens = random_tokens(7, 44, 97)
    expected, other = (Llama(each, tensors, FLOAT, np.float64).logits(tokens)[19:] for each in (config, config | change))
    assert np.linalg.norm(other - expected) > 0.05 * np.linalg.norm(expected)
