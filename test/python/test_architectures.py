# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The descendants of llama, and scaled positions: small random models against the numpy oracle, compiled."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibrating import write_tokens
from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from helpers import Runner, assert_refused, random_llama, random_tokens, run_tool, with_slow, write_gguf, write_model, written_back
from oracles.checkpoint import read_folder
from oracles.llama import Llama
from oracles.schemes import FLOAT, W8A8, w4a8

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24, "beta_fast": 4, "beta_slow": 0.5}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
# Queries behind the 24 tokens are scaled.
LATE = YARN | {"attention_factor": 1.0, "llama_4_scaling_beta": 0.7}
LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.2], "long_factor": [1.0, 1.5, 2.0, 4.0, 8.0, 16.0]}
PHI = {"arch": "phi3", "hidden": 64, "heads": 4, "kv_heads": 2}  # heads of 16
MODELS = {
    "llama": {},
    "llama with every bias": {"attention_bias": True, "mlp_bias": True, "tied": False},
    "mistral": {"arch": "mistral", "sliding_window": 17, "heads": 4, "kv_heads": 2},
    "mistral, window of 1": {"arch": "mistral", "sliding_window": 1},
    "mistral, heads wider than the model": {"arch": "mistral", "sliding_window": 40, "head_dim": 24, "heads": 3},
    "mistral, no window": {"arch": "mistral", "sliding_window": None, "tied": False},
    "qwen2": {"arch": "qwen2", "heads": 4, "kv_heads": 2, "rope_theta": 1e6},
    "qwen2, a window in the last layer": {"arch": "qwen2", "use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
    "qwen3": {"arch": "qwen3", "head_dim": 16, "heads": 6, "kv_heads": 2, "rope_theta": 1e6},
    "qwen3, heads of 12, biases": {"arch": "qwen3", "head_dim": 12, "heads": 4, "kv_heads": 4, "attention_bias": True, "tied": False},
    "qwen3, a window by layer_types": {"arch": "qwen3", "head_dim": 128, "heads": 2, "use_sliding_window": True,
                                       "sliding_window": 33, "layer_types": ["sliding_attention", "full_attention"]},
    "linear scaling": {"rope_scaling": {"type": "linear", "factor": 3.0}},
    "llama3 scaling": {"rope_scaling": LLAMA3, "hidden": 80, "rope_theta": 500000.0},
    "llama 3.1": {"rope_scaling": LLAMA3 | {"original_max_position_embeddings": 8192}, "hidden": 80, "rope_theta": 500000.0},
    "yarn": {"arch": "qwen2", "rope_scaling": YARN, "hidden": 80},
    "yarn, other parameters": {"rope_parameters": YARN | {"truncate": False, "attention_factor": 1.3, "rope_theta": 500.0}, "hidden": 80},
    "olmo2": {"arch": "olmo2", "heads": 4, "kv_heads": 2, "tied": False},
    "olmo2, a head of keys for each of queries, biases": {"arch": "olmo2", "heads": 4, "kv_heads": 4, "attention_bias": True},
    "smollm3": {"arch": "smollm3", "layers": 4, "heads": 4, "kv_heads": 2, "rope_theta": 2e6},
    "smollm3, every other layer, biases": {"arch": "smollm3", "no_rope_layer_interval": 2, "attention_bias": True, "mlp_bias": True},
    "smollm3, listed layers": {"arch": "smollm3", "no_rope_layers": [0, 1], "tied": False},
    "gemma2": {"arch": "gemma2", "heads": 4, "kv_heads": 2, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 3.0},
    "gemma2, wide scale, no soft caps, layer_types, biases": {
        "arch": "gemma2", "head_dim": 12, "query_pre_attn_scalar": 40, "attn_logit_softcapping": None, "final_logit_softcapping": None,
        "layer_types": ["full_attention", "sliding_attention"], "attention_bias": True, "tied": False},
    "gemma3": {"arch": "gemma3_text", "layers": 4, "heads": 4, "kv_heads": 1, "head_dim": 16, "sliding_window_pattern": 3, "sliding_window": 9,
               "rope_theta": 1e6, "rope_local_base_freq": 500.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "gemma3, as GGUF has it": {"arch": "gemma3_text", "layers": 7, "head_dim": 8, "sliding_window": 9, "rope_theta": 1e6},
    "granite": {"arch": "granite", "heads": 4, "kv_heads": 2, "embedding_multiplier": 3.5, "residual_multiplier": 0.4,
                "attention_multiplier": 0.6, "logits_scaling": 0.3, "mlp_bias": True, "tied": False},
    "phi3": {"arch": "phi3", "hidden": 48, "heads": 4, "kv_heads": 4, "tied": False},
    "phi3, a window": {"arch": "phi3", "sliding_window": 17},
    "phi3, a part of each head": PHI | {"partial_rotary_factor": 0.75},
    "phi3, two dimensions of each head": PHI | {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.15}},
    "phi3, longrope": PHI | {"partial_rotary_factor": 0.75, "rope_scaling": LONGROPE, "original_max_position_embeddings": 24},
    "longrope, other parameters": {"hidden": 60, "rope_parameters": LONGROPE | {"original_max_position_embeddings": 40, "factor": 3.0}},
    "ministral": {"arch": "ministral", "heads": 4, "kv_heads": 2, "sliding_window": 17, "layer_types": ["full_attention", "sliding_attention"]},
    "ministral, a window in all layers": {"arch": "ministral", "sliding_window": 17},
    "ministral3": {"arch": "ministral3", "heads": 4, "kv_heads": 2, "rope_scaling": LATE},
    "ministral3, one stretch": {"arch": "ministral3", "sliding_window": 17, "tied": False,
                                "rope_parameters": LATE | {"original_max_position_embeddings": 8192, "rope_theta": 500.0}},
    "olmo3": {"arch": "olmo3", "layers": 4, "heads": 4, "kv_heads": 2, "sliding_window": 17, "rope_theta": 5e5, "tied": False,
              "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}},
    "olmo3, other bases": {"arch": "olmo3", "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 2e4}, "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}},
    "dynamic scaling": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
}
# These vary what the others test.
SLOW = (
    "llama", "mistral, heads wider than the model", "mistral, no window", "qwen3, heads of 12, biases", "linear scaling", "llama 3.1",
    "olmo2, a head of keys for each of queries, biases", "smollm3, listed layers", "phi3, a window", "phi3, two dimensions of each head",
    "longrope, other parameters", "ministral, a window in all layers", "ministral3, one stretch", "dynamic scaling")


@pytest.fixture(scope="module")
def model(workspace):
    """model(name): the folder of MODELS[name], made once."""

    def make(name):
        folder = workspace / name.replace(" ", "-").replace(",", "")
        return folder if folder.exists() else write_model(folder, *random_llama(11, **MODELS[name]))

    return make


@pytest.mark.parametrize("name", with_slow(MODELS, *SLOW))
def test_float_logits(artifact, model, name):
    folder = model(name)
    tokens = random_tokens(5, 96, 97)
    config, tensors = read_folder(folder)
    expected = Llama(config, tensors, dtype=np.float64).logits(tokens)
    assert np.abs(expected).max() > 1
    runner = Runner(artifact(folder, "--scheme=none", "--isa=avx2"))
    assert np.abs(runner.score(tokens) - expected).max() < 1e-4
    # Token by token behind a prompt, as a conversation runs.
    runner.session.reset()
    runner.session.prefill(np.asarray(tokens[:50], np.int32))
    for at in range(50, 96):
        runner.session.decode(tokens[at])
        assert np.abs(runner.session.logits - expected[at]).max() < 1e-4


def without(config, tensors, name):
    """The model without what sets it apart."""
    if name.startswith("gemma3"):
        return config | {"rope_local_base_freq": config["rope_theta"]}, tensors
    if name == "gemma2":
        return config | {"attn_logit_softcapping": None}, tensors
    if "wide scale" in name:
        return config | {"query_pre_attn_scalar": config["head_dim"]}, tensors
    if name == "granite":
        return config | {"residual_multiplier": 1.0}, tensors
    if name == "ministral3":
        return config | {"rope_scaling": {key: value for key, value in config["rope_scaling"].items() if key != "llama_4_scaling_beta"}}, tensors
    if "window" in name or name == "ministral":
        return config | {"sliding_window": None, "use_sliding_window": False}, tensors
    if config["model_type"] == "smollm3":
        return config | {"no_rope_layers": None, "no_rope_layer_interval": 100}, tensors
    if config["model_type"] in ("qwen3", "olmo2"):
        return config, {key: np.ones_like(value) if "_norm.weight" in key and "self_attn" in key else value for key, value in tensors.items()}
    if "bias" in name or config["model_type"] == "qwen2":
        return config, {key: value for key, value in tensors.items() if not key.endswith(".bias")}
    if "of each head" in name:
        return config | {"partial_rotary_factor": 1.0, "rope_parameters": None}, tensors
    return config | {"rope_scaling": None, "rope_parameters": None}, tensors


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("llama", "mistral, no window", "dynamic scaling", "mistral, heads wider than the model", "phi3")])
def test_the_oracle_sees_the_difference(model, name):
    """What an architecture adds changes the logits: the comparison above could fail."""
    tokens = random_tokens(5, 96, 97)
    config, tensors = read_folder(model(name))
    expected = Llama(config, tensors, dtype=np.float64).logits(tokens)
    assert np.abs(Llama(*without(config, tensors, name if name != "mistral" else "window"), dtype=np.float64).logits(tokens) - expected).max() > 0.05


