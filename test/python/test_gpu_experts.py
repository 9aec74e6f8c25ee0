# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mixtures of experts on a simulated GPU: the CPU's logits, checks, launches, and what is refused.

Attention and float linears round to 16 bits on GPUs, so that two experts whose numbers are nearly equal may change places, and then a token has
other logits. With these seeds, sizes and tokens none does.
"""

import json

import numpy as np
import pytest

from easyquant import _runtime
from helpers import Runner, assert_refused, random_gemma4, random_lfm2, random_llama, random_qwen35, random_tokens, run_tool, write_model
from test_gpu_batch import Pair, mix

TARGET = "--target=sm_80,cpu"
ISA = "--isa=avx2"
VOCAB = 97
LOGIT_BOUND = 0.02  # of their largest magnitude, as of other models
# Packed weights of experts have multiples of 64 outputs.
SIZES = {"hidden": 64, "heads": 4, "kv_heads": 2, "expert_ffn": 64}
MODELS = {
    "qwen3_moe": {"arch": "qwen3_moe", "head_dim": 16, **SIZES},
    "mixtral": {"arch": "mixtral", "tied": False, **SIZES},
    "qwen2_moe": {"arch": "qwen2_moe", "ffn": 64, "tied": False, **SIZES},
}
SCHEMES = {
    "W8A8": ["--scheme=W8A8"],
    "W4A8": ["--scheme=W4A8", "--group-size=32"],
    "W4A16": ["--scheme=W4A16", "--group-size=32"],
}


@pytest.fixture(scope="module")
def model(workspace):
    def make(name):
        folder = workspace / ("gpu-" + name.replace(" ", "-").replace(",", ""))
        return folder if folder.exists() else write_model(folder, *random_llama(23, **MODELS[name]))

    return make


def assert_close(found, expected, bound=LOGIT_BOUND):
    assert np.abs(found - expected).max() <= bound * np.abs(expected).max()


@pytest.mark.parametrize("name, scheme, seed", [("qwen3_moe", "W8A8", 8), ("qwen3_moe", "W4A8", 10), ("qwen3_moe", "W4A16", 8), ("mixtral", "W8A8", 8), ("qwen2_moe", "W8A8", 8)])
def test_logits_of_the_cpu(artifact, model, name, scheme, seed):
    """A prompt, then token by token, where most experts have no row."""
    out = artifact(model(name), *SCHEMES[scheme], TARGET, ISA)
    tokens = random_tokens(seed, 14, VOCAB)
    expected = Runner(out, device="cpu").score(tokens)
    gpu = Runner(out, device="simt")
    found = gpu.score(tokens)
    assert_close(found, expected)
    gpu.session.reset()
    gpu.session.prefill(np.asarray(tokens[:10], np.int32))
    for at in range(10, 12):
        gpu.session.decode(tokens[at])
        np.testing.assert_array_equal(gpu.session.logits, found[at])


OTHERS = {
    "gpt_oss": lambda: random_llama(6, **SIZES | {"arch": "gpt_oss", "head_dim": 16}),
    "lfm2_moe": lambda: random_lfm2(3, hidden=64, ffn=64, heads=4, kv_heads=2, expert_ffn=64, experts=8),
    "gemma4": lambda: random_gemma4(5, hidden=64, ffn=64, enable_moe_block=True, num_experts=8, top_k_experts=2, moe_intermediate_size=64),
    "qwen3_5_moe": lambda: random_qwen35(4, hidden=64, ffn=64, experts=5, expert_ffn=64),
}


@pytest.mark.parametrize("scheme", ["W8A8", pytest.param("none", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OTHERS)
def test_architectures_with_experts(workspace, artifact, name, scheme):
    """Beside what else they have."""
    folder = workspace / f"gpu-other-{name}"
    out = artifact(folder if folder.exists() else write_model(folder, *OTHERS[name]()), *SCHEMES.get(scheme, ["--scheme=none", "--kv-cache=f16"]), TARGET, ISA)
    tokens = random_tokens(9 if name == "gpt_oss" else 8, 14, VOCAB)
    # Floats are bf16, whose errors the state of a gated delta net keeps.
    bound = 0.1 if (name, scheme) == ("qwen3_5_moe", "none") else LOGIT_BOUND
    assert_close(Runner(out, device="simt").score(tokens), Runner(out, device="cpu").score(tokens), bound)


def test_nothing_is_found_by_the_checks(artifact, model):
    runner = Runner(artifact(model("qwen3_moe"), *SCHEMES["W8A8"], TARGET, ISA), device="simt", context=64, simt_checks=True)
    runner.session.prefill(np.asarray(random_tokens(0, 20, VOCAB), np.int32))
    runner.session.decode(5)
    assert np.isfinite(runner.session.logits).all()


def test_sequences_have_the_bits_of_sessions(artifact, model):
    """Other rows choose other experts, or the same ones."""
    mix(Pair(_runtime.Model(str(artifact(model("qwen3_moe"), *SCHEMES["W8A8"], TARGET, ISA)), device="simt"), 6))


def test_launches_are_as_many_for_all_experts(artifact, model):
    """One for each linear of a layer's experts, whatever is chosen: launches depend on the number of rows alone."""
    out = artifact(model("qwen3_moe"), *SCHEMES["W8A8"], TARGET, ISA)
    program = json.loads((out / "program.gpu.json").read_text())["chips"]["sm_80"]
    for rows in (1, 256):
        launched = [launch for launch in program["launches"]
                    if launch["site"] == "model.layers.0.mlp.experts.up_proj" and launch["phase"] == "gemm" and launch["over"] == "rows"
                    and launch["min_rows"] <= rows * launch["multiple"] and (launch["max_rows"] == 0 or launch["max_rows"] >= rows * launch["multiple"])]
        assert [launch["multiple"] for launch in launched] == [2]
        (factor, per_block), *others = program["kernels"][launched[0]["kernel"]]["grid"]
        assert factor > 100 and per_block == 0 and others == [[1, 0], [1, 0]]


