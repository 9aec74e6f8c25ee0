# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""easyquant-simt on kernels that nvcc compiled: results of numpy, and every seeded defect found."""

import json
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from helpers import REPO, assert_refused, run_tool

SOURCE = REPO / "test" / "Simt" / "Inputs" / "kernels.cu"
CHIPS = ("sm_80", "sm_90")


def find_nvcc():
    """The pinned nvcc of the extra `gpu`, or one on PATH."""
    for path in Path(sysconfig.get_paths()["purelib"]).glob("nvidia/cu*/bin/nvcc"):
        return path
    return shutil.which("nvcc")


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    """ptx(chip, defect): kernels.cu compiled."""
    nvcc = find_nvcc()
    if not nvcc:
        pytest.skip("unsupported: no nvcc (the extra `gpu` has one)")
    folder = tmp_path_factory.mktemp("ptx")

    def get(chip, defect):
        out = folder / f"{chip}-{defect}.ptx"
        if not out.exists():
            command = [nvcc, "-ptx", "-std=c++17", f"-arch={chip}", f"-DDEFECT={defect}", SOURCE, "-o", out]
            subprocess.run(command, check=True, capture_output=True)
        return out

    return get


class Launch:
    """One run of a kernel; buffers are numpy arrays."""

    def __init__(self, folder, ptx, kernel, grid, block, *arguments, options=()):
        command, outputs = [], []
        for i, argument in enumerate(arguments):
            path = folder / f"{i}.npy"
            if isinstance(argument, np.ndarray):
                np.save(path, argument)
                command += ["--arg", f"inout:{path}"]
            elif isinstance(argument, tuple):
                command += ["--arg", f"out:{path}:{argument[0]}:{'x'.join(map(str, argument[1:]))}"]
            else:
                command += ["--arg", f"i32:{argument}"]
            if not isinstance(argument, int):
                outputs.append(path)
        report = folder / "report.json"
        report.unlink(missing_ok=True)
        self.process = run_tool("easyquant-simt", ptx, "--kernel", kernel, "--grid", grid, "--block", block, *command,
                                "--json", report, *options)
        assert report.exists(), self.process.stderr
        self.report = json.loads(report.read_text())
        self.findings = {finding["kind"] for finding in self.report["findings"]}
        self.arrays = [np.load(path) for path in outputs]

    def clean(self):
        assert self.process.returncode == 0 and not self.findings, self.process.stderr
        return self


def random(*shape, dtype=np.float32, seed=0):
    generator = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        return generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)
    return generator.standard_normal(shape).astype(dtype)


def reduction():
    x = random(1000)
    return (4, 256, x, ("f32", 4), 1000), lambda a: np.testing.assert_allclose(
        a[1], np.pad(x, (0, 24)).reshape(4, 256).sum(1), rtol=1e-5)


def transpose():
    x = random(50, 70)
    return ("3,2", "32,8", x, ("f32", 70, 50), 50, 70), lambda a: np.testing.assert_array_equal(a[1], x.T)


def softmax():
    x = random(3, 700)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return (3, 256, x, ("f32", 3, 700), 700), lambda a: np.testing.assert_allclose(
        a[1], e / e.sum(1, keepdims=True), rtol=2e-6)


def scan():
    x = random(256, dtype=np.int32)
    return (1, 256, x, ("i32", 256)), lambda a: np.testing.assert_array_equal(a[1], np.cumsum(x, dtype=np.int32))


def histogram():
    x = random(3000, dtype=np.uint8)
    return (3, 256, x, np.zeros(256, np.uint32), 3000), lambda a: np.testing.assert_array_equal(
        a[1], np.bincount(x, minlength=256))


def tiled_gemm():
    a, b = random(40, 50), random(50, 33, seed=1)
    return ("3,3", "16,16", a, b, ("f32", 40, 33), 40, 33, 50), lambda r: np.testing.assert_allclose(
        r[2], a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)


def wmma_gemm():
    a, b = random(32, 48, dtype=np.float16), random(48, 64, dtype=np.float16, seed=1)
    return ("4,2", 32, a, b, ("f32", 32, 64), 64, 48), lambda r: np.testing.assert_allclose(
        r[2], 0.5 * (a.astype(np.float64) @ b.astype(np.float64)), rtol=1e-5, atol=1e-5)


def mma_gemm():
    a, b = random(64, 256, dtype=np.int8), random(96, 256, dtype=np.int8, seed=1)
    return ("3,2", 128, a, b, ("i32", 64, 96), 96, 256), lambda r: np.testing.assert_array_equal(
        r[2], a.astype(np.int32) @ b.T.astype(np.int32))


def dp4a_gemv():
    w, x = random(20, 300, dtype=np.int8), random(300, dtype=np.int8, seed=1)
    return (20, 32, w, x, ("i32", 20), 75), lambda r: np.testing.assert_array_equal(
        r[2], w.astype(np.int32) @ x.astype(np.int32))


PROGRAMS = {
    "reduction": (reduction, {"race"}),
    "transpose_plain": (transpose, {"out of bounds"}),
    "transpose_padded": (transpose, {"out of bounds"}),
    "softmax": (softmax, {"race"}),
    "scan": (scan, {"race"}),
    "histogram": (histogram, {"race"}),
    "tiled_gemm": (tiled_gemm, {"race"}),
    "wmma_gemm": (wmma_gemm, {"out of bounds"}),
    "mma_gemm": (mma_gemm, {"asynchronous copy"}),
    "dp4a_gemv": (dp4a_gemv, {"out of bounds"}),
}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kernel", PROGRAMS)
def test_results_are_those_of_numpy(kernel, chip, ptx, tmp_path):
    (grid, block, *arguments), check = PROGRAMS[kernel][0]()
    check(Launch(tmp_path, ptx(chip, 0), kernel, grid, block, *arguments).clean().arrays)