@pytest.mark.parametrize("name", ["mistral", "qwen2", "qwen3", "olmo2", "smollm3", "gemma2", "gemma3", "granite", "phi3, longrope", "ministral3", "olmo3"])
def test_w8a8(artifact, model, name):
    tokens = random_tokens(6, 96, 97)
    config, tensors = read_folder(model(name))
    expected = Llama(config, tensors, W8A8, np.float64).logits(tokens)
    found = Runner(artifact(model(name), "--scheme=W8A8", "--kv-cache=f32", "--isa=avx2")).score(tokens)
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    plain = Llama(config, tensors, FLOAT, np.float64).logits(tokens)
    assert error < 5e-3 and np.linalg.norm(expected - plain) > 3 * np.linalg.norm(found - expected)


@pytest.mark.parametrize("name", ["llama", "llama 3.1", "olmo2", "smollm3", "gemma2", "gemma3, as GGUF has it", "granite", "phi3, a window", "phi3, longrope", "ministral3", "olmo3"])
def test_gguf_is_the_same_model(artifact, model, workspace, name):
    """Factors of the frequencies in a tensor, permuted rows of q and k, layers that the file does not list."""
    folder = model(name)
    config, tensors = read_folder(folder)
    path = write_gguf(workspace / f"{folder.name}.gguf", config, tensors)
    tokens = random_tokens(5, 96, 97)
    expected = Llama(config, tensors, dtype=np.float64).logits(tokens)
    found = Runner(artifact(path, "--scheme=none", "--isa=avx2")).score(tokens)
    assert np.abs(found - expected).max() < 1e-4


