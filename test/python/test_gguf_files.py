# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/gguf_files.py, where llama.cpp is installed. Its tables are those of quality_per_byte.py."""

import re
import subprocess
import sys

import numpy as np
import pytest
from peer import cache_folder, environment_of

from helpers import REPO, random_llama, write_byte_level, write_model

TEXT = "text.txt"


def run(tmp_path, model, kinds, *more):
    command = [sys.executable, REPO / "benchmarks" / "gguf_files.py", model, f"--calib={tmp_path / TEXT}", f"--text={tmp_path / TEXT}", f"--output={tmp_path / 'out'}",
               "--nsamples=2", "--seqlen=32", "--context=32", "--windows=2", f"--ours={kinds}", *more]  # fmt: skip
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)


def test_beside_llama_cpp(tmp_path):
    if environment_of(cache_folder(None)) is None:
        pytest.skip("needs llama-cpp-python as benchmarks/peers_llama_cpp.py installs it")
    model = write_byte_level(write_model(tmp_path / "model", *random_llama(seed=5, hidden=64, ffn=128, heads=2, kv_heads=1, vocab=320, context=512)))
    (tmp_path / TEXT).write_bytes(np.random.default_rng(3).integers(33, 127, 20_000).astype(np.uint8).tobytes())
    done = run(tmp_path, model, "Q8_0")
    assert done.returncode in (0, 1) and re.search(r"\d+ misses", done.stdout), done.stderr
    assert re.search(r"^.*[ │]Q8_0 ", done.stdout, re.M) and "llama.cpp Q4_0, importance matrix" in done.stdout
    assert (tmp_path / "out" / "gguf-files.svg").exists()
    again = run(tmp_path, model, "Q8_0")
    assert again.stdout == done.stdout and "Q8_0: " not in again.stderr, "it judged again what was kept"


def test_no_file_of_theirs_that_matches_is_an_error(tmp_path):
    for name in ("model.gguf", TEXT):
        (tmp_path / name).write_text("text")
    done = run(tmp_path, tmp_path / "model.gguf", "Q8_0", "--theirs=Q7")
    assert done.returncode != 0 and "--theirs Q7: matches none of Q2_K, IQ4_XS, Q3_K_M" in done.stderr


def test_no_type_that_matches_is_an_error(tmp_path):
    for name in ("model.gguf", TEXT):
        (tmp_path / name).write_text("text")
    done = run(tmp_path, tmp_path / "model.gguf", "Q7")
    assert done.returncode != 0 and "--ours Q7: matches none of Q4_0, IQ4_NL, Q5_0, Q8_0" in done.stderr
