# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose linears, norms or layers ranks cannot cut at one place: one weight for several projections (Phi-3), norms of all heads (OLMo),
short convolutions (LFM2), and gated delta nets (Qwen3.5, of GGUF with value heads in turns), both with experts, too. Each beside the artifact of one rank, which other tests
hold against the oracles, and beside the oracle itself."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from calibrating import write_tokens
from command_line import run_command_line
from helpers import (
    ISA,
    Runner,
    assert_refused,
    compile_model,
    random_lfm2,
    random_llama,
    random_qwen35,
    random_tokens,
    run_tool,
    sites_of,
    with_slow,
    write_byte_level,
    write_gguf,
    write_model,
)
from oracles.checkpoint import read_folder
from oracles.lfm2 import Lfm2
from oracles.llama import Llama
from oracles.qwen35 import Qwen35
from oracles.schemes import FLOAT, Scheme
from test_tensor_parallel import logits_of

pytestmark = pytest.mark.skipif(not shutil.which("mpirun"), reason="unsupported: no mpirun")
VOCAB, CONTEXT = 96, 256
TOKENS, OTHERS = random_tokens(5, 150, VOCAB), random_tokens(6, 90, VOCAB)
COMMON = {"hidden": 64, "vocab": VOCAB, "context": CONTEXT}
LLAMA = COMMON | {"ffn": 128, "heads": 8, "kv_heads": 4}
DELTA = COMMON | {"ffn": 128, "heads": 4, "kv_heads": 2, "head_dim": 16, "rotated": 0.5, "kinds": ("linear_attention", "full_attention", "linear_attention"),
                  "key_heads": 2, "key_dim": 16, "value_heads": 4, "value_dim": 16}  # fmt: skip
MODELS = {
    "phi3": (Llama, random_llama, LLAMA | {"arch": "phi3", "sliding_window": 40}),
    "olmo2": (Llama, random_llama, LLAMA | {"arch": "olmo2"}),
    "olmo3": (Llama, random_llama, LLAMA | {"arch": "olmo3", "heads": 4, "layers": 4, "sliding_window": 17}),
    "lfm2": (Lfm2, random_lfm2, COMMON | {"ffn": 128, "heads": 8, "kv_heads": 4}),
    "qwen3_5": (Qwen35, random_qwen35, DELTA),
    "qwen3_5, four ranks": (Qwen35, random_qwen35, DELTA | {"kv_heads": 4, "key_heads": 4, "value_heads": 8}),
    "lfm2_moe": (Lfm2, random_lfm2, COMMON | {"ffn": 128, "heads": 8, "kv_heads": 4, "experts": 6, "expert_ffn": 64}),
    "qwen3_5_moe": (Qwen35, random_qwen35, DELTA | {"experts": 6, "expert_ffn": 64}),
}
#: Nothing that ranks share is added up as floats: what they exchange is exact.
EXACT = ("phi3", "lfm2", "qwen3_5", "qwen3_5, four ranks")
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(scope="module")
def model(workspace):
    """model(name): the folder of MODELS[name]; model(name, "gguf"): the file of the same model."""

    def make(name, kind="folder"):
        folder = workspace / f"states-of-ranks-{name.replace(' ', '-').replace(',', '')}"
        if not folder.exists():
            _, random, sizes = MODELS[name]
            write_model(folder, *random(11, **sizes))
        path = folder.with_suffix(".gguf")
        if kind == "gguf" and not path.exists():
            write_gguf(path, *read_folder(folder))
        return folder if kind == "folder" else path

    return make


@pytest.fixture(scope="module")
def calibration(workspace):
    return f"--tokens={write_tokens(workspace / 'states-of-ranks.safetensors', [random_tokens(seed, 24, VOCAB) for seed in range(3)])}"


def artifact(model, workspace, ranks, *options):
    name = "-".join([model.name, str(ranks), *(option.strip("-").replace("=", "-").replace("/", "-") for option in options)])
    out = workspace / name[:200]
    return out if out.is_dir() else compile_model(model, out, ISA, "--tensor-parallel", ranks, "--kv-cache=f32", "--hadamard-block=16", *options)


SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from easyquant import _runtime
from easyquant.runtime.artifact import Artifact, load_model_on_ranks