def test_widths_that_kernels_do_not_take(model, tmp_path):
    """Packed weights of an expert have whole blocks of scales, float ones whole fragments."""
    narrow = write_model(tmp_path / "narrow", *random_llama(3, **(MODELS["qwen3_moe"] | {"expert_ffn": 24})))
    refused = run_tool("easyquant-compile", narrow, "-o", tmp_path / "out", "--scheme=W8A8", "--target=sm_80")
    assert_refused(refused, "site 'model.layers.0.mlp.experts.gate_proj'", "experts of 24 outputs", "64 outputs at a time; leave it float")
    odd = write_model(tmp_path / "odd", *random_llama(3, **(MODELS["qwen3_moe"] | {"expert_ffn": 20})))
    refused = run_tool("easyquant-compile", odd, "-o", tmp_path / "out", "--scheme=none", "--target=sm_80")
    assert_refused(refused, "experts of 20 outputs", "8 outputs at a time; compile it with --target cpu")
    refused = run_tool("easyquant-compile", model("qwen3_moe"), "-o", tmp_path / "out", TARGET, *SCHEMES["W8A8"], "--tensor-parallel=2")
    assert_refused(refused, "mlp.experts.gate_proj", "of 2 ranks each", "experts of 32 outputs", "64 outputs at a time; leave it float")


def test_a_router_in_fp8_has_one_order_of_sums(artifact, model, workspace):
    """Only tiles: rows would choose other experts beside other rows, if few of them were summed in another order."""
    (recipe := workspace / "router.json").write_text(json.dumps({"method": "absmax", "scheme": "W8A8", "sites": [{"match": "re:mlp.gate$", "scheme": "FP8_DYNAMIC"}]}))
    out = artifact(model("qwen3_moe"), f"--recipe={recipe}", "--target=sm_89,cpu", ISA)
    program = json.loads((out / "program.gpu.json").read_text())["chips"]["sm_89"]

    def kernels(site):
        return [program["kernels"][each["kernel"]]["name"] for each in program["launches"] if each["site"] == f"model.layers.0.{site}" and each["phase"] == "gemm"]

    assert kernels("mlp.gate") and all("f8E4M3FN_q_" in name and "_mma_" in name for name in kernels("mlp.gate")), kernels("mlp.gate")
    assert any("_dot_" in name for name in kernels("self_attn.o_proj")), "what weighs no experts has other kernels for few rows"
