# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code for 64-bit Arm: one artifact for both processors, run by the runtime for Arm in an emulator."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers import REPO, assert_refused, compile_model, run_tool

RUN = Path(os.environ.get("EASYQUANT_BUILD_AARCH64", REPO / "build-aarch64")) / "bin" / "easyquant-run"
SYSROOT = Path("/usr/aarch64-linux-gnu")  # of Debian's libc6-arm64-cross
# AVX2 has the lanes of NEON's sets, and so their order of sums.
BOTH = ("--target=cpu,aarch64", "--isa=avx2,neon-dot,neon-i8mm")
# More than a tile of rows, then one row at a time.
PROMPT = "1,403,407,261,378,432,395,261,370,427,417,338,429,426,320,286,431,410,438,377,296"

emulated = pytest.mark.skipif(
    not shutil.which("qemu-aarch64") or not all(path.exists() for path in (SYSROOT, RUN, RUN.parent.parent / "lib" / "libomp.so.5")),
    reason="unsupported: no qemu-aarch64, no libraries of g++-aarch64-linux-gnu, or no build-aarch64 (scripts/setup.sh makes it)",
)


def emulate(artifact, *options, cpu="max", timeout=300):
    """easyquant-run on an Arm CPU of this model; the finished process."""
    # All libraries of one place: a dynamic linker of the sysroot and a C library of libc6:arm64 do not fit.
    command = ["qemu-aarch64", "-cpu", cpu, "-L", str(SYSROOT), "-E", f"LD_LIBRARY_PATH={SYSROOT}/lib", str(RUN), str(artifact), *options]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)


def results(artifact, file, *options, cpu=None):
    """What easyquant-run tells of a prompt, here or on an emulated Arm CPU."""
    arguments = [f"--tokens={PROMPT}", "--ignore-eos", "--json", str(file), *options]
    done = emulate(artifact, *arguments, cpu=cpu) if cpu else run_tool("easyquant-run", artifact, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


# One of each kind of weights, of integer loops and of caches.
EACH_KIND = [
    ("--scheme=none",),
    ("--scheme=W8A8",),
    ("--scheme=W8A8_ASYM",),
    ("--scheme=W4A8",),
    ("--scheme=W4A8", "--group-size=32", "--activation-group-size=32"),
    ("--scheme=Q4_K",),
    ("--scheme=NF4A8",),
    ("--scheme=W8A8", "--kv-scheme=int4"),
]
OTHERS = [
    ("--scheme=Q4",),
    ("--scheme=W2A8_ASYM", "--group-size=32"),
    ("--scheme=W3A16", "--group-size=32"),
    ("--scheme=W5A8", "--group-size=64"),
    ("--scheme=Q3_K",),
    ("--scheme=FP8_DYNAMIC",),
    ("--scheme=MXFP4A16",),
    ("--scheme=NVFP4A16",),
    ("--scheme=W8A8", "--kv-scheme=int8", "--kv-keys=pre-rope"),
    ("--scheme=W8A8", "--kv-scheme=int2", "--kv-key-scales=channel"),
]


@emulated
@pytest.mark.parametrize("options", [*EACH_KIND, *(pytest.param(options, marks=pytest.mark.slow) for options in OTHERS)], ids=" ".join)
def test_same_bits(artifact, stories, tmp_path, options):
    both = artifact(stories, *BOTH, *options)
    count = "--max-new-tokens=12"
    here = results(both, tmp_path / "here.json", count, "--isa=avx2")
    assert here.pop("isa") == "avx2"
    for isa in ("neon-dot", "neon-i8mm"):
        arm = results(both, tmp_path / f"{isa}.json", count, f"--isa={isa}", cpu="max")
        assert arm.pop("isa") == isa
        assert arm == here  # tokens and logits


@emulated
def test_cpus_and_threads(artifact, stories, tmp_path):
    """A CPU gets the best that it has, and the bits do not depend on it, nor on threads."""
    both = artifact(stories, *BOTH, "--scheme=W4A8")
    expected = results(both, tmp_path / "here.json", "--max-new-tokens=8", "--isa=avx2")
    for cpu, threads, isa in (("max", 1, "neon-i8mm"), ("max", 3, "neon-i8mm"), ("cortex-a76", 2, "neon-dot"), ("neoverse-n1", 3, "neon-dot")):
        found = results(both, tmp_path / f"{cpu}.json", "--max-new-tokens=8", f"--threads={threads}", cpu=cpu)
        assert found == expected | {"isa": isa}


@emulated
def test_missing_code_and_features(artifact, stories):
    both = artifact(stories, *BOTH, "--scheme=W4A8")
    assert_refused(emulate(both, "--tokens=1", cpu="cortex-a72"), "neon-i8mm needs LSE, DotProd, I8MM; neon-dot needs LSE, DotProd", "Armv8.2")
    assert_refused(emulate(both, "--tokens=1", "--isa=neon-i8mm", cpu="cortex-a76"), "neon-i8mm needs I8MM, which this CPU does not have; choose auto")
    assert_refused(emulate(both, "--tokens=1", "--isa=avx2"), "is code for x86_64, and this machine is aarch64")
    here = artifact(stories, "--scheme=W4A8")
    assert_refused(emulate(here, "--tokens=1"), "has code for x86_64", "this machine is aarch64", "easyquant compile … --target aarch64")


def test_code_for_arm_alone(stories, tmp_path):
    out = compile_model(stories, tmp_path / "arm", "--scheme=W8A8", "--target=aarch64")
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["target"] == "aarch64" and manifest["program"]["entries"] == {"neon-dot": "easyquant_step_neon_dot", "neon-i8mm": "easyquant_step_neon_i8mm"}
    assert "model.aarch64.so" in manifest["files"] and "model.so" not in manifest["files"]
    assert_refused(run_tool("easyquant-run", out, "--tokens=1"), "has code for aarch64 (neon-dot, neon-i8mm)", "this machine is x86_64", "--target x86_64")


def test_code_of_both_is_that_of_each(artifact, stories, tmp_path):
    """The code for one processor does not depend on what else there is code for."""
    both = artifact(stories, *BOTH, "--scheme=W8A8")
    arm = compile_model(stories, tmp_path / "arm", "--scheme=W8A8", "--target=aarch64")
    here = artifact(stories, "--scheme=W8A8", "--isa=avx2")
    assert (both / "model.so").read_bytes() == (here / "model.so").read_bytes()
    assert (both / "model.aarch64.so").read_bytes() == (arm / "model.aarch64.so").read_bytes()


@pytest.mark.parametrize("arguments, message", [
    (("--target=armv7l",), "unknown target 'armv7l'; expected some of cpu, x86_64, aarch64, sm_80"),
    (("--isa=neon-dot",), "instruction set 'neon-dot' goes with --target aarch64"),
    (("--isa=avx2", "--target=cpu,aarch64"), "--isa avx2: expected one of aarch64, too: neon-dot or neon-i8mm"),
])  # fmt: skip
def test_refused_targets(stories, tmp_path, arguments, message):
    assert_refused(run_tool("easyquant-compile", stories, "-o", tmp_path / "out", *arguments), message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("processor", ["armv7l", "aarch64_be", "riscv64"])
def test_other_processors_are_refused_when_configured(tmp_path, processor):
    command = ["cmake", "-S", REPO, "-B", tmp_path, "-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={processor}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and f"not for '{processor}'" in " ".join(done.stderr.split()), done.stderr