model = load_model_on_ranks(Artifact.open(Path(sys.argv[1])), 1)
if model is not None:
    tokens, others = (np.array(text.split(","), np.int32) for text in sys.argv[3:5])
    found = {}
    session = _runtime.Session(model, threads=1, kept_states=1)
    found["prompt"] = session.score(tokens)
    greedy = []
    for _ in range(8):
        greedy.append(int(np.argmax(session.logits)))
        session.decode(greedy[-1])
    found["greedy"], found["decoded"] = np.array(greedy), session.logits
    session.truncate(100)  # behind a kept state, and before any
    found["cut"] = session.score(others[:20])
    session.truncate(30)
    found["again"] = session.score(others[:20])
    batch = _runtime.Batch(model, sequences=3, threads=1, kept_states=1)
    first, second = batch.add(), batch.add()

    def append(*items):
        return [np.array(rows) for rows in batch.append(list(items), all_logits=True)]

    found["first"], found["second"] = append((first, tokens[:70]), (second, others[:33]))
    fork = batch.fork(first)
    found["both"], found["fork"] = append((first, tokens[70:75]), (fork, others[:9]))
    batch.truncate(first, 66)
    found["back"], found["on"] = append((first, others[:5]), (second, others[33:34]))
    try:
        batch.save(first)
    except _runtime.Error as error:
        found["refused"] = np.array(str(error))
    np.savez(sys.argv[2], **found)
