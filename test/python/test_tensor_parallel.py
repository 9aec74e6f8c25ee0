# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that ranks share: the logits of one rank to the bit with integers, and clear errors."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from calibrating import write_tokens
from helpers import BUILD, ISA, assert_refused, compile_model, random_gpt2, random_llama, random_tokens, ranks_below, run_tool, tool, write_model
from test_llama import relative_error

pytestmark = pytest.mark.skipif(not shutil.which("mpirun"), reason="unsupported: no mpirun")
VOCAB = 96
TOKENS = random_tokens(5, 70, VOCAB)


@pytest.fixture(scope="module")
def model(workspace):
    """Eight query and four key-value heads, so that 1, 2 and 4 ranks can share it."""
    folder = workspace / "shared-llama"
    config, tensors = random_llama(3, hidden=64, ffn=128, heads=8, kv_heads=4, vocab=VOCAB)
    write_model(folder, config, tensors)
    return folder


@pytest.fixture(scope="module")
def calibration(workspace):
    return f"--tokens={write_tokens(workspace / 'shared-tokens.safetensors', [random_tokens(seed, 24, VOCAB) for seed in range(3)])}"


def artifact(model, workspace, ranks, *options):
    """Rotated in blocks that lie within the columns of each of 1, 2 or 4 ranks, so that all have the same ones."""
    name = "-".join([model.name, str(ranks), *(Path(option.strip("-").replace("=", "-")).name for option in options)])
    out = workspace / name
    return out if out.is_dir() else compile_model(model, out, ISA, "--tensor-parallel", ranks, "--hadamard-block=16", *options)


def on_ranks(ranks, folder, *options, tokens=TOKENS, timeout=120):
    command = [tool("easyquant-run"), folder, "--tokens", ",".join(map(str, tokens)), "--max-new-tokens", "8", "--ignore-eos", *options]
    if ranks > 1:
        command = ["mpirun", "--oversubscribe", "-n", str(ranks), *command]
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)


def logits_of(ranks, folder, tmp_path, threads=1, device="cpu", tokens=TOKENS):
    result = on_ranks(ranks, folder, "--threads", threads, "--device", device, "--json", tmp_path / "logits.json", tokens=tokens)
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "logits.json").read_text())
    assert result.stdout == ",".join(map(str, found["generated"])) + "\n"  # rank 0 alone prints
    return found["generated"], np.float32(found["logits"])


@pytest.mark.parametrize("ranks, options", [
    (4, ["--scheme", "W8A8"]), (2, ["--scheme", "W8A8_ASYM"]), (4, ["--scheme", "W8A8", "--kv-scheme", "int8"]), *(
        pytest.param(ranks, options, marks=pytest.mark.slow) for ranks, options in (
            (2, ["--scheme", "W8A8"]), (4, ["--scheme", "W8A8_ASYM"]), (2, ["--scheme", "W8A8", "--kv-scheme", "int8"])))])  # fmt: skip
def test_integers_give_the_bits_of_one_rank(model, workspace, tmp_path, ranks, options):
    """Prompt and decoded tokens: codes, int32 sums and attention are those of one rank."""
    expected = logits_of(1, artifact(model, workspace, 1, *options), tmp_path)
    found = logits_of(ranks, artifact(model, workspace, ranks, *options), tmp_path, threads=2 if ranks == 2 else 1)
    assert found[0] == expected[0]
    assert found[1].tobytes() == expected[1].tobytes()


def test_an_embedding_in_halves_gives_the_bits_of_one_rank(workspace, tmp_path):
    """Each rank has rows of the table of the file's type."""
    config, tensors = random_llama(3, tied=False, heads=4, kv_heads=2, vocab=VOCAB)
    folder = write_model(workspace / "halves", config, {name: weight.astype(np.float16) for name, weight in tensors.items()})
    (expected, one), (found, two) = (logits_of(ranks, artifact(folder, workspace, ranks, "--scheme", "W8A8"), tmp_path) for ranks in (1, 2))
    assert found == expected and two.tobytes() == one.tobytes()


