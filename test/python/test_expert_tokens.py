# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`--expert-tokens`: so many windows of calibration text that every expert has seen some, against counts of the model in double precision."""

import json
import signal
import subprocess

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from calibrating import write_tokens
from command_line import run_command_line
from easyquant.compiler.calibration import EXPERT_WINDOWS, choose_windows, read_windows, windows_of_text
from helpers import assert_refused, compile_model, folder_contents, random_llama, random_tokens, run_tool, tool, write_letters, write_model
from test_calibration_tokens import TEXT, Words
from test_expert_statistics import rows_of

SIZES = {"hidden": 64, "heads": 4, "kv_heads": 2, "tied": False}
SITES = [f"model.layers.{layer}.mlp.experts.gate_proj" for layer in (0, 1)]
SAMPLES = [random_tokens(seed, length, 97) for seed, length in enumerate((40, 24, 33, 17, 40, 12, 38, 29, 40))]
ASKED = 2


def rare():
    """Eight experts, of which two in the second layer are chosen once in a while."""
    config, tensors = random_llama(23, arch="qwen3_moe", head_dim=16, **SIZES)
    tensors["model.layers.1.mlp.gate.weight"][5:7] *= 0.55
    return config, tensors


def counts_of(config, tensors, samples, skip):
    """By site, samples x experts."""
    rows = [rows_of(config, tensors, [sample], skip) for sample in samples]
    return {site: np.array([[len(x) for x in own[site]] for own in rows]) for site in SITES}


def enough(counts, wanted):
    """How many samples are taken: at least those that were asked for, and all where these are not enough."""
    for taken in range(ASKED, len(SAMPLES) + 1):
        if all((rows[:taken].sum(0) >= wanted).all() for rows in counts.values()):
            return taken
    return len(SAMPLES)


def take(model, work, tokens, wanted, threads=0, **options):
    work.mkdir(exist_ok=True)
    return run_tool("easyquant-compile", model, f'--pipeline=equant-take-windows{{tokens="{tokens}" work="{work}" expert-tokens={wanted} threads={threads}}}', **options)


def notes(result):
    return [line for line in result.stderr.splitlines() if line.startswith("note:")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("rare") / "model", *rare())


@pytest.fixture(scope="module", params=[False, True])
def text(request, tmp_path_factory):
    """A tokens file, what it holds, and what the model's experts see of it."""
    path = write_tokens(tmp_path_factory.mktemp("text") / "tokens", SAMPLES, request.param, samples=str(ASKED), text_hash="t")
    return path, request.param, counts_of(*rare(), SAMPLES, int(request.param))


@pytest.mark.parametrize("wanted", [1, 4, 10, 20, 200])
def test_the_least_windows_are_taken_that_every_expert_sees_enough_of(tmp_path, model, text, wanted):
    path, bos, counts = text
    result = take(model, tmp_path / "work", path, wanted)
    assert result.returncode == 0, result.stderr
    taken = enough(counts, wanted)
    with safe_open(tmp_path / "work/windows.safetensors", "np") as file:
        assert np.array_equal(file.get_tensor("tokens"), load_file(path)["tokens"][:taken])
        metadata = file.metadata()
    assert metadata["bos"] == str(int(bos)) and metadata["samples"] == str(taken) and metadata["text_hash"] == "t"
    assert f"expert-tokens: {taken} windows of calibration text were taken, {ASKED} were asked for" in result.stderr
    lacking = {site: np.flatnonzero(rows[:taken].sum(0) < wanted) for site, rows in counts.items()}
    first = next((site for site in SITES if len(lacking[site])), None)
    if first is None:
        assert f"every expert has seen {wanted} tokens" in result.stderr
    else:
        assert f"{len(lacking[first])} of 8 experts of site '{first}' ({', '.join(map(str, lacking[first]))})" in result.stderr
    # What was counted, of as many samples as were needed to see it.
    found = {site: np.concatenate([load_file(file)[f"{site}/expert_rows"] for file in sorted((tmp_path / "work").glob("expert_rows_*"))]) for site in SITES}
    for site, rows in counts.items():
        assert np.array_equal(found[site], rows[:len(found[site])]) and taken <= len(found[site]) <= max(ASKED, 2 * taken)


