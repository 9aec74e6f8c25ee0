# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gated delta nets and gated attention: the text part of Qwen3.5, against the numpy oracle. Prompts in pieces, many sequences in a step, forks,
saved sequences; Hugging Face folders with parts for pictures and heads that draft, and GGUF, whose value heads are in another order."""

import json
import math

import gguf
import numpy as np
import pytest

import make_checkpoint
from calibrating import write_tokens
from command_line import run_command_line
from easyquant import _runtime
from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from helpers import Runner, assert_refused, random_qwen35, random_tokens, run_tool, sites_of, write_byte_level, write_gguf, write_model, written_back
from oracles.checkpoint import read_folder
from oracles.qwen35 import Qwen35, recurrence
from oracles.schemes import FLOAT, W8A8, w4a8
from sequences import alone, append, check_bits_in_batches

MODELS = {
    "three value heads a key head": {},
    "as many value heads": {"kinds": ("full_attention", "linear_attention"), "key_heads": 2, "value_heads": 2, "key_dim": 8, "value_dim": 8,
                            "heads": 4, "kv_heads": 2, "width": 2, "tied": False, "rotated": 0.5, "attention_bias": True},
    "wide": {"kinds": ("linear_attention", "full_attention"), "hidden": 64, "head_dim": 32, "key_heads": 1, "value_heads": 2, "key_dim": 32,
             "value_dim": 32, "rotated": 1.0},
}
FLOATS = ("--scheme=none", "--isa=avx2")


@pytest.fixture(scope="module")
def model(workspace):
    """model(name): the folder of MODELS[name], made once."""

    def make(name):
        folder = workspace / name.replace(" ", "-")
        return folder if folder.exists() else write_model(folder, *random_qwen35(11, **MODELS[name]))

    return make


def oracle(folder, scheme=FLOAT):
    return Qwen35(*read_folder(folder), scheme, np.float64)


def relative(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def errors(found, expected):
    """The largest of each token. Where what the recurrence gives is near 0, the norm behind it divides by that, and a few tokens have large ones."""
    return np.abs(found - expected).max(axis=1)


@pytest.mark.parametrize("name", MODELS)
def test_float_logits(artifact, model, name):
    tokens = random_tokens(5, 150, 97)
    expected = oracle(model(name)).logits(tokens)
    assert np.abs(expected).max() > 1
    runner = Runner(artifact(model(name), *FLOATS))
    whole = runner.score(tokens)
    assert relative(whole, expected) < 5e-6 and np.median(errors(whole, expected)) < 3e-5
    # In pieces of all lengths, and token by token behind a prompt: the same bits.
    for pieces in ([1] * 150, [7] * 21 + [3], [100] + [1] * 50, [2, 64, 65, 19], [63, 1, 64, 22]):
        runner.session.reset()
        parts, at = [], 0
        for count in pieces:
            parts.append(np.array(runner.session.score(np.asarray(tokens[at:at + count], np.int32))))
            at += count
        assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(Runner(artifact(model(name), *FLOATS), threads=3).score(tokens), whole)


def chunked(q, k, v, decay, strength, size=64):
    """The recurrence in chunks, by triangular systems (section 3.3 of the paper): other sums than the oracle's."""
    state, out = np.zeros((k.shape[1], v.shape[1])), []
    for start in range(0, len(q), size):
        a, b, c, beta = (part[start:start + size] for part in (q, k, v, strength))
        passed = np.cumprod(decay[start:start + size])
        between = np.tril(passed[:, None] / passed)
        system = np.eye(len(a)) + np.tril(beta[:, None] * between * (b @ b.T), -1)
        change = np.linalg.solve(system, beta[:, None] * (c - passed[:, None] * (b @ state)))
        out.append(passed[:, None] * (a @ state) + (between * (a @ b.T)) @ change)
        state = passed[-1] * state + (b * (passed[-1] / passed)[:, None]).T @ change
    return np.concatenate(out)


def test_the_oracle_is_the_form_in_chunks():
    random = np.random.default_rng(3)
    q, k, v = (random.normal(size=(150, width)) for width in (12, 12, 20))
    k /= np.linalg.norm(k, axis=1, keepdims=True)
    decay, strength = random.uniform(0.8, 1, 150), random.uniform(size=150)
    expected = recurrence(q, k, v, decay, strength)
    assert np.abs(chunked(q, k, v, decay, strength) - expected).max() < 1e-10 * np.abs(expected).max()