@pytest.mark.parametrize("kernel", ["softmax", "mma_gemm", "histogram"])
def test_results_do_not_depend_on_the_checks(kernel, ptx, tmp_path):
    (grid, block, *arguments), check = PROGRAMS[kernel][0]()
    check(Launch(tmp_path, ptx("sm_80", 0), kernel, grid, block, *arguments, options=["--check", "none"]).clean().arrays)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kernel", PROGRAMS)
def test_a_seeded_defect_is_found(kernel, chip, ptx, tmp_path):
    (grid, block, *arguments), _ = PROGRAMS[kernel][0]()
    launch = Launch(tmp_path, ptx(chip, 1), kernel, grid, block, *arguments)
    assert launch.process.returncode == 1
    assert PROGRAMS[kernel][1] <= launch.findings, launch.process.stderr
    finding = launch.report["findings"][0]
    assert f":{finding['line']}: " in launch.process.stderr and "thread (" in finding["message"]


def test_padding_removes_the_bank_conflicts(ptx, tmp_path):
    """The seeded defect of the transposition without padding is its bank conflicts: 31 a column of a whole tile."""
    x = random(64, 64)
    conflicts = {}
    for kernel in ("transpose_plain", "transpose_padded"):
        launch = Launch(tmp_path, ptx("sm_80", 0), kernel, "2,2", "32,8", x, ("f32", 64, 64), 64, 64).clean()
        traffic = launch.report["traffic"]
        conflicts[kernel] = traffic["shared load"]["bank_conflicts"]
        for name in ("global load", "global store"):
            assert traffic[name]["sectors_per_request"] == 4
    assert conflicts == {"transpose_plain": 128 * 31, "transpose_padded": 0}


def test_the_int8_gemm_has_no_bank_conflicts(ptx, tmp_path):
    (grid, block, *arguments), _ = mma_gemm()
    traffic = Launch(tmp_path, ptx("sm_80", 0), "mma_gemm", grid, block, *arguments).clean().report["traffic"]
    assert traffic["shared matrix"]["bank_conflicts"] == 0
    assert traffic["shared matrix"]["requests"] == 6 * 4 * 4 * 4  # blocks, warps, slabs, two of a and two of b


# ------------------------------------------------------------------------------------------------------------ bad input

SCALE = """.version 9.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .f32 by, .param .u32 n)
{
  .reg .f32 %f<3>; .reg .b64 %d<3>; .reg .b32 %r<3>;
  ld.param.u64 %d0, [x]; ld.param.f32 %f0, [by];
  mov.u32 %r0, %tid.x; mad.wide.u32 %d1, %r0, 4, %d0;
  ld.global.f32 %f1, [%d1]; mul.f32 %f1, %f1, %f0; st.global.f32 [%d1], %f1;
  ret;
}
.visible .entry spin() { again: bra again; }
"""


@pytest.fixture
def scale(tmp_path):
    path = tmp_path / "scale.ptx"
    path.write_text(SCALE)
    np.save(tmp_path / "x.npy", np.arange(32, dtype=np.float32))
    return path


def test_scalars_and_structs(scale, tmp_path):
    x = tmp_path / "x.npy"
    result = run_tool("easyquant-simt", scale, "--kernel", "scale", "--block", 32, "--arg", f"inout:{x}", "--arg", "f32:0.5",
                      "--arg", "u32:32")
    assert result.returncode == 0, result.stderr
    np.testing.assert_array_equal(np.load(x), np.arange(32) / 2)


@pytest.mark.parametrize(("arguments", "expected"), [
    (["--kernel", "scal"], ["no kernel 'scal'", "scale", "spin"]),
    (["--kernel", "scale", "--arg", "f32:1"], ["parameter x is .u64"]),
    (["--kernel", "scale", "--arg", "in:x.npy", "--arg", "i32:1", "--arg", "u32:1"], ["argument 2 is a i32", ".f32"]),
    (["--kernel", "scale", "--arg", "in:x.npy"], ["1 arguments given, but it takes 3"]),
    (["--kernel", "scale", "--arg", "in:nothing.npy"], ["nothing.npy: cannot be opened"]),
    (["--kernel", "scale", "--arg", "in:scale.ptx"], ["scale.ptx: no .npy file"]),
    (["--kernel", "scale", "--arg", "out:y.npy:f33:4"], ["f33:4", "TYPE:SHAPE"]),
    (["--kernel", "scale", "--arg", "u8:256"], ["'256' is no u8"]),
    (["--kernel", "scale", "--arg", "pointer:3"], ["'pointer' is no kind of argument"]),
    (["--kernel", "spin", "--block", "2000"], ["1 to 1024 threads"]),
    (["--kernel", "spin", "--shared", "300000"], ["shared memory"]),
])
def test_bad_input_is_refused(arguments, expected, scale, tmp_path):
    assert_refused(run_tool("easyquant-simt", scale, *arguments, cwd=tmp_path), *expected)


def test_an_unknown_instruction_is_quoted(scale, tmp_path):
    scale.write_text(SCALE.replace("mul.f32 %f1, %f1, %f0;", "mul.approximately.f32 %f1, %f1, %f0;"))
    result = run_tool("easyquant-simt", scale, "--kernel", "scale", "--arg", "in:x.npy", "--arg", "f32:1", "--arg", "u32:1",
                      cwd=tmp_path)
    assert_refused(result, "scale.ptx:9", "mul.approximately.f32")


def test_an_endless_loop_ends(scale):
    result = run_tool("easyquant-simt", scale, "--kernel", "spin", "--max-instructions", 100000)
    assert result.returncode == 1 and "instruction limit" in result.stderr
