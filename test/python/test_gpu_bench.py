# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/gpu_kernels.py where there is no GPU: its checks, on the driver that simulates one."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from helpers import BUILD, REPO, assert_refused, run_tool

BENCHMARKS = REPO / "benchmarks"
LINEARS = ("w8a8", "w4a8", "w4a8_f16", "w2a8_f16", "w8a16", "w4a16", "w4a16_f16", "w3a16", "w2a16", "bf16")
ROW_OPERATIONS = ("quantize", "rms_norm_quantize")


def run_benchmark(folder, *options):
    command = [sys.executable, BENCHMARKS / "gpu_kernels.py", folder, *options]
    return subprocess.run(command, env=os.environ | {"EASYQUANT_BUILD": str(BUILD)}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Kernels of one small layer, for one row and for many."""
    folder = tmp_path_factory.mktemp("kernels")
    result = run_tool("easyquant-gpu-kernel-bench", "--chip=sm_80", f"--out={folder}", "--shapes=72x256", "--rows=1,4096", "--ptx-only")
    assert result.returncode == 0, result.stderr
    return folder


def test_kernels_give_what_numpy_gives(prepared, tmp_path):
    file = tmp_path / "report.json"
    result = run_benchmark(prepared, "--simt", f"--json={file}")
    assert result.returncode == 0, result.stderr
    kernels = {case["kernel"]["name"] for case in json.loads((prepared / "cases.json").read_text())["cases"]}
    report = json.loads(file.read_text())
    assert (report["checked"], report["failures"]) == (2 * len(LINEARS + ROW_OPERATIONS), [])
    assert len(kernels) == 2 * len(LINEARS) + len(ROW_OPERATIONS)  # operations on rows have one kernel for any number
    assert "24 of 24 kernels for sm_80" in result.stdout and "simulator" in result.stdout
    assert "results" not in report, "a simulator has no times"


@pytest.mark.parametrize("module, of, to, words", [
    ("quantize_256", "0f42FE0000", "0f42FC0000", "codes or scales differ"),  # 127 to 126
    ("w8a8_72x256", "mul.rn.f32", "add.rn.f32", "results differ"),
    ("w4a16_72x256", "add.rn.f32", "sub.rn.f32", "times the bound"),
])
def test_wrong_kernels_are_found(prepared, tmp_path, module, of, to, words):
    folder = tmp_path / "kernels"
    shutil.copytree(prepared, folder)
    path = folder / f"{module}.ptx"
    text = path.read_text()
    assert of in text
    path.write_text(text.replace(of, to))
    result = run_benchmark(folder, "--simt", f"--families={module.rsplit('_', 1)[0]}")
    assert_refused(result, words)


def test_times_are_those_of_the_driver(prepared, tmp_path):
    """The simulating driver takes a millisecond a launch and a copy; little memory is gone through."""
    file = tmp_path / "report.json"
    settings = "import gpu_kernels as g; g.COLD_BYTES = 40000; g.TIMED_WEIGHTS = 1; g.MOST_LAUNCHES = 4; g.main()"
    command = [sys.executable, "-c", settings, prepared, "--no-torch", "--families=w8a8,w4a16", "--rounds=2", f"--json={file}"]
    environment = os.environ | {"LD_LIBRARY_PATH": str(BUILD / "unittests" / "fake-cuda"), "PYTHONPATH": str(BENCHMARKS)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    results = {(r["family"], r["rows"]): r for r in json.loads(file.read_text())["results"]}
    assert set(results) == {(family, rows) for family in ("w8a8", "w4a16") for rows in (1, 4096)}
    bandwidth = 2 * 40000 / 1e-3
    for found in results.values():
        assert found["seconds"] == pytest.approx(1e-3) and found["copy_bytes_per_s"] == pytest.approx(bandwidth)
        assert found["ratios"]["copy"] == pytest.approx(found["bytes"] / 1e-3 / bandwidth)
    # 20480 bytes of codes and 512 of scales; half as many codes and twice the scales.
    assert {(r["family"], r["launches"], r["cold"]) for r in results.values()} == {("w8a8", 2, True), ("w4a16", 4, True)}
    assert "not reached" in result.stdout and "not measured" in result.stdout


def test_a_module_that_cannot_be_loaded_is_left_out(prepared, tmp_path):
    folder = tmp_path / "kernels"
    shutil.copytree(prepared, folder)
    path = folder / "quantize_256.ptx"
    path.write_text(path.read_text().replace(".entry ", ".entri "))
    file = tmp_path / "report.json"
    result = run_benchmark(folder, "--simt", "--families=quantize,w8a8", f"--json={file}")
    # With what the driver's assembler says.
    assert_refused(result, "quantize_256.ptx", ".entri", "prepare a folder for its chip")
    assert "2 of 2 kernels" in result.stdout and len(json.loads(file.read_text())["failures"]) == 1


def test_times_without_torch(prepared, tmp_path):
    """It is missed, and said; our own times are there."""
    file = tmp_path / "report.json"
    settings = "import sys; sys.modules['torch'] = None; import gpu_kernels as g; g.COLD_BYTES = 40000; g.TIMED_WEIGHTS = 1; g.MOST_LAUNCHES = 4; g.main()"
    command = [sys.executable, "-c", settings, prepared, "--families=w8a8", "--rounds=1", "--time-only", f"--json={file}"]
    environment = os.environ | {"LD_LIBRARY_PATH": str(BUILD / "unittests" / "fake-cuda"), "PYTHONPATH": str(BENCHMARKS)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert_refused(result, "torch cannot be imported", "pip install torch", "--no-torch")
    report = json.loads(file.read_text())
    assert len(report["results"]) == 2 and "checked" not in report


def test_a_gpu_that_is_lost(prepared, tmp_path):
    """The kernel is named, and nothing is tried after it."""
    file = tmp_path / "report.json"
    command = [sys.executable, BENCHMARKS / "gpu_kernels.py", prepared, "--check-only", "--families=quantize,w8a8", f"--json={file}"]
    environment = os.environ | {"LD_LIBRARY_PATH": str(BUILD / "unittests" / "fake-cuda"), "FAKE_CUDA_FAIL": "8"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert_refused(result, "CUDA_ERROR_LAUNCH_FAILED", "the GPU is lost")
    report = json.loads(file.read_text())
    assert report["checked"] == 2 and len(report["failures"]) == 2


def test_products_of_torch():
    """On the CPU, where torch is installed; else it says what to do."""
    result = subprocess.run([sys.executable, BENCHMARKS / "torch_peers.py", "--device=cpu", "--shape=64x96", "--rows=17"], capture_output=True, text=True)
    try:
        import torch  # noqa: F401
    except ImportError:
        assert_refused(result, "torch cannot be imported", "pip install torch")
        return
    assert result.returncode == 0, result.stdout + result.stderr
    for name in ("bf16", "int8", "fp8"):
        assert f"{name}, M = 17" in result.stdout


def test_what_cannot_be_measured(prepared, tmp_path):
    assert_refused(run_benchmark(tmp_path), "cases.json", "easyquant-gpu-kernel-bench")
    assert_refused(run_benchmark(prepared, "--families=w5a5"), "w5a5")
    result = run_tool("easyquant-gpu-kernel-bench", "--chip=sm_80", f"--out={tmp_path}", "--shapes=64x100")
    assert_refused(result, "--shapes", "64x100", "128")
    result = run_tool("easyquant-gpu-kernel-bench", "--chip=sm_75", f"--out={tmp_path}")
    assert_refused(result, "sm_75", "sm_80")
