# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mixtures of experts on CPUs against the oracle in double precision: routing, schemes, GGUF, batches, and what is refused."""

import json

import gguf
import make_checkpoint
import numpy as np
import pytest

from calibrating import write_tokens
from command_line import run_command_line
from easyquant import _runtime
from easyquant.compiler.footprint import footprint_of
from easyquant.compiler.options import CompileOptions
from easyquant.evaluation.weights import read_site, read_tensor
from easyquant.runtime.artifact import Artifact
from helpers import Runner, assert_refused, compile_model, random_llama, random_tokens, run_tool, sites_of, write_byte_level, write_gguf, write_model, written_back
from oracles.checkpoint import read_folder
from oracles.llama import Llama
from oracles.schemes import FLOAT, W8A8, QuantizedWeight, w4a8

SIZES = {"hidden": 64, "heads": 4, "kv_heads": 2}
MODELS = {
    "qwen3_moe": {"arch": "qwen3_moe", "head_dim": 16, **SIZES},
    "qwen3_moe, one of eight": {"arch": "qwen3_moe", "num_experts_per_tok": 1, "norm_topk_prob": False, **SIZES},
    "qwen3_moe, three of five, biases": {"arch": "qwen3_moe", "experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": False, "attention_bias": True,
                                         "tied": False, **SIZES},
    "qwen3_moe, all of them": {"arch": "qwen3_moe", "experts": 3, "num_experts_per_tok": 3, **SIZES},
    "qwen3_moe, sizes that fit nothing": {"arch": "qwen3_moe", "hidden": 40, "expert_ffn": 23, "head_dim": 8, "experts": 7},
    "qwen2_moe": {"arch": "qwen2_moe", "tied": False, **SIZES},
    "qwen2_moe, its weights sum to 1": {"arch": "qwen2_moe", "norm_topk_prob": True, **SIZES},
    "mixtral": {"arch": "mixtral", "tied": False, **SIZES},
    "mixtral, a window": {"arch": "mixtral", "sliding_window": 17, **SIZES},
}
QUANTIZED = ("qwen3_moe", "qwen3_moe, one of eight", "mixtral", "qwen2_moe")


@pytest.fixture(scope="module")
def model(workspace):
    """model(name): the folder of MODELS[name], made once; its tensors lie in three files."""

    def make(name):
        folder = workspace / name.replace(" ", "-").replace(",", "")
        return folder if folder.exists() else write_model(folder, *random_llama(17, **MODELS[name]), shards=3)

    return make


@pytest.mark.parametrize("name", MODELS)
def test_float_logits(artifact, model, name):
    tokens = random_tokens(5, 96, 97)
    config, tensors = read_folder(model(name))
    expected = Llama(config, tensors, dtype=np.float64).logits(tokens)
    assert np.abs(expected).max() > 1
    runner = Runner(artifact(model(name), "--scheme=none", "--isa=avx2"))
    assert np.abs(runner.score(tokens) - expected).max() < 1e-4
    # Token by token, where most experts have no row.
    runner.session.reset()
    runner.session.prefill(np.asarray(tokens[:50], np.int32))
    for at in range(50, 96):
        runner.session.decode(tokens[at])
        assert np.abs(runner.session.logits - expected[at]).max() < 1e-4


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen3_moe, one of eight", "mixtral"])
def test_the_oracle_sees_the_router(model, name):
    """More experts, other weights, another order of experts change the logits; and rows go to all of them."""
    tokens = random_tokens(5, 96, 97)
    config, tensors = read_folder(model(name))
    oracle = Llama(config, tensors, dtype=np.float64)
    expected, seen = oracle.logits(tokens), []
    experts = oracle.layers[0]["experts"]
    choose = experts.choose
    experts.choose = lambda rows: seen.append(choose(rows)) or seen[-1]
    assert np.array_equal(oracle.logits(tokens), expected)
    counts = np.bincount(seen[0][0].ravel(), minlength=8)
    assert counts.min() > 0 and counts.max() > 2 * counts.min()
    router = next(key for key in tensors if key.endswith((".mlp.gate.weight", "moe.gate.weight")))
    others = [(config | {"num_experts_per_tok": config["num_experts_per_tok"] + 1}, tensors), (config, tensors | {router: tensors[router][::-1]})]
    if name != "mixtral":
        others.append((config | {"norm_topk_prob": not config["norm_topk_prob"]}, tensors))
    for other in others:
        assert np.abs(Llama(*other, dtype=np.float64).logits(tokens) - expected).max() > 0.05