def test_the_text_needs_more_than_was_asked_for_and_has_it(text):
    """What the test above is about: some of its numbers take more windows, and one takes all."""
    needed = [enough(text[2], wanted) for wanted in (1, 4, 10, 20, 200)]
    assert needed == sorted(needed) and len(set(needed)) >= 3 and needed[-1] == len(SAMPLES)


def test_threads_and_runs_before_change_nothing(tmp_path, model, text):
    first = take(model, tmp_path / "one", text[0], 10, threads=1)
    files = folder_contents(tmp_path / "one")
    assert len(files) >= 3
    take(model, tmp_path / "three", text[0], 10, threads=3)
    assert folder_contents(tmp_path / "three") == files
    (tmp_path / "three/expert_rows_1.safetensors").unlink()
    kept = (tmp_path / "three/expert_rows_0.safetensors").stat().st_mtime_ns
    again = take(model, tmp_path / "three", text[0], 10, threads=2)
    assert folder_contents(tmp_path / "three") == files and notes(again) == notes(first)
    assert (tmp_path / "three/expert_rows_0.safetensors").stat().st_mtime_ns == kept, "what is there is not counted again"
    # Counts are of no number of tokens, but of a text.
    take(model, tmp_path / "three", text[0], 1)
    assert (tmp_path / "three/expert_rows_0.safetensors").stat().st_mtime_ns == kept
    other = write_tokens(tmp_path / "other", SAMPLES[::-1], text[1], samples=str(ASKED))
    assert take(model, tmp_path / "three", other, 1).returncode == 0
    assert (tmp_path / "three/expert_rows_0.safetensors").stat().st_mtime_ns != kept


def test_a_run_that_was_killed_goes_on(tmp_path):
    """In the middle of the second turn, behind its third layer."""
    samples, pipe = 120, 4096  # a layer has more lines of progress than the pipe takes
    model = write_model(tmp_path / "model", *random_llama(3, arch="qwen3_moe", head_dim=8, hidden=32, heads=4, kv_heads=2, tied=False, layers=6))
    tokens = write_tokens(tmp_path / "tokens", [random_tokens(seed, 12, 97) for seed in range(2 * samples)], samples=str(samples))
    assert take(model, tmp_path / "whole", tokens, 10_000).returncode == 0
    folder = tmp_path / "killed"
    folder.mkdir()
    options = f'--pipeline=equant-take-windows{{tokens="{tokens}" work="{folder}" expert-tokens=10000}}'
    turns, before = 0, 1
    with subprocess.Popen([tool("easyquant-compile"), model, options, "--progress=json"], stderr=subprocess.PIPE, bufsize=0, pipesize=pipe) as process:
        for line in iter(process.stderr.readline, b""):
            event = json.loads(line)
            if event["phase"] != "calibrate":
                continue
            turns, before = turns + (event["done"] < before), event["done"]
            if turns == 2 and event["done"] >= 3 * samples + 3:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert (folder / "expert_rows_0.safetensors").is_file() and (folder / "step_2.safetensors").is_file() and not (folder / "windows.safetensors").exists()
    result = run_tool("easyquant-compile", model, options, "--progress=json")
    assert result.returncode == 0, result.stderr
    first = next(json.loads(line) for line in result.stderr.splitlines() if '"calibrate"' in line)
    assert first["done"] == 3 * samples
    assert folder_contents(folder) == folder_contents(tmp_path / "whole")


# ------------------------------------------------------------------------------------------------------------------ who reads them


