# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gemma 4, the text part: layers whose heads differ in size and number, values made of keys' projection, rotation in proportion, a factor of each
layer, layers that read the keys and values of others, embeddings of layers, and experts beside MLPs, against the numpy oracle; caches of codes,
batches, folders and GGUF."""

import json

import gguf
import numpy as np
import pytest

import make_checkpoint
from calibrating import write_tokens
from command_line import run_command_line
from easyquant.evaluation.weights import read_site, read_tensor
from easyquant.runtime.artifact import Artifact
from helpers import Runner, assert_refused, kl, random_gemma4, random_tokens, run_tool, with_slow, write_byte_level, write_gguf, write_model, written_back
from oracles.checkpoint import read_folder
from oracles.experts import apart
from oracles.kv_cache import QuantizedCacheLlama
from oracles.llama import Llama
from oracles.schemes import FLOAT, W8A8, w4a8
from sequences import check_bits_in_batches

SLIDING, FULL = "sliding_attention", "full_attention"
ROPE = {SLIDING: {"rope_type": "default", "rope_theta": 500.0},
        FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.55, "rope_theta": 3000.0}}
MODELS = {
    "shared projections": {"layer_types": [SLIDING, FULL, SLIDING, FULL], "attention_k_eq_v": True, "num_global_key_value_heads": 1,
                           "final_logit_softcapping": 4.0},
    "v of its own, biases": {"layers": 7, "heads": 6, "kv_heads": 3, "head_dim": 12, "full_head_dim": 20, "attention_bias": True, "tied": False,
                             "num_global_key_value_heads": 2, "rope_parameters": ROPE},
    "shared projections, as many heads": {"layer_types": [FULL, SLIDING, SLIDING, SLIDING], "full_head_dim": 24, "head_dim": 32, "attention_k_eq_v": True,
                                          "attention_bias": True, "rope_parameters": ROPE | {FULL: {"rope_type": "default", "rope_theta": 3000.0}}},
    "no windows": {"layers": 2, "layer_types": [FULL, FULL], "attention_k_eq_v": True, "num_global_key_value_heads": 4},
    "heads of one size": {"layers": 3, "layer_types": [SLIDING, SLIDING, FULL], "head_dim": 16},
    "shared keys": {"layers": 7, "layer_types": [SLIDING, FULL, SLIDING, FULL, SLIDING, SLIDING, FULL], "num_kv_shared_layers": 3},
    "shared keys, wide MLPs": {"layers": 5, "layer_types": [FULL, SLIDING, SLIDING, SLIDING, FULL], "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
                               "attention_k_eq_v": True, "num_global_key_value_heads": 1, "attention_bias": True, "tied": False},
    "embeddings of layers": {"layers": 3, "layer_types": [SLIDING, SLIDING, FULL], "hidden_size_per_layer_input": 12, "tied": False},
    "E2B in small": {"layers": 10, "layer_types": [SLIDING, SLIDING, SLIDING, SLIDING, FULL] * 2, "heads": 8, "kv_heads": 1, "num_kv_shared_layers": 5,
                     "use_double_wide_mlp": True, "hidden_size_per_layer_input": 16, "final_logit_softcapping": 30.0},
    "experts": {"layers": 3, "layer_types": [SLIDING, SLIDING, FULL], "hidden": 64, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
                "enable_moe_block": True, "num_experts": 6, "top_k_experts": 3, "moe_intermediate_size": 32, "final_logit_softcapping": 30.0},
    "experts, embeddings of layers": {"layers": 2, "layer_types": [SLIDING, FULL], "hidden_size_per_layer_input": 12, "tied": False,
                                      "enable_moe_block": True, "num_experts": 3, "top_k_experts": 1, "moe_intermediate_size": 20},
    "shared keys in heads of one size": {"layers": 3, "layer_types": [SLIDING, FULL, FULL], "full_head_dim": 8, "num_kv_shared_layers": 1},
    "heads of the sizes of models": {"layers": 2, "layer_types": [SLIDING, FULL], "heads": 2, "kv_heads": 1, "head_dim": 256, "full_head_dim": 512,
                                     "attention_k_eq_v": True},
}
FLOATS = ("--scheme=none", "--isa=avx2")
# These vary what the others test.
SLOW = ("shared projections, as many heads", "no windows", "heads of one size", "shared keys", "experts, embeddings of layers",
        "shared keys in heads of one size", "heads of the sizes of models")


@pytest.fixture(scope="module")
def model(workspace):
    """model(name): the folder of MODELS[name], made once."""

    def make(name):
        folder = workspace / name.replace(" ", "-").replace(",", "")
        return folder if folder.exists() else write_model(folder, *random_gemma4(11, **MODELS[name]))

    return make


def logits(folder, tokens, scheme=FLOAT):
    return Llama(*read_folder(folder), scheme, np.float64).logits(tokens)


@pytest.mark.parametrize("name", with_slow(MODELS, *SLOW))
def test_float_logits(artifact, model, name):
    tokens = random_tokens(5, 96, 97)
    expected = logits(model(name), tokens)
    assert np.abs(expected).max() > 1
    runner = Runner(artifact(model(name), *FLOATS))
    assert np.abs(runner.score(tokens) - expected).max() < 1e-4
    # Token by token behind a prompt, as a conversation runs.
    runner.session.reset()
    runner.session.prefill(np.asarray(tokens[:50], np.int32))
    for at in range(50, 96):
        runner.session.decode(tokens[at])
        assert np.abs(runner.session.logits - expected[at]).max() < 1e-4


@pytest.mark.parametrize("what, change", [
    ("factors of layers", lambda config, tensors: (config, {key: np.ones_like(value) if "scalar" in key else value for key, value in tensors.items()})),
    ("the soft cap", lambda config, tensors: (config | {"final_logit_softcapping": None}, tensors)),
    ("windows", lambda config, tensors: (config | {"sliding_window": 96}, tensors)),
    ("proportion", lambda config, tensors: (config | {"rope_parameters": ROPE | {FULL: {"rope_type": "default", "rope_theta": 1e6}, SLIDING: {"rope_theta": 1e4}}}, tensors)),
    ("bases", lambda config, tensors: (config | {"rope_parameters": {FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
                                                                    SLIDING: {"rope_theta": 1e6}}}, tensors)),
    ("norms", lambda config, tensors: (config, {key: np.ones_like(value) if "norm" in key else value for key, value in tensors.items()})),
])
def test_the_oracle_sees_every_part(model, what, change):
    """The comparison above could fail."""
    config, tensors = read_folder(model("shared projections"))
    tokens = random_tokens(5, 96, 97)
    changed = Llama(*change(config, tensors), dtype=np.float64).logits(tokens)
    assert np.abs(changed - logits(model("shared projections"), tokens)).max() > 0.05, what


def test_values_are_normed_and_not_keys(model):
    """Values are what k gives before its norm and rotation, divided by their root mean square."""
    config, tensors = read_folder(model("shared projections"))
    oracle = Llama(config, tensors, dtype=np.float64)
    rows = np.random.default_rng(3).normal(size=(5, 40))
    layer = oracle.layers[1]
    _, k, v = oracle.projections(layer, rows)
    raw = (rows @ tensors["model.layers.1.self_attn.k_proj.weight"].T).reshape(5, 1, 16)
    assert np.allclose(v, raw / np.sqrt(np.mean(raw**2, axis=-1, keepdims=True) + 1e-6))
    assert np.allclose(k, v * tensors["model.layers.1.self_attn.k_norm.weight"]) and "v_proj" not in layer


@pytest.mark.parametrize("what, change", [
    ("the table", lambda config, tensors: (config, {key: np.roll(value, 1, 0) if "per_layer.weight" in key else value for key, value in tensors.items()})),
    ("the projection of embeddings", lambda config, tensors: (config, {key: 0 * value if "model_projection" in key else value for key, value in tensors.items()})),
    ("its norm", lambda config, tensors: (config, {key: 0 * value + 1 if "projection_norm" in key else value for key, value in tensors.items()})),
    ("gates", lambda config, tensors: (config, {key: -value if "input_gate" in key else value for key, value in tensors.items()})),
    ("norms behind", lambda config, tensors: (config, {key: 0 * value + 1 if "input_norm" in key else value for key, value in tensors.items()})),
    ("which layers are read", lambda config, tensors: (config, {key: -value if "layers.3.self_attn.v_proj" in key else value for key, value in tensors.items()})),
    ("keys of full layers", lambda config, tensors: (config, {key: np.roll(value, 1, 0) if "layers.4.self_attn.k_proj" in key else value
                                                              for key, value in tensors.items()})),
])
def test_the_oracle_sees_what_layers_share(model, what, change):
    config, tensors = read_folder(model("E2B in small"))
    tokens = random_tokens(5, 96, 97)
    changed = Llama(*change(config, tensors), dtype=np.float64).logits(tokens)
    assert np.abs(changed - logits(model("E2B in small"), tokens)).max() > 0.05, what


@pytest.mark.parametrize("what, change", [
    ("the MLP", lambda key, value: 0 * value + 1 if "layernorm_1" in key else value),
    ("what experts read", lambda key, value: 0 * value + 1 if "feedforward_layernorm_2" in key else value),
    ("what the router reads", lambda key, value: 0 * value + 1 if "router.scale" in key else value),
    ("factors of experts", lambda key, value: 0 * value + 1 if "per_expert" in key else value),
    ("experts", lambda key, value: np.roll(value, 1, 0) if "experts." in key else value),
])
def test_the_oracle_sees_experts(model, what, change):
    config, tensors = read_folder(model("experts"))
    tokens = random_tokens(5, 96, 97)
    changed = Llama(config, {key: change(key, value) for key, value in tensors.items()}, dtype=np.float64).logits(tokens)
    assert np.abs(changed - logits(model("experts"), tokens)).max() > 0.05, what


def test_keys_that_nobody_reads_are_left_out(artifact, model, tmp_path):
    """Files of E2B have k_proj and v_proj in layers that read those of others."""
    config, tensors = read_folder(model("E2B in small"))
    more = {f"model.layers.{layer}.self_attn.{part}.weight": np.full((3, 5), 7, np.float32) for layer in range(5, 10) for part in ("k_proj", "v_proj", "k_norm")}
    tokens = random_tokens(5, 40, 97)
    expected = Runner(artifact(model("E2B in small"), *FLOATS)).score(tokens)
    assert np.array_equal(Runner(artifact(write_model(tmp_path / "more", config, tensors | more), *FLOATS)).score(tokens), expected)
    folder = write_model(tmp_path / "odd", config, tensors | {"model.layers.4.self_attn.sinks": np.ones(8, np.float32)})
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *FLOATS), "layers.4.self_attn.sinks", "has no place")


@pytest.mark.parametrize("name", ["shared projections", "E2B in small", "experts"])
def test_sequences_of_a_batch_have_their_own_bits(artifact, model, name):
    check_bits_in_batches(Runner(artifact(model(name), *FLOATS)).model, count=5, length=90, longest=24)


# ----------------------------------------------------------------------------------------------------------- configurations


def test_the_text_part_of_a_model_with_pictures(artifact, model, tmp_path):
    config, tensors = read_folder(model("shared projections"))
    tokens = random_tokens(5, 40, 97)
    text = {key: value for key, value in config.items() if key != "tie_word_embeddings"} | {"use_bidirectional_attention": "vision"}
    outer = {"model_type": "gemma4", "text_config": text, "vision_config": {"hidden_size": 8}, "tie_word_embeddings": True}
    named = {"model.language_model." + name.removeprefix("model."): value for name, value in tensors.items()}
    folder = write_model(tmp_path / "whole", outer, named | {"model.vision_tower.patch.weight": np.ones((4, 4), np.float32),
                                                            "model.embed_vision.embedding_projection.weight": np.ones((4, 4), np.float32)})
    assert np.array_equal(Runner(artifact(folder, *FLOATS)).score(tokens), Runner(artifact(model("shared projections"), *FLOATS)).score(tokens))
    done = run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *FLOATS)
    assert "the parts for pictures and sound are left out" in done.stderr


@pytest.mark.parametrize("change, expected", [
    ({"num_kv_shared_layers": 4}, ["num_kv_shared_layers", "found 4"]),
    ({"num_kv_shared_layers": 3, "layer_types": [SLIDING, FULL, FULL, FULL]}, ["layer 1 reads the keys and values of the last layer without a window before layer 1"]),
    ({"hidden_size_per_layer_input": 12}, ["model.embed_tokens_per_layer.weight", "missing"]),
    ({"hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 98}, ["vocab_size_per_layer_input", "each of 97 tokens, found 98"]),
    ({"hidden_size_per_layer_input": 1 << 23}, ["embeddings of 8388608 columns for each of 4 layers", "too wide"]),
    ({"hidden_size_per_layer_input": -1}, ["hidden_size_per_layer_input", "found -1"]),
    ({"enable_moe_block": True}, ["num_experts: found nothing"]),
    ({"enable_moe_block": True, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 32}, ["each token chooses 5 experts, but there are 4"]),
    ({"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}, ["layers.0.post_feedforward_layernorm_1.weight", "missing"]),
    ({"num_kv_shared_layers": 2, "use_double_wide_mlp": True}, ["layers.2.mlp.gate_proj.weight", "expected shape [104, 40]"]),
    ({"use_bidirectional_attention": "all"}, ["use_bidirectional_attention", 'expected null or "vision"']),
    ({"per_layer_config": {"1": {"head_dim": 16}}}, ["per_layer_config", "expected null"]),
    ({"sliding_window": None}, ["sliding_window: null is not supported"]),
    ({"num_global_key_value_heads": 3}, ["4 attention heads cannot share 3 key-value heads"]),
    ({"global_head_dim": 15}, ["15 rotated dimensions", "even"]),
    ({"head_dim": 7}, ["7 rotated dimensions", "even"]),
    ({"rope_parameters": {"rope_type": "default"}}, ["rope_parameters", "full_attention: missing"]),
    ({"rope_parameters": ROPE | {FULL: {"rope_type": "proportional", "factor": 2.0}}}, ["factor: 2 is not supported with rope_type"]),
    ({"rope_parameters": ROPE | {FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.1}}}, ["partial_rotary_factor", "16 dimensions", "found 0.1"]),
    ({"rope_parameters": ROPE | {SLIDING: {"rope_type": "linear", "factor": 2.0}}}, ["RoPE scaling", "layers with a window"]),
    ({"global_head_dim": 24}, ["layers.1.self_attn.q_proj.weight", "expected shape [96, 40]", "found [64, 40]"]),
    ({"attention_k_eq_v": False}, ["layers.1.self_attn.k_proj.weight", "expected shape"]),
])
def test_what_config_json_may_not_say(model, tmp_path, change, expected):
    config, tensors = read_folder(model("shared projections"))
    folder = write_model(tmp_path / "model", config | change, tensors)
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *FLOATS), *expected)


def test_the_default_has_embeddings_of_layers(model, tmp_path):
    config, tensors = read_folder(model("shared projections"))
    folder = write_model(tmp_path / "model", {key: value for key, value in config.items() if key != "hidden_size_per_layer_input"}, tensors)
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *FLOATS), "model.embed_tokens_per_layer.weight")


@pytest.mark.parametrize("scalar", [0.0, -1.0])
def test_a_factor_that_is_none(model, tmp_path, scalar):
    config, tensors = read_folder(model("shared projections"))
    folder = write_model(tmp_path / "model", config, tensors | {"model.layers.2.layer_scalar": np.array([scalar], np.float32)})
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *FLOATS), "model.layers.2.layer_scalar", "positive number")


@pytest.mark.parametrize("name", with_slow(MODELS, *SLOW))
def test_exported_folder_is_the_model(model, tmp_path, name):
    """Imported as IR and written back, the configuration and every weight mean the same."""
    config, tensors = read_folder(written_back(model(name), tmp_path))
    before, weights = read_folder(model(name))
    assert tensors.keys() == weights.keys()
    assert all(np.array_equal(tensors[key], weights[key]) for key in weights)
    tokens = random_tokens(5, 96, 97)
    assert np.array_equal(Llama(config, tensors, dtype=np.float64).logits(tokens), logits(model(name), tokens))
    assert config["model_type"] == "gemma4_text"
    for key, otherwise in {"hidden_size_per_layer_input": 0, "enable_moe_block": False, "num_kv_shared_layers": 0, "use_double_wide_mlp": False}.items():
        assert config[key] == before.get(key, otherwise)
    assert config["layer_types"][-1] == FULL and isinstance(config["sliding_window"], int)


# ------------------------------------------------------------------------------------------------------ schemes and methods


@pytest.mark.parametrize("name", ["shared projections", "v of its own, biases", "shared keys", "E2B in small", "experts"])
def test_w8a8(artifact, model, name):
    tokens = random_tokens(6, 96, 97)
    expected = logits(model(name), tokens, W8A8)
    found = Runner(artifact(model(name), "--scheme=W8A8", "--kv-cache=f32", "--isa=avx2")).score(tokens)
    plain = logits(model(name), tokens)
    assert np.linalg.norm(found - expected) < 5e-3 * np.linalg.norm(expected)
    assert np.linalg.norm(expected - plain) > 3 * np.linalg.norm(found - expected)


@pytest.fixture(scope="module")
def calibration(workspace):
    return [f"--tokens={write_tokens(workspace / 'gemma4.safetensors', [random_tokens(seed, 48, 97) for seed in range(8)])}"]


def rounded(out, config, tensors):
    """The tensors with the weights of the artifact `out`."""
    made = Artifact.open(out)
    name_of = lambda site: "model.embed_tokens" if site == "lm_head" and config["tie_word_embeddings"] else site  # noqa: E731
    result = apart(tensors) | {name: read_tensor(made, name) for name in tensors if "layernorm" in name}  # which may have factors
    for site in made.manifest["sites"]:
        name, weight = name_of(site["name"]), read_site(made, site["name"])
        at, is_expert, part = name.partition(".experts.")
        if is_expert:
            result |= {f"{at}.experts.{expert}.{part}.weight": rows for expert, rows in enumerate(np.split(weight, config["num_experts"]))}
        else:
            result[f"{name}.weight"] = weight
    return result


GROUPS = ["--scheme=W4A16", "--group-size=8"]


@pytest.mark.parametrize("name, options", [
    ("shared projections", ["--scheme=W4A8", "--group-size=8"]), ("v of its own, biases", ["--scheme=Q4", "--activations=float"]),
    ("shared projections", [*GROUPS, "--method=lkd", "--epochs=4"]), ("v of its own, biases", [*GROUPS, "--method=gptq"]),
    ("shared projections", [*GROUPS, "--method=signround", "--steps=8"]), ("experts", ["--scheme=Q4", "--activations=float"]),
    ("experts", [*GROUPS, "--method=gptq"]), ("experts", [*GROUPS, "--method=awq"]), ("experts", [*GROUPS, "--method=smoothquant"]),
    ("experts", [*GROUPS, "--method=awq+signround", "--steps=40"])])  # fmt: skip
def test_schemes_and_methods(artifact, model, calibration, name, options):
    """The program is the model of the weights that the artifact has, and no other one. Which weights these are, other tests say."""
    tokens = random_tokens(7, 96, 97)
    config, tensors = read_folder(model(name))
    out = artifact(model(name), *options, *(calibration if any("--method" in option for option in options) else ()), "--kv-cache=f32", "--isa=avx2")
    scheme = w4a8(8) if "--scheme=W4A8" in options else FLOAT
    weights = rounded(out, config, tensors)
    expected = Llama(config, weights, scheme, np.float64).logits(tokens)
    found = Runner(out).score(tokens)
    error = np.linalg.norm(found - expected)
    assert error < 1e-5 * np.linalg.norm(expected) and 100 * error < np.linalg.norm(found - logits(model(name), tokens))


@pytest.mark.parametrize("options", [["--scheme=W4A8", "--group-size=8"], ["--scheme=Q4", "--activations=float"]])
def test_schemes_of_models_that_share(artifact, model, options):
    """The projection of embeddings stays float, as llama.cpp leaves it."""
    tokens = random_tokens(7, 96, 97)
    config, tensors = read_folder(model("E2B in small"))
    out = artifact(model("E2B in small"), *options, "--kv-cache=f32", "--isa=avx2")
    made = Artifact.open(out).manifest["sites"]
    sites = {site["name"] for site in made if site["weight"] is not None}
    assert {site["name"] for site in made} - sites == {"model.per_layer_model_projection"}
    assert ("model.embed_tokens_per_layer" in sites) == ("--scheme=Q4" in options)  # where a mix gives embeddings a type
    plans = json.loads(run_tool("easyquant-compile", model("E2B in small"), *options, "--isa=avx2", "--dry-run").stdout)["sites"]
    assert {site["name"]: site["float_by_default"] for site in plans if "float_by_default" in site} == {"model.per_layer_model_projection": "feeds all layers"}
    assert {"model.layers.9.per_layer_input_gate", "model.layers.9.per_layer_projection", "model.layers.9.mlp.gate_proj"} < sites
    assert "model.layers.9.self_attn.k_proj" not in sites
    expected = Llama(config, rounded(out, config, tensors), w4a8(8) if "--scheme=W4A8" in options else FLOAT, np.float64).logits(tokens)
    errors = np.abs(Runner(out).score(tokens) - expected).max(axis=1)
    # An activation in the middle between two codes may become either: then its row is another one.
    assert np.count_nonzero(errors > 1e-3) <= (4 if "--scheme=W4A8" in options else 0)
    assert 100 * np.median(errors) < np.abs(expected - logits(model("E2B in small"), tokens)).max(axis=1).min()


def test_the_table_of_layers_may_have_codes(artifact, model, tmp_path):
    recipe = tmp_path / "recipe.json"
    names = ("model.embed_tokens_per_layer", "model.per_layer_model_projection")
    recipe.write_text(json.dumps({"scheme": "none", "sites": [{"match": name, "scheme": "W8A16"} for name in names]}))
    config, tensors = read_folder(model("E2B in small"))
    out = artifact(model("E2B in small"), f"--recipe={recipe}", "--kv-cache=f32", "--isa=avx2")
    assert {site["name"] for site in Artifact.open(out).manifest["sites"] if site["weight"] is not None} == set(names)
    tokens = random_tokens(6, 96, 97)
    expected = Llama(config, rounded(out, config, tensors), dtype=np.float64).logits(tokens)
    error = np.linalg.norm(Runner(out).score(tokens) - expected)
    assert error < 1e-5 * np.linalg.norm(expected) and 100 * error < np.linalg.norm(expected - logits(model("E2B in small"), tokens))


@pytest.mark.parametrize("options, expected", [
    (["--kv-scheme=int8"], ["layers.5.self_attn", "reads the keys and values of another layer", "leave --kv-scheme out"]),
    (["--method=gptq"], ["keys and values of another layer", "calibration text"]),
    (["--activations=static"], ["keys and values of another layer", "calibration text"]),
])
def test_what_models_that_share_go_without(model, calibration, tmp_path, options, expected):
    text = () if "--kv-scheme=int8" in options else calibration
    result = run_tool("easyquant-compile", model("E2B in small"), "-o", tmp_path / "out", "--scheme=W8A8", *options, *text)
    assert_refused(result, *expected)


def test_no_factor_passes_the_norm_of_values(artifact, workspace, calibration):
    """Where each head has values of its own a factor could go to v, but for the norm behind it. What o reads keeps its columns."""
    folder = write_model(workspace / "own-values", *random_gemma4(13, layers=2, kv_heads=4, layer_types=[SLIDING, FULL]))
    out = artifact(folder, "--scheme=W8A8", "--method=smoothquant", *calibration, "--kv-cache=f32", "--isa=avx2")
    transforms = Artifact.open(out).manifest["quantization"]["transforms"]
    of_outputs = [transform for transform in transforms if any("o_proj" in site for site in transform["sites"])]
    assert len(of_outputs) == 2 and all("lm.head_rms_norm, through which no factor passes" in transform["skipped"] for transform in of_outputs)
    assert any("gate_proj" in site for transform in transforms if "skipped" not in transform for site in transform["sites"])
    tokens = random_tokens(7, 96, 97)
    expected = logits(folder, tokens)
    assert np.linalg.norm(Runner(out).score(tokens) - expected) < 0.1 * np.linalg.norm(expected)


KV = {"group": 16, "residual": 32, "sinks": 4}
KV_FLAGS = ("--kv-group=16", "--kv-residual=32", "--kv-sinks=4")


@pytest.mark.parametrize("bits, options, flags", [
    (8, {}, []), (4, {"pre_rope": True}, ["--kv-keys=pre-rope"]), (4, {"keys_per_token": True}, ["--kv-key-scales=token"]),
    (8, {"hadamard": True}, ["--kv-keys=hadamard"])])  # fmt: skip
def test_a_cache_of_codes(artifact, workspace, bits, options, flags):
    """Layers with other heads have other parts of a page and of the window."""
    folder = workspace / "codes"
    if not folder.exists():  # windows that reach codes
        write_model(folder, *random_gemma4(12, **MODELS["shared projections"] | {"sliding_window": 60, "head_dim": 16, "full_head_dim": 32}))
    tokens = random_tokens(4, 90, 97)
    out = artifact(folder, *FLOATS, "--kv-cache=f32", f"--kv-scheme=int{bits}", *KV_FLAGS, *flags)
    session = Runner(out).session
    found = np.concatenate([session.score(np.array([token], np.int32)) for token in tokens])
    expected = QuantizedCacheLlama(*read_folder(folder), kv={"bits": bits, **KV, **options}, dtype=np.float64).logits(tokens)
    moved, apart = kl(logits(folder, tokens), expected), kl(expected, found)
    assert moved > 1e-7
    assert apart < 0.02 * moved + 1e-9, (moved, apart)


def test_a_page_is_the_sum_of_its_layers(artifact, model):
    """Layers with a window have pages of their own."""
    def of_tokens(name):
        cache = Artifact.open(artifact(model(name), *FLOATS)).manifest["program"]["cache"]
        return [size / cache["page_tokens"] / 2 / 4 for size in (cache["page_bytes"], cache["sliding"]["page_bytes"])]

    assert of_tokens("shared projections") == [2 * 1 * 16, 2 * 2 * 8]
    assert of_tokens("E2B in small") == [16, 4 * 8]  # of the five layers that make keys


def test_other_targets_and_ranks(model, tmp_path):
    for name, options, expected in (
        ("shared projections", ["--tensor-parallel=2"], ["has 1 key-value heads, which 2 ranks cannot share", "legal degrees of tensor parallelism: 1"]),
        ("E2B in small", ["--tensor-parallel=2"], ["has 1 key-value heads, which 2 ranks cannot share", "legal degrees of tensor parallelism: 1"])):
        result = run_tool("easyquant-compile", model(name), "-o", tmp_path / "out", "--scheme=W8A8", *options)
        assert_refused(result, *expected)


# --------------------------------------------------------------------------------------------------------------------- GGUF


@pytest.mark.parametrize("name", with_slow(MODELS, *SLOW))
def test_gguf_is_the_same_model(artifact, model, workspace, tmp_path, name):
    config, tensors = read_folder(model(name))
    path = write_gguf(workspace / f"{model(name).name}.gguf", config, tensors)
    tokens = random_tokens(5, 96, 97)
    expected = logits(model(name), tokens)
    assert np.abs(Runner(artifact(path, *FLOATS)).score(tokens) - expected).max() < 1e-4
    config, weights = read_folder(written_back(path, tmp_path, "gguf"))
    assert weights.keys() == tensors.keys() and all(np.array_equal(weights[key], tensors[key]) for key in tensors)
    assert np.abs(Llama(config, weights, dtype=np.float64).logits(tokens) - expected).max() < 1e-4  # bases are f32 there


@pytest.mark.parametrize("change, expected", [
    ({"attention.shared_kv_layers": 4}, ["attention.shared_kv_layers", "from 0 to 3"]),
    ({"feed_forward_length": [52, 52, 104, 104]}, ["feed_forward_length", "twice as large in the last 0"]),
    ({"feed_forward_length": [52, 52, 52]}, ["feed_forward_length", "each of 4 layers"]),
    ({"embedding_length_per_layer_input": 8}, ["per_layer_token_embd.weight", "missing"]),
    ({"expert_count": 4}, ["gemma4.expert_used_count", "missing"]),
    ({"attention.head_count_kv": [2, 1, 2]}, ["head_count_kv", "each of 4 layers"]),
    ({"attention.head_count_kv": [2, 1, 4, 1]}, ["head_count_kv", "layers with a window"]),
    ({"attention.head_count_kv": [2, 0, 2, 0]}, ["head_count_kv", "from 1 to"]),
    ({"attention.value_length_swa": 4}, ["keys of 8 and values of 4"]),
    ({"rope.dimension_count": 8}, ["rotating 8 of 16 dimensions"]),
    ({"rope.dimension_count_swa": 4}, ["rotating 4 of 8 dimensions"]),
    ({"attention.sliding_window_pattern": [True, False]}, ["sliding_window_pattern", "each of 4 layers"]),
])
def test_what_gguf_may_not_say(model, tmp_path, monkeypatch, change, expected):
    config, tensors = read_folder(model("shared projections"))
    honest = make_checkpoint.as_gemma4
    monkeypatch.setattr(make_checkpoint, "as_gemma4", lambda *given: (honest(*given)[0] | change, honest(*given)[1]))
    path = write_gguf(tmp_path / "changed.gguf", config, tensors)
    assert_refused(run_tool("easyquant-compile", path, "-o", tmp_path / "out", *FLOATS), *expected)


@pytest.mark.parametrize("factors", [[1.0, 2.0] + [1e30] * 6, [1e30] * 8, [1.0, 1e30, 1.0] + [1e30] * 5])
def test_factors_that_are_no_proportion(model, tmp_path, monkeypatch, factors):
    config, tensors = read_folder(model("shared projections"))
    honest = make_checkpoint.as_gemma4
    monkeypatch.setattr(make_checkpoint, "as_gemma4",
                        lambda *given: (honest(*given)[0], honest(*given)[1] | {"rope_freqs.weight": ((8,), factors)}))
    path = write_gguf(tmp_path / "changed.gguf", config, tensors)
    assert_refused(run_tool("easyquant-compile", path, "-o", tmp_path / "out", *FLOATS), "rope_freqs.weight", "each pair that turns")


@pytest.mark.parametrize("more", [{"attention_k_eq_v": True, "num_global_key_value_heads": 1},
                                  {"layers": 6, "layer_types": [SLIDING, FULL] * 3, "num_kv_shared_layers": 4, "use_double_wide_mlp": True,
                                   "hidden_size_per_layer_input": 32},
                                  {"layers": 2, "layer_types": [SLIDING, FULL], "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
                                   "moe_intermediate_size": 32}], ids=["12B", "E2B", "26B-A4B"])  # fmt: skip
def test_exported_gguf(artifact, tmp_path, more):
    """All but the head is as it was, the scalars of layers too, which the module has as attributes."""
    config, tensors = random_gemma4(13, vocab=330, hidden=64, head_dim=16, full_head_dim=32, final_logit_softcapping=20.0,
                                    **more)  # fmt: skip
    tensors = {key: value.astype(np.float16).astype(np.float32) for key, value in tensors.items()}
    folder, out = write_byte_level(write_model(tmp_path / "model", config, tensors), vocabulary=320), tmp_path / "out"
    done = run_command_line("export", folder, "--format", "gguf", "-o", out, "--scheme=none")
    assert done.returncode == 0, done.stderr
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(out / "model.gguf").tensors}
    head = gguf.quants.dequantize(found["token_embd.weight"].data, found["token_embd.weight"].tensor_type)
    tokens = random_tokens(7, 96, 330)
    expected = Llama(config, tensors | {"model.embed_tokens.weight": head}, dtype=np.float64).logits(tokens)
    result = Runner(artifact(out / "model.gguf", "--scheme=none", "--isa=avx2")).score(tokens)
    assert np.linalg.norm(result - expected) < 1e-5 * np.linalg.norm(expected)


def with_gate_and_up_in_one(path, out):
    """A copy in which gate and up of all experts of a layer are one tensor, as llama.cpp's converter writes them."""
    reader, writer = gguf.GGUFReader(path), gguf.GGUFWriter(out, "gemma4")
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    for name, tensor in tensors.items():
        if "ffn_up_exps" in name:
            continue
        rows = tensor.data
        if "ffn_gate_exps" in name:
            name, rows = name.replace("gate", "gate_up"), np.concatenate([rows, tensors[name.replace("gate", "up")].data], axis=1)
        writer.add_tensor(name, rows, raw_dtype=tensor.tensor_type)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        write()


@pytest.mark.parametrize("scheme", ["Q8_0", "Q4_0"])
def test_gate_and_up_in_one_tensor_of_codes(artifact, tmp_path, scheme):
    config, tensors = random_gemma4(13, **MODELS["experts"] | {"vocab": 330, "ffn": 96, "head_dim": 16, "full_head_dim": 32})
    folder, out = write_byte_level(write_model(tmp_path / "model", config, tensors), vocabulary=320), tmp_path / "out"
    done = run_command_line("export", folder, "--format", "gguf", "-o", out, f"--scheme={scheme}")
    assert done.returncode == 0, done.stderr
    with_gate_and_up_in_one(out / "model.gguf", tmp_path / "joined.gguf")
    tokens = random_tokens(7, 96, 330)
    expected, found = (artifact(path, "--isa=avx2") for path in (out / "model.gguf", tmp_path / "joined.gguf"))
    assert {site["weight"]["bits"] for site in Artifact.open(found).manifest["sites"] if ".experts." in site["name"]} == {int(scheme[1])}
    assert np.array_equal(Runner(found).score(tokens), Runner(expected).score(tokens))
