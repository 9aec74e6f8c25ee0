# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with a recurrent state: LFM2's short convolutions, against the numpy oracle. Texts in pieces, many sequences in a step, forks, saved
sequences, calls that fail, and what cannot be done with a state that no token can be taken from again."""

import ctypes
import struct

import gguf
import numpy as np
import pytest

from calibrating import write_tokens
from command_line import run_command_line
from easyquant import _runtime
from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from helpers import BUILD, Runner, assert_refused, random_lfm2, random_tokens, run_tool, write_byte_level, write_gguf, write_model, written_back
from oracles.checkpoint import read_folder
from oracles.lfm2 import Lfm2
from oracles.schemes import FLOAT, Scheme, W8A8, w4a8
from sequences import alone, append, check_bits_in_batches

MODELS = {
    "lfm2": {},
    "two tokens": {"kinds": ("conv", "conv", "full_attention"), "width": 2, "heads": 4, "kv_heads": 2},
    "experts": {"hidden": 64, "heads": 4, "kv_heads": 2, "experts": 5},
    "experts in all layers": {"kinds": ("full_attention", "conv"), "heads": 4, "experts": 4, "expert_ffn": 20, "dense": 0},
    "four tokens, biases, head of its own": {"kinds": ("full_attention", "conv"), "width": 4, "bias": True, "tied": False, "hidden": 48, "heads": 4},
}
FLOATS = ("--scheme=none", "--isa=avx2")
PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@pytest.fixture(scope="module")
def model(workspace):
    """model(name): the folder of MODELS[name], made once."""

    def make(name):
        folder = workspace / name.replace(" ", "-").replace(",", "")
        return folder if folder.exists() else write_model(folder, *random_lfm2(11, **MODELS[name]))

    return make


def oracle(folder, scheme=FLOAT):
    return Lfm2(*read_folder(folder), scheme, np.float64)


@pytest.mark.parametrize("name", MODELS)
def test_float_logits(artifact, model, name):
    tokens = random_tokens(5, 96, 97)
    expected = oracle(model(name)).logits(tokens)
    assert np.abs(expected).max() > 1
    runner = Runner(artifact(model(name), *FLOATS))
    whole = runner.score(tokens)
    assert np.abs(whole - expected).max() < 1e-4
    # In pieces of all lengths, and token by token behind a prompt: the same bits.
    for pieces in ([1] * 96, [7] * 13 + [5], [50] + [1] * 46, [2, 64, 30]):
        runner.session.reset()
        parts, at = [], 0
        for count in pieces:
            parts.append(np.array(runner.session.score(np.asarray(tokens[at:at + count], np.int32))))
            at += count
        assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(Runner(artifact(model(name), *FLOATS), threads=3).score(tokens), whole)


@pytest.mark.parametrize("name", MODELS)
def test_the_oracle_sees_the_convolution(model, name):
    """What is before a token changes its logits: the comparison above could fail."""
    config, tensors = read_folder(model(name))
    tokens = random_tokens(5, 96, 97)
    cut = {key: np.concatenate([np.zeros_like(value[..., :1]), value[..., 1:]], axis=-1) if key.endswith("conv.conv.weight") else value
           for key, value in tensors.items()}
    assert np.abs(Lfm2(config, cut, dtype=np.float64).logits(tokens) - oracle(model(name)).logits(tokens)).max() > 0.05


@pytest.mark.parametrize("change", [
    {"norm_topk_prob": False}, {"routed_scaling_factor": 1.7}, {"num_experts_per_tok": 3}, {"use_expert_bias": False},
])
def test_other_routers(artifact, model, tmp_path, change):
    config, tensors = read_folder(model("experts"))
    tensors = {name: value for name, value in tensors.items() if change.get("use_expert_bias", True) or not name.endswith("expert_bias")}
    folder, tokens = write_model(tmp_path / "model", config | change, tensors), random_tokens(5, 96, 97)
    expected = oracle(folder).logits(tokens)
    assert np.abs(Runner(artifact(folder, *FLOATS)).score(tokens) - expected).max() < 1e-4
    assert np.abs(expected - oracle(model("experts")).logits(tokens)).max() > 0.05
    written = read_folder(written_back(folder, tmp_path))[0]
    assert all(written[key] == value for key, value in change.items())
    if "num_experts_per_tok" not in change:
        result = run_tool("easyquant-compile", folder, "-o", tmp_path / "gguf", "--export=gguf", "--scheme=none")
        assert_refused(result, "GGUF cannot say", "lfm2_moe")


def test_experts_in_codes(artifact, model):
    tokens = random_tokens(6, 96, 97)
    out = artifact(model("experts"), "--scheme=W8A8", "--activation-basis=plain", "--kv-cache=f32", "--isa=avx2")
    sites = {site["name"]: site["weight"] for site in Artifact.open(out).manifest["sites"]}
    assert "model.layers.0.feed_forward.w1" in sites and "model.layers.1.feed_forward.experts.w1" in sites
    assert [name for name, weight in sites.items() if weight is None] == [f"model.layers.{layer}.feed_forward.gate" for layer in (1, 2)]
    expected, plain = oracle(model("experts"), Scheme(8, 8, 0, 8, hadamard=0)).logits(tokens), oracle(model("experts")).logits(tokens)
    error, distance = (np.median(np.linalg.norm(other - expected, axis=1) / np.linalg.norm(expected, axis=1))
                       for other in (Runner(out).score(tokens), plain))  # fmt: skip
    assert error < 5e-3 and distance > 3 * error  # a row whose choice of experts is close may choose others


def test_what_config_json_may_say(artifact, model, workspace):
    """Old names, a list of the layers that have attention, and an MLP whose size follows from another number."""
    config, tensors = read_folder(model("lfm2"))
    for key in ("layer_types", "intermediate_size", "block_auto_adjust_ff_dim", "tie_word_embeddings"):
        del config[key]
    config |= {"full_attn_idxs": [1], "block_ff_dim": 75, "block_multiple_of": 52, "tie_embedding": True}  # 50, rounded up
    folder = write_model(workspace / "old", config, tensors)
    tokens = random_tokens(5, 20, 97)
    assert np.array_equal(Runner(artifact(folder, *FLOATS)).score(tokens), Runner(artifact(model("lfm2"), *FLOATS)).score(tokens))


@pytest.mark.parametrize("change, expected", [
    ({"layer_types": ["conv", "mamba", "conv"]}, ["layer_types", "mamba"]),
    ({"layer_types": ["conv"]}, ["layer_types", "found 1 kinds", "3 layers"]),
    ({"layer_types": ["conv"] * 3}, ["no layer has attention"]),
    ({"conv_L_cache": 1}, ["conv_L_cache"]),
    ({"conv_L_cache": 3000}, ["conv_L_cache"]),
    ({"conv_L_cache": 4}, ["conv.conv.weight", "[40, 1, 4]", "[40, 1, 3]"]),
    ({"layer_types": None, "full_attn_idxs": [3]}, ["full_attn_idxs"]),
    ({"block_auto_adjust_ff_dim": True}, ["feed_forward"]),
    ({"model_type": "lfm2_moe", "num_experts": 4, "num_dense_layers": 3}, ["first 3 layers have no experts", "3 layers"]),
])
def test_what_config_json_may_not_say(model, workspace, tmp_path, change, expected):
    config, tensors = read_folder(model("lfm2"))
    assert_refused(run_tool("easyquant-compile", write_model(tmp_path / "model", config | change, tensors), "-o", tmp_path / "out", *FLOATS), *expected)


@pytest.mark.parametrize("name", MODELS)
def test_gguf_is_the_same_model(artifact, model, workspace, name):
    path = write_gguf(workspace / f"{model(name).name}.gguf", *read_folder(model(name)))
    tokens = random_tokens(5, 96, 97)
    assert np.abs(Runner(artifact(path, *FLOATS)).score(tokens) - oracle(model(name)).logits(tokens)).max() < 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_exported_gguf(artifact, tmp_path, name):
    """All but the head is as it was."""
    config, tensors = random_lfm2(11, **MODELS[name] | {"vocab": 330, "hidden": 64, "heads": 4})
    tensors = {key: value.astype(np.float16).astype(np.float32) for key, value in tensors.items()}
    folder, out = write_byte_level(write_model(tmp_path / "model", config, tensors), vocabulary=320), tmp_path / "out"
    done = run_command_line("export", folder, "--format", "gguf", "-o", out, "--scheme=none")
    assert done.returncode == 0, done.stderr
    found, expected = ({tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
                       for file in (out / "model.gguf", write_gguf(tmp_path / "expected.gguf", config, tensors)))  # fmt: skip
    assert {key: list(tensor.shape) for key, tensor in found.items()} == {key: list(tensor.shape) for key, tensor in expected.items()}
    head, module = ("token_embd.weight", "model.embed_tokens") if config["tie_word_embeddings"] else ("output.weight", "lm_head")
    rounded = tensors | {f"{module}.weight": gguf.quants.dequantize(found[head].data, found[head].tensor_type)}
    tokens = random_tokens(5, 96, 330)
    expected = Lfm2(config, rounded, dtype=np.float64).logits(tokens)
    assert np.linalg.norm(Runner(artifact(out / "model.gguf", *FLOATS)).score(tokens) - expected) < 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", MODELS)
def test_exported_folder_is_the_model(model, tmp_path, name):
    config, tensors = read_folder(written_back(model(name), tmp_path))
    before, weights = read_folder(model(name))
    assert tensors.keys() == weights.keys() and all(np.array_equal(tensors[key], weights[key]) for key in weights)
    assert all(config[key] == before[key] for key in ("layer_types", "conv_L_cache", "conv_bias", "intermediate_size", "norm_eps", "tie_word_embeddings"))


# ------------------------------------------------------------------------------------------------------ schemes and methods


@pytest.fixture(scope="module")
def calibration(workspace):
    return [f"--tokens={write_tokens(workspace / 'recurrent.safetensors', [random_tokens(seed, 48, 97) for seed in range(8)])}"]


def rounded(out, folder):
    """The model with the weights of the artifact."""
    made = Artifact.open(out)
    config, tensors = read_folder(folder)
    name_of = lambda site: "model.embed_tokens" if site == "lm_head" and config["tie_word_embeddings"] else site  # noqa: E731
    return config, tensors | {f"{name_of(site['name'])}.weight": read_site(made, site["name"]) for site in made.manifest["sites"]}


def test_w8a8(artifact, model):
    tokens = random_tokens(6, 96, 97)
    expected = oracle(model("lfm2"), W8A8).logits(tokens)
    found = Runner(artifact(model("lfm2"), "--scheme=W8A8", "--kv-cache=f32", "--isa=avx2")).score(tokens)
    plain = oracle(model("lfm2")).logits(tokens)
    assert np.linalg.norm(found - expected) < 5e-3 * np.linalg.norm(expected)
    assert np.linalg.norm(expected - plain) > 3 * np.linalg.norm(found - expected)


CALIBRATED = {
    "W4A8": ["--scheme=W4A8", "--group-size=8"],
    "Q4": ["--scheme=Q4", "--activations=float"],
    "GPTQ": ["--scheme=W4A16", "--group-size=8", "--method=gptq"],
    "AWQ": ["--scheme=W4A16", "--group-size=8", "--method=awq"],
    "SignRound": ["--scheme=W4A16", "--group-size=8", "--method=signround", "--steps=10"],
    "LKD": ["--scheme=W4A16", "--group-size=8", "--method=lkd", "--epochs=4"],
}


@pytest.mark.parametrize("name", CALIBRATED)
def test_schemes_and_methods(artifact, model, calibration, name):
    """The program is the model of the weights that the artifact has, and convolutions stay float."""
    folder, options = model("lfm2"), CALIBRATED[name]
    tokens = random_tokens(7, 96, 97)
    out = artifact(folder, *options, *(calibration if "--method" in " ".join(options) else ()), "--kv-cache=f32", "--isa=avx2")
    sites = {site["name"]: site for site in Artifact.open(out).manifest["sites"]}
    assert not any("conv.conv" in site for site in sites)
    assert all(sites[f"model.layers.0.conv.{part}"]["weight"]["bits"] <= 6 for part in ("in_proj", "out_proj"))
    found = Runner(out).score(tokens)
    if name == "AWQ":  # whose factors are in norms, too
        plain = oracle(folder).logits(tokens)
        assert np.linalg.norm(found - plain) < 0.5 * np.linalg.norm(plain)
        return
    expected = Lfm2(*rounded(out, folder), w4a8(8) if name == "W4A8" else FLOAT, np.float64).logits(tokens)
    assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)


# ------------------------------------------------------------------------------------------------------------- sequences


@pytest.fixture(scope="module")
def subject(artifact, model):
    return _runtime.Model(str(artifact(model("lfm2"), *FLOATS)), isa="avx2")


def test_sequences_have_the_bits_that_each_has_alone(subject):
    check_bits_in_batches(subject, 5, 90, 30)


def test_forks_and_saved_sequences(subject):
    batch = _runtime.Batch(subject, sequences=4)
    tokens = random_tokens(3, 40, 97)
    first = batch.add()
    append(batch, [(first, tokens[:17])])
    fork, saved = batch.fork(first), batch.save(first)
    other = random_tokens(4, 20, 97)
    assert np.array_equal(append(batch, [(first, other)])[0], alone(subject, tokens[:17] + other)[17:])
    assert np.array_equal(append(batch, [(fork, tokens[17:])])[0], alone(subject, tokens)[17:])
    again = _runtime.Batch(subject, sequences=1).restore(saved)
    batch.remove(fork)
    restored = batch.restore(saved)
    assert again == 0 and np.array_equal(append(batch, [(restored, tokens[17:])])[0], alone(subject, tokens)[17:])
    damaged = bytearray(saved)
    damaged[-97 * 4 - 1] ^= 1  # in the state, before the logits
    with pytest.raises(_runtime.Error, match="checksum"):
        batch.restore(bytes(damaged))


def test_a_call_that_fails_changes_nothing(artifact, workspace):
    """Ended within its first step, and behind one and two that had gone through. The C interface asks before each kernel, and Python every 50 ms."""
    runtime = ctypes.CDLL(BUILD / "lib" / "libeasyquant_runtime.so")
    runtime.eq_session_logits.restype = ctypes.POINTER(ctypes.c_float)
    runtime.eq_session_position.restype = ctypes.c_int64
    for name in ("eq_model_load", "eq_session_create", "eq_session_prefill"):
        getattr(runtime, name).restype = ctypes.c_void_p
    folder = artifact(write_model(workspace / "long", *random_lfm2(11, context=1300)), *FLOATS)
    tokens, others = random_tokens(8, 60, 97), random_tokens(9, 1200, 97)
    loaded, session = ctypes.c_void_p(), ctypes.c_void_p()
    assert not runtime.eq_model_load(str(folder).encode(), None, ctypes.byref(loaded))
    assert not runtime.eq_session_create(loaded, struct.pack("<qiiq", 0, 1, 0, 0), ctypes.byref(session))

    def prefill(given):
        given = np.asarray(given, np.int32)
        return runtime.eq_session_prefill(session, given.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(len(given)))

    assert not prefill(tokens[:5])
    for least in (0, 512, 1024):
        asked = []

        @PROGRESS
        def progress(context, done, total):
            asked.append(done)  # noqa: B023
            return done >= least and asked.count(done) == 3  # noqa: B023

        runtime.eq_session_set_progress(session, progress, None)
        error = prefill(others)
        runtime.eq_session_set_progress(session, PROGRESS(), None)
        assert error and asked[-1] >= least and runtime.eq_session_position(session) == 5
        runtime.eq_error_free(ctypes.c_void_p(error))
    assert not prefill(tokens[5:])
    found = np.ctypeslib.as_array(runtime.eq_session_logits(session), (97,))
    assert np.array_equal(found, alone(_runtime.Model(str(folder), isa="avx2"), tokens)[-1])
    runtime.eq_session_free(session)
    runtime.eq_model_free(loaded)


# --------------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("options, expected", [
    (["--tensor-parallel=4"], ["2 key-value heads", "legal degrees of tensor parallelism: 1"]),
    (["--export=awq"], ["lfm2", "short convolutions"]),
])
def test_what_is_refused(model, tmp_path, options, expected):
    result = run_tool("easyquant-compile", model("two tokens"), "-o", tmp_path / "out", "--scheme=W4A16", *options)
    assert_refused(result, *expected)
