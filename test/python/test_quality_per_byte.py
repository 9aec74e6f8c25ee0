# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/quality_per_byte.py: its arithmetic on made-up points, ours on a seeded model, and llama.cpp's side where that is installed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from helpers import REPO, random_llama, write_letters, write_model

BENCHMARKS = REPO / "benchmarks"
SCRIPT = BENCHMARKS / "quality_per_byte.py"
SIZES = ("--context=32", "--windows=3", "--threads=1", "--nsamples=8", "--seqlen=32")


@pytest.fixture(scope="module")
def fronts():
    sys.path.insert(0, str(BENCHMARKS))
    import quality_fronts

    yield quality_fronts
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """(model, calibration text, text): rows of 64, which llama.cpp's types in blocks of 32 take."""
    folder = tmp_path_factory.mktemp("quality")
    model = write_letters(write_model(folder / "small", *random_llama(seed=5, hidden=64, ffn=128, heads=2, kv_heads=1, context=64)))
    letters = np.random.default_rng(3).integers(33, 127, (2, 20_000)).astype(np.uint8)
    for name, text in zip(("calib.txt", "text.txt"), letters):
        (folder / name).write_bytes(text.tobytes())
    return model, folder / "calib.txt", folder / "text.txt"


def quality(small, folder, *options):
    model, calib, text = small
    command = [sys.executable, SCRIPT, model, f"--calib={calib}", f"--text={text}", f"--output={folder}", *SIZES, *options]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600)


def point(fronts, name, is_peer, size, kl, top1=0.9):
    figures = {"kl_mean": float(np.mean(kl)), "top1_agreement": top1, "windows": {"kl": kl}}
    return fronts.Point.of(name, is_peer, {"text": {"bytes": size, "figures": figures}})


def test_ratios_and_misses(fronts):
    theirs = [point(fronts, "llama.cpp small", True, 80, [0.4, 0.6]), point(fronts, "llama.cpp large", True, 120, [0.1, 0.1])]
    ours = [point(fronts, "a", False, 80, [0.2, 0.2]), point(fronts, "b", False, 70, [0.25, 0.25]), point(fronts, "c", False, 121, [0.01, 0.01])]
    pairs = fronts.rivals(theirs + ours, "text")
    assert [(peer.name, own.name) for peer, own in pairs] == [("llama.cpp small", "a"), ("llama.cpp large", "a")]
    value, error = fronts.ratio(ours[0], theirs[0], "text")
    # a − r b = (0.04, −0.04), whose mean has the standard error 0.04; over mean(b) = 0.5.
    assert value == pytest.approx(0.4) and error == pytest.approx(0.04 / 0.5)
    assert [own.name for own in fronts.front(ours, "text")] == ["b", "a", "c"]
    assert fronts.misses(theirs[:1] + ours, "text") == []
    (miss,) = fronts.misses(theirs + ours, "text")
    assert "a has 2.00 ± 0.00 of the KL of llama.cpp large, goal 0.8" in miss
    (miss,) = fronts.misses(theirs[:1] + [point(fronts, "worse first choices", False, 60, [0.1, 0.1], 0.5)], "text")
    assert "50.0%" in miss and "90.0%" in miss
    (miss,) = fronts.misses(theirs[:1] + ours[2:], "text")
    assert "nothing of ours has at most" in miss
    (miss,) = fronts.misses([point(fronts, "auto-round Q4_0", True, 80, [0.19, 0.19])] + ours, "text")
    assert "a has 1.05 ± 0.00 of the KL of auto-round Q4_0, goal 1.0" in miss
    assert fronts.misses([point(fronts, "auto-round Q4_0", True, 80, [0.21, 0.21])] + ours, "text") == []
    assert "*" in fronts.points_table(theirs + ours, "text").columns[0]._cells


def test_points_are_kept(small, tmp_path):
    (tmp_path / "recipes").mkdir()
    recipe = tmp_path / "recipes" / "mix.yaml"
    recipe.write_text("scheme: W4A16\ngroup_size: 32\nsites:\n  - match: 're:down_proj$'\n    scheme: W8A16\n")
    options = ("--no-peer", f"--recipes={tmp_path / 'recipes'}", "--ours=^W8A16 absmax|mix")
    done = quality(small, tmp_path / "out", *options)
    assert done.returncode == 0 and "0 misses" in done.stdout, done.stdout + done.stderr
    assert "recipes/mix: text.txt" in done.stderr and (tmp_path / "out" / "quality-per-byte.svg").read_text().startswith("<?xml")
    kept = {file.name.rsplit("-", 1)[0]: json.loads(file.read_text()) for file in (tmp_path / "out").glob("*.json")}
    assert sorted(kept) == ["recipes-mix", "w8a16-absmax"] and kept["recipes-mix"]["figures"]["kl_mean"] > kept["w8a16-absmax"]["figures"]["kl_mean"]
    # Every byte is counted once: W8 of every linear and the head with f32 scales a row, five norms of 64 floats.
    rows = [(64 + 2 * 32, 64), (64, 64), (2 * 128, 64), (64, 128)] * 2 + [(97, 64)]
    assert kept["w8a16-absmax"]["bytes"] >= sum(n * k + 4 * n for n, k in rows) + 5 * 64 * 4

    again = quality(small, tmp_path / "out", *options)
    assert again.returncode == 0 and again.stdout == done.stdout and "text.txt" not in again.stderr
    recipe.write_text(recipe.read_text().replace("32", "64"))
    changed = quality(small, tmp_path / "out", *options)
    assert "recipes/mix: text.txt" in changed.stderr and "W8A16 absmax: text.txt" not in changed.stderr


def test_beside_llama_cpp(small, tmp_path):
    sys.path.insert(0, str(BENCHMARKS))
    from peer import cache_folder, environment_of

    sys.path.remove(str(BENCHMARKS))
    if environment_of(cache_folder(None)) is None:
        pytest.skip("needs llama-cpp-python as benchmarks/peers_llama_cpp.py installs it")
    done = quality(small, tmp_path, "--ours=^W8A16 absmax")
    assert done.returncode in (0, 1) and "misses" in done.stdout, done.stdout + done.stderr
    kept = {file.name.rsplit("-", 1)[0]: json.loads(file.read_text()) for file in tmp_path.glob("llama-cpp-*.json")}
    assert len(kept) == 6
    # The f32 logits of both libraries are of one model: what perplexity they give is the same, and more bits are closer to them.
    ours = json.loads(next(tmp_path.glob("w8a16-absmax-*.json")).read_text())["figures"]
    for found in kept.values():
        assert found["figures"]["reference_perplexity"] == pytest.approx(ours["reference_perplexity"], rel=1e-4)
    assert kept["llama-cpp-q6-k"]["figures"]["kl_mean"] < kept["llama-cpp-q2-k-importance-matrix"]["figures"]["kl_mean"]


@pytest.mark.parametrize("options, message", [
    (("--windows=1",), "--windows 1: expected two or more"),
    (("--text=missing.txt",), "--text: there is no file missing.txt"),
    (("--recipes=.git",), "there is no *.yaml in it"),
])  # fmt: skip
def test_bad_arguments(small, tmp_path, options, message):
    done = quality(small, tmp_path, "--no-peer", *options)
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr
