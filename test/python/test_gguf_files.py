# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/gguf_files.py: its table of made-up points; all of it where llama.cpp is installed."""

import re
import subprocess
import sys

import gguf_files
import numpy as np
import pytest
from peer import cache_folder, environment_of
from quality_fronts import Point

from helpers import REPO, random_llama, write_byte_level, write_model

TEXT = "text.txt"


def point(name, kl):
    return Point.of(name, name.startswith("llama.cpp"), {TEXT: {"bytes": 10, "figures": {"kl_mean": kl, "top1_agreement": 0.9, "windows": {"kl": [kl, kl]}}}})


def test_a_ratio_above_the_goal_is_a_miss(capsys):
    assert gguf_files.show([(point("EasyQuant Q4_0", 0.6), point("llama.cpp Q4_0", 1.0))], [TEXT]) == []
    (miss,) = gguf_files.show([(point("EasyQuant Q4_0", 0.9), point("llama.cpp Q4_0", 1.0))], [TEXT])
    assert "EasyQuant Q4_0 has 0.90 of the KL of llama.cpp Q4_0 on text.txt, goal 0.8" in miss
    assert "0 misses" in capsys.readouterr().out


def run(tmp_path, model, kinds):
    command = [sys.executable, REPO / "benchmarks" / "gguf_files.py", model, f"--calib={tmp_path / TEXT}", f"--text={tmp_path / TEXT}", f"--output={tmp_path / 'out'}",
               "--nsamples=2", "--seqlen=32", "--context=32", "--windows=2", f"--ours={kinds}"]  # fmt: skip
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)


def test_beside_llama_cpp(tmp_path):
    if environment_of(cache_folder(None)) is None:
        pytest.skip("needs llama-cpp-python as benchmarks/peers_llama_cpp.py installs it")
    model = write_byte_level(write_model(tmp_path / "model", *random_llama(seed=5, hidden=64, ffn=128, heads=2, kv_heads=1, vocab=320, context=512)))
    (tmp_path / TEXT).write_bytes(np.random.default_rng(3).integers(33, 127, 20_000).astype(np.uint8).tobytes())
    done = run(tmp_path, model, "Q8_0")
    assert done.returncode in (0, 1) and re.search(r"[01] misses", done.stdout), done.stderr
    assert "EasyQuant Q8_0" in done.stdout and "llama.cpp Q8_0" in done.stdout
    again = run(tmp_path, model, "Q8_0")
    assert again.stdout == done.stdout and "Q8_0: " not in again.stderr, "it judged again what was kept"


def test_no_type_that_matches_is_an_error(tmp_path):
    for name in ("model.gguf", TEXT):
        (tmp_path / name).write_text("text")
    done = run(tmp_path, tmp_path / "model.gguf", "Q7")
    assert done.returncode != 0 and "--ours Q7: matches none of Q4_0, IQ4_NL, Q5_0, Q8_0" in done.stderr
