# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code for 64-bit Arm: one artifact for both processors, run by the runtime for Arm in an emulator."""

import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

import helpers
from helpers import REPO, assert_refused, compile_model, random_gemma4, random_lfm2, random_llama, random_qwen35, run_tool, write_model

BUILD = Path(os.environ.get("EASYQUANT_BUILD_AARCH64", REPO / "build-aarch64"))
OPENMP = BUILD / "lib" / "libomp.so.5"
SYSROOT = Path("/usr/aarch64-linux-gnu")  # of Debian's libc6-arm64-cross
# AVX2 has the lanes of NEON's sets, and so their order of sums.
BOTH = ("--target=cpu,aarch64", "--isa=avx2,neon-dot,neon-i8mm")
# More than a tile of rows, then one row at a time.
PROMPT = "1,403,407,261,378,432,395,261,370,427,417,338,429,426,320,286,431,410,438,377,296"

MISSING = [] if shutil.which("qemu-aarch64") else ["qemu-aarch64"]
MISSING += [str(path) for path in (SYSROOT, BUILD / "bin" / "easyquant-run", OPENMP) if not path.exists()]
emulated = pytest.mark.skipif(bool(MISSING), reason=f"unsupported: no {', no '.join(MISSING)} (scripts/setup.sh makes it on x86-64, where Debian's packages can be installed)")


@pytest.fixture(scope="module")
def emulate(tmp_path_factory):
    """emulate(artifact, *options, cpu=, timeout=): easyquant-run on an Arm CPU of this model, from the folder that docs/guide/arm.md
    deploys, which has been moved; the finished process."""
    first = tmp_path_factory.mktemp("arm") / "first"
    subprocess.run(["cmake", "--install", BUILD, "--component", "runtime", "--prefix", first], check=True, capture_output=True)
    shutil.copy(OPENMP, first / "lib")
    run = first.rename(first.with_name("eq-arm")) / "bin" / "easyquant-run"

    def emulate(artifact, *options, cpu="max", timeout=300):
        # All libraries of one place: a dynamic linker of the sysroot and a C library of libc6:arm64 do not fit.
        command = ["qemu-aarch64", "-cpu", cpu, "-L", str(SYSROOT), "-E", f"LD_LIBRARY_PATH={SYSROOT}/lib", str(run), str(artifact), *options]
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)

    return emulate


def results(run, artifact, file, *options, prompt=PROMPT):
    """What easyquant-run tells of a prompt where `run` starts it."""
    done = run(artifact, f"--tokens={prompt}", "--ignore-eos", "--json", str(file), *options)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


def here(artifact, *options):
    return run_tool("easyquant-run", artifact, "--isa=avx2", *options)


def check_same_bits(emulate, both, folder, tokens=12, **prompt):
    """Tokens and logits, of this machine and of Arm."""
    count = f"--max-new-tokens={tokens}"
    expected = results(here, both, folder / "here.json", count, **prompt)
    assert expected.pop("isa") == "avx2"
    for isa in ("neon-dot", "neon-i8mm"):
        found = results(emulate, both, folder / f"{isa}.json", count, f"--isa={isa}", **prompt)
        assert found.pop("isa") == isa
        assert found == expected