def test_windows_that_move_on_give_the_bits_of_one_rank(workspace, tmp_path):
    """Each rank has its heads' part of the pages that a sequence gives back and takes again."""
    folder = write_model(workspace / "windows", *random_llama(3, arch="mistral", heads=4, kv_heads=2, vocab=VOCAB, context=1536, sliding_window=20))
    tokens, options = random_tokens(8, 1400, VOCAB), ["--scheme=W8A8"]
    (expected, one), (found, two) = (logits_of(ranks, artifact(folder, workspace, ranks, *options), tmp_path, tokens=tokens) for ranks in (1, 2))
    assert found == expected and two.tobytes() == one.tobytes()


def test_a_rotated_basis_gives_the_bits_of_one_rank(workspace, tmp_path):
    """Blocks are of whole heads, and of a rank's columns of the MLP."""
    folder = write_model(workspace / "wider-heads", *random_llama(3, hidden=64, ffn=128, heads=4, kv_heads=2, vocab=VOCAB))
    options = ["--scheme", "W8A8", "--activation-basis", "hadamard", "--hadamard-block", "64", "--kv-scheme", "int4"]
    one, two = (compile_model(folder, tmp_path / str(ranks), ISA, "--tensor-parallel", ranks, *options) for ranks in (1, 2))
    values = [site["row_hadamard"] for site in json.loads((two / "manifest.json").read_text())["sites"] if "v_proj" in site["name"]]
    assert values == [16, 16]
    expected, found = logits_of(1, one, tmp_path), logits_of(2, two, tmp_path)
    assert found[0] == expected[0]
    assert found[1].tobytes() == expected[1].tobytes()
    # By default a site has the largest block that divides the columns of a rank.
    wide = compile_model(folder, tmp_path / "wide", ISA, "--tensor-parallel=2", "--scheme=W8A8", "--activation-basis=hadamard")
    blocks = {site["name"]: site["input"]["hadamard"] for site in json.loads((wide / "manifest.json").read_text())["sites"] if "layers.0" in site["name"]}
    assert [blocks[f"model.layers.0.{site}"] for site in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")] == [64, 16, 64, 64]


def test_groups_of_activations_lie_within_a_rank(workspace, tmp_path):
    """Each has the scales of one rank. Sums over ranks are those of floats, and round apart."""
    folder = write_model(workspace / "grouped-ranks", *random_llama(3, hidden=64, ffn=128, heads=4, kv_heads=2, vocab=VOCAB))
    options = ["--scheme", "W8A8", "--activation-group-size", "32", "--activation-basis", "plain"]
    one, two = (logits_of(ranks, compile_model(folder, tmp_path / str(ranks), ISA, "--tensor-parallel", ranks, *options), tmp_path) for ranks in (1, 2))
    assert relative_error(two[1], one[1]) < 8e-3


# Steps of 8 tokens, so that the prompt's later ones are rounded with scales that the earlier ones have led to.
ONLINE = ["--activations=online-window", "--online-window=3", "--online-tokens=8"]


@pytest.mark.parametrize("options", [["--activations=static"], ["--activations=online-ema", "--online-tokens=8"], ONLINE, [*ONLINE, "--sinks=none"]])
def test_calibrated_scales_give_the_bits_of_one_rank(model, workspace, tmp_path, calibration, options):
    options = ["--scheme=W8A8", *options, calibration]
    expected = logits_of(1, artifact(model, workspace, 1, *options), tmp_path)
    for ranks in (2, 4):
        found = logits_of(ranks, artifact(model, workspace, ranks, *options), tmp_path)
        assert found[0] == expected[0]
        assert found[1].tobytes() == expected[1].tobytes()


def test_sinks_of_rows_that_ranks_share(model, workspace, tmp_path):
    """Calibrated on one token over and over, so that most others leave the ranges."""
    file = write_tokens(workspace / "shared-sinks.safetensors", [[7] * 40] * 2)
    keep = ["--scheme=W8A8", "--activations=static", "--sinks=keep", f"--tokens={file}"]
    expected = logits_of(1, artifact(model, workspace, 1, *keep), tmp_path)
    for ranks in (2, 4):
        folder = artifact(model, workspace, ranks, *keep)
        found = logits_of(ranks, folder, tmp_path)
        assert found[0] == expected[0]
        assert found[1].tobytes() == expected[1].tobytes()
    calls = json.loads((folder / "manifest.json").read_text())["program"]["tensor_parallel"]["collectives"]
    assert [call["columns"] for call in calls if call["reduction"] == "max"] == [1] * 4  # before o_proj and down_proj of two layers
    refused = run_tool("easyquant-compile", model, "-o", tmp_path / "out", "--tensor-parallel=2", "--scheme=W8A8_ASYM", *keep[1:])
    assert_refused(refused, "sinks apart in a range that is not around 0", "symmetric activations or --sinks none")
    default = compile_model(model, tmp_path / "out", ISA, "--tensor-parallel=2", "--scheme=W8A8_ASYM", "--activations=static", f"--tokens={file}")
    assert {site["input"].get("sinks") for site in json.loads((default / "manifest.json").read_text())["sites"]} == {None}


STATE_ON_RANKS = """
import sys
from pathlib import Path
from easyquant.runtime.artifact import Artifact, load_model_on_ranks, open_session
model = load_model_on_ranks(Artifact.open(Path(sys.argv[1])), 1)
if model is not None:
    first, second = open_session(model, threads=1), open_session(model, threads=1)
    first.prefill(list(range(3, 40)))
    second.restore_state(first.state)
    second.prefill(list(range(40, 60)))
    first.reset_state()
    print(second.state.hex(), second.logits.tobytes().hex(), first.state.hex())
"""


def test_ranks_share_the_state_of_a_sequence(model, workspace, calibration):
    """What is saved, restored and reset on rank 0 is so on all: another sequence goes on from it as on one rank."""
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    found = []
    for ranks in (1, 2):
        folder = artifact(model, workspace, ranks, "--scheme=W8A8", *ONLINE, calibration)
        command = [sys.executable, "-c", STATE_ON_RANKS, str(folder)]
        command = ["mpirun", "--oversubscribe", "-n", "2", *command] if ranks == 2 else command
        result = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        found.append([part[80:] if index != 1 else part for index, part in enumerate(result.stdout.split())])  # behind whose it is
    assert found[0] == found[1]
    assert found[0][0] != found[0][2]


def test_the_extrema_of_all_sites_are_one_collective(model, workspace, calibration):
    folder = artifact(model, workspace, 2, "--scheme=W8A8", *ONLINE, "--sinks=none", calibration)
    manifest = json.loads((folder / "manifest.json").read_text())
    calls = [(c["reduction"], c["columns"]) for c in manifest["program"]["tensor_parallel"]["collectives"] if c["reduction"] == "max"]
    # Behind the last layer's attention scales are per token: those of its o_proj and down_proj have a call each.
    assert calls == [("max", 2 * len(manifest["online"]["start"])), ("max", 1), ("max", 1)]


@pytest.mark.parametrize("options", [
    ["--scheme", "none"],
    ["--scheme", "W4A16", "--group-size", "16"],
    ["--scheme", "W4A8", "--group-size", "16"],
    ["--scheme", "T4A8", "--group-size", "0"],
])  # fmt: skip
def test_float_sums_differ_by_their_order_alone(model, workspace, tmp_path, options):
    expected = logits_of(1, artifact(model, workspace, 1, *options), tmp_path)
    found = logits_of(2, artifact(model, workspace, 2, *options), tmp_path)
    assert found[0] == expected[0]
    assert np.abs(found[1] - expected[1]).max() < 1e-4 * np.abs(expected[1]).max()


def test_the_manifest_says_what_ranks_exchange(model, workspace):
    folder = artifact(model, workspace, 2, "--scheme", "W8A8")
    manifest = json.loads((folder / "manifest.json").read_text())
    parallel = manifest["program"]["tensor_parallel"]
    assert parallel["degree"] == 2
    calls = [(c["call"], c["reduction"], c["type"], c["columns"]) for c in parallel["collectives"]]
    layer = [("all_reduce", "max", "f32", 1), ("all_reduce", "sum", "i32", 64)]
    assert calls == [("all_reduce", "sum", "f32", 64), *(layer * 2 * manifest["model"]["num_layers"]), ("all_gather", None, "f32", VOCAB)]
    assert {"weights.0.safetensors", "weights.1.safetensors"} <= set(manifest["files"])
    assert manifest["files"]["weights.0.safetensors"]["bytes"] == manifest["files"]["weights.1.safetensors"]["bytes"]


def test_figures_of_sites_are_those_of_all_ranks(model, workspace):
    one, two = (json.loads((artifact(model, workspace, ranks, "--scheme", "W8A8") / "manifest.json").read_text()) for ranks in (1, 2))
    for whole, part in zip(one["sites"], two["sites"]):
        assert part["name"] == whole["name"]
        assert part["weight_error"] == pytest.approx(whole["weight_error"], rel=1e-5)
        assert part["largest_error"] == pytest.approx(whole["largest_error"], rel=1e-5)  # a difference of two floats


def test_degrees_that_cannot_be_name_those_that_can(model, tmp_path):
    refused = run_tool("easyquant-compile", model, "-o", tmp_path / "out", "--tensor-parallel", 3)
    assert_refused(refused, "8 heads", "3 ranks", "legal degrees of tensor parallelism: 1, 2, 4")
    refused = run_tool("easyquant-compile", model, "-o", tmp_path / "out", "--tensor-parallel", 4, "--scheme", "W4A16", "--group-size", "32")
    assert_refused(refused, "o_proj", "groups of 32", "legal degrees of tensor parallelism: 1, 2")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [["--scheme=W8A8"], ["--scheme=none"]])