@pytest.mark.parametrize("options", [
    ["--scheme=W4A16", "--group-size=32", "--method=gptq"], ["--scheme=W8A8", "--method=smoothquant"],
    ["--scheme=W4A16", "--group-size=32", "--weight-observer=hessian-diagonal"],
])  # fmt: skip
def test_what_reads_text_reads_them(tmp_path, model, text, options):
    """The same artifact as from a text of these windows, but for what is said of experts."""
    path, bos, counts = text
    options = ["--isa=avx2", *options]
    out = compile_model(model, tmp_path / "out", *options, f"--tokens={path}", "--expert-tokens=10")
    taken = enough(counts, 10)
    assert ASKED < taken < len(SAMPLES)
    same = write_tokens(tmp_path / "same", [list(row[row >= 0]) for row in load_file(path)["tokens"][:taken]], bos, text_hash="t")
    plain = compile_model(model, tmp_path / "plain", *options, f"--tokens={same}")
    found, expected = ((folder / "weights.safetensors").read_bytes() for folder in (out, plain))
    assert found == expected
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["quantization"]["calibration"]["samples"] == str(taken)
    assert not list(tmp_path.glob("*.work"))


def test_ranges_read_all_that_was_taken(tmp_path):
    """An expert that the first samples of 16384 tokens do not choose, by the rows of those behind them."""
    config, tensors = random_llama(5, arch="qwen3_moe", head_dim=16, layers=1, experts=4, num_experts_per_tok=1, **SIZES)

    def expert_of(token):  # of a sample of nothing else, whose tokens are all alike
        rows = rows_of(config, tensors, [[token] * 96])[SITES[0]]
        return next(expert for expert, own in enumerate(rows) if len(own) == 96)

    expert = {token: expert_of(token) for token in range(3, 20)}
    rare = min(set(expert.values()), key=list(expert.values()).count)
    common = [token for token in expert if expert[token] != rare]
    last = next(token for token in expert if expert[token] == rare)
    samples = [[common[i % len(common)]] * 96 for i in range(172)]
    assert 171 * 96 >= 16384
    model = write_model(tmp_path / "model", config, tensors)
    tokens = write_tokens(tmp_path / "tokens", [*samples, *[[last] * 96] * 3], samples=str(len(samples)))
    options = ["--scheme=W4A16", "--group-size=32", "--isa=avx2", "--weight-observer=hessian-diagonal", f"--tokens={tokens}"]
    sparse = {}
    for wanted in (0, 200):
        out = compile_model(model, tmp_path / f"out{wanted}", *options, f"--expert-tokens={wanted}")
        transforms = json.loads((out / "manifest.json").read_text())["quantization"].get("transforms", [])
        sparse[wanted] = next((entry["experts"] for entry in transforms if entry["method"] == "hessian-diagonal" and entry["sites"] == [SITES[0]]), [])
        lacking = [entry for entry in transforms if entry["method"] == "expert-tokens"]
        assert not any(rare in entry["experts"] for entry in lacking) and (wanted or not lacking)
    assert rare in sparse[0] and rare not in sparse[200], "288 rows of the last windows"


def test_refused(tmp_path, model, tiny_llama, text):
    dense = take(tiny_llama, tmp_path / "dense", write_tokens(tmp_path / "tokens", [[1, 2, 3]]), 4)
    assert_refused(dense, "expert-tokens is for mixtures of experts, and this model has none")
    assert_refused(take(model, tmp_path / "none", text[0], 0), "expert-tokens of at least 1")
    wrong = write_tokens(tmp_path / "wrong", SAMPLES, samples="10")
    assert_refused(take(model, tmp_path / "wrong-work", wrong, 4), 'say "10" for "samples", expected 1 to 9')
    assert_refused(take(model, tmp_path / "word-work", write_tokens(tmp_path / "word", SAMPLES, samples="two"), 4), 'say "two" for "samples", expected a number')
    assert_refused(run_tool("easyquant-compile", model, "-o", tmp_path / "out", "--expert-tokens=4"), "--expert-tokens reads more calibration text: give --tokens FILE")
    assert_refused(run_tool("easyquant-compile", model, "-o", tmp_path / "out", "--expert-tokens=-1"), "expert tokens -1: expected an integer of at least 0")
    assert not (tmp_path / "out").exists()


# -------------------------------------------------------------------------------------------------------------------------- the text