@pytest.mark.parametrize("part, put", [
    ("conv1d.weight", lambda x: np.concatenate([np.zeros_like(x[..., :1]), x[..., 1:]], axis=-1)), ("A_log", lambda x: x + 1),
    ("dt_bias", lambda x: x + 1), ("in_proj_a.weight", lambda x: -x), ("in_proj_b.weight", lambda x: -x), ("in_proj_z.weight", lambda x: -x),
    ("linear_attn.norm.weight", lambda x: x + 1), ("q_norm.weight", lambda x: x + 1), ("in_proj_qkv.weight", lambda x: np.roll(x, -20, axis=0)),
    ("q_proj.weight", lambda x: np.roll(x, 24, axis=0)),
])
def test_the_oracle_sees_every_part(model, part, put):
    """The comparison above could fail."""
    config, tensors = read_folder(model("three value heads a key head"))
    tokens = random_tokens(5, 80, 97)
    changed = {key: put(value) if key.endswith(part) else value for key, value in tensors.items()}
    assert np.abs(Qwen35(config, changed, dtype=np.float64).logits(tokens) - Qwen35(config, tensors, dtype=np.float64).logits(tokens)).max() > 0.02


def test_rounding_errors_do_not_grow_along_a_text(artifact, workspace):
    folder = write_model(workspace / "long", *random_qwen35(11, context=1100))
    tokens = random_tokens(5, 1100, 97)
    expected = oracle(folder).logits(tokens)
    found = Runner(artifact(folder, *FLOATS)).score(tokens)
    first, *_, last = (np.median(part) for part in np.array_split(errors(found, expected), 5))
    assert last < 2 * first < 6e-5
    # The oracle itself rounds worse in f32.
    assert relative(found, expected) < relative(Qwen35(*read_folder(folder), dtype=np.float32).logits(tokens), expected)


# ----------------------------------------------------------------------------------------------------------- configurations


def multimodal(config, tensors, prefix):
    """The model as the text part of one that reads pictures and drafts."""
    top = ("architectures", "tie_word_embeddings", "eos_token_id")
    text = {key: value for key, value in config.items() if key not in (*top, "rope_theta", "partial_rotary_factor", "layer_types")}
    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": config["rope_theta"], "partial_rotary_factor": config["partial_rotary_factor"],
                                 "mrope_section": [1, 1, 1], "mrope_interleaved": True}, "mtp_num_hidden_layers": 1, "attn_output_gate": True,
             "mlp_only_layers": [], "full_attention_interval": 3}
    whole = {key: config[key] for key in top} | {"model_type": "qwen3_5", "text_config": text, "vision_config": {"depth": 1}, "image_token_id": 7}
    renamed = {prefix + name.removeprefix("model.") if name.startswith("model.") else name: value for name, value in tensors.items()}
    return whole, renamed | {"model.visual.patch_embed.weight": np.ones((2, 3), np.float32)}


@pytest.mark.parametrize("prefix", ["model.language_model.", "model."])
def test_the_text_part_of_a_model_with_pictures(artifact, workspace, tmp_path, prefix):
    kinds = ("linear_attention", "linear_attention", "full_attention", "linear_attention")  # every third has attention
    config, tensors = random_qwen35(3, kinds=kinds)
    plain = write_model(tmp_path / "plain", config, tensors)
    folder = write_model(tmp_path / "whole", *multimodal(config, tensors, prefix))
    tokens = random_tokens(5, 40, 97)
    assert np.array_equal(Runner(artifact(folder, *FLOATS)).score(tokens), Runner(artifact(plain, *FLOATS)).score(tokens))
    done = run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *FLOATS)
    assert "pictures and sound are left out" in done.stderr and "no weights of the head that drafts tokens" in done.stderr