def test_a_gpt2(workspace, tmp_path, options):
    """One weight for q, k and v, biases behind sums, learned positions."""
    folder = workspace / "gpt2-of-ranks"
    if not folder.exists():
        write_model(folder, *random_gpt2(width=64, context=96))
    expected, found = (logits_of(ranks, artifact(folder, workspace, ranks, *options), tmp_path) for ranks in (1, 2))
    assert found[0] == expected[0]
    assert np.abs(found[1] - expected[1]).max() <= (1e-4 if "--scheme=none" in options else 0) * np.abs(expected[1]).max()


# ------------------------------------------------------------------------------------------------------------------- GPUs

GPU = "--target=sm_80,cpu"


GPU_ONLINE = ["--scheme=W8A8", "--activations=online-window", "--online-window=3", "--online-tokens=8", "--sinks=keep"]
GPU_OPTIONS = {2: [["--scheme=W8A8_ASYM"], ["--scheme=W8A8", "--kv-scheme=int8"]], 4: [["--scheme=W8A8"], ["--scheme=none"]]}


@pytest.mark.parametrize("ranks, options", [(ranks, options) for ranks, some in GPU_OPTIONS.items() for options in some])
def test_simulated_gpus_give_the_bits_of_one(model, workspace, tmp_path, ranks, options):
    expected = logits_of(1, artifact(model, workspace, 1, *options, GPU), tmp_path, device="simt")
    found = logits_of(ranks, artifact(model, workspace, ranks, *options, GPU), tmp_path, device="simt")
    assert found[0] == expected[0]
    assert found[1].tobytes() == expected[1].tobytes()