def test_the_text_part_of_a_model_with_pictures(artifact, model, workspace):
    """gemma3, as transformers 5 and 4 write it: the same logits as gemma3_text; parts for pictures are left out, and said so."""
    config, tensors = read_folder(model("gemma3"))
    tokens = random_tokens(5, 96, 97)
    expected = Runner(artifact(model("gemma3"), "--scheme=none", "--isa=avx2")).score(tokens)
    outer = {"model_type": "gemma3", "text_config": config, "vision_config": {"hidden_size": 8}, "eos_token_id": [2, 3]}
    for prefix in ("model.language_model.", "language_model.model."):
        named = {prefix + name.removeprefix("model."): value for name, value in tensors.items()}
        folder = write_model(workspace / f"pictures-{prefix[0]}", outer, named | {"vision_tower.patch.weight": np.ones((4, 4), np.float32)})
        out = artifact(folder, "--scheme=none", "--isa=avx2")
        assert np.array_equal(Runner(out).score(tokens), expected)
        assert Artifact.open(out).model["eos_token_ids"] == [2, 3]
    result = run_tool("easyquant-compile", folder, "-o", workspace / "said", "--scheme=none", "--isa=avx2")
    assert "the parts for pictures and sound are left out" in result.stderr


def test_the_text_part_names_its_architecture(artifact, model, workspace):
    """The text part of mistral3 may be mistral or ministral3."""
    tokens = random_tokens(5, 96, 97)
    for name in ("mistral", "ministral3"):
        config, tensors = read_folder(model(name))
        outer = {"model_type": "mistral3", "text_config": config, "vision_config": {"hidden_size": 8}}
        named = {"language_model." + key: value for key, value in tensors.items()}
        folder = write_model(workspace / f"text-part-{name}", outer, named)
        out = artifact(folder, "--scheme=none", "--isa=avx2")
        assert np.array_equal(Runner(out).score(tokens), Runner(artifact(model(name), "--scheme=none", "--isa=avx2")).score(tokens))
    folder = write_model(workspace / "text-part-other", outer | {"text_config": config | {"model_type": "llama"}}, named)
    result = run_tool("easyquant-compile", folder, "-o", workspace / "other", "--scheme=none")
    assert_refused(result, 'text_config.model_type: found "llama"', 'of "mistral3" one of mistral, ministral3')