def test_heads_that_draft_and_are_not_taken(artifact, tmp_path):
    config, tensors = random_qwen35(3)
    plain = write_model(tmp_path / "plain", config, tensors)
    folder = write_model(tmp_path / "drafts", config | {"mtp_num_hidden_layers": 2}, tensors | {"mtp.fc.weight": np.ones((2, 2), np.float32)})
    tokens = random_tokens(5, 40, 97)
    assert np.array_equal(Runner(artifact(folder, *FLOATS)).score(tokens), Runner(artifact(plain, *FLOATS)).score(tokens))
    assert "more than one is not supported" in run_tool("easyquant-compile", folder, "-o", tmp_path / "two", *FLOATS).stderr
    folder = write_model(tmp_path / "unsaid", config, tensors | {"mtp.fc.weight": np.ones((2, 2), np.float32)})
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *FLOATS), "mtp.fc.weight", "no place")


@pytest.mark.parametrize("change, expected", [
    ({"layer_types": ["linear_attention", "mamba", "full_attention", "linear_attention"]}, ["layer_types", "linear_attention", "mamba"]),
    ({"layer_types": ["linear_attention"] * 3}, ["layer_types", "found 3 kinds", "4 layers"]),
    ({"layer_types": ["linear_attention"] * 4}, ["no layer has attention"]),
    ({"linear_num_value_heads": 5}, ["5 value heads", "2 key heads", "multiple"]),
    ({"linear_key_head_dim": 2**24, "linear_num_key_heads": 2}, ["too wide"]),
    ({"linear_conv_kernel_dim": 1}, ["linear_conv_kernel_dim"]),
    ({"linear_conv_kernel_dim": 5}, ["conv1d.weight", "[168, 1, 4]", "[168, 1, 5]"]),
    ({"attn_output_gate": False}, ["attn_output_gate", "false is not supported"]),
    ({"partial_rotary_factor": 0.05}, ["partial_rotary_factor"]),
    ({"head_dim": 20}, ["rotated dimensions", "even"]),
    ({"mtp_num_hidden_layers": -1}, ["mtp_num_hidden_layers"]),
])
def test_what_config_json_may_not_say(model, tmp_path, change, expected):
    config, tensors = read_folder(model("three value heads a key head"))
    assert_refused(run_tool("easyquant-compile", write_model(tmp_path / "model", config | change, tensors), "-o", tmp_path / "out", *FLOATS), *expected)


def test_what_is_new_is_named(model, tmp_path):
    config, tensors = read_folder(model("wide"))
    folder = write_model(tmp_path / "model", config | {"model_type": "qwen3_next", "num_experts": 4}, tensors)
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *FLOATS), "qwen3_next", "nearest by its fields: qwen3_5_text; new in it: num_experts (a mixture of experts)")


@pytest.mark.parametrize("name", MODELS)
def test_exported_folder_is_the_model(model, tmp_path, name):
    config, tensors = read_folder(written_back(model(name), tmp_path))
    before, weights = read_folder(model(name))
    assert tensors.keys() == weights.keys()
    for key, value in weights.items():  # 1 is added to norms and taken away again
        assert np.array_equal(tensors[key], value) or ("norm" in key and np.abs(tensors[key] - value).max() < 1e-7), key
    fields = [key for key in before if key.startswith("linear_")] + ["layer_types", "partial_rotary_factor", "head_dim", "tie_word_embeddings"]
    assert all(config[key] == before[key] for key in fields)


# --------------------------------------------------------------------------------------------------------------------- GGUF


@pytest.mark.parametrize("name", MODELS)
def test_gguf_is_the_same_model(artifact, model, workspace, tmp_path, name):
    config, tensors = read_folder(model(name))
    path = write_gguf(workspace / f"{model(name).name}.gguf", config, tensors)
    tokens = random_tokens(5, 96, 97)
    assert relative(Runner(artifact(path, *FLOATS)).score(tokens), oracle(model(name)).logits(tokens)) < 5e-6
    # And back to the order of a folder.
    _, weights = read_folder(written_back(path, tmp_path, "gguf"))
    assert weights.keys() == tensors.keys()
    assert all(np.abs(weights[key] - tensors[key]).max() < 1e-6 for key in tensors)