def expert_weights(out, config, tensors):
    """The tensors with the weights of the artifact `out`, those of experts apart."""
    made, result = Artifact.open(out), dict(tensors)
    router, *modules = make_checkpoint.EXPERTS[config["model_type"]]
    stacks = {module.replace(".{}", ""): module for module in modules}
    for site in made.manifest["sites"]:
        name, weight = site["name"], read_site(made, site["name"])
        layer = ".".join(name.split(".")[:3])
        module = stacks.get(name.removeprefix(layer + "."))
        if module:
            count = len(tensors[f"{layer}.{router}.weight"])
            result |= {f"{layer}.{module.format(expert)}.weight": part for expert, part in enumerate(np.split(weight, count))}
        else:
            tied = name == "lm_head" and config["tie_word_embeddings"]
            result["model.embed_tokens.weight" if tied else f"{name}.weight"] = weight
    return result


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("scheme, options", [
    (w4a8(32), ["--scheme=W4A8", "--group-size=32"]), (W8A8, ["--scheme=W8A8"]), (FLOAT, ["--scheme=Q4", "--activations=float"]),
    (FLOAT, ["--scheme=W4A16_ASYM", "--group-size=32", "--method=zeropoint"]),
])
def test_schemes(artifact, model, name, scheme, options):
    """The program is the model of the weights that the artifact has, and no other one."""
    tokens = random_tokens(7, 24, 97)  # in which no activation lies so near between two codes that the oracle in f32 takes the other one
    config, tensors = read_folder(model(name))
    out = artifact(model(name), *options, "--kv-cache=f32", "--isa=avx2")
    expected = Llama(config, expert_weights(out, config, tensors), scheme, np.float64).logits(tokens)
    found = Runner(out).score(tokens)
    assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("scheme, options", [(W8A8, ["--scheme=W8A8"]), (w4a8(32), ["--scheme=W4A8", "--group-size=32"])])
def test_int8_activations(artifact, model, name, scheme, options):
    """Near to the oracle, which rounds activations, too, and far from floats: where it rounds one otherwise, a row may meet other experts."""
    tokens = random_tokens(6, 96, 97)
    config, tensors = read_folder(model(name))
    found = Runner(artifact(model(name), *options, "--kv-cache=f32", "--isa=avx2")).score(tokens)
    expected = Llama(config, tensors, scheme, np.float64).logits(tokens)
    plain = Llama(config, tensors, FLOAT, np.float64).logits(tokens)
    error, distance = (np.median(np.linalg.norm(other - expected, axis=1) / np.linalg.norm(expected, axis=1)) for other in (found, plain))
    assert error < 5e-3 and distance > 3 * error


@pytest.mark.parametrize("options, bits, group, rule", [
    (["--scheme=W8A16"], 8, 0, "absmax"), (["--scheme=W4A16", "--group-size=32"], 4, 32, "absmax"),
    (["--scheme=W4A16_ASYM", "--group-size=32", "--method=zeropoint"], 4, 32, "zeropoint"),
])
def test_codes_and_scales_are_those_of_each_expert(artifact, model, options, bits, group, rule):
    config, tensors = read_folder(model("mixtral"))
    out = artifact(model("mixtral"), *options, "--isa=avx2")
    weights = expert_weights(out, config, tensors)
    for name, weight in tensors.items():
        if ".experts." in name:
            assert np.allclose(weights[name], QuantizedWeight(weight, bits, group, np.float64, rule).dequantized(), rtol=1e-6, atol=0)


