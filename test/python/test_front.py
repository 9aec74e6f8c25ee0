# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/front.py: its arithmetic on made-up points and speeds; all of it where llama.cpp is installed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from helpers import REPO, random_llama, write_letters, write_model

BENCHMARKS = REPO / "benchmarks"
TEXT = "text.txt"


@pytest.fixture(scope="module")
def front():
    sys.path.insert(0, str(BENCHMARKS))
    import front

    yield front
    sys.path.remove(str(BENCHMARKS))


def point(front, name, is_peer, size, kl):
    figures = {TEXT: {"bytes": size, "figures": {"kl_mean": kl, "top1_agreement": 0.9, "windows": {"kl": [kl, kl]}}}}
    return front.Point.of(name, is_peer, figures)


def rows(front, kl, prefill, decode, batched):
    """The table of one artifact with so many bytes as Q4_0, its speeds relative to those of llama.cpp's files."""
    points = [point(front, "llama.cpp Q4_0, importance matrix", True, int(91e6), 1.0), point(front, "Q4", False, int(91e6), kl)]
    theirs, ours = [(100.0, 10.0)] * 3, [(100 * prefill, 10 * decode)] * 3
    speeds = {front.ONE.name: {"Q4_0": theirs, "Q4": ours}}
    for batch in front.BATCHES:
        speeds[batch.name] = {"Q4_0": [(1.0, 10.0), (1.0, 30.0), (1.0, 10.0)], "Q8_0": [(1.0, 20.0)] * 3, "Q4": [(1.0, 20 * batched)] * 3}
    return front.rows_of(points, [TEXT], speeds, "avx512vnni")


def test_ratios_are_medians_of_rounds_beside_the_better_peer(front):
    (row,) = rows(front, 0.3, 2.5, 1.9, 3)
    assert row["KL"][TEXT][0] == pytest.approx(0.3) and (row["prefill"], row["decode"]) == pytest.approx((2.5, 1.9))
    assert row["16 at 64"] == row["16 at 512"] == pytest.approx(3)  # 60 over 20, 30, 20
    assert front.misses_of([row]) == []


@pytest.mark.parametrize("change, miss", [
    ({"kl": 0.5}, "Q4 beside Q4_0: KL on text.txt 0.50, goal 0.45"), ({"prefill": 2.1}, "prefill 2.10, goal 2.2"),
    ({"decode": 1.7}, "decode 1.70, goal 1.8"), ({"batched": 2}, "16 at 64 2.00, goal 2.2"),
])  # fmt: skip
def test_what_is_missed_is_said(front, change, miss):
    found = front.misses_of(rows(front, **({"kl": 0.3, "prefill": 2.5, "decode": 1.9, "batched": 3} | change)))
    assert found and any(miss in line for line in found)


def test_a_file_smaller_than_all_of_ours_is_a_miss(front):
    points = [point(front, "llama.cpp IQ4_XS", True, 80, 1.0), point(front, "Q4", False, 90, 0.1)]
    (miss,) = front.misses_of(front.rows_of(points, [TEXT], {}, "avx2"))
    assert "IQ4_XS: nothing of ours has at most its 0.0 MB" in miss


@pytest.mark.parametrize("size, isa, expected", [(90e6, "avx512vnni", (0.45, 2.2, 1.8)), (105e6, "avx2", (0.45, 1.8, 2.0)), (138e6, "avx2", (0.55, 1.8, 2.0))])
def test_goals_are_those_of_a_size(front, size, isa, expected):
    goals = front.goals(size, isa)
    assert (goals["KL"], goals["prefill"], goals["decode"]) == expected


def test_beside_llama_cpp(front, tmp_path):
    from peer import cache_folder, environment_of

    if environment_of(cache_folder(None)) is None:
        pytest.skip("needs llama-cpp-python as benchmarks/peers_llama_cpp.py installs it")
    model = write_letters(write_model(tmp_path / "model", *random_llama(seed=5, hidden=64, ffn=128, heads=2, kv_heads=1, context=1024)))
    text = tmp_path / TEXT
    text.write_bytes(np.random.default_rng(3).integers(33, 127, 20_000).astype(np.uint8).tobytes())
    command = [sys.executable, BENCHMARKS / "front.py", model, f"--calib={text}", f"--text={text}", f"--output={tmp_path / 'out'}", "--rounds=1",
               "--nsamples=2", "--seqlen=32", "--context=32", "--windows=2", "--ours=Q4|W8A8"]  # fmt: skip
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1) and "misses" in done.stdout, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "front.json").read_text())
    assert [row["file"] for row in found["rows"]] and (tmp_path / "out" / "front.svg").read_text().startswith("<?xml")