@pytest.mark.parametrize("key_heads", [1, 2])
def test_exported_gguf(artifact, tmp_path, key_heads):
    """Tensors are those of a converter, and the file is the model of an artifact of its scheme."""
    config, tensors = random_qwen35(8, kinds=("linear_attention", "full_attention") * 2, hidden=64, ffn=96, head_dim=32, key_heads=key_heads, key_dim=32,
                                    value_heads=4, value_dim=32, vocab=330, tied=False)
    tensors = {name: value.astype(np.float16).astype(np.float32) if value.ndim == 2 else value for name, value in tensors.items()}
    folder = write_byte_level(write_model(tmp_path / "model", config, tensors), vocabulary=320)
    done = run_command_line("export", folder, "--format", "gguf", "-o", tmp_path / "out", "--scheme=Q8_0")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "out" / "model.gguf"
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    expected = {tensor.name: tensor for tensor in gguf.GGUFReader(write_gguf(tmp_path / "expected.gguf", config, tensors)).tensors}
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tuple(tensor.shape) == tuple(expected[name].shape), name
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0:
            assert np.abs(values - expected[name].data).max() < np.abs(expected[name].data).max() / 200, name
        else:
            assert np.abs(values - expected[name].data).max() < 1e-6, name
    kinds = {part: found[f"blk.0.{part}.weight"].tensor_type.name for part in ("attn_qkv", "attn_gate", "ssm_out", "ssm_alpha", "ssm_beta", "ssm_conv1d")}
    assert kinds == {"attn_qkv": "Q8_0", "attn_gate": "Q8_0", "ssm_out": "Q8_0", "ssm_alpha": "F16", "ssm_beta": "F16", "ssm_conv1d": "F32"}
    tokens = random_tokens(5, 40, 330)
    same = ("--kv-cache=f32", "--isa=avx2")
    read = Runner(artifact(file, "--scheme=keep", *same)).score(tokens)
    assert relative(read, Runner(artifact(folder, "--scheme=Q8_0", "--head=Q8_0", "--activations=float", *same)).score(tokens)) < 1e-5


def test_columns_that_are_no_whole_blocks(tmp_path):
    config, tensors = random_qwen35(8, kinds=("linear_attention", "full_attention"), hidden=256, ffn=256, heads=4, head_dim=64,
                                    key_dim=32, value_heads=4, value_dim=64, vocab=330)
    folder = write_byte_level(write_model(tmp_path / "model", config, tensors), vocabulary=320)
    done = run_command_line("export", folder, "--format", "gguf", "-o", tmp_path / "out", "--scheme=Q4_K")
    assert done.returncode != 0 and not (tmp_path / "out").exists()
    assert all(part in done.stderr for part in ("linear_attn.out_proj", "heads of 64", "Q4_K", "256")), done.stderr


def test_layers_of_gguf_that_draft(artifact, model, tmp_path):
    """block_count counts them, and without the rest of a head they are left out."""
    config, tensors = random_qwen35(4, kinds=("linear_attention",) * 3 + ("full_attention",))
    plain = write_gguf(tmp_path / "plain.gguf", config, tensors)
    drafts = dict(tensors) | {name.replace("layers.3", "layers.4"): value for name, value in tensors.items() if "layers.3" in name}
    path = write_gguf(tmp_path / "drafts.gguf", config | {"num_hidden_layers": 5, "layer_types": [*config["layer_types"], "full_attention"],
                                                         "mtp_num_hidden_layers": 1}, drafts)
    tokens = random_tokens(5, 30, 97)
    assert np.array_equal(Runner(artifact(path, *FLOATS)).score(tokens), Runner(artifact(plain, *FLOATS)).score(tokens))
    done = run_tool("easyquant-compile", path, "-o", tmp_path / "out", *FLOATS)
    assert "no weights of the head that drafts tokens" in done.stderr


