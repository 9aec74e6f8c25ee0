# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant plan`: what it foretells from a config.json, against the artifacts that come of the model."""

import json
import shutil
from pathlib import Path

import pytest

from command_line import run_command_line as easyquant
from easyquant.commands.plan import SCHEMES
from easyquant.compiler.footprint import without_weights
from easyquant.compiler.machines import MACHINES
from easyquant.runtime.artifact import Artifact
from helpers import assert_refused, random_lfm2, random_llama, random_qwen35, write_model
from test_plans import tensor_bytes

# Every weight fills its panels, so that linears that are fused share none.
SIZES = {"hidden": 64, "ffn": 128, "heads": 2, "kv_heads": 1, "vocab": 128, "context": 200}
TOKENS = 150  # more than two pages
HEADER = 20_000  # bytes


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("footprint") / "model", *random_llama(**SIZES))


@pytest.fixture(scope="module")
def configuration(model, tmp_path_factory):
    """The model as one has it before its weights are downloaded."""
    return Path(shutil.copy(model / "config.json", tmp_path_factory.mktemp("alone") / "config.json"))


def plan(model, file, *options):
    done = easyquant("plan", model, "--json", file, "--bandwidth", 10, "--context", TOKENS, *options)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


@pytest.fixture(scope="module")
def planned(configuration, tmp_path_factory):
    return plan(configuration, tmp_path_factory.mktemp("planned") / "plan.json")


def figures(result, scheme, target="cpu"):
    (found,) = [entry[target] for entry in result["schemes"] if entry["scheme"] == scheme]
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bytes_are_those_of_the_artifact(planned, model, artifact, scheme):
    found = figures(planned[0], scheme)
    assert found["state_bytes"] == 0
    made = Artifact.open(artifact(model, f"--scheme={scheme}"))
    (file,) = made.weight_files
    size = file.stat().st_size
    # The header's bytes are those that it has at most. All else is exact, which the bytes of a step say.
    assert tensor_bytes(file) < size <= found["weight_bytes"] < size + HEADER
    assert found["cache_bytes"] == made.cache_bytes(TOKENS)
    # Angles are the one table here of which a step reads a row: the embedding is the head's weight. Zero points are padded in the file.
    padding = tensor_bytes(file) - SIZES["context"] * 32 * 4 + found["cache_bytes"] - found["step_bytes"]
    assert padding == 0 or scheme.startswith("Q") and 0 < padding < 0.03 * tensor_bytes(file)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_caches_of_codes_are_those_of_the_artifact(configuration, model, artifact, tmp_path, kind):
    found, _ = plan(configuration, tmp_path / "plan.json", "--scheme", "W8A8", "--kv-scheme", kind, "--batch", 3)
    made = Artifact.open(artifact(model, "--scheme=W8A8", f"--kv-scheme={kind}"))
    assert figures(found, "W8A8")["cache_bytes"] == 3 * made.cache_bytes(TOKENS)


def test_of_an_embedding_that_is_not_the_heads_a_step_reads_a_row(tmp_path):
    sizes = SIZES | {"tied": False}
    (tmp_path / "config.json").write_text(json.dumps(random_llama(**sizes)[0]))
    found, _ = plan(tmp_path / "config.json", tmp_path / "plan.json", "--scheme", "none")
    config, tensors = random_llama(**sizes)
    read = sum(4 * tensor.size for name, tensor in tensors.items() if name != "model.embed_tokens.weight")
    cache = figures(found, "none")["cache_bytes"]
    assert figures(found, "none")["step_bytes"] == read + cache
    assert config["tie_word_embeddings"] is False


