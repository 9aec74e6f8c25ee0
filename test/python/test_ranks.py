# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calibrating and compiling on several ranks of mpirun: the same bytes for any number, and what happens when one is gone."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from calibrating import calibrate, pipeline, write_tokens
from helpers import BUILD, ISA, compile_model, folder_contents, random_llama, random_tokens, ranks_below, tool, with_slow, write_letters, write_model
from test_comm import ENVIRONMENT, LEAVES_WITHIN, LOOPBACK, SHARED_MEMORY, errors, needs_mpi

pytestmark = needs_mpi

METHODS = {
    "awq": ("--method=awq", "--scheme=W4A16", "--group-size=32"),
    "gptq": ("--method=absmax+gptq", "--scheme=W4A16", "--group-size=32"),
    "gptq by attention": ("--method=absmax+gptq", "--scheme=W4A16", "--group-size=32", "--hessian=sinks"),
    "gptq in the metric of the loss": ("--method=absmax+gptq", "--scheme=W4A16", "--group-size=32", "--hessian=loss-both"),
    "ranges": ("--scheme=W4A16", "--group-size=32", "--weight-observer=hessian-diagonal"),
    "tables": ("--scheme=T3A16", "--group-size=32"),
    "lkd": ("--method=absmax+lkd", "--scheme=W4A16", "--group-size=32", "--epochs=1"),
    "signround": ("--method=absmax+signround", "--scheme=W4A16", "--group-size=32", "--steps=4"),
    "signround between values of tables": ("--method=absmax+signround", "--scheme=T3A16", "--group-size=32", "--steps=4"),
    "static": ("--method=smoothquant", "--scheme=W8A8", "--activations=static"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    config, tensors = random_llama(seed=4, layers=3)
    # No multiple of 8, so that shares differ; fewer tokens in one sample.
    tokens = np.random.default_rng(3).integers(0, config["vocab_size"], (13, 40))
    tokens[5, 17:] = -1
    return write_model(folder / "model", config, tensors), write_tokens(folder / "tokens", tokens)


def start(ranks, *arguments, options=(), own=None, env=None):
    """easyquant-compile under mpirun; own(rank) gives the arguments of a rank."""
    command = ["mpirun", "--oversubscribe", *options]
    for rank in range(ranks):
        mine = map(str, (*(own(rank) if own else ()), *arguments))
        command += [*([":"] if rank else []), "-n", "1", tool("easyquant-compile"), "--threads=1", "--progress=none", *mine]
    return subprocess.Popen(command, env=ENVIRONMENT | (env or {}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True)


def finish(process, timeout=240):
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def mpirun(*arguments, **options):
    result = finish(start(*arguments, **options))
    assert result.returncode == 0, result.stderr
    return result


def calibration(folder, tokens):
    """Arguments of each rank, which has a folder of its own."""
    def own(rank):
        (folder / str(rank)).mkdir(parents=True, exist_ok=True)
        return (f"--pipeline={pipeline(folder / str(rank), tokens, threads=1)}",)
    return own


@pytest.mark.parametrize("ranks, options", [(2, SHARED_MEMORY), (4, LOOPBACK), (8, SHARED_MEMORY)])
def test_statistics_are_the_same_bytes(model, tmp_path, ranks, options):
    folder, tokens = model
    expected = calibrate(folder, tmp_path / "one", tokens).read_bytes()
    mpirun(ranks, folder, options=options, own=calibration(tmp_path, tokens))
    for rank in range(ranks):
        assert (tmp_path / str(rank) / "statistics.safetensors").read_bytes() == expected


@pytest.mark.parametrize("has_experts", [False, True])
def test_hessians_of_the_loss_are_the_same_bytes(model, tmp_path, has_experts):
    folder, tokens = model
    if has_experts:
        folder = write_model(tmp_path / "experts", *random_llama(seed=4, arch="qwen3_moe", hidden=40, heads=4, head_dim=16, experts=6))

    def own(rank):
        work = tmp_path / str(rank)
        work.mkdir()
        return (f'--pipeline=equant-calibrate-loss{{tokens="{tokens}" work="{work}/work" statistics="{work}/loss.safetensors" threads=1}}',)

    for ranks, first in ((1, 0), (4, 1)):
        mpirun(ranks, folder, own=lambda rank, first=first: own(first + rank))
    one, *four = ((tmp_path / str(rank) / "loss.safetensors").read_bytes() for rank in range(5))
    assert four == [one] * 4


@pytest.mark.parametrize("options", [METHODS["gptq"], METHODS["signround"]], ids=["gptq", "signround"])
def test_experts_see_the_same_windows(tmp_path, options):
    """Counted by ranks of two samples, and of none in the turn that has three."""
    folder = write_model(tmp_path / "model", *random_llama(5, arch="qwen3_moe", hidden=64, heads=4, kv_heads=2, head_dim=16, tied=False))
    tokens = write_tokens(tmp_path / "tokens", [random_tokens(seed, 32, 97) for seed in range(7)], samples="2")
    options = (*options, f"--tokens={tokens}", "--expert-tokens=200", ISA)
    expected = folder_contents(compile_model(folder, tmp_path / "one", *options))
    result = mpirun(4, folder, "-o", tmp_path / "four", *options)
    assert folder_contents(tmp_path / "four") == expected and "expert-tokens: 7 windows" in result.stderr


@pytest.mark.parametrize("method", with_slow(METHODS, "gptq", "gptq by attention", "ranges", "tables", "signround"))
def test_artifacts_are_the_same_bytes(model, tmp_path, method):
    folder, tokens = model
    options = (*METHODS[method], f"--tokens={tokens}", ISA)
    expected = folder_contents(compile_model(folder, tmp_path / "one", *options))
    result = mpirun(4, folder, "-o", tmp_path / "four", *options)
    assert folder_contents(tmp_path / "four") == expected
    notes = result.stderr.splitlines()
    assert len(notes) == len(set(notes)) and all(line.startswith("note: ") for line in notes)  # of rank 0 alone
    assert sorted(path.name for path in tmp_path.iterdir()) == ["four", "one"]  # no work folder stays


@pytest.mark.parametrize("method", ["gptq", "gptq in the metric of the loss", "ranges"])
def test_experts_are_the_same_bytes(model, tmp_path, method):
    """Experts of few rows, too, some of whose samples other ranks have."""
    _, tokens = model
    folder = write_model(tmp_path / "experts", *random_llama(seed=4, arch="qwen3_moe", hidden=64, heads=4, head_dim=16, experts=16))
    options = (*METHODS[method], f"--tokens={tokens}", ISA)
    expected = folder_contents(compile_model(folder, tmp_path / "one", *options))
    result = mpirun(4, folder, "-o", tmp_path / "four", *options)
    assert folder_contents(tmp_path / "four") == expected
    notes = [line for line in result.stderr.splitlines() if "filled up" in line]
    assert len(notes) == 1 and "of 16 experts" in notes[0]


SEARCHES = {
    "grid": "max-bytes=62000,82000 search-head=true",
    "learned": "avg-bits=7 strategy=learned evaluations=8",
    "greedy": "avg-bits=7 strategy=greedy evaluations=4",
    "time": "avg-bits=7 max-decode-ms=1000 max-prefill-ms=100000",
}


@pytest.mark.parametrize("how", with_slow(SEARCHES, "learned", "time"))
def test_searches_find_the_same(model, tmp_path, how):
    folder, tokens = model
    found = {}
    for ranks in (1, 4):
        output = tmp_path / f"{ranks}.json"
        search = f"formats=W3A16,W4A16,W8A16 group-sizes=32 search-samples=3 output={output} report={tmp_path / 'report'} {SEARCHES[how]}"
        arguments = (folder, f"--search={search}", "--scheme=W4A16", "--group-size=32", f"--tokens={tokens}", f"--work={tmp_path / str(ranks)}")
        mpirun(ranks, *arguments)
        found[ranks] = output.read_bytes()
        assert len(list(tmp_path.glob("*.json"))) == len(found)
    if how != "time":  # measured anew each time
        assert found[1] == found[4]
        # Each rank has what all have measured.
        names = [sorted(path.name for path in (tmp_path / work).iterdir()) for work in ("1", "4", "4.rank1", "4.rank3")]
        assert all(own == names[0] for own in names)


def test_a_rank_without_model_and_tokens_gets_them(model, tmp_path):
    folder, tokens = model
    options = ("--method=absmax+gptq", "--scheme=W4A16", "--group-size=32", ISA)
    expected = folder_contents(compile_model(folder, tmp_path / "one", f"--tokens={tokens}", *options))
    mpirun(4, "-o", tmp_path / "four", *options,
           own=lambda rank: (folder, f"--tokens={tokens}") if rank in (0, 2) else (tmp_path / "nowhere",))
    assert folder_contents(tmp_path / "four") == expected


def test_fewer_samples_than_ranks(model, tmp_path):
    folder, _ = model
    tokens = write_tokens(tmp_path / "few", [[1, 2, 3, 4], [5, 6, 7], [8, 9]])
    expected = calibrate(folder, tmp_path / "one", tokens).read_bytes()
    mpirun(8, folder, own=calibration(tmp_path, tokens))
    assert (tmp_path / "7" / "statistics.safetensors").read_bytes() == expected


def refused(result, ranks, *expected):
    said = errors(result.stderr)
    assert result.returncode != 0 and len(said) == ranks, result.stderr
    assert all(part in line for line in said for part in expected), result.stderr


def test_ranks_that_disagree(model, tmp_path):
    folder, tokens = model
    config, tensors = random_llama(seed=5, layers=3)
    other = write_model(tmp_path / "other", config, tensors)
    fewer = write_tokens(tmp_path / "fewer", [[1, 2, 3]])
    for what, own in {
        "the options": lambda rank: (folder, f"--tokens={tokens}", f"--group-size={16 if rank == 1 else 32}"),
        "the calibration tokens": lambda rank: (folder, f"--tokens={fewer if rank == 1 else tokens}"),
        "the model": lambda rank: (other if rank == 1 else folder, f"--tokens={tokens}"),
    }.items():
        result = finish(start(4, "-o", tmp_path / "out", "--method=absmax+gptq", "--scheme=W4A16", own=own))
        refused(result, 4, f"ranks disagree on {what}: rank 1 has")
        assert not (tmp_path / "out").exists()


def test_what_cannot_be(model, tmp_path):
    folder, tokens = model
    refused(finish(start(3, folder, own=calibration(tmp_path, tokens))), 3, "found 3 ranks, expected 1, 2, 4 or 8")
    result = finish(start(2, folder, "-o", tmp_path / "out", "--method=absmax+gptq", "--scheme=W4A16"))
    refused(result, 2, "needs calibration text")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("comm", ["--comm=none"])
def test_ranks_that_are_told_to_be_alone(model, tmp_path, comm):
    folder, tokens = model
    expected = calibrate(folder, tmp_path / "one", tokens).read_bytes()
    mpirun(2, folder, comm, own=calibration(tmp_path, tokens))
    assert (tmp_path / "1" / "statistics.safetensors").read_bytes() == expected


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_lost_rank_ends_all_and_the_next_run_goes_on(tmp_path, how):
    config, tensors = random_llama(seed=4, layers=12, context=256)
    folder = write_model(tmp_path / "model", config, tensors)
    tokens = write_tokens(tmp_path / "tokens", np.random.default_rng(3).integers(0, config["vocab_size"], (64, 200)))
    expected = calibrate(folder, tmp_path / "one", tokens).read_bytes()
    own = calibration(tmp_path, tokens)
    process = start(2, folder, "--comm-timeout=3", own=own)
    ranks, second = ranks_below(process, 2), tmp_path / "1" / "work" / "step_1.safetensors"
    end = time.monotonic() + 120
    while not second.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(ranks[1], how)
    begin = time.monotonic()
    result = finish(process)
    assert time.monotonic() - begin < LEAVES_WITHIN and result.returncode != 0
    said = errors(result.stderr)
    assert sum(line.startswith("error: rank 0 of 2") for line in said) == 1, result.stderr
    assert not any((tmp_path / str(rank) / "statistics.safetensors").exists() for rank in (0, 1))
    assert not [path for rank in (0, 1) for path in (tmp_path / str(rank) / "work").iterdir() if path.suffix != ".safetensors"
                and how == signal.SIGSTOP]
    mpirun(2, folder, own=own)
    assert (tmp_path / "0" / "statistics.safetensors").read_bytes() == expected


def start_process(command):
    return subprocess.Popen(command, env=ENVIRONMENT | {"EASYQUANT_TOOLS": str(BUILD / "bin")}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def front_desk(ranks, *arguments, own=None):
    command = ["mpirun", "--oversubscribe"]
    for rank in range(ranks):
        mine = map(str, (*arguments, *(own(rank) if own else ())))
        command += [*([":"] if rank else []), "-n", "1", sys.executable, "-m", "easyquant", *mine]
    result = finish(start_process(command))
    assert result.returncode == 0, result.stderr
    return result


def test_windows_are_scored_by_all(tmp_path):
    """Figures are those of one rank to the last bit; an artifact that one rank lacks ends all."""
    model = write_letters(write_model(tmp_path / "model", *random_llama(seed=11, layers=1)))
    text = tmp_path / "text"
    text.write_text("".join(chr(33 + i * i % 90) for i in range(4000)))
    out = compile_model(model, tmp_path / "out", "--scheme=W8A8", ISA, f"--copy-file={model / 'tokenizer.json'}")
    arguments = ("--text", text, "--context", "24", "--max-windows", "7", "--reference", model, "--threads", "1")
    figures = []
    for ranks in (1, 3):
        found = tmp_path / f"{ranks}.json"
        result = front_desk(ranks, "eval", out, *arguments, "--json", found)
        assert result.stdout.count("KL divergence, mean") == 1
        figures.append(json.loads(found.read_text()))
    assert figures[0] == figures[1]

    command = ["mpirun", "--oversubscribe"]
    for rank, folder in enumerate((out, tmp_path / "nowhere")):
        command += [*([":"] if rank else []), "-n", "1", sys.executable, "-m", "easyquant", "eval", str(folder), *map(str, arguments)]
    result = finish(start_process([*command, "--json", str(tmp_path / "none.json")]))
    assert result.returncode != 0 and not (tmp_path / "none.json").exists()
    assert "nowhere: no such folder" in result.stderr


def test_the_front_desks_of_ranks(tmp_path):
    """Rank 0 reads the text, writes and prints; rank 1 needs no model."""
    model = write_letters(write_model(tmp_path / "model", *random_llama(seed=11, layers=1)))
    text = tmp_path / "text"
    text.write_text("".join(chr(33 + i * i % 90) for i in range(4000)))
    sampled = ("--calib", text, "--nsamples", "9", "--seqlen", "20", "--threads", "1")

    def own(rank):
        return (model,) if rank == 0 else (tmp_path / "nowhere",)

    results = [front_desk(ranks, "calibrate", "-o", tmp_path / f"statistics{ranks}", *sampled, own=own) for ranks in (1, 2)]
    # Without white space: lines are wrapped by the length of a path.
    said = ["".join(result.stdout.split()).replace(f"statistics{ranks}", "") for ranks, result in zip((1, 2), results)]
    assert said[0] == said[1]
    assert (tmp_path / "statistics1").read_bytes() == (tmp_path / "statistics2").read_bytes()
    for ranks in (1, 2):
        result = front_desk(ranks, "compile", "-o", tmp_path / f"out{ranks}", *sampled, "--method=absmax+gptq", "--scheme=W4A16", own=own)
        assert result.stdout.count("compiled in") == 1
        result = front_desk(ranks, "search", "-o", tmp_path / f"recipe{ranks}", *sampled, "--avg-bits=9", "--formats=W4A16,W8A16", "--group-sizes=32", own=own)
        assert result.stdout.count("compile with") == 1
    assert (tmp_path / "recipe1").read_bytes() == (tmp_path / "recipe2").read_bytes()
    assert folder_contents(tmp_path / "out1") == folder_contents(tmp_path / "out2")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "text", "statistics1", "statistics2", "out1", "out2", "recipe1", "recipe2"}