@pytest.mark.parametrize("change, expected", [
    ({"mtp_num_hidden_layers": 4}, ["nextn_predict_layers", "from 0 to 3"]),
    ({"linear_num_value_heads": 7}, ["7 value heads", "2 key heads"]),
    ({"linear_conv_kernel_dim": 1}, ["convolution of 1 tokens"]),
    ({"linear_key_head_dim": 16}, ["attn_qkv", "shape"]),
    ({"layer_types": ["linear_attention"] * 3}, ["attention.recurrent_layers", "each of 4 layers"]),
])
def test_what_gguf_may_not_say(model, tmp_path, change, expected):
    """Metadata that do not go with the tensors."""
    config, tensors = read_folder(model("three value heads a key head"))
    honest = make_checkpoint.as_qwen35(config, {name: (value.shape, value.ravel().tolist()) for name, value in tensors.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_checkpoint, "as_qwen35", lambda *given: honest)
        path = write_gguf(tmp_path / "changed.gguf", config | change, tensors)
    assert_refused(run_tool("easyquant-compile", path, "-o", tmp_path / "out", *FLOATS), *expected)


def test_a_rate_that_is_none(model, tmp_path, monkeypatch):
    """A file that has A_log as it is."""
    config, tensors = read_folder(model("wide"))
    tensors = {key: np.abs(value) + 1 if key.endswith("A_log") else value for key, value in tensors.items()}
    monkeypatch.setattr(make_checkpoint.math, "exp", lambda value: -value)
    path = write_gguf(tmp_path / "raw.gguf", config, tensors)
    monkeypatch.undo()
    assert math.exp(0) == 1
    assert_refused(run_tool("easyquant-compile", path, "-o", tmp_path / "out", *FLOATS), "A_log", "damaged")


# ------------------------------------------------------------------------------------------------------ schemes and methods


@pytest.fixture(scope="module")
def calibration(workspace):
    return [f"--tokens={write_tokens(workspace / 'delta.safetensors', [random_tokens(seed, 80, 97) for seed in range(6)])}"]


def rounded(out, folder):
    """The model with the weights of the artifact, which has all queries of a layer before all gates."""
    made = Artifact.open(out)
    config, tensors = read_folder(folder)
    name_of = lambda site: "model.embed_tokens" if site == "lm_head" and config["tie_word_embeddings"] else site  # noqa: E731
    for site in made.manifest["sites"]:
        weight = read_site(made, site["name"])
        if site["name"].endswith("self_attn.q_proj"):
            heads = np.split(weight, 2 * config["num_attention_heads"])
            count = config["num_attention_heads"]
            weight = np.concatenate([part for pair in zip(heads[:count], heads[count:]) for part in pair])
        tensors[f"{name_of(site['name'])}.weight"] = weight
    return config, tensors


def test_w8a8(artifact, model):
    folder = model("three value heads a key head")
    tokens = random_tokens(6, 96, 97)
    expected, plain = oracle(folder, W8A8).logits(tokens), oracle(folder).logits(tokens)
    found = Runner(artifact(folder, "--scheme=W8A8", "--kv-cache=f32", "--isa=avx2")).score(tokens)
    assert relative(found, expected) < 1e-2
    assert relative(plain, expected) > 3 * relative(found, expected)


CALIBRATED = {
    "W4A8": ["--scheme=W4A8", "--group-size=8"],
    "Q4": ["--scheme=Q4", "--activations=float"],
    "zeropoint": ["--scheme=W4A16", "--group-size=8", "--method=zeropoint"],
    "GPTQ": ["--scheme=W4A16", "--group-size=8", "--method=gptq"],
    "AWQ": ["--scheme=W4A16", "--group-size=8", "--method=awq"],
    "SmoothQuant": ["--scheme=W8A8", "--method=smoothquant"],
    "SignRound": ["--scheme=W4A16", "--group-size=8", "--method=signround", "--steps=10"],
    "LKD": ["--scheme=W4A16", "--group-size=8", "--method=lkd", "--epochs=4"],
}


@pytest.mark.parametrize("name", CALIBRATED)
def test_schemes_and_methods(artifact, model, calibration, name):
    """The program is the model of the weights that the artifact has; decays, strengths and convolutions stay float."""
    folder, options = model("three value heads a key head"), CALIBRATED[name]
    tokens = random_tokens(7, 96, 97)
    out = artifact(folder, *options, *(calibration if name in ("GPTQ", "AWQ", "SmoothQuant", "SignRound", "LKD") else ()), "--kv-cache=f32", "--isa=avx2")
    sites = sites_of(out)
    assert not any("conv1d" in site for site in sites)
    at = "model.layers.0.linear_attn."
    assert all(sites[f"{at}in_proj_{part}"]["weight"] is None for part in "ab")
    assert all(sites[at + part]["weight"]["bits"] <= 8 for part in ("in_proj_qkv", "in_proj_z", "out_proj"))
    found = Runner(out).score(tokens)
    if name in ("AWQ", "SmoothQuant"):  # whose factors are in norms, too
        assert relative(found, oracle(folder).logits(tokens)) < (0.5 if name == "AWQ" else 0.15)
        return
    expected = Qwen35(*rounded(out, folder), w4a8(8) if name == "W4A8" else FLOAT, np.float64).logits(tokens)
    assert relative(found, expected) < (1e-2 if name == "W4A8" else 1e-5)


def test_a_rule_may_name_decays(artifact, model, tmp_path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"method": "absmax", "scheme": "W8A8", "sites": [{"match": "re:in_proj_[ab]$", "scheme": "W8A16"}]}))
    sites = sites_of(artifact(model("wide"), f"--recipe={recipe}", "--isa=avx2"))
    assert sites["model.layers.0.linear_attn.in_proj_a"]["weight"]["bits"] == 8