def test_a_step_reads_what_lies_in_windows(tmp_path):
    """Layers with a window read whole pages of its tokens, though the cache keeps all of them."""
    found = {}
    for window in (None, 100):
        config, _ = random_llama(arch="mistral", sliding_window=window, **SIZES)
        (tmp_path / "config.json").write_text(json.dumps(config))
        found[window] = figures(plan(tmp_path / "config.json", tmp_path / "plan.json", "--scheme", "W8A8")[0], "W8A8")
    assert found[100]["cache_bytes"] == found[None]["cache_bytes"]
    pages, read = -(-TOKENS // 64), 2
    assert pages > read
    assert found[None]["step_bytes"] - found[100]["step_bytes"] == found[None]["cache_bytes"] * (pages - read) // pages


@pytest.mark.parametrize("make", [random_lfm2, random_qwen35])
def test_recurrent_states_are_those_of_the_artifact(artifact, tmp_path, make):
    folder = write_model(tmp_path / "model", *make())
    found, _ = plan(folder / "config.json", tmp_path / "plan.json", "--scheme", "W8A8", "--context", 90)
    assert figures(found, "W8A8")["state_bytes"] == Artifact.open(artifact(folder, "--scheme=W8A8")).state_bytes > 0


# What config.json of LFM2-350M and Qwen3.5-0.8B says of their text part.
LFM2 = {"model_type": "lfm2", "hidden_size": 1024, "intermediate_size": 4608, "num_hidden_layers": 16, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 65536, "max_position_embeddings": 128000, "norm_eps": 1e-5,
        "rope_theta": 1000000.0, "conv_L_cache": 3, "conv_bias": False, "block_auto_adjust_ff_dim": False, "tie_word_embeddings": True,
        "bos_token_id": 1, "eos_token_id": 7}  # fmt: skip
QWEN = {"model_type": "qwen3_5_text", "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 24, "full_attention_interval": 4,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320, "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-6, "rope_theta": 10000000.0, "partial_rotary_factor": 0.25, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_num_value_heads": 16, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "hidden_act": "silu", "tie_word_embeddings": True,
        "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip


@pytest.mark.parametrize("config, numbers", [(LFM2, 10 * 2 * 1024), (QWEN, 18 * (16 * 128 * 128 + 3 * 3 * 16 * 128))], ids=["lfm2", "qwen3_5"])
def test_recurrent_states_of_models_by_their_sizes(tmp_path, config, numbers):
    """Each convolution has two rows, and each delta net a matrix a head and three rows of keys, queries and values."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    one, text = plan(tmp_path / "config.json", tmp_path / "plan.json", "--scheme", "W8A8")
    three, _ = plan(tmp_path / "config.json", tmp_path / "plan.json", "--scheme", "W8A8", "--batch", 3)
    one, three = figures(one, "W8A8"), figures(three, "W8A8")
    assert one["state_bytes"] == 4 * numbers and three["state_bytes"] == 3 * 4 * numbers
    caches = three["cache_bytes"] - one["cache_bytes"]
    assert three["step_bytes"] - one["step_bytes"] == caches + 2 * 4 * numbers
    assert three["run_bytes"] - one["run_bytes"] == pytest.approx(caches + 3 * 2 * 4 * numbers)
    assert "a stream, in memory 3 times" in text


def test_weights_make_no_difference(planned, model, tmp_path):
    assert plan(model, tmp_path / "plan.json")[0]["schemes"] == planned[0]["schemes"]


def test_speeds_are_roofs_of_memory(planned, configuration, tmp_path):
    result, text = planned
    here, others = result["machines"][0], result["machines"][1:]
    for scheme in SCHEMES:
        assert here["tokens_per_s"][scheme] == pytest.approx(10e9 / figures(result, scheme)["step_bytes"])
    assert [machine["name"] for machine in others] == [machine.name for machine in MACHINES]
    assert all(machine.name in " ".join(text.split()) for machine in MACHINES) and "tokens/s" in text
    together, _ = plan(configuration, tmp_path / "plan.json", "--scheme", "none", "--batch", 4)
    one, four = figures(result, "none"), figures(together, "none")
    assert four["cache_bytes"] == 4 * one["cache_bytes"] and four["step_bytes"] - four["cache_bytes"] == one["step_bytes"] - one["cache_bytes"]
    assert together["machines"][0]["tokens_per_s"]["none"] == pytest.approx(4 * 10e9 / four["step_bytes"])


def test_machines_hold_what_fits(tmp_path):
    """Llama 3.1 70B by its sizes: nobody has to have it."""
    config = {"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
              "num_key_value_heads": 8, "max_position_embeddings": 8192, "vocab_size": 128256, "rms_norm_eps": 1e-5, "hidden_act": "silu",
              "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    found, text = plan(tmp_path / "config.json", tmp_path / "plan.json", "--scheme", "none", "--scheme", "W4A16")
    assert found["model"]["parameters"] == 70_553_706_496
    speeds = {machine["name"]: machine["tokens_per_s"] for machine in found["machines"]}
    # 282 GB of floats; as bf16 on GPUs half of them. 4 bits are about 40 GB.
    assert speeds["Server, Xeon 8480+, DDR5-4800"]["none"] and not speeds["Server, EPYC 7763, DDR4-3200"]["none"]
    assert not speeds["H100 SXM"]["none"] and speeds["H100 SXM"]["W4A16"] and not speeds["GeForce RTX 4090"]["W4A16"] and "–" in text
    gpu = figures(found, "none", "gpu")
    assert 0.49 < gpu["weight_bytes"] / figures(found, "none")["weight_bytes"] < 0.52


def test_gpus_refuse_no_scheme(configuration, tmp_path):
    schemes = ["W8A8", "Q5", "W3A8", "NF4A16", "FP8_DYNAMIC", "MXFP4A16", "Q4_K"]
    found, _ = plan(configuration, tmp_path / "plan.json", *(word for scheme in schemes for word in ("--scheme", scheme)))
    assert not any("refused" in figures(found, scheme, "gpu") for scheme in schemes)


def test_weights_that_are_not_there_are_not_asked_for(model, tmp_path):
    assert without_weights(model) == model
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    assert without_weights(tmp_path) == tmp_path / "config.json"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    (tmp_path / "one.safetensors").write_bytes(b"")
    assert without_weights(tmp_path) == tmp_path / "config.json", "a download that is not complete"
    (tmp_path / "two.safetensors").write_bytes(b"")
    assert without_weights(tmp_path) == tmp_path


def test_codes_of_a_configuration_are_not_guessed(configuration, tmp_path):
    config = json.loads(configuration.read_text()) | {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = easyquant("plan", tmp_path, "--bandwidth", 1, "--scheme", "W8A8")
    assert done.returncode == 0 and "the checkpoint is quantized" in done.stderr and "W8A8" in done.stdout


def test_refusals(configuration, model, artifact, tmp_path):
    assert_refused(easyquant("plan", tmp_path / "nowhere"), "nowhere: there is no such file or folder")
    assert_refused(easyquant("plan", artifact(model, "--scheme=W8A8")), "already a compiled artifact")
    assert_refused(easyquant("plan", configuration, "--context", 201), "--context 201: expected at most 200")
    assert_refused(easyquant("plan", configuration, "--scheme", "w8a8"), "--scheme w8a8: expected one of none", "did you mean W8A8?")
    assert_refused(easyquant("plan", configuration, "--bandwidth", 0), "--bandwidth 0: expected a number")
    (tmp_path / "config.json").write_text('{"model_type": "llamma"}')
    assert_refused(easyquant("plan", tmp_path / "config.json"), "config.json", "llamma", "llama")
    (tmp_path / "config.json").write_text("{")
    assert_refused(easyquant("plan", tmp_path), "config.json")
    assert_refused(easyquant("compile", configuration, "-o", tmp_path / "out"), "config.json", "has no weights", "give the folder")
    assert not (tmp_path / "out").exists()
