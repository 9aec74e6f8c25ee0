# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/gpu_all.sh from end to end, on the driver that simulates a GPU: small kernels, small models, and no times."""

import ctypes
import os
import shutil
import subprocess
import sys

import pytest

from helpers import BUILD, REPO, assert_refused

# Without ptxas, as the driver of the tests takes no machine code.
SETTINGS = {"EASYQUANT_CUDA_BIN": "/nonexistent", "CHIPS": "sm_80", "SHAPES": "72x256", "SCHEMES": "W8A8", "CONTEXT": "32", "WINDOWS": "2"}
STEPS = ["Kernels beside numpy", "Small models beside the CPU", "stories260K, W8A8, beside the CPU", "Perplexity of W8A8 beside the CPU",
         "Speed of W8A8", "torch's products", "Kernels"]
LEAN = {"benchmarks", "bin", "cpu", "kernels", "lib", "small", "version"}


@pytest.fixture(scope="module")
def bundle(stories, tmp_path_factory):
    """What --prepare writes with a model: both bundles."""
    base = tmp_path_factory.mktemp("gpu-all")
    text = base / "text.txt"
    text.write_text("Once upon a time there was a little girl named Lily. She loved to play with her toys. " * 20)
    result = prepare(base / "bundle", stories, text)
    assert result.returncode == 0, result.stderr
    return base / "bundle"


def prepare(*arguments, **settings):
    environment = os.environ | SETTINGS | settings | {"EASYQUANT_TOOLS": str(BUILD / "bin"), "EASYQUANT_BUILD": str(BUILD), "PYTHON": sys.executable}
    return subprocess.run([REPO / "benchmarks" / "gpu_all.sh", "--prepare", *map(str, arguments)], env=environment, capture_output=True, text=True)