def test_the_router_is_float_unless_it_is_named(artifact, model, tmp_path):
    def routers(out):
        return [site["weight"] for name, site in sites_of(out).items() if name.endswith("moe.gate")]

    for scheme in ("W8A8", "Q4"):
        assert routers(artifact(model("mixtral"), f"--scheme={scheme}", "--isa=avx2")) == [None, None]
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"method": "absmax", "scheme": "W8A16", "sites": [{"match": "re:moe\\.gate$", "scheme": "W8A16"}]}))
    assert all(routers(artifact(model("mixtral"), f"--recipe={recipe}", "--isa=avx2")))


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen2_moe", "mixtral", "mixtral, a window"])
def test_gguf_is_the_same_model(artifact, model, workspace, name):
    config, tensors = read_folder(model(name))
    path = write_gguf(workspace / f"{model(name).name}.gguf", config, tensors)
    tokens = random_tokens(5, 96, 97)
    expected = Llama(config, tensors, dtype=np.float64).logits(tokens)
    assert np.abs(Runner(artifact(path, "--scheme=none", "--isa=avx2")).score(tokens) - expected).max() < 1e-4
    codes, same = (expert_weights(artifact(source, "--scheme=W4A16", "--group-size=32", "--isa=avx2"), config, tensors) for source in (path, model(name)))
    assert all(np.array_equal(codes[key], same[key]) for key in codes if ".experts." in key)


@pytest.mark.parametrize("options", [["--scheme=none"], ["--scheme=W8A8"], ["--scheme=W4A8", "--group-size=32"]])
def test_other_sequences_change_no_bit(artifact, model, options):
    """Sixteen sequences of a batch, read in pieces of many lengths, are sixteen sessions."""
    subject = _runtime.Model(str(artifact(model("qwen3_moe"), *options)))
    batch = _runtime.Batch(subject, sequences=16, threads=2)
    ids, sessions = [batch.add() for _ in range(16)], [_runtime.Session(subject, context=96, threads=1) for _ in range(16)]
    random = np.random.default_rng(3)
    for _ in range(5):
        pieces = [np.asarray(random.integers(0, 97, random.integers(1, 12)), np.int32) for _ in ids]
        batch.append([(id, piece) for id, piece in zip(ids, pieces)])
        for id, piece, session in zip(ids, pieces, sessions):
            session.score(piece)
            assert np.array_equal(batch.logits(id), session.logits)


def without(folder, out, *names, **fields):
    """The model less some tensors, with other fields."""
    config, tensors = read_folder(folder)
    return write_model(out, config | fields, {name: value for name, value in tensors.items() if name not in names}, shards=2)


def test_refused_models(model, tmp_path):
    def refused(folder, *expected, options=("--scheme=none",)):
        assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", "--isa=avx2", *options), *expected)

    expert = "model.layers.1.mlp.experts.3.up_proj.weight"
    refused(without(model("qwen3_moe"), tmp_path / "missing", expert), expert, "is missing; expected shape [32, 64]")
    refused(without(model("qwen3_moe"), tmp_path / "chosen", num_experts_per_tok=9), "chooses 9 experts, but there are 8")
    refused(without(model("qwen3_moe"), tmp_path / "more", num_experts=9), "mlp.gate.weight", "expected shape [9, 64], found [8, 64]")
    refused(without(model("qwen3_moe"), tmp_path / "dense", mlp_only_layers=[1]), "mlp_only_layers", "layers without experts are not supported")
    refused(without(model("qwen3_moe"), tmp_path / "sparse", decoder_sparse_step=2), "decoder_sparse_step", "layers without experts")
    refused(without(model("qwen3_moe"), tmp_path / "other", model_type="deepseek_v3", kv_lora_rank=16), "not supported", "nearest by its fields: qwen3_moe; new in it: kv_lora_rank (latent attention)")
    config, tensors = read_folder(model("qwen3_moe"))
    extra = write_model(tmp_path / "extra", config, tensors | {expert.replace(".3.", ".8."): tensors[expert]})
    refused(extra, expert.replace(".3.", ".8."), "has no place in a qwen3_moe model")
    mixed = write_model(tmp_path / "mixed", config, tensors | {expert: tensors[expert].astype(np.float16)})
    refused(mixed, expert, "experts of one type are supported, found F16 behind F32")