def test_a_short_context_has_one_table(artifact, model):
    """Queries within YaRN's original context are not scaled."""
    for context, queries in (("24", False), ("25", True)):
        out = artifact(model("ministral3"), "--scheme=none", "--isa=avx2", f"--context={context}")
        assert ("rope.queries.cos_sin" in load_file(out / "weights.safetensors")) == queries


def test_the_context_of_the_artifact_chooses_the_factors(artifact, model, tmp_path):
    """The short ones up to the original length, the long ones, also in short texts, beyond it."""
    folder = model("phi3, longrope")
    config, tensors = read_folder(folder)
    tokens = random_tokens(5, 24, 97)
    of = {context: Llama(config, tensors, dtype=np.float64, context=context).logits(tokens) for context in (24, 25)}
    assert np.abs(of[24] - of[25]).max() > 0.05
    for context, expected in of.items():
        out = artifact(folder, "--scheme=none", "--isa=avx2", f"--context={context}")
        assert np.abs(Runner(out).score(tokens) - expected).max() < 1e-4
    told = run_tool("easyquant-compile", folder, "-o", tmp_path / "out", "--scheme=none", "--isa=avx2")
    assert told.returncode == 0 and "the long factors of the rotary positions" in told.stderr and "--context 24 or less" in told.stderr


LKD = ["--scheme=W4A16", "--group-size=8", "--method=lkd", "--epochs=8"]


@pytest.fixture(scope="module")
def calibration(workspace):
    return [f"--tokens={write_tokens(workspace / 'descendants.safetensors', [random_tokens(seed, 48, 97) for seed in range(8)])}"]


def rounded(out, config, tensors):
    """The tensors with the weights of the artifact `out`."""
    made = Artifact.open(out)
    name_of = lambda site: "model.embed_tokens" if site == "lm_head" and config["tie_word_embeddings"] else site  # noqa: E731
    return tensors | {f"{name_of(site['name'])}.weight": read_site(made, site["name"]) for site in made.manifest["sites"]}