# One of each kind of weights, of integer loops and of caches.
EACH_KIND = [
    ("--scheme=none",),
    ("--scheme=W8A8",),
    ("--scheme=W8A8_ASYM",),
    ("--scheme=W4A8",),
    ("--scheme=W4A8", "--group-size=32", "--activation-group-size=32"),
    ("--scheme=W4A8", "--method=zeropoint", "--group-size=32", "--activation-group-size=32", "--activation-zero-points"),
    ("--scheme=Q4_K",),
    ("--scheme=NF4A8",),
    ("--scheme=W8A8", "--kv-scheme=int4"),
]
OTHERS = [
    ("--scheme=Q4",),
    ("--scheme=W8A8", "--activation-group-size=32", "--activation-zero-points"),
    ("--scheme=W2A8_ASYM", "--group-size=32"),
    ("--scheme=W2A16", "--group-size=32"),
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
def test_same_bits(artifact, emulate, stories, tmp_path, options):
    check_same_bits(emulate, artifact(stories, *BOTH, *options), tmp_path)


MODELS = {
    "gated delta nets": lambda: random_qwen35(11),
    "convolutions and experts": lambda: random_lfm2(12, hidden=64, heads=4, kv_heads=2, experts=5),
    "windows and heads of two sizes": lambda: random_gemma4(13, layer_types=["sliding_attention", "full_attention"] * 2),
    "experts that are packed, and a window": lambda: random_llama(14, arch="mixtral", hidden=64, head_dim=16, heads=4, kv_heads=2, experts=4, expert_ffn=32, tied=False, sliding_window=17),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("scheme", ["none", "W8A8", "W4A16"])
@pytest.mark.parametrize("name", MODELS)
def test_other_models(artifact, emulate, workspace, tmp_path, name, scheme):
    folder = workspace / name.replace(" ", "-").replace(",", "")
    if not folder.exists():
        write_model(folder, *MODELS[name]())
    prompt = ",".join(str(token % 97) for token in map(int, PROMPT.split(",")))
    check_same_bits(emulate, artifact(folder, *BOTH, f"--scheme={scheme}"), tmp_path, prompt=prompt)


@pytest.fixture(scope="module")
def drafts(tmp_path_factory):
    """drafts(processor): drafts.c with the runtime of this processor, as the beginning of a command."""
    folder = tmp_path_factory.mktemp("drafts")

    def make(processor):
        here = processor == "x86_64"
        lib = (helpers.BUILD if here else BUILD) / "lib"
        program = folder / processor
        subprocess.run(["clang-22", f"--target={processor}-linux-gnu", f"-I{REPO}/include", REPO / "test/Inputs/drafts.c", "-o", program,
                        f"-L{lib}", "-leasyquant_runtime", f"-Wl,-rpath,{lib}", "-fuse-ld=lld"], check=True)  # fmt: skip
        return [program] if here else ["qemu-aarch64", "-cpu", "max", "-L", SYSROOT, "-E", f"LD_LIBRARY_PATH={SYSROOT}/lib", program]

    return make


@emulated
@pytest.mark.parametrize("scheme, experts", [("W8A8", 0), ("none", 5), pytest.param("none", 0, marks=pytest.mark.slow)])
def test_heads_that_draft(artifact, drafts, workspace, scheme, experts):
    """The same guesses, and the same bits of the logits behind them."""
    folder = workspace / f"drafts-{experts}"
    if not folder.exists():
        write_model(folder, *random_qwen35(11, kinds=("linear_attention", "full_attention"), experts=experts, mtp_num_hidden_layers=1))
    both = artifact(folder, *BOTH, f"--scheme={scheme}")
    text = [str(int(token) % 97) for token in PROMPT.split(",")]
    outputs = {}
    for processor, isa in (("x86_64", "avx2"), ("aarch64", "neon-dot"), ("aarch64", "neon-i8mm")):
        done = subprocess.run([*drafts(processor), both, isa, "4", *text], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outputs[isa] = done.stdout.splitlines()
    assert [len(line.split()) for line in outputs["avx2"]] == [5] * 4
    assert outputs["neon-dot"] == outputs["neon-i8mm"] == outputs["avx2"]


@emulated
@pytest.mark.parametrize("scheme", ["none", "W8A8", "W4A8", "Q4"])
def test_a_layer_of_smollm2(artifact, emulate, smollm2_layer, workspace, tmp_path, scheme):
    folder = workspace / "smollm2-layer"
    if not folder.exists():
        write_model(folder, *smollm2_layer)
    check_same_bits(emulate, artifact(folder, *BOTH, f"--scheme={scheme}"), tmp_path, tokens=3)


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["none", "W8A8", "W4A8", "Q4"])
def test_smollm2(artifact, emulate, smollm2, tmp_path, scheme):
    check_same_bits(partial(emulate, timeout=1800), artifact(smollm2, *BOTH, f"--scheme={scheme}"), tmp_path, tokens=3)


@emulated
def test_cpus_and_threads(artifact, emulate, stories, tmp_path):
    """A CPU gets the best that it has, and the bits do not depend on it, nor on threads."""
    both = artifact(stories, *BOTH, "--scheme=W4A8")
    expected = results(here, both, tmp_path / "here.json", "--max-new-tokens=8")
    for cpu, threads, isa in (("max", 1, "neon-i8mm"), ("max", 3, "neon-i8mm"), ("cortex-a76", 2, "neon-dot"), ("neoverse-n1", 3, "neon-dot")):
        found = results(partial(emulate, cpu=cpu), both, tmp_path / f"{cpu}.json", "--max-new-tokens=8", f"--threads={threads}")
        assert found == expected | {"isa": isa}


@emulated
def test_missing_code_and_features(artifact, emulate, stories):
    both = artifact(stories, *BOTH, "--scheme=W4A8")
    assert_refused(emulate(both, "--tokens=1", cpu="cortex-a72"), "neon-i8mm needs LSE, DotProd, I8MM; neon-dot needs LSE, DotProd", "Armv8.2")
    assert_refused(emulate(both, "--tokens=1", "--isa=neon-i8mm", cpu="cortex-a76"), "neon-i8mm needs I8MM, which this CPU does not have; choose auto")
    assert_refused(emulate(both, "--tokens=1", "--isa=avx2"), "is code for x86_64, and this machine is aarch64")
    x86 = artifact(stories, "--scheme=W4A8")
    for isa in ("auto", "avx2"):
        assert_refused(emulate(x86, "--tokens=1", f"--isa={isa}"), "has code for x86_64", "this machine is aarch64", "easyquant compile … --target aarch64")


def test_code_for_arm_alone(stories, tmp_path):
    out = compile_model(stories, tmp_path / "arm", "--scheme=W8A8", "--target=aarch64")
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["target"] == "aarch64" and manifest["program"]["entries"] == {"neon-dot": "easyquant_step_neon_dot", "neon-i8mm": "easyquant_step_neon_i8mm"}
    assert "model.aarch64.so" in manifest["files"] and "model.so" not in manifest["files"]
    assert_refused(run_tool("easyquant-run", out, "--tokens=1"), "has code for aarch64 (neon-dot, neon-i8mm)", "this machine is x86_64", "--target x86_64")


def test_code_for_arm_and_a_gpu(stories, tmp_path):
    """Where there is no GPU, code for another processor is as good as none."""
    out = compile_model(stories, tmp_path / "jetson", "--scheme=W8A8", "--target=aarch64,sm_87")
    for device in ("auto", "cuda"):
        refused = run_tool("easyquant-run", out, "--tokens=1", f"--device={device}", env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
        assert_refused(refused, str(out), "NVIDIA driver", "--target sm_87,aarch64,x86_64", "--device simt simulates")
        assert "--device cpu" not in refused.stderr
    assert_refused(run_tool("easyquant-run", out, "--tokens=1", "--device=cpu"), "has no code for CPUs like this machine's; run it with --device cuda", "--target sm_87,aarch64,x86_64")
    alone = compile_model(stories, tmp_path / "arm", "--scheme=W8A8", "--target=aarch64")
    refused = run_tool("easyquant-run", alone, "--tokens=1", "--device=cuda")
    assert_refused(refused, "has no code for GPUs", "--target sm_90a,cpu")
    assert "--device cpu" not in refused.stderr


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