@pytest.mark.parametrize("options, expected", [
    (["--scheme=W8A8", "--target=sm_80"], ["site 'model.layers.0.mlp.experts.gate_proj'", "experts of 32 outputs", "GPUs read packed weights of experts 64 outputs"]),
    (["--scheme=W8A8", "--tensor-parallel=2"], ["experts.gate_proj", "32 output features of experts in panels of 32", "legal degrees of tensor parallelism: 1"]),
    (["--scheme=W4A16", "--group-size=32", "--export=compressed-tensors"], ["qwen3_moe", "mixtures of experts, which are not exported"]),
])
def test_refused_targets(model, tmp_path, options, expected):
    isa = [] if "--target=sm_80" in options or "--export=compressed-tensors" in options else ["--isa=avx2"]
    assert_refused(run_tool("easyquant-compile", model("qwen3_moe"), "-o", tmp_path / "out", *isa, *options), *expected)


def test_experts_that_are_no_panels_stay_float(artifact, model, tmp_path):
    folder = model("qwen3_moe, sizes that fit nothing")
    result = run_tool("easyquant-compile", folder, "-o", tmp_path / "out", "--scheme=W8A8", "--isa=avx2")
    assert_refused(result, "site 'model.layers.0.mlp.experts.gate_proj'", "experts of 23 outputs", "leave it float")
    out = artifact(folder, "--scheme=W8A16", "--ignore=re:experts", "--kv-cache=f32", "--isa=avx2")
    tokens = random_tokens(5, 40, 97)
    config, tensors = read_folder(folder)
    expected = Llama(config, expert_weights(out, config, tensors), dtype=np.float64).logits(tokens)
    assert np.abs(Runner(out).score(tokens) - expected).max() < 1e-4


@pytest.mark.parametrize("key, value", [("expert_gating_func", 2), ("expert_group_count", 4), ("expert_shared_count", 1), ("expert_weights_scale", 2.5)])
def test_gguf_of_another_router_is_refused(model, tmp_path, monkeypatch, key, value):
    monkeypatch.setitem(make_checkpoint.GGUF_KEYS, "router", key)
    config, tensors = read_folder(model("qwen3_moe"))
    path = write_gguf(tmp_path / "model.gguf", config | {"router": value}, tensors)
    result = run_tool("easyquant-compile", path, "-o", tmp_path / "out", "--scheme=none", "--isa=avx2")
    assert_refused(result, f"qwen3moe.{key}", "a router with", "is not supported")


@pytest.mark.parametrize("name", MODELS)
def test_exported_folder_is_the_model(model, tmp_path, name):
    """Imported as IR and written back, with a tensor for each expert."""
    config, tensors = read_folder(written_back(model(name), tmp_path))
    before, weights = read_folder(model(name))
    assert tensors.keys() == weights.keys()
    assert all(np.array_equal(tensors[key], weights[key]) for key in weights)
    tokens = random_tokens(5, 48, 97)
    assert np.array_equal(Llama(config, tensors, dtype=np.float64).logits(tokens), Llama(before, weights, dtype=np.float64).logits(tokens))


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen2_moe"])
@pytest.mark.parametrize("options", [["--method=gptq"], ["--method=awq"], ["--method=smoothquant"], ["--weight-observer=hessian-diagonal"]])
def test_methods_work_on_experts(artifact, model, tmp_path, name, options):
    """By the rows that chose each. Factors go through what gathers the rows of experts, to all that reads the tokens."""
    config, tensors = read_folder(model(name))
    text = f"--tokens={write_tokens(tmp_path / 'text.safetensors', [random_tokens(seed, 48, 97) for seed in range(4)])}"
    scheme = ["--scheme=W4A16", "--group-size=32", "--kv-cache=f32", "--isa=avx2"]
    out = compile_model(model(name), tmp_path / "out", *scheme, *options, text)
    plain = artifact(model(name), *scheme, *(["--method=zeropoint"] if options == ["--method=awq"] else []))  # its base
    learned, nearest = (expert_weights(made, config, tensors) for made in (out, plain))
    untouched = ("down_proj.weight", "o_proj.weight") if options == ["--method=smoothquant"] else ()
    changed = [key for key in tensors if (".experts." in key or ".o_proj." in key) and not key.endswith(untouched)]
    assert not any(np.array_equal(learned[key], nearest[key]) for key in changed)
    # What factors are folded into, and what stays float and reads the same tokens.
    floats = {key: read_tensor(Artifact.open(out), key) for key in tensors if key.endswith(("norm.weight", "mlp.gate.weight", "shared_expert_gate.weight"))}
    if options[0] in ("--method=awq", "--method=smoothquant"):
        transforms = [entry for entry in json.loads((out / "manifest.json").read_text())["quantization"]["transforms"] if f"--method={entry['method']}" in options]
        (scaled,) = [set(entry["sites"]) for entry in transforms if "model.layers.0.mlp.experts.up_proj" in entry["sites"]]
        readers = {"gate", "experts.gate_proj", "experts.up_proj", *(("shared_expert_gate", "shared_expert.gate_proj", "shared_expert.up_proj") if name == "qwen2_moe" else ())}
        assert scaled == {f"model.layers.0.mlp.{reader}" for reader in readers}
        (own,) = [entry for entry in transforms if entry["sites"] == ["model.layers.0.mlp.experts.down_proj"]]
        assert "experts have columns of their own" in own["skipped"]
        assert not any(np.array_equal(floats[key], tensors[key]) for key in floats if ".mlp." in key)
    tokens = random_tokens(7, 40, 97)
    expected = Llama(config, learned | floats, dtype=np.float64).logits(tokens)
    assert np.linalg.norm(Runner(out).score(tokens) - expected) < 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("options, expected", [
    (["--scheme=W8A8", "--activations=static"], "those of experts do not yet; give experts dynamic activations"),
])
def test_refused_methods(model, tmp_path, options, expected):
    text = write_tokens(tmp_path / "text.safetensors", [random_tokens(seed, 48, 97) for seed in range(2)])
    assert_refused(run_tool("easyquant-compile", model("qwen3_moe"), "-o", tmp_path / "out", *options, f"--tokens={text}", "--isa=avx2"), expected)