TRIED = ("llama 3.1", "olmo2", "smollm3", "gemma2", "gemma3", "granite", "phi3, longrope", "ministral3", "olmo3")
OPTIONS = {"W4A8": ["--scheme=W4A8", "--group-size=8"], "Q4": ["--scheme=Q4", "--activations=float"], "lkd": LKD}


# Each architecture with one of the options, and with all of them in the slow tests.
@pytest.mark.parametrize("name, how", [pytest.param(name, how, marks=() if i % 3 == j else pytest.mark.slow)
                                       for i, name in enumerate(TRIED) for j, how in enumerate(OPTIONS)])  # fmt: skip
def test_schemes_and_methods(artifact, model, calibration, name, how):
    """The program is the model of the weights that the artifact has, and no other one. Which weights these are, other tests say."""
    folder, options = model(name), OPTIONS[how]
    tokens = random_tokens(7, 96, 97)  # in which no activation lies so near between two codes that the oracle in f32 takes the other one
    config, tensors = read_folder(folder)
    out = artifact(folder, *options, *(calibration if options is LKD else ()), "--kv-cache=f32", "--isa=avx2")
    # Rounding a rounded weight again changes nothing; activations are rounded by the oracle, too.
    scheme = w4a8(8) if "--scheme=W4A8" in options else FLOAT
    weights = rounded(out, config, tensors)
    expected = Llama(config, weights, scheme, np.float64).logits(tokens)
    other = Llama(*without(config, weights, name), scheme, np.float64).logits(tokens)
    found = Runner(out).score(tokens)
    error = np.linalg.norm(found - expected)
    assert error < 1e-5 * np.linalg.norm(expected) and 1000 * error < np.linalg.norm(found - other)


@pytest.mark.parametrize("name", ["llama 3.1", "olmo2", "smollm3"])
def test_distillation_brings_a_model_nearer_to_the_float_one(artifact, model, calibration, name):
    tokens = random_tokens(6, 96, 97)
    expected = Llama(*read_folder(model(name)), dtype=np.float64).logits(tokens)
    learned, nearest = (
        np.linalg.norm(Runner(artifact(model(name), *options, "--kv-cache=f32", "--isa=avx2")).score(tokens) - expected)
        for options in ([*LKD, *calibration], [*LKD[:2], "--method=absmax"])
    )
    assert learned < 0.92 * nearest  # measured: 0.78, 0.89 and 0.84


@pytest.mark.parametrize("name", ["olmo2", "smollm3", "gemma3", "granite", "phi3, longrope", "ministral3", "olmo3"])
def test_on_a_gpu(artifact, model, name):
    """Simulated, with the codes of the CPU: floats differ by the order of sums."""
    out = artifact(model(name), "--scheme=W8A8", "--target=sm_80,cpu", "--isa=avx2")
    tokens = random_tokens(7, 6, 97)
    expected = Runner(out).score(tokens)
    assert np.abs(Runner(out, device="simt").score(tokens) - expected).max() <= 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("name", with_slow(MODELS, *SLOW))
def test_exported_folder_is_the_model(model, tmp_path, name):
    """Imported as IR and written back, the configuration and every weight mean the same."""
    config, tensors = read_folder(written_back(model(name), tmp_path))
    before, weights = read_folder(model(name))
    assert tensors.keys() == weights.keys()
    assert all(np.array_equal(tensors[key], weights[key]) for key in weights)
    tokens = random_tokens(5, 96, 97)
    assert np.array_equal(Llama(config, tensors, dtype=np.float64).logits(tokens), Llama(before, weights, dtype=np.float64).logits(tokens))
    assert config["model_type"] == before["model_type"]