def test_online_scales_of_simulated_gpus_are_those_of_one(model, workspace, tmp_path, calibration):
    options = [*GPU_ONLINE, calibration, GPU]
    expected = logits_of(1, artifact(model, workspace, 1, *options), tmp_path, device="simt")
    found = logits_of(2, artifact(model, workspace, 2, *options), tmp_path, device="simt")
    assert found[0] == expected[0]
    assert found[1].tobytes() == expected[1].tobytes()


def test_weights_of_ranks_for_gpus_and_cpus(model, workspace, tmp_path):
    folder = artifact(model, workspace, 2, "--scheme=W8A8", GPU)
    files = {f"weights{target}.{rank}.safetensors" for target in ("", ".gpu") for rank in (0, 1)}
    assert files <= set(json.loads((folder / "manifest.json").read_text())["files"])
    assert logits_of(2, folder, tmp_path)[0] == logits_of(1, artifact(model, workspace, 1, "--scheme=W8A8", GPU), tmp_path)[0]
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    weights = damaged / "weights.gpu.1.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    result = on_ranks(2, damaged, "--device=simt")
    assert result.returncode != 0 and "weights.gpu.1.safetensors: damaged" in result.stderr, result.stderr


def start_on_stand_in_gpus(ranks, folder, tmp_path, rank_options=None, count=8):
    """Ranks as torchrun starts them, on the stand-ins of NVIDIA's driver and of NCCL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    libraries = f"{BUILD / 'unittests' / 'fake-cuda'}:{BUILD / 'unittests' / 'fake-nccl'}"
    processes = []
    for rank in range(ranks):
        own = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "FAKE_CUDA_DEVICES": ranks,
               "LD_LIBRARY_PATH": libraries, "FAKE_CUDA_IMAGE": folder / "kernels.sm_80.ptx", "FAKE_NCCL_LOG": tmp_path / f"nccl.{rank}",
               "FAKE_CUDA_LOG": tmp_path / f"cuda.{rank}"} | (rank_options or {}).get(rank, {})  # fmt: skip
        command = [tool("easyquant-run"), folder, "--device=cuda", "--tokens", ",".join(map(str, TOKENS)), f"--max-new-tokens={count}", "--ignore-eos"]
        command += ["--json", tmp_path / f"logits.{rank}"]
        processes.append(subprocess.Popen(list(map(str, command)), env=os.environ | {name: str(value) for name, value in own.items()},
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))  # fmt: skip
    return processes


def outcomes(processes):
    """The status, output and errors of each process."""
    try:
        outputs = [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def test_gpus_exchange_what_they_share_by_nccl(model, workspace, tmp_path):
    """Calls, counts, types and streams of both ranks, and that decode steps are captured with theirs."""
    folder = artifact(model, workspace, 2, "--scheme=W8A8", GPU)
    expected = logits_of(2, folder, tmp_path, device="simt")
    (status, printed, errors), other = outcomes(start_on_stand_in_gpus(2, folder, tmp_path))
    assert (status, other) == (0, (0, "", "")), errors + other[2]
    assert printed == ",".join(map(str, expected[0])) + "\n"
    assert np.float32(json.loads((tmp_path / "logits.0").read_text())["logits"]).tobytes() == expected[1].tobytes()

    logs = [(tmp_path / f"nccl.{rank}").read_text().replace(f"rank {rank} ", "").splitlines() for rank in (0, 1)]
    assert logs[0] == logs[1]
    assert logs[0][0].startswith("init") and logs[0][-1].startswith("finalize")
    f32, i32, add, largest = 7, 2, 0, 2  # ncclDataType_t, ncclRedOp_t
    layer = [("all-reduce", 1, f32, largest), ("all-reduce", 64, i32, add)]  # o_proj and down_proj: a scale a row, then its sums
    step = [("all-reduce", 64, f32, add), *(2 * layer), *(2 * layer), ("all-gather", VOCAB // 2, f32, 0)]
    # Behind the last layer's attention, rows are those of the last token alone.
    rows = [len(TOKENS)] * 5 + [1] * 5
    prompt = [(call, count * some, *rest) for (call, count, *rest), some in zip(step, rows, strict=True)]
    expected_calls = [f"{call} count {count} type {kind} op {how} root 0 stream 0" for call, count, kind, how in prompt]
    expected_calls += [f"{call} count {count} type {kind} op {how} root 0 stream 0 captured" for call, count, kind, how in step]
    assert logs[0][1:-1] == expected_calls
    calls = dict(line.split() for line in (tmp_path / "cuda.0").read_text().splitlines())
    assert (calls["cuStreamBeginCapture"], calls["cuGraphLaunch"], calls["allocated"]) == ("1", "7", "0")


def test_a_gpu_that_fails_ends_all_ranks(model, workspace, tmp_path):
    folder = artifact(model, workspace, 2, "--scheme=W8A8", GPU)
    cases = [
        ({"FAKE_CUDA_DEVICES": 1}, "which has 1 GPU; start at most one rank a GPU"),
        ({"FAKE_CUDA_FAIL": 40}, "CUDA_ERROR_LAUNCH_FAILED"),
        ({"FAKE_NCCL_FAIL": 7}, "NCCL failed: remote process exited"),
    ]
    for environment, message in cases:
        results = outcomes(start_on_stand_in_gpus(2, folder, tmp_path, {1: environment}))
        for status, _, errors in results:
            assert status == 1 and errors.count("error:") == 1, errors
        assert message in results[1][2], results
    ranks = start_on_stand_in_gpus(2, folder, tmp_path, count=20)
    assert ranks[0].stdout.read(1)  # the first of its tokens
    ranks[1].kill()
    begin = time.monotonic()
    (status, _, errors), _ = outcomes(ranks)
    assert status == 1 and "rank 1 has ended" in errors and time.monotonic() - begin < 20, errors
    result = on_ranks(2, folder, "--device=cuda", "--comm=mpi")
    assert result.returncode != 0 and "GPUs exchange what ranks share by NCCL, found MPI" in result.stderr


def test_another_number_of_ranks_is_an_error_on_each(model, workspace):
    folder = artifact(model, workspace, 2, "--scheme", "W8A8")
    assert_refused(on_ranks(1, folder), "compiled for 2 ranks", "mpirun -n 2", "--tensor-parallel")
    result = on_ranks(4, folder)
    assert result.returncode != 0
    assert result.stderr.count("compiled for 2 ranks, found 4") == 4, result.stderr
    result = on_ranks(2, artifact(model, workspace, 1, "--scheme", "W8A8"))
    assert result.returncode != 0
    assert result.stderr.count("compiled for 1 rank, found 2") == 2, result.stderr


def test_a_damaged_rank_ends_all(model, workspace, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(artifact(model, workspace, 2, "--scheme", "W8A8"), folder)
    weights = folder / "weights.1.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    result = on_ranks(2, folder)
    assert result.returncode != 0
    assert result.stderr.count("weights.1.safetensors: damaged") >= 1, result.stderr
    assert result.stderr.count("error: ") == 2, result.stderr


def bench_on(ranks, folder, file, *options):
    command = [sys.executable, "-m", "easyquant", "bench", folder, "--prefill=16", "--decode=8", "--threads=1", "--repeats=1", f"--json={file}", *options]
    command = ["mpirun", "--oversubscribe", "-n", ranks, *command]
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def test_bench_shows_what_ranks_exchange(model, workspace, tmp_path):
    """Rank 0 measures and prints; each collective is started and awaited once a step."""
    folder = artifact(model, workspace, 2, "--scheme", "W8A8")
    result = bench_on(2, folder, tmp_path / "bench.json", "--breakdown")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(" tokens/s") == 2  # one prefill, one decode: rank 0 alone prints
    breakdown = json.loads((tmp_path / "bench.json").read_text())["breakdown"]
    collectives = json.loads((folder / "manifest.json").read_text())["program"]["tensor_parallel"]["collectives"]
    for part, steps in (("prefill", 1), ("decode", 8)):
        for phase in ("comm", "sync"):
            assert breakdown[part][phase]["launches"] == steps * len(collectives)
            assert breakdown[part][phase]["seconds"] > 0


def test_bench_on_another_number_of_ranks_is_an_error_on_each(model, workspace, tmp_path):
    result = bench_on(4, artifact(model, workspace, 2, "--scheme", "W8A8"), tmp_path / "bench.json")
    assert result.returncode != 0
    assert " ".join(result.stderr.split()).count("compiled for 2 ranks, found 4") == 4, result.stderr
    assert not (tmp_path / "bench.json").exists()


def test_a_stopped_rank_is_given_up(workspace, tmp_path):
    config, tensors = random_llama(3, hidden=64, ffn=128, heads=8, kv_heads=4, vocab=VOCAB, context=8192)
    folder = artifact(write_model(tmp_path / "long", config, tensors), tmp_path, 2, "--scheme", "W8A8")
    command = [tool("easyquant-run"), folder, "--tokens=1,2,3", "--max-new-tokens=8000", "--ignore-eos", "--comm-timeout=2"]
    command = ["mpirun", "--oversubscribe", "-n", "2", *command]
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    process = subprocess.Popen(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ranks = ranks_below(process, 2)
    assert process.stdout.read(1)  # the first of its tokens
    os.kill(ranks[1], signal.SIGSTOP)
    begin = time.monotonic()
    errors = process.communicate(timeout=60)[1]
    assert process.returncode != 0 and "error: rank 0 of 2" in errors and "not done after 2" in errors, errors
    assert time.monotonic() - begin < 20