def test_a_decode_step_reads_the_experts_that_are_chosen(model):
    options = CompileOptions(scheme="W8A16")
    one, many = (footprint_of(model("qwen3_moe"), options, None, streams) for streams in (1, 4))
    experts = [site["bytes"] for site in one.plans.sites if "experts" in site]
    # A row chooses two of eight, and leaves each alone with a probability of 3/4; four rows do so independently of each other.
    more = sum(experts) * (3 / 4 - (3 / 4) ** 4)
    assert abs((many.step_bytes - many.cache_bytes) - (one.step_bytes - one.cache_bytes) - more) <= len(experts)


def test_exported_gguf_keeps_its_codes(tmp_path):
    """A tensor of E x N x K for the experts of each kind; compiled again, the program has the codes of the file."""
    config, tensors = random_llama(17, **MODELS["qwen3_moe"], vocab=330)
    folder = write_byte_level(write_model(tmp_path / "model", config, tensors), vocabulary=320)
    done = run_command_line("export", folder, "--format", "gguf", "-o", tmp_path / "gguf", "--scheme=Q8_0")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "gguf" / "model.gguf"
    stored = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(file).tensors}
    out = compile_model(file, tmp_path / "out", "--scheme=keep", "--kv-cache=f32", "--isa=avx2")
    weights = expert_weights(out, config, tensors)
    for stack, part in zip(make_checkpoint.STACKS, ("gate_proj", "up_proj", "down_proj")):
        assert stored[f"blk.1.{stack}.weight"].shape == (8,) + tensors[f"model.layers.1.mlp.experts.0.{part}.weight"].shape
        for expert, values in enumerate(stored[f"blk.1.{stack}.weight"]):
            name = f"model.layers.1.mlp.experts.{expert}.{part}.weight"
            assert np.array_equal(weights[name], values) and np.abs(values - tensors[name]).max() <= np.abs(tensors[name]).max() / 127
    tokens = random_tokens(7, 40, 330)
    found = Runner(out).score(tokens)
    # Whatever else the file has: the head in codes, and what is float there in f16.
    expected = Llama(config, weights | {f"model.layers.{layer}.mlp.gate.weight": stored[f"blk.{layer}.ffn_gate_inp.weight"] for layer in range(2)},
                     dtype=np.float64).logits(tokens)
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)