def dense_granite(folder, **fields):
    """A Granite as transformers writes Granite 4: gate and up are one tensor, in a mixture that has no experts."""
    config, tensors = random_llama(11, **MODELS["granite"] | {"mlp_bias": False})
    config["shared_intermediate_size"] = config.pop("intermediate_size")
    config |= {"model_type": "granitemoehybrid", "num_local_experts": 0, "layer_types": ["attention"] * config["num_hidden_layers"],
               "position_embedding_type": "rope"}  # fmt: skip
    for layer in range(config["num_hidden_layers"]):
        mlp, shared = f"model.layers.{layer}.mlp", f"model.layers.{layer}.shared_mlp"
        tensors[f"{shared}.input_linear.weight"] = np.concatenate([tensors.pop(f"{mlp}.{part}_proj.weight") for part in ("gate", "up")])
        tensors[f"{shared}.output_linear.weight"] = tensors.pop(f"{mlp}.down_proj.weight")
    config |= fields
    return write_model(folder, {key: value for key, value in config.items() if value is not None}, tensors)


def test_granite_4(artifact, tmp_path):
    folder = dense_granite(tmp_path / "granite4")
    plain = write_model(tmp_path / "granite", *random_llama(11, **MODELS["granite"] | {"mlp_bias": False}))
    tokens = random_tokens(5, 96, 97)
    for options in (("--scheme=none",), ("--scheme=W4A8", "--group-size=32")):
        out = artifact(folder, *options, "--isa=avx2")
        assert np.array_equal(Runner(out).score(tokens), Runner(artifact(plain, *options, "--isa=avx2")).score(tokens))
        assert Artifact.open(out).model["architecture"] == "granite"
    for name in ("back", "plain"):
        (tmp_path / name).mkdir()
    back, expected = written_back(folder, tmp_path / "back"), written_back(plain, tmp_path / "plain")
    assert (back / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()


@pytest.mark.parametrize("fields, expected", [
    ({"num_local_experts": 8}, ("num_local_experts: 8 experts are not supported", "expected 0")),
    ({"num_local_experts": None}, ("num_local_experts: 8 experts",)),
    ({"layer_types": ["attention", "mamba"]}, ("layer_types", '"attention"', '"mamba"')),
    ({"layer_types": ["attention"]}, ("layer_types", "each of 2 layers", "found 1 of them")),
    ({"layer_types": None}, ("layer_types", "state spaces")),
    ({"position_embedding_type": "nope"}, ("position_embedding_type", "nope", '"rope"')),
    ({"position_embedding_type": None}, ("position_embedding_type", '"rope"')),
    ({"shared_intermediate_size": 10}, ("mlp.gate_proj.weight", "expected shape [10,")),
])
def test_granite_4_with_more(tmp_path, fields, expected):
    folder = dense_granite(tmp_path / "granite4", **fields)
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", "--scheme=none"), *expected)


@pytest.mark.parametrize("context, fields", [
    (2048, {"arch": "qwen3", "head_dim": 16, "heads": 2, "layers": 2}),
    (8192, {"arch": "qwen2", "heads": 2, "layers": 1, "rope_scaling": YARN | {"original_max_position_embeddings": 2048}}),
    (32768, {"arch": "mistral", "sliding_window": 500, "heads": 2, "layers": 2}),
    (32768, {"heads": 2, "layers": 1, "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 4096}, "rope_theta": 500000.0}),
])
def test_end_of_long_contexts(artifact, workspace, context, fields):
    """Prefill up to the last tokens of the context, decode these, and compare their logits with the oracle's."""
    fields = {"hidden": 32, "ffn": 24, **fields, "context": context}
    folder = write_model(workspace / f"{fields.get('arch', 'llama')}-{context}", *random_llama(12, **fields))
    tokens = random_tokens(9, context, 97)
    expected = Llama(*read_folder(folder), dtype=np.float64).logits(tokens, last=8)
    session = Runner(artifact(folder, "--scheme=none", "--isa=avx2")).session
    session.prefill(np.asarray(tokens[:-7], np.int32))
    for at, row in enumerate(expected):
        if at > 0:
            session.decode(tokens[context - 8 + at])
        assert np.abs(session.logits - row).max() < 1e-4
    assert session.position == context
