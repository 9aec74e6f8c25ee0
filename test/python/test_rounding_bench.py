# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/rounding.py on a seeded model: it judges, compares with GPTQ, and goes on from what it kept."""

import re
import subprocess
import sys

import numpy as np

from helpers import REPO, random_llama, write_letters, write_model


def test_points_are_judged_once_and_compared_with_gptq(tmp_path):
    model = write_letters(write_model(tmp_path / "model", *random_llama(seed=5, hidden=64, ffn=128, heads=2, kv_heads=1, context=128)))
    text = tmp_path / "text.txt"
    text.write_bytes(np.random.default_rng(3).integers(33, 127, 20_000).astype(np.uint8).tobytes())
    command = [sys.executable, str(REPO / "benchmarks" / "rounding.py"), str(model), f"--calib={text}", f"--text={text}", f"--output={tmp_path / 'out'}", "--nsamples=2",
               "--seqlen=32", "--context=32", "--windows=2", "--ours=W4 g64 plain (nearest|gptq inputs|gptq loss$)"]  # fmt: skip
    first = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert first.returncode == 0, first.stderr
    base = next(line for line in first.stdout.splitlines() if "W4 g64 plain gptq inputs" in line)
    assert "1.00 ± 0.00" in base and re.search(r"│\s+\d+\.\d\d │$", base), base  # GB in the last column
    hessians = next(line for line in first.stdout.splitlines() if "the Hessians of the loss" in line)
    assert re.search(r"│\s+\d+\.\d\d │$", hessians), hessians
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0 and again.stdout == first.stdout
    assert "plain" in first.stderr and "plain" not in again.stderr, "it measured again what was kept"


def test_no_point_that_matches_is_an_error(tmp_path):
    for name in ("model.gguf", "text.txt"):
        (tmp_path / name).write_text("text")
    command = [sys.executable, str(REPO / "benchmarks" / "rounding.py"), str(tmp_path / "model.gguf"), f"--calib={tmp_path / 'text.txt'}",
               f"--text={tmp_path / 'text.txt'}", "--ours=W5"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "--ours W5" in done.stderr and "W4 g64 plain nearest" in done.stderr
