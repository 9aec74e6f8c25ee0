# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/rounding.py on seeded models: it judges, compares with GPTQ, and goes on from what it kept."""

import fcntl
import json
import re
import subprocess
import sys

import numpy as np

from helpers import REPO, random_llama, write_letters, write_model


def test_points_are_judged_once_and_compared_with_gptq(tmp_path):
    models = [str(write_letters(write_model(tmp_path / name, *random_llama(seed=seed, hidden=64, ffn=128, heads=2, kv_heads=1, context=128))))
              for name, seed in (("one", 5), ("other", 6))]  # fmt: skip
    text = tmp_path / "text.txt"
    text.write_bytes(np.random.default_rng(3).integers(33, 127, 20_000).astype(np.uint8).tobytes())
    command = [sys.executable, str(REPO / "benchmarks" / "rounding.py"), *models, f"--calib={text}", f"--text={text}", f"--output={tmp_path / 'out'}", "--nsamples=2",
               "--seqlen=32", "--context=32", "--windows=2", "--ours=W4 g64 plain (gptq inputs|gptq loss$)"]  # fmt: skip
    first = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert first.returncode == 0, first.stderr
    base = next(line for line in first.stdout.splitlines() if "W4 g64 plain gptq inputs" in line)
    assert "1.00 ± 0.00" in base and re.search(r"│\s+\d+\.\d\d │$", base), base  # GB in the last column
    hessians = next(line for line in first.stdout.splitlines() if "the Hessians of the loss" in line)
    assert re.search(r"│\s+\d+\.\d\d │$", hessians), hessians
    points = tmp_path / "out" / "points.jsonl"
    lines = [json.loads(line) for line in points.read_text().splitlines()]
    names = [f"W4 g64 plain {rounding}" for rounding in ("gptq inputs", "gptq loss")]
    assert [(line["point"], line["model"]) for line in lines] == [(name, model) for name in names for model in ("one", "other")]
    for line in lines:
        found = line["texts"]["text.txt"]
        assert len(found["windows"]) == 2 and abs(sum(found["windows"]) / 2 - found["kl"]) < 1e-9 and f"{found['kl']:.4f}" in first.stdout
        assert line["cost"]["processor_seconds"] > 0 and (line["hessians_cost"] is not None) == ("loss" in line["point"])
    # As a run leaves it that was killed in the middle.
    (tmp_path / "out" / ".scratch-left").mkdir()
    for kept_point in (tmp_path / "out" / "other").glob("w4-g64-plain-gptq-loss-*.json"):
        kept_point.unlink()
    points.write_text("".join(f"{json.dumps(line)}\n" for line in lines[:-1]))
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    judged = [line for line in again.stderr.splitlines() if "plain" in line]
    assert judged == ["W4 g64 plain gptq loss: text.txt"], "it measured again what was kept"
    assert [json.loads(line)["texts"] for line in points.read_text().splitlines()] == [line["texts"] for line in lines]
    assert not list((tmp_path / "out").glob(".scratch-*"))


def test_a_folder_has_one_run(tmp_path):
    for name in ("model.gguf", "text.txt"):
        (tmp_path / name).write_text("text")
    command = [sys.executable, str(REPO / "benchmarks" / "rounding.py"), str(tmp_path / "model.gguf"), f"--calib={tmp_path / 'text.txt'}",
               f"--text={tmp_path / 'text.txt'}", f"--output={tmp_path}"]  # fmt: skip
    with open(tmp_path / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "another run" in done.stderr and str(tmp_path) in done.stderr


def test_no_point_that_matches_is_an_error(tmp_path):
    for name in ("model.gguf", "text.txt"):
        (tmp_path / name).write_text("text")
    command = [sys.executable, str(REPO / "benchmarks" / "rounding.py"), str(tmp_path / "model.gguf"), f"--calib={tmp_path / 'text.txt'}",
               f"--text={tmp_path / 'text.txt'}", "--ours=W5"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "--ours W5" in done.stderr and "W4 g64 plain nearest" in done.stderr
