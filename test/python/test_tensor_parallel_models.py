# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of models that ranks share: biases behind sums, mixtures of experts, and Gemma 4. Prompts, single tokens and batches against one rank and
the oracle in double precision."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from calibrating import write_tokens
from helpers import assert_refused, random_gemma4, random_llama, random_tokens, run_tool, sites_of, write_model
from oracles.checkpoint import read_folder
from oracles.llama import Llama
from test_gpt_oss import in_mxfp4
from test_llama import relative_error
from test_tensor_parallel import GPU, artifact, logits_of

pytestmark = pytest.mark.skipif(not shutil.which("mpirun"), reason="unsupported: no mpirun")
VOCAB = 96
TEXTS = [random_tokens(seed, length, VOCAB) for seed, length in ((5, 60), (6, 33), (7, 1))]
SIZES = {"hidden": 64, "heads": 8, "kv_heads": 4, "vocab": VOCAB}
EXPERTS = SIZES | {"head_dim": 16, "experts": 6, "expert_ffn": 128, "ffn": 128}
SLIDING, FULL = "sliding_attention", "full_attention"
GEMMA = SIZES | {"ffn": 128, "full_head_dim": 16, "final_logit_softcapping": 4.0}
MODELS = {
    "biases": lambda: random_llama(3, ffn=128, attention_bias=True, mlp_bias=True, **SIZES),
    "soft caps": lambda: random_llama(3, arch="gemma2", ffn=128, **SIZES),
    "qwen3_moe": lambda: random_llama(17, arch="qwen3_moe", **EXPERTS),
    "qwen2_moe": lambda: random_llama(17, arch="qwen2_moe", tied=False, **EXPERTS),
    "mixtral": lambda: random_llama(17, arch="mixtral", sliding_window=17, **EXPERTS),
    "gpt_oss": lambda: random_llama(17, arch="gpt_oss", tied=False, **EXPERTS),
    "gpt_oss in codes": lambda: in_mxfp4(*random_llama(17, arch="gpt_oss", tied=False, **EXPERTS)),
    "gemma4": lambda: random_gemma4(11, layer_types=[SLIDING, FULL, SLIDING, FULL], attention_k_eq_v=True, num_global_key_value_heads=2, attention_bias=True,
                                    **GEMMA),
    "gemma4 E4B": lambda: random_gemma4(11, layers=6, layer_types=[SLIDING, SLIDING, FULL] * 2, num_kv_shared_layers=3, use_double_wide_mlp=True,
                                        hidden_size_per_layer_input=16, **GEMMA | {"kv_heads": 2}),
    "gemma4 experts": lambda: random_gemma4(11, layers=3, layer_types=[SLIDING, SLIDING, FULL], attention_k_eq_v=True, num_global_key_value_heads=2,
                                            enable_moe_block=True, num_experts=6, top_k_experts=3, moe_intermediate_size=64, **GEMMA),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(workspace):
    """model(name): the folder of MODELS[name], made once."""

    def make(name):
        folder = workspace / f"ranks-{name}".replace(" ", "-")
        return folder if folder.exists() else write_model(folder, *MODELS[name]())

    return make


@pytest.fixture(scope="module")
def static(workspace):
    """Options of activations whose ranges calibration text says."""
    file = write_tokens(workspace / "ranks-tokens.safetensors", [random_tokens(seed, 24, VOCAB) for seed in range(3)])
    return ["--scheme=W8A8", "--activations=static", f"--tokens={file}"]


ON_RANKS = """
import sys
import numpy as np
from pathlib import Path
from easyquant import _runtime
from easyquant.runtime.artifact import Artifact, load_model_on_ranks, open_session
folder, file, *texts = sys.argv[1:]
texts = [np.array(text.split(","), np.int32) for text in texts]
model = load_model_on_ranks(Artifact.open(Path(folder)), 1)
if model is not None:
    session = open_session(model, threads=1)
    prompt = np.array(session.score(texts[0]))
    session.reset()
    session.prefill(texts[0][:40])
    single = [np.array(session.logits)]
    for token in texts[0][40:]:
        session.decode(int(token))
        single.append(np.array(session.logits))
    greedy = []
    for _ in range(8):
        greedy.append(int(np.argmax(session.logits)))
        session.decode(greedy[-1])
    # Sequences of a batch: their first tokens, then one of each at a time.
    batch = _runtime.Batch(model, sequences=len(texts), threads=1)
    sequences = [batch.add() for _ in texts]
    batched = [[] for _ in texts]
    for begin, end in ((0, 20), *((at, at + 1) for at in range(20, 33))):
        going = [(index, text[begin:end]) for index, text in enumerate(texts) if len(text) > begin]
        for (index, _), rows in zip(going, batch.append([(sequences[index], tokens) for index, tokens in going], all_logits=True), strict=True):
            batched[index].append(np.array(rows))
    np.savez(file, prompt=prompt, single=np.array(single), greedy=greedy, **{f"batch{index}": np.concatenate(rows) for index, rows in enumerate(batched)})
"""


def on_ranks(ranks, folder, tmp_path):
    """Logits of each token of a prompt, of single tokens, and of sequences of a batch, and the tokens that follow."""
    command = [sys.executable, "-c", ON_RANKS, folder, tmp_path / "rows.npz", *(",".join(map(str, text)) for text in TEXTS)]
    command = ["mpirun", "--oversubscribe", "-n", ranks, *command] if ranks > 1 else command
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    result = subprocess.run(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    with np.load(tmp_path / "rows.npz") as rows:
        return dict(rows)


def assert_bits(found, expected):
    for name, rows in expected.items():
        assert found[name].tobytes() == rows.tobytes(), name


def slow(ranks, *rest):
    return pytest.param(ranks, *rest, marks=pytest.mark.slow)


@pytest.mark.parametrize("ranks, name", [
    (2, "biases"), (2, "qwen3_moe"), (2, "qwen2_moe"), (2, "gpt_oss"), (2, "gpt_oss in codes"), (2, "gemma4"), (2, "gemma4 E4B"), (2, "gemma4 experts"),
    slow(4, "biases"), slow(2, "soft caps"), slow(4, "qwen3_moe"), slow(2, "mixtral"), slow(4, "gpt_oss in codes"),
])  # fmt: skip
def test_floats_are_those_of_the_oracle(model, workspace, tmp_path, ranks, name):
    """Without a scheme nothing is rounded, but codes that the checkpoint has are kept."""
    found = on_ranks(ranks, artifact(model(name), workspace, ranks, "--scheme=none", "--kv-cache=f32"), tmp_path)
    oracle = Llama(*read_folder(model(name)), dtype=np.float64)
    expected = [oracle.logits(text) for text in TEXTS]
    bound = 2e-4 * max(1.0, np.abs(expected[0]).max() / 10)
    assert np.abs(expected[0]).max() > 1
    assert np.abs(found["prompt"] - expected[0]).max() < bound
    assert np.abs(found["single"] - expected[0][39:]).max() < bound
    for index, rows in enumerate(expected):
        assert np.abs(found[f"batch{index}"] - rows[:33]).max() < bound
    text = list(TEXTS[0])
    for token in found["greedy"]:
        assert token == np.argmax(oracle.logits(text)[-1])
        text.append(int(token))


@pytest.mark.parametrize("ranks, name, options", [
    (4, "biases", ["--scheme=W8A8"]), (2, "gemma4", ["--scheme=W8A8"]), (2, "gemma4 E4B", ["--scheme=W8A8"]),
    slow(2, "biases", ["--scheme=W8A8_ASYM"]), slow(2, "soft caps", ["--scheme=W8A8"]), slow(2, "gemma4", ["--scheme=W8A8", "--kv-scheme=int8"]),
])  # fmt: skip
def test_integers_give_the_bits_of_one_rank(model, workspace, tmp_path, ranks, name, options):
    """Biases are added to sums of integers as these are scaled. What is not cut is computed alike by all ranks."""
    expected = on_ranks(1, artifact(model(name), workspace, 1, *options), tmp_path)
    assert_bits(on_ranks(ranks, artifact(model(name), workspace, ranks, *options), tmp_path), expected)


def test_static_integers_give_the_bits_of_one_rank(model, workspace, tmp_path, static):
    expected = on_ranks(1, artifact(model("biases"), workspace, 1, *static), tmp_path)
    assert_bits(on_ranks(2, artifact(model("biases"), workspace, 2, *static), tmp_path), expected)


@pytest.mark.parametrize("ranks, name, options", [
    (2, "biases", ["--scheme=W4A8", "--group-size=16"]), (2, "qwen3_moe", ["--scheme=W8A8"]), (2, "qwen2_moe", ["--scheme=W4A8", "--group-size=32"]),
    (2, "mixtral", ["--scheme=Q4", "--activations=float"]), (4, "gpt_oss", ["--scheme=W8A8"]), (2, "gpt_oss in codes", ["--scheme=W4A8", "--group-size=32"]),
    (2, "gemma4 E4B", ["--scheme=W4A8", "--group-size=16"]), (2, "gemma4 experts", ["--scheme=W8A8"]),
    slow(2, "qwen3_moe", ["--scheme=Q4"]), slow(2, "gemma4 experts", ["--scheme=W4A8", "--group-size=32"]), slow(2, "gpt_oss", ["--scheme=MXFP4A16"]),
])  # fmt: skip
def test_sums_of_floats_differ_by_their_order(model, workspace, tmp_path, ranks, name, options):
    """Codes of weights are those of one rank. A rounding of sums may bring an activation to the next code."""
    one, some = (artifact(model(name), workspace, count, *options) for count in (1, ranks))
    expected, found = on_ranks(1, one, tmp_path), on_ranks(ranks, some, tmp_path)
    for rows in ("prompt", "single", "batch0", "batch1", "batch2"):
        assert relative_error(found[rows], expected[rows]) < 8e-3
    assert np.array_equal(found["greedy"], expected["greedy"])
    whole, parts = sites_of(one), sites_of(some)
    assert whole.keys() == parts.keys()
    for site, figures in whole.items():
        if figures["weight"]:
            assert parts[site]["weight_error"] == pytest.approx(figures["weight_error"], rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("options", [["--scheme=W8A8"], ["--scheme=W4A16", "--group-size=32"]])
def test_simulated_gpus_add_biases_behind_sums(model, workspace, tmp_path, options):
    """Integers with the bits of one GPU; floats differ by the order of two terms."""
    (expected, one), (found, two) = (
        logits_of(ranks, artifact(model("biases"), workspace, ranks, *options, GPU), tmp_path, device="simt", tokens=TEXTS[1]) for ranks in (1, 2))  # fmt: skip
    assert found == expected
    assert np.abs(two - one).max() <= (0 if "--scheme=W8A8" in options else 1e-4 * np.abs(one).max())


@pytest.mark.parametrize("name, bound", [("soft caps", 0), ("qwen3_moe", 0.02)])
def test_simulated_gpus_share_families(model, workspace, tmp_path, name, bound):
    """What is done to logits, ranks do to their own; what experts give is added in another order."""
    one, two = (
        logits_of(ranks, artifact(model(name), workspace, ranks, "--scheme=W8A8", GPU), tmp_path, device="simt", tokens=TEXTS[1])[1] for ranks in (1, 2))  # fmt: skip
    assert np.abs(two - one).max() <= bound * np.abs(one).max()


def test_experts_have_one_sum(model, workspace):
    """Behind what adds them up, and one largest magnitude of each row that ranks share before the second linear."""
    folder = artifact(model("qwen2_moe"), workspace, 2, "--scheme=W8A8")
    manifest = json.loads((folder / "manifest.json").read_text())
    calls = [(c["reduction"], c["type"], c["columns"]) for c in manifest["program"]["tensor_parallel"]["collectives"]]
    layer = [("max", "f32", 1), ("sum", "i32", 64), ("max", "f32", 1), ("max", "f32", 1), ("sum", "f32", 64)]  # o_proj, experts, the shared one
    assert calls == [("sum", "f32", 64), *(layer * 2), (None, "f32", VOCAB)]


@pytest.mark.parametrize("name, ranks, options, expected", [
    ("qwen3_moe", 8, [], ["4 key-value heads", "8 ranks", "legal degrees of tensor parallelism: 1, 2, 4"]),
    ("gemma4 experts", 4, ["--scheme=W8A8"], ["layer 2 has 2 key-value heads", "4 ranks", "legal degrees of tensor parallelism: 1, 2"]),
    ("gpt_oss in codes", 4, ["--scheme=W4A8", "--group-size=64"], ["self_attn.o_proj", "128 input features in groups of 64", "legal degrees of tensor parallelism: 1, 2"]),
    ("mixtral", 3, ["--scheme=W8A8"], ["8 heads", "3 ranks", "legal degrees of tensor parallelism: 1, 2, 4"]),
])
def test_degrees_that_cannot_be_name_those_that_can(model, tmp_path, name, ranks, options, expected):
    result = run_tool("easyquant-compile", model(name), "-o", tmp_path / "out", f"--tensor-parallel={ranks}", *options)
    assert_refused(result, *expected)
    assert not (tmp_path / "out").exists()


def test_panels_of_experts_are_whole(workspace, tmp_path):
    """Packed weights of experts are read 32 outputs at a time; floats are not."""
    folder = write_model(workspace / "narrow-experts", *random_llama(17, arch="qwen3_moe", **EXPERTS | {"expert_ffn": 64}))
    result = run_tool("easyquant-compile", folder, "-o", tmp_path / "out", "--tensor-parallel=4", "--scheme=W8A8")
    assert_refused(result, "mlp.experts.gate_proj", "64 output features of experts in panels of 32", "legal degrees of tensor parallelism: 1, 2")
    artifact(folder, workspace, 4, "--scheme=none")