def run_all(folder, *arguments, **environment):
    """Without the Python packages of this checkout: the machine has none of them."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("EASYQUANT", "PYTHON"))}
    # A simulator takes its time.
    environment = plain | {"PYTHON": sys.executable, "EASYQUANT_CUDA_ALL_SECONDS": "5700"} | environment
    return subprocess.run([folder / "gpu_all.sh", *map(str, arguments)], env=environment, capture_output=True, text=True)


def unpacked(folder, name, out):
    parts = sorted(folder.glob(f"{name}.tar.gz.*"))
    assert parts and all(part.stat().st_size <= 45_000_000 for part in parts)
    out.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xz", "-C", out], input=b"".join(part.read_bytes() for part in parts), check=True)
    return [part.name for part in parts]


def test_the_bundles_hold_no_compiler(bundle, tmp_path):
    parts = unpacked(bundle, "gpu-bundle", tmp_path / "lean")
    assert parts == ["gpu-bundle.tar.gz.00"] and {path.name for path in (tmp_path / "lean").iterdir()} == LEAN
    assert (bundle / parts[0]).stat().st_size < 30_000_000
    # Beside it, the other one is complete.
    shutil.copytree(tmp_path / "lean", tmp_path / "both")
    parts += unpacked(bundle, "gpu-model", tmp_path / "both")
    assert {path.name for path in bundle.iterdir()} == {"gpu_all.sh", "gpu-bundle.sha256", "gpu-model.sha256", *parts}
    for root in (tmp_path / "lean", tmp_path / "both"):
        assert {path.name for path in (root / "bin").iterdir()} == {"easyquant-run"}
        for file in [root / "bin" / "easyquant-run", *root.rglob("*.so"), *root.rglob("*.so.*")]:
            # Nothing is left that only this machine has: no LLVM, no CUDA.
            listed = subprocess.run(["ldd", file], env={"LD_LIBRARY_PATH": str(root / "lib")}, capture_output=True, text=True).stdout
            places = [line.split("=>")[1].strip() for line in listed.splitlines() if "=>" in line]
            assert not [place for place in places if not place.startswith((str(root), "/lib/x86_64", "/usr/lib/x86_64", "/lib64"))], f"{file}: {listed}"
            assert "LLVM" not in listed and "cuda" not in listed and "libomp" not in listed


def test_the_first_bundle_alone(bundle, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(bundle, folder, ignore=shutil.ignore_patterns("gpu-model.*"))
    # What its steps do the next test shows: here there is no time for them.
    result = run_all(folder, tmp_path / "page.md", LD_LIBRARY_PATH=str(BUILD / "unittests" / "fake-cuda"), EASYQUANT_CUDA_ALL_SECONDS="0")
    text = (tmp_path / "page.md").read_text()
    steps = [step for step in STEPS if "W8A8" not in step]
    assert [line[3:] for line in text.splitlines() if line.startswith("## ") and line != "## The GPU"] == steps, result.stderr
    assert text.count("**Not done:** the time was up.") >= len(steps) and "model" not in text.split("##")[0]


def test_all_steps_in_the_simulator(bundle, tmp_path):
    page = tmp_path / "out" / "page.md"
    result = run_all(bundle, page, LD_LIBRARY_PATH=str(BUILD / "unittests" / "fake-cuda"), PREFILL="3", DECODE="2")
    text = page.read_text()
    assert [line[3:] for line in text.splitlines() if line.startswith("## ") and line != "## The GPU"] == STEPS, result.stderr
    failed = [part.splitlines()[0] for part in text.split("\n## ")[1:] if "**Failed**" in part]
    # torch is not to be had here, or sees no GPU; all else passes.
    assert failed == ["torch's products", "Kernels"], text
    assert result.returncode == 2 and "2 steps failed" in text
    assert text.count("4 of 4 kernels for sm_80 gave numpy's results on Fake GPU (sm_80)") == 12
    assert text.count(": 24, the same; last logits") == 5 and text.count(": 1, the same; last logits") == 2
    assert page.with_suffix(".json").exists()


def test_what_is_missing_is_said_at_once(bundle, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(bundle, folder)
    before = sorted(folder.rglob("*"))
    for part in (folder / "gpu-bundle.tar.gz.00", folder / "gpu-model.tar.gz.00"):
        part.write_bytes(part.read_bytes()[:-1])
    words = ["gpu-bundle.tar.gz.00", "gpu-model.tar.gz.00", "damaged"]
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        words.append("no NVIDIA driver")
    assert_refused(run_all(folder), *words)
    assert_refused(run_all(folder, PYTHON="no-such-python"), "no-such-python", *words[:3])
    assert_refused(run_all(folder, "a.md", "b.md"), "expected: gpu_all.sh [PAGE.md]")
    assert sorted(folder.rglob("*")) == before


def test_a_driver_without_a_gpu(bundle, tmp_path):
    result = run_all(bundle, tmp_path / "page.md", LD_LIBRARY_PATH=str(BUILD / "unittests" / "fake-cuda"), FAKE_CUDA_DEVICES="0")
    assert_refused(result, "the NVIDIA driver cannot be used", "cuInit")
    assert not (tmp_path / "page.md").exists()


def test_what_cannot_be_prepared(stories, tmp_path):
    assert_refused(prepare(), "expected: gpu_all.sh --prepare FOLDER [MODEL [TEXT]]")
    assert_refused(prepare(tmp_path / "out", tmp_path / "none", __file__), "none: there is no such model")
    assert_refused(prepare(tmp_path / "out", stories, tmp_path / "none"), "none: there is no such text")
    assert not (tmp_path / "out").exists()


def test_the_first_bundle_is_small(bundle, tmp_path, monkeypatch):
    # Without models, for which there is no data.
    monkeypatch.setenv("EASYQUANT_TEST_DATA", str(tmp_path))
    result = prepare(tmp_path / "out", MOST_BYTES="100000")
    assert_refused(result, "out: the bundle would have", "expected at most 100000; name fewer CHIPS or SHAPES")
    assert not list((tmp_path / "out").iterdir())