def test_more_windows_follow_those_that_are_there_anyway():
    plain, more = choose_windows(TEXT, 4, 32, seed=2), choose_windows(TEXT, 4, 32, seed=2, more=9)
    assert more.shape == (13, 32) and np.array_equal(more[:4], plain) and len(np.unique(more)) == more.size
    assert np.array_equal(more, choose_windows(TEXT, 4, 32, seed=2, more=9))
    assert not np.array_equal(np.sort(more[4:, 0]), more[4:, 0]), "from all of the text, as they are drawn"
    assert len(choose_windows(TEXT, 10, 32, seed=2, more=1000)) == 1000 // 32, "as many as the text has"
    words = Words(20_000)
    plain, more = (windows_of_text(words.text, words.encode, 5, 50, 1, bos_token=-7, more=count) for count in (0, 15))
    assert more.shape == (20, 50) and np.array_equal(more[:5], plain) and len(np.unique(more[:, 1:])) == 20 * 49 and (more[:, 0] == -7).all()


def test_stretches_that_are_too_short_are_left_out():
    """As long as nobody asked for them."""
    words = Words(20_000)
    count = len(read_windows(words.text, words.encode, 1, 50, 0, lambda: None, more=10_000))
    words.text = words.text[: len(words.text) // 2] + " " * (len(words.text) // 4) + words.text[-len(words.text) // 4 :]
    for seed in range(20):
        found = read_windows(words.text, words.encode, 1, 50, seed, lambda: None, more=10_000)
        if found is not None:  # the window that was asked for lies where there are words
            assert 0.5 * count < len(found) < 0.9 * count
            return
    pytest.fail("no seed has such a window")


def test_the_command_lines(tmp_path):
    """The same windows for statistics and artifacts, of a text that a tokenizer reads."""
    model = write_model(tmp_path / "model", *rare())
    write_letters(model)
    text = tmp_path / "text.txt"
    text.write_text(" ".join("".join(chr(97 + token % 26) for token in random_tokens(seed, 6, 97)) for seed in range(1500)))
    windows = ["--calib", text, "--nsamples", "2", "--seqlen", "24"]
    found = {}
    for wanted in (0, 6, 100_000):
        out = tmp_path / f"statistics{wanted}"
        result = run_command_line("calibrate", model, *windows, "-o", out, "--statistic", "absmax", "--expert-tokens", wanted)
        assert result.returncode == 0, result.stderr
        with safe_open(out, "np") as file:
            found[wanted] = int(file.metadata()["samples"])
        assert f"of statistics on {found[wanted]} x 24 tokens" in result.stdout
        rows = load_file(out)
        if 0 < wanted < 100_000:
            assert all((rows[f"{site}/tokens"] >= wanted).all() for site in SITES)
    assert found[0] == 2 < found[6] < found[100_000] == 2 * EXPERT_WINDOWS
    compiled = ["compile", model, *windows, "--method", "gptq", "--scheme", "W4A16", "--group-size", "32", "--expert-tokens", "6"]
    result = run_command_line(*compiled, "-o", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "out/manifest.json").read_text())["quantization"]["calibration"]["samples"] == str(found[6])
    for command in (compiled, ["calibrate", model, *windows, "--expert-tokens", "6"]):
        dry = run_command_line(*command, "--dry-run")
        assert dry.returncode == 0 and "2 x 24 tokens, up to 8" in " ".join(dry.stdout.split()), dry
    # Hessians of the loss of each expert, on the windows that GPTQ then reads.
    fisher = tmp_path / "fisher"
    gathered = run_command_line("calibrate", model, *windows, "-o", fisher, "--statistic", "fisher", "--expert-tokens", "6")
    assert gathered.returncode == 0 and f"of statistics on {found[6]} x 24 tokens" in gathered.stdout, gathered.stderr
    assert all((load_file(fisher)[f"{site}/loss_tokens"][:, 0] >= 6).all() for site in SITES)
    result = run_command_line(*compiled, "--hessian", "loss-both", "--statistics", fisher, "-o", tmp_path / "by-loss")
    assert result.returncode == 0, result.stderr