@pytest.mark.parametrize("options, expected", [
    (["--tensor-parallel=2", "--scheme=W8A8"], ["3 heads, which 2 ranks cannot share", "legal degrees of tensor parallelism: 1"]),
])
def test_what_is_refused(model, tmp_path, options, expected):
    assert_refused(run_tool("easyquant-compile", model("wide"), "-o", tmp_path / "out", *options), *expected)


# ------------------------------------------------------------------------------------------------------------------ experts


@pytest.fixture(scope="module")
def mixture(workspace):
    """Qwen3.5-MoE: experts in stacks, whose first axis numbers them, and one for all rows."""
    return write_model(workspace / "mixture", *random_qwen35(12, experts=5))


def test_experts_in_stacks(artifact, mixture):
    tokens = random_tokens(5, 150, 97)
    expected = oracle(mixture).logits(tokens)
    runner = Runner(artifact(mixture, *FLOATS))
    whole = runner.score(tokens)
    assert np.abs(expected).max() > 1 and relative(whole, expected) < 5e-6
    runner.session.reset()
    pieces = [np.array(runner.session.score(np.asarray(tokens[at:at + 50], np.int32))) for at in range(0, 150, 50)]
    assert np.array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize("part, put", [
    ("gate_up_proj", lambda x: np.roll(x, 1, axis=0)), ("gate_up_proj", lambda x: np.roll(x, 28, axis=1)), ("experts.down_proj", lambda x: np.roll(x, 1, axis=0)),
    ("mlp.gate.weight", lambda x: -x), ("shared_expert_gate.weight", lambda x: -x), ("shared_expert.up_proj.weight", lambda x: -x),
])
def test_the_oracle_sees_every_part_of_experts(mixture, part, put):
    config, tensors = read_folder(mixture)
    tokens = random_tokens(5, 40, 97)
    changed = {key: put(value) if key.endswith(part) else value for key, value in tensors.items()}
    assert np.abs(Qwen35(config, changed, dtype=np.float64).logits(tokens) - Qwen35(config, tensors, dtype=np.float64).logits(tokens)).max() > 0.02


def test_experts_in_codes(artifact, tmp_path):
    mixture = write_model(tmp_path / "mixture", *random_qwen35(12, hidden=64, experts=5, expert_ffn=32))
    tokens = random_tokens(6, 96, 97)
    out = artifact(mixture, "--scheme=W8A8", "--kv-cache=f32", "--isa=avx2")
    floats = {name.removeprefix("model.layers.0.") for name, site in sites_of(out).items() if site["weight"] is None and "layers.0." in name}
    assert floats == {"linear_attn.in_proj_a", "linear_attn.in_proj_b", "mlp.gate", "mlp.shared_expert_gate"}
    plans = json.loads(run_tool("easyquant-compile", mixture, "--scheme=W8A8", "--isa=avx2", "--dry-run").stdout)
    why = {site["name"].removeprefix("model.layers.0."): site["float_by_default"] for site in plans["sites"] if "layers.0." in site["name"] and "float_by_default" in site}
    assert why == dict.fromkeys(("linear_attn.in_proj_a", "linear_attn.in_proj_b"), "sets decays") | dict.fromkeys(("mlp.gate", "mlp.shared_expert_gate"), "weighs experts")
    expected, plain = oracle(mixture, W8A8).logits(tokens), oracle(mixture).logits(tokens)
    found = Runner(out).score(tokens)
    # A row whose choice of experts is close may choose others: most rows say that it is the same model.
    assert np.median(errors(found, expected)) < 0.3 * np.median(errors(plain, expected))