"""


def results(folder, ranks, tmp_path):
    """What a session and a batch of the model give: prompts, tokens one by one, forks, and sequences that step back."""
    out = tmp_path / f"results-{ranks}.npz"
    command = [sys.executable, "-c", SCRIPT, folder, out, *(",".join(map(str, tokens)) for tokens in (TOKENS, OTHERS))]
    command = ["mpirun", "--oversubscribe", "-n", ranks, *command] if ranks > 1 else command
    done = subprocess.run(list(map(str, command)), env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(np.load(out))


def check(found, expected, bound):
    """`bound` of the relative rms; 0: the same bits."""
    refused = found.pop("refused")
    assert "ranks have its keys and values" in str(refused) and "refused" not in expected
    assert found.keys() == expected.keys()
    assert np.array_equal(found.pop("greedy"), expected.pop("greedy"))
    for key, rows in expected.items():
        assert relative(found[key], rows) <= bound, (key, relative(found[key], rows))


def relative(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("name, ranks", with_slow(
    [("phi3", 4), ("olmo2", 4), ("olmo3", 2), ("lfm2", 4), ("qwen3_5", 2), ("qwen3_5, four ranks", 4), ("lfm2_moe", 2), ("qwen3_5_moe", 2)],
    ("olmo3", 2), ("qwen3_5, four ranks", 4)))  # fmt: skip
def test_float_logits(model, workspace, tmp_path, name, ranks):
    """Sums over ranks are of floats, in another order."""
    folder = model(name)
    one, several = (results(artifact(folder, workspace, count, "--scheme=none"), count, tmp_path) for count in (1, ranks))
    oracle = MODELS[name][0](*read_folder(folder), FLOAT, np.float64).logits(TOKENS)
    assert np.abs(oracle).max() > 1 and relative(several["prompt"], oracle) < 5e-6
    check(several, one, 5e-6)


@pytest.mark.parametrize("name, ranks", with_slow([("phi3", 2), ("lfm2", 2), ("lfm2", 4), ("qwen3_5", 2)], ("lfm2", 2)))
def test_integers_give_the_bits_of_one_rank(model, workspace, tmp_path, name, ranks):
    folder = model(name)
    one, several = (results(artifact(folder, workspace, count, "--scheme=W8A8"), count, tmp_path) for count in (1, ranks))
    assert name in EXACT
    check(several, one, 0)


@pytest.mark.parametrize("name", with_slow(["olmo2", "olmo3"], "olmo3"))
def test_norms_of_all_heads_round_apart(model, workspace, tmp_path, name):
    """Squares are added up over ranks, so that a code may be the next one."""
    folder = model(name)
    one, two = (results(artifact(folder, workspace, count, "--scheme=W8A8"), count, tmp_path) for count in (1, 2))
    oracle = Llama(*read_folder(folder), Scheme(8, 8, 0, 8, hadamard=16), np.float64).logits(TOKENS)
    assert relative(two["prompt"], oracle) < 8e-3
    check(two, one, 2e-2)  # of single rows, too


W4A8, Q4 = ["--scheme=W4A8", "--group-size=16"], ["--scheme=Q4", "--group-size=16"]


@pytest.mark.parametrize("name, options", [
    ("phi3", W4A8), ("lfm2", Q4), ("qwen3_5", Q4), ("lfm2_moe", W4A8), ("qwen3_5_moe", ["--scheme=W8A8"]), *(
        pytest.param(name, options, marks=pytest.mark.slow) for name, options in (
            ("phi3", Q4), ("olmo2", W4A8), ("olmo2", Q4), ("lfm2", W4A8), ("qwen3_5", W4A8)))])  # fmt: skip
def test_codes_whose_sums_are_floats(model, workspace, tmp_path, name, options):
    """What ranks add up as floats may bring an activation to the next code."""
    folder = model(name)
    one, two = (results(artifact(folder, workspace, count, *options), count, tmp_path) for count in (1, 2))
    check(two, one, 2e-2)  # of single rows, too


@pytest.mark.parametrize("scheme, bound", with_slow([("none", 5e-6), ("W8A8", 0), ("W4A16", 5e-6)], ("none", 5e-6)))
def test_value_heads_in_turns(model, workspace, tmp_path, scheme, bound):
    """GGUF has the first value head of each key head, then the second of each: a rank has columns of out_proj in pieces."""
    file = model("qwen3_5", "gguf")
    options = [f"--scheme={scheme}", *(["--group-size=16"] if scheme == "W4A16" else [])]
    one, two = (results(artifact(file, workspace, count, *options), count, tmp_path) for count in (1, 2))
    check(two, one, bound)
    if scheme == "none":
        assert relative(two["prompt"], Qwen35(*read_folder(model("qwen3_5")), FLOAT, np.float64).logits(TOKENS)) < 5e-6


KEPT = {
    "phi3": (random_llama, LLAMA | {"arch": "phi3", "vocab": 330}),
    "qwen3_5": (random_qwen35, DELTA | {"head_dim": 32, "key_dim": 32, "value_dim": 32, "vocab": 330}),
}


@pytest.mark.parametrize("name", with_slow(list(KEPT), "phi3"))
def test_codes_that_a_file_has(workspace, tmp_path, name):
    """Rows of one weight for several projections, and columns in pieces, of codes in blocks of 32 that are kept."""
    random, sizes = KEPT[name]
    folder = write_byte_level(write_model(tmp_path / name, *random(8, **sizes)), vocabulary=320)
    done = run_command_line("export", folder, "--format", "gguf", "-o", tmp_path / "out", "--scheme=Q8_0")
    assert done.returncode == 0, done.stderr
    file = (tmp_path / "out" / "model.gguf").rename(workspace / f"kept-by-ranks-{name}.gguf")
    one, two = (results(artifact(file, workspace, count, "--scheme=keep"), count, tmp_path) for count in (1, 2))
    check(two, one, 8e-3)


def test_simulated_gpus_share_one_weight_for_several_projections(model, tmp_path):
    options = [ISA, "--scheme=W8A8", "--hadamard-block=16", "--target=sm_80,cpu"]
    expected, found = (logits_of(ranks, compile_model(model("phi3"), tmp_path / str(ranks), *options, "--tensor-parallel", ranks), tmp_path, device="simt",
                                 tokens=TOKENS[:60]) for ranks in (1, 2))  # fmt: skip
    assert found[0] == expected[0] and found[1].tobytes() == expected[1].tobytes()


@pytest.mark.parametrize("name", ["lfm2", "qwen3_5"])
def test_simulated_gpus_share_what_layers_keep(model, tmp_path, name):
    """Decays and strengths in codes, whose sums are exact."""
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"method": "absmax", "scheme": "W8A8", "activation_basis": "plain", "sites": [{"match": "re:in_proj_[ab]$", "scheme": "W8A8"}]}))
    # Blocks of the rotated basis lie within the columns of one rank.
    scheme = [f"--recipe={recipe}"] if name == "qwen3_5" else ["--scheme=W8A8", "--hadamard-block=16"]
    options = [ISA, *scheme, "--target=sm_80,cpu"]
    expected, found = (logits_of(ranks, compile_model(model(name), tmp_path / str(ranks), *options, "--tensor-parallel", ranks), tmp_path, device="simt",
                                 tokens=TOKENS[:60]) for ranks in (1, 2))  # fmt: skip
    assert found[0] == expected[0] and found[1].tobytes() == expected[1].tobytes()


@pytest.mark.parametrize("name", with_slow(["olmo2", "olmo3"], "olmo3"))
def test_simulated_gpus_share_norms_of_all_heads(model, tmp_path, name):
    """Whose squares are added in another order than one GPU adds them."""
    options = [ISA, "--scheme=W8A8", "--hadamard-block=16", "--target=sm_80,cpu"]
    expected, found = (logits_of(ranks, compile_model(model(name), tmp_path / str(ranks), *options, "--tensor-parallel", ranks), tmp_path, device="simt",
                                 tokens=TOKENS[:40])[1] for ranks in (1, 2))  # fmt: skip
    assert np.abs(found - expected).max() <= 0.02 * np.abs(expected).max()


def test_online_scales_go_back_with_states(model, workspace, tmp_path, calibration):
    """Scales stay those of now where a sequence goes back to a state, which each rank copies."""
    folder = model("lfm2")
    options = ["--scheme=W8A8", "--activations=online-window", "--online-window=3", "--online-tokens=8", calibration]
    one, two = (results(artifact(folder, workspace, count, *options), count, tmp_path) for count in (1, 2))
    check(two, one, 0)


@pytest.mark.parametrize("name", ["phi3", "qwen3_5"])
def test_figures_are_those_of_one_site(model, workspace, name):
    """A weight of which a rank has several pieces is one site; its error is that of all ranks."""
    one, two = (sites_of(artifact(model(name), workspace, count, "--scheme=W8A8")) for count in (1, 2))
    assert list(one) == list(two)
    for site, whole in one.items():
        if whole["weight"] is None:
            continue
        part = two[site]
        assert part["weight_error"] == pytest.approx(whole["weight_error"], rel=1e-5)
        assert part["out_features"] * part["in_features"] * 2 == whole["out_features"] * whole["in_features"]
        assert part["bytes"] < whole["bytes"]


@pytest.mark.parametrize("name", ["lfm2", "qwen3_5"])
def test_states_of_ranks_are_a_share(model, workspace, name):
    one, two = (json.loads((artifact(model(name), workspace, count, "--scheme=W8A8") / "manifest.json").read_text())["program"] for count in (1, 2))
    assert one["recurrent_values"] == 2 * two["recurrent_values"] > 0


@pytest.mark.parametrize("name", with_slow(["phi3", "lfm2", "qwen3_5"], "phi3", "lfm2"))
def test_rows_in_the_rotated_basis(model, workspace, tmp_path, name):
    """Blocks lie within what a rank has of each part."""
    options = ["--scheme=W8A8", "--activation-basis=hadamard"]
    one, two = (results(artifact(model(name), workspace, count, *options), count, tmp_path) for count in (1, 2))
    check(two, one, 0)


REFUSED = {
    "key heads": ("qwen3_5", 4, [], ["4 ranks cannot share", "legal degrees of tensor parallelism: 1, 2"]),
    "groups of a part": ("lfm2", 4, ["--scheme=W4A16", "--group-size=32"], ["conv.out_proj", "groups of 32", "legal degrees of tensor parallelism: 1, 2"]),
    "heads": ("phi3", 3, [], ["8 heads", "legal degrees of tensor parallelism: 1, 2, 4"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_degrees_that_cannot_be_name_those_that_can(model, tmp_path, case):
    name, ranks, options, expected = REFUSED[case]
    result = run_tool("easyquant-compile", model(name), "-o", tmp_path / "out", "--tensor-parallel", ranks, *options)
    assert_refused(result, *expected)
    assert not (tmp_path / "out").exists()


def test_the_comparison_could_fail(model, workspace, tmp_path):
    """Another model, or one whose ranks had each other's rows, has other logits."""
    config, tensors = read_folder(model("phi3"))
    name = "model.layers.0.self_attn.qkv_proj.weight"
    swapped = write_model(tmp_path / "swapped", config, tensors | {name: np.roll(tensors[name], 16, axis=0)})
    expected = Runner(artifact(model("phi3"), workspace, 1, "--scheme=none")).score(TOKENS)
    assert relative(Runner(artifact(swapped, tmp_path, 1, "--scheme=none")).score(TOKENS), expected) > 0.05