def test_experts_as_gguf(artifact, tmp_path):
    config, tensors = random_qwen35(8, kinds=("linear_attention", "full_attention"), hidden=64, ffn=96, head_dim=32, key_dim=32, value_heads=4, value_dim=32,
                                    vocab=330, experts=6, expert_ffn=32, tied=False)  # fmt: skip
    tensors = {name: value.astype(np.float16).astype(np.float32) for name, value in tensors.items()}
    folder = write_byte_level(write_model(tmp_path / "model", config, tensors), vocabulary=320)
    done = run_command_line("export", folder, "--format", "gguf", "-o", tmp_path / "out", "--scheme=Q8_0")
    assert done.returncode == 0, done.stderr
    reader = gguf.GGUFReader(file := tmp_path / "out" / "model.gguf")
    shapes = {tensor.name: tuple(map(int, tensor.shape)) for tensor in reader.tensors}
    assert shapes["blk.0.ffn_gate_exps.weight"] == shapes["blk.0.ffn_up_exps.weight"] == (64, 32, 6) and shapes["blk.1.ffn_down_exps.weight"] == (32, 64, 6)
    assert shapes["blk.0.ffn_gate_inp_shexp.weight"] == (64,) and shapes["blk.0.ffn_up_shexp.weight"] == (64, 96)
    fields = {key: reader.fields[f"qwen35moe.{key}"].contents() for key in ("expert_feed_forward_length", "expert_shared_feed_forward_length", "expert_count")}
    assert fields == {"expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 96, "expert_count": 6}
    tokens = random_tokens(5, 40, 330)
    same = ("--kv-cache=f32", "--isa=avx2")
    read = Runner(artifact(file, "--scheme=keep", *same)).score(tokens)
    assert relative(read, Runner(artifact(folder, "--scheme=Q8_0", "--head=Q8_0", "--activations=float", *same)).score(tokens)) < 1e-5


def test_folders_of_experts_are_written(mixture, tmp_path):
    config, tensors = read_folder(written_back(mixture, tmp_path))
    before, weights = read_folder(mixture)
    assert config["model_type"] == before["model_type"] and config["num_experts"] == 5 and tensors.keys() == weights.keys()
    assert all(np.array_equal(tensors[key], value) for key, value in weights.items() if "mlp." in key)


def test_stacks_of_another_shape(mixture, tmp_path):
    config, tensors = read_folder(mixture)
    tensors["model.layers.1.mlp.experts.gate_up_proj"] = np.swapaxes(tensors["model.layers.1.mlp.experts.gate_up_proj"], 1, 2)
    folder = write_model(tmp_path / "model", config, tensors)
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *FLOATS), "layers.1.mlp.experts", "expected shape [5, 56, 40]", "[5, 40, 56]")


# ---------------------------------------------------------------------------------------------------------------- sequences


@pytest.fixture(scope="module")
def subject(artifact, model):
    return _runtime.Model(str(artifact(model("three value heads a key head"), *FLOATS)), isa="avx2")


def test_sequences_have_the_bits_that_each_has_alone(subject):
    check_bits_in_batches(subject, 4, 120, 90)


def test_forks_saved_sequences_and_a_second_beginning(subject):
    batch = _runtime.Batch(subject, sequences=4)
    tokens, other = random_tokens(3, 100, 97), random_tokens(4, 70, 97)
    first = batch.add()
    append(batch, [(first, tokens[:67])])
    fork, saved = batch.fork(first), batch.save(first)
    assert np.array_equal(append(batch, [(first, other)])[0], alone(subject, tokens[:67] + other)[67:])
    assert np.array_equal(append(batch, [(fork, tokens[67:])])[0], alone(subject, tokens)[67:])
    restored = batch.restore(saved)
    assert np.array_equal(append(batch, [(restored, tokens[67:])])[0], alone(subject, tokens)[67:])
    batch.truncate(first, 0)
    assert np.array_equal(append(batch, [(first, tokens)])[0], alone(subject, tokens))
