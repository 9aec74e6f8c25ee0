# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole models on a GPU: simulated, and through a CUDA driver that simulates.

The integers of a GPU are those of the CPU. What differs are floats: exponentials, roots and sums of attention in another order, keys and
values in f16 on both sides. A difference of one unit of the last place before a quantization can move a code by one, which later layers
see as 1/127 of a row's largest value: hence the bound on logits, a share of their largest magnitude.
"""

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from command_line import run_command_line
from easyquant import _runtime
from helpers import BUILD, Runner, assert_refused, compile_model, random_llama, random_tokens, run_tool, with_slow, write_model
from easyquant.support.tools import cuda_program

LOGIT_BOUND = 0.02
CACHE_BOUND = 0.05  # of a cache of codes, where a scale may move too
FP8_BOUND = 0.1  # a code of FP8 that moves by one moves by up to an eighth of itself
FP4_BOUND = 0.3  # and one of FP4 by up to a half
TARGET = "--target=sm_80,cpu"
ISA = "--isa=avx2"  # one of them is enough here
PROMPT = [1, 403, 407, 261, 378]  # "Once upon a time" of stories260K, roughly


@pytest.fixture(scope="module")
def fake_cuda():
    """Environment in which --device cuda finds the driver of test/Runtime/FakeCuda.cpp."""
    folder = BUILD / "unittests" / "fake-cuda"
    assert (folder / "libcuda.so.1").exists(), f"{folder}/libcuda.so.1 is missing; build FakeCuda first"

    def environment(**settings):
        return os.environ | {"LD_LIBRARY_PATH": str(folder)} | {f"FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items()}

    return environment


@pytest.fixture(scope="module")
def ptx_only(stories, tmp_path_factory):
    """W8A8 for sm_80 and CPUs, compiled where there is no ptxas."""
    out = tmp_path_factory.mktemp("ptx") / "artifact"
    result = run_tool("easyquant-compile", stories, "-o", out, "--scheme=W8A8", TARGET, ISA, env=os.environ | {"EASYQUANT_CUDA_BIN": "/nonexistent"})
    assert result.returncode == 0, result.stderr
    assert "no ptxas found" in result.stderr and "PTX only" in result.stderr
    return out


def on_simt(artifact, **options):
    return Runner(artifact, device="simt", **options)


def assert_close(found, expected, bound=LOGIT_BOUND):
    assert np.abs(found - expected).max() <= bound * np.abs(expected).max()


SCHEMES = {
    "W8A8": ["--scheme=W8A8"],
    "W4A8": ["--scheme=W4A8", "--group-size=32"],
    "W8A8_ASYM": ["--scheme=W8A8_ASYM"],
    "W4A16": ["--scheme=W4A16", "--group-size=32"],
    "W3A16": ["--scheme=W3A16", "--group-size=32"],
    "W2A16_ASYM": ["--scheme=W2A16_ASYM", "--group-size=32"],
    "W2A8": ["--scheme=W2A8", "--group-size=32", "--activation-basis=plain"],
    "W4A8, f32 scales": ["--scheme=W4A8", "--group-size=32", "--scale-type=f32"],
    "W8A16, f16 scales": ["--scheme=W8A16", "--scale-type=f16"],
    "Q3": ["--scheme=Q3"],
    "Q4": ["--scheme=Q4"],
    "Q5": ["--scheme=Q5"],
    "Q6": ["--scheme=Q6"],
    "Q4, float activations": ["--scheme=Q4", "--activations=float"],
    "W3A8_ASYM": ["--scheme=W3A8_ASYM", "--group-size=32"],
    "W4A8, groups of activations": ["--scheme=W4A8", "--group-size=64", "--activation-group-size=32"],
    "W8A8, zero points in groups": ["--scheme=W8A8", "--activation-group-size=64", "--activation-zero-points"],
    "two-level scales": ["--scheme=W4A16", "--group-size=32", "--scale-type=two-level"],
    "NF4A16": ["--scheme=NF4A16", "--group-size=32"],
    "T4A16": ["--scheme=T4A16", "--group-size=32"],
    "T3A8": ["--scheme=T3A8", "--group-size=32"],
    "IQ4NLA8": ["--scheme=IQ4NLA8", "--group-size=32"],
    "MXFP4A16": ["--scheme=MXFP4A16"],
    "NVFP4A16": ["--scheme=NVFP4A16"],
    "FP4 head": ["--scheme=W4A16", "--group-size=32", "--head=MXFP4A16"],
    "FP8_DYNAMIC": ["--scheme=FP8_DYNAMIC"],
    "none": ["--scheme=none", "--kv-cache=f16"],
    "int8 cache": ["--scheme=W8A8", "--kv-scheme=int8", "--kv-group=16", "--kv-residual=16"],
    "int4 cache": ["--scheme=W8A8", "--kv-scheme=int4", "--kv-group=16", "--kv-residual=16"],
}
# These vary what the others test.
SLOW = ("Q3", "Q5", "Q6", "Q4, float activations", "W3A8_ASYM", "W8A8, zero points in groups", "two-level scales", "NF4A16", "T4A16", "IQ4NLA8", "MXFP4A16", "FP4 head", "FP8_DYNAMIC", "W8A8_ASYM", "W2A16_ASYM", "W4A8, f32 scales", "W8A16, f16 scales", "none", "int8 cache", "W3A16", "W2A8")


@pytest.mark.parametrize("name", with_slow(SCHEMES, *SLOW))
def test_same_tokens_as_on_the_cpu(artifact, stories, name):
    out = artifact(stories, *SCHEMES[name], TARGET, ISA)
    cpu, gpu = Runner(out, device="cpu", context=64), on_simt(out, context=64)
    assert (gpu.model.device, gpu.model.device_name, gpu.model.isa) == ("simt", "simulated sm_80", "sm_80")
    # Behind window and sinks there are codes.
    prompt = cpu.greedy(PROMPT, 30) if "cache" in name else PROMPT
    tokens = cpu.greedy(prompt, 12)
    assert gpu.greedy(prompt, 12) == tokens
    assert_close(gpu.score(tokens), cpu.score(tokens), CACHE_BOUND if "cache" in name else FP8_BOUND if name == "FP8_DYNAMIC" else LOGIT_BOUND)


def test_an_embedding_in_halves(tmp_path):
    """Rows of the file's type; the logits are those of floats to the bit."""
    config, tensors = random_llama(11, heads=4, kv_heads=2, head_dim=16, tied=False)
    halves = {name: weight.astype(np.float16) for name, weight in tensors.items()}
    logits = []
    for name, stored in (("halves", halves), ("floats", {name: weight.astype(np.float32) for name, weight in halves.items()})):
        model = write_model(tmp_path / name, config, stored)
        logits.append(on_simt(compile_model(model, tmp_path / f"{name}-artifact", "--scheme=W8A8", TARGET, ISA)).score(random_tokens(5, 12, 97)))
    np.testing.assert_array_equal(*logits)


def test_nothing_is_found_by_the_checks(artifact, stories):
    """Races, uninitialised reads, bounds: prefill of two kinds of kernels, and a decode step."""
    runner = on_simt(artifact(stories, "--scheme=W8A8", TARGET, ISA), context=64, simt_checks=True)
    runner.session.prefill(np.asarray(random_tokens(0, 20, 512), np.int32))
    runner.session.decode(5)
    assert np.isfinite(runner.session.logits).all()


def test_sizes_that_fit_nothing(artifact, tiny_llama):
    """Odd heads, widths that are no multiples of a tile, two layers of grouped queries."""
    out = artifact(tiny_llama, "--scheme=W8A8", TARGET, ISA)
    tokens = random_tokens(3, 21, 97)
    assert_close(on_simt(out, simt_checks=True).score(tokens), Runner(out, device="cpu").score(tokens))


def test_gpt2(artifact, tiny_gpt2):
    """Biases, layer norms, gelu, learned positions."""
    out = artifact(tiny_gpt2, "--scheme=W8A8", TARGET, ISA)
    tokens = random_tokens(4, 9, 101)
    assert_close(on_simt(out).score(tokens), Runner(out, device="cpu").score(tokens))


def test_qwen3_has_norms_of_heads(artifact, workspace):
    model = write_model(workspace / "tiny-qwen3-gpu", *random_llama(5, arch="qwen3", heads=4, kv_heads=2, head_dim=16))
    out = artifact(model, "--scheme=W8A8", TARGET, ISA)
    tokens = random_tokens(5, 9, 97)
    assert_close(on_simt(out).score(tokens), Runner(out, device="cpu").score(tokens))


@pytest.mark.parametrize("options, bound", with_slow([
    (("--scheme=W8A8", "--sinks=none"), LOGIT_BOUND), (("--scheme=W8A8", "--sinks=keep"), LOGIT_BOUND),
    (("--scheme=FP8",), FP8_BOUND), (("--scheme=NVFP4",), FP4_BOUND),
], (("--scheme=FP8",), FP8_BOUND), (("--scheme=NVFP4",), FP4_BOUND)))  # fmt: skip
def test_static_activations(artifact, stories, tmp_path_factory, options, bound):
    """Their scales and zero points are constants of the program, in device memory."""
    text = tmp_path_factory.mktemp("calibration") / "text.txt"
    text.write_text("Once upon a time there was a little girl named Lily. She loved to play with her toys. " * 20)
    out = text.parent / "artifact"
    result = run_command_line("compile", stories, "-o", out, *options, "--activations=static", TARGET, f"--calib={text}", "--nsamples=2", "--seqlen=64")
    assert result.returncode == 0, result.stderr
    tokens = random_tokens(6, 9, 512)
    assert_close(on_simt(out).score(tokens), Runner(out, device="cpu").score(tokens), bound)


@pytest.mark.slow
@pytest.mark.parametrize("options, bound", [
    # Codes of activations that round the other way add up over 30 layers: AVX2 and AVX-512 VNNI differ by 0.027.
    (("--scheme=Q4", "--method=zeropoint"), 0.06), (("--scheme=NVFP4A16",), 0.02),
])  # fmt: skip
def test_smollm2(smollm2, artifact, options, bound):
    """All of its 30 layers."""
    out = artifact(smollm2, *options, TARGET, ISA)
    tokens = [504, 3575, 282, 4649, 314, 7042, 30, 378]  # "The capital of France is Paris. The"
    cpu, gpu = Runner(out, device="cpu", context=64).score(tokens), on_simt(out, context=64).score(tokens)
    assert_close(gpu, cpu, bound)
    assert (gpu.argmax(axis=1) == cpu.argmax(axis=1)).all()


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["sm_89", "sm_120a"])
def test_products_of_fp8(artifact, stories, chip):
    """These chips have them; test_same_tokens_as_on_the_cpu has those of f16."""
    out = artifact(stories, *SCHEMES["FP8_DYNAMIC"], f"--target={chip},cpu", ISA)
    assert "m16n8k32.row.col.f32.e4m3.e4m3.f32" in (out / f"kernels.{chip}.ptx").read_text()
    tokens = random_tokens(6, 9, 512)
    assert_close(on_simt(out).score(tokens), Runner(out, device="cpu").score(tokens), FP8_BOUND)


@pytest.mark.slow
def test_products_of_fp4(stories, tmp_path):
    """NVFP4 on NVFP4 by codes and scales, which no rounding to bf16 comes between: prompts, and few tokens."""
    text, out = tmp_path / "text.txt", tmp_path / "artifact"
    text.write_text("Once upon a time there was a little girl named Lily. She loved to play with her toys. " * 20)
    result = run_command_line("compile", stories, "-o", out, "--scheme=NVFP4", "--target=sm_120a,cpu", f"--calib={text}", "--nsamples=2", "--seqlen=64")
    assert result.returncode == 0, result.stderr
    assert "kind::mxf4nvf4.block_scale.scale_vec::4X" in (out / "kernels.sm_120a.ptx").read_text()
    tokens = random_tokens(6, 24, 512)
    expected = Runner(out, device="cpu").score(tokens)
    for count in (24, 9):  # by tiles, and with K split over warps
        # Sums alone are rounded otherwise, which moves hardly any code: 4e-7 as measured, and 0.2 on sm_80.
        assert_close(on_simt(out, simt_checks=True).score(tokens[:count]), expected[:count], LOGIT_BOUND)


def test_a_session_goes_back(artifact, stories):
    """Chunks, truncation and a second try give what one call gives."""
    runner = on_simt(artifact(stories, "--scheme=W8A8", TARGET, ISA), context=64)
    tokens = random_tokens(1, 24, 512)
    whole = runner.score(tokens)[-1]
    session = runner.session
    session.reset()
    session.prefill(np.asarray(tokens[:7] + [9, 9, 9], np.int32))
    session.truncate(7)
    session.prefill(np.asarray(tokens[7:22], np.int32))
    session.decode(tokens[22])
    session.decode(tokens[23])
    assert_close(np.array(session.logits), whole)


# ------------------------------------------------------------------------------------------------------------ artifacts


def test_gpu_alone(stories, tmp_path):
    out = compile_model(stories, tmp_path / "gpu", "--scheme=W8A8", "--target=sm_90a")
    manifest = json.loads((out / "manifest.json").read_text())
    # Later chips do not run what is for sm_90a alone: there is PTX of sm_80, too.
    assert set(manifest["gpu"]["chips"]) == {"sm_80", "sm_90a"} and manifest["gpu"]["later"] == "sm_80"
    assert manifest["target"] == "sm_80,sm_90a" and manifest["program"]["entries"] == {}
    assert not (out / "model.so").exists() and not (out / "weights.safetensors").exists()
    assert_refused(run_tool("easyquant-run", out, "--tokens=1", "--device=cpu"), "no code for CPUs; run it with --device cuda, or compile", f"--target sm_80,sm_90a,{platform.machine()}")
    # Nothing that this artifact cannot do is suggested.
    for device in ("auto", "cuda"):
        refused = run_tool("easyquant-run", out, "--tokens=1", f"--device={device}", env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
        assert_refused(refused, str(out), "NVIDIA driver", f"--target sm_80,sm_90a,{platform.machine()}", "--device simt simulates")
        assert "--device cpu" not in refused.stderr
    result = run_tool("easyquant-run", out, "--tokens=1,403", "--max-new-tokens=2", "--device=simt", "--simt-chip=sm_90a")
    assert result.returncode == 0, result.stderr
    other = run_tool("easyquant-run", out, "--tokens=1,403", "--max-new-tokens=2", "--device=simt", "--simt-chip=sm_80")
    assert other.stdout == result.stdout


@pytest.mark.parametrize("chip", ["sm_100", "sm_120"])
def test_later_chips_take_the_ptx(artifact, stories, tmp_path, chip):
    """What a driver does on a chip that came after the artifact, done by its assembler."""
    if not (ptxas := cuda_program("ptxas")):
        pytest.skip("unsupported: no ptxas (the extra `gpu` has it)")
    out = artifact(stories, "--scheme=W8A8", TARGET, ISA)
    later = json.loads((out / "manifest.json").read_text())["gpu"]["later"]
    result = subprocess.run([ptxas, f"-arch={chip}", out / f"kernels.{later}.ptx", "-o", tmp_path / "later.cubin"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_inspect_shows_kernels_and_memory(artifact, stories):
    out = artifact(stories, "--scheme=W8A8", TARGET, ISA)
    text = run_command_line("inspect", out).stdout
    chip = json.loads((out / "manifest.json").read_text())["gpu"]["chips"]["sm_80"]
    for part in ("sm_80", "kernels.fatbin", str(chip["kernels"]), str(chip["launches"]), "PTX for later chips"):
        assert part in text


def test_breakdown_counts(artifact, stories, tmp_path):
    out = artifact(stories, "--scheme=W8A8", TARGET, ISA)
    file = tmp_path / "bench.json"
    result = run_command_line("bench", out, "--device=simt", "--prefill=6", "--decode=2", "--breakdown", f"--json={file}")
    assert result.returncode == 0, result.stderr
    report = json.loads(file.read_text())
    prefill, decode = report["breakdown"]["prefill"], report["breakdown"]["decode"]
    manifest = json.loads((out / "manifest.json").read_text())
    # Where its row belongs, the token and the row of logits, each at a multiple of 16 bytes; its sequence; a list of one piece.
    assert prefill["load"]["bytes"] > manifest["gpu"]["weights_bytes"] and decode["load"]["bytes"] == 2 * (3 * 16 + 36 + 2 * 32)
    assert decode["sync"]["bytes"] == 2 * 8 and decode["comm"]["launches"] == 0
    for phase in ("quantize", "gemm", "attention", "other"):
        assert decode[phase]["instructions"] > 0 and decode[phase]["bytes"] > 0
    # Every weight is read once a token: the packed bytes of all linears.
    linears = sum(site["bytes"] for site in manifest["sites"])
    assert linears < decode["gemm"]["bytes"] / 2 < 2 * linears
    assert_refused(run_tool("easyquant-run", out, "--tokens=1", "--device=npu"), "npu", "auto, cpu, cuda or simt")
    session = Runner(out, context=16, device="simt").session
    with pytest.raises(RuntimeError, match="not created to measure"):
        session.breakdown()
    from easyquant import _runtime

    session = _runtime.Session(_runtime.Model(str(out), device="simt"), context=16, measure=True)
    with pytest.raises(_runtime.Error, match="found a session on simulated sm_80, expected one on cpu"):
        session.breakdown_sites()


def test_one_evaluation_two_packings(artifact, stories):
    """What a GPU multiplies with are the CPU's codes and scales, in another order."""
    out = artifact(stories, "--scheme=W8A8", TARGET, ISA)
    cpu, gpu = load_file(out / "weights.safetensors"), load_file(out / "weights.gpu.safetensors")
    assert set(cpu) == set(gpu)
    name = "model.layers.0.mlp.down_proj.weight"
    panels, fragments = cpu[name].astype(np.int16) - 128, gpu[name].view(np.int8).astype(np.int16)
    assert np.array_equal(np.sort(panels[panels != 0]), np.sort(fragments[fragments != 0]))
    scales = gpu[name + "_scale"].ravel()[:64]
    assert np.array_equal(scales, cpu[name + "_scale"].reshape(-1)[:64])


def test_a_float_head_and_its_embedding_share_one_tensor(artifact, stories):
    """Fragments of bf16: the table is not there once more in f32."""
    from safetensors import safe_open

    out = artifact(stories, *SCHEMES["none"], TARGET, ISA)
    names = {}
    for device, file in (("cpu", "weights.safetensors"), ("gpu", "weights.gpu.safetensors")):
        with safe_open(out / file, "np") as tensors:
            names[device] = {name for name in tensors.keys() if "embed_tokens" in name or "lm_head" in name}
    assert names == {"cpu": {"model.embed_tokens.weight"}, "gpu": {"model.embed_tokens.weight_bf16"}}
    program = json.loads((out / "program.gpu.json").read_text())["chips"]["sm_80"]
    head = next(launch for launch in program["launches"] if (launch["site"], launch["phase"]) == ("lm_head", "gemm"))
    [weights] = [argument for argument in head["arguments"] if argument[0] == "weights"]
    first = program["launches"][0]
    assert program["kernels"][first["kernel"]]["name"].startswith("embedding_") and weights in first["arguments"]


@pytest.mark.parametrize("options, words", [
    (["--scheme=W8A8", "--target=sm_80,tpu"], ["tpu", "sm_90a", "cpu"]),
    (["--scheme=W8A8", "--target="], ["target"]),
    (["--scheme=W4A8", "--group-size=8", TARGET], ["site 'model.layers.0.self_attn.q_proj'", "multiples of 32 (such as 32)", "--target cpu"]),
    (["--scheme=W3A16", "--group-size=8", TARGET], ["site 'model.layers.0.self_attn.q_proj'", "16 or multiples of 32 (such as 16)", "--target cpu"]),
    (["--scheme=W8A8", "--kv-cache=f32", TARGET], ["f32", "f16"]),
])
def test_what_cannot_be_compiled(stories, tmp_path, options, words):
    assert_refused(run_tool("easyquant-compile", stories, "-o", tmp_path / "out", *options), *words)
    assert not (tmp_path / "out").exists()


# -------------------------------------------------------------------------------------------------------------- mistakes


def test_a_chip_that_is_not_in_the_artifact(artifact, stories):
    out = artifact(stories, "--scheme=W8A8", TARGET, ISA)
    assert_refused(run_tool("easyquant-run", out, "--tokens=1", "--device=simt", "--simt-chip=sm_89"), "sm_89", "sm_80", "--simt-chip")


def test_an_artifact_without_code_for_gpus(artifact, stories):
    out = artifact(stories, "--scheme=W8A8")
    assert_refused(run_tool("easyquant-run", out, "--tokens=1", "--device=simt"), "no code for GPUs", "--target")


def edit_program(folder, change):
    """Changes the launch list; the manifest agrees but for the checksums."""
    file = folder / "program.gpu.json"
    document = json.loads(file.read_text())
    change(document["chips"]["sm_80"])
    file.write_text(json.dumps(document))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][file.name]["bytes"] = file.stat().st_size
    (folder / "manifest.json").write_text(json.dumps(manifest))


def first_argument(program, kind):
    return next(argument for launch in program["launches"] for argument in launch["arguments"] if argument[0] == kind)


HOSTILE = {
    "weights outside": (lambda p: first_argument(p, "weights").__setitem__(slice(1, None), [1 << 40]), ["inside its memory"]),
    "arena outside": (lambda p: first_argument(p, "arena").__setitem__(slice(1, None), [p["arena_bytes"]]), ["inside its memory"]),
    "pieces of no cut": (lambda p: first_argument(p, "pieces").__setitem__(slice(1, None), [len(p["pieces"])]), ["inside its memory"]),
    "pieces of no rows": (lambda p: p["pieces"][0].update(rows=0), ["pieces[0].rows"]),
    "an unknown place": (lambda p: first_argument(p, "tokens").__setitem__(0, "host"), ["host"]),
    "no such kernel": (lambda p: p["launches"][0].update(kernel=10000), ["launches[0].kernel", "10000"]),
    "an argument too few": (lambda p: p["launches"][0]["arguments"].pop(), ["launches[0].arguments", "takes"]),
    "a pointer for a number": (lambda p: p["launches"][0]["arguments"].__setitem__(-1, ["tokens"]), ["launches[0].arguments", "tokens"]),
    "threads without end": (lambda p: p["kernels"][0].update(threads=4096), ["kernels[0].threads", "4096"]),
    "a grid without end": (lambda p: p["kernels"][0]["grid"].__setitem__(1, [65535, 1]), ["kernels[0].grid[1]"]),
    "a negative arena": (lambda p: p.update(arena_bytes=-1), ["arena_bytes"]),
    "no rows": (lambda p: p.update(max_rows=0), ["max_rows"]),
    "a kernel that the PTX has not": (lambda p: p["kernels"][0].update(name="nothing"), ["nothing", "kernels.sm_80.ptx"]),
    "states of a model that keeps none": (lambda p: first_argument(p, "tokens").__setitem__(0, "states"), ["what sequences keep"]),
    "a recurrent state of a model without one": (lambda p: first_argument(p, "tokens").__setitem__(0, "recurrent"), ["a recurrent state at site"]),
    "collectives of one rank": (
        lambda p: p["collectives"].append({"call": "all_gather", "reduction": None, "type": "f32", "columns": 8, "site": "a"}), ["collectives", "one rank"]),
    "constants that are none": (lambda p: p.update(constants="xyz"), ["constants"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_programs(artifact, stories, tmp_path, name):
    out = tmp_path / "artifact"
    shutil.copytree(artifact(stories, "--scheme=W8A8", TARGET, ISA), out)
    change, words = HOSTILE[name]
    edit_program(out, change)
    assert_refused(run_tool("easyquant-run", out, "--tokens=1", "--device=simt"), "manifest.json", "damaged")
    with pytest.raises(_runtime.Error) as error:
        _runtime.Model(str(out), device="simt", skip_checksums=True)
    for word in words:
        assert word in str(error.value)


def test_damaged_weights_for_gpus(artifact, stories, tmp_path):
    out = tmp_path / "artifact"
    shutil.copytree(artifact(stories, "--scheme=W8A8", TARGET, ISA), out)
    file = out / "weights.gpu.safetensors"
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    assert_refused(run_tool("easyquant-run", out, "--tokens=1", "--device=simt"), "weights.gpu.safetensors", "damaged")


# ------------------------------------------------------------------------------------------------------------------ cuda


def run_cuda(artifact, environment, *options):
    return run_tool("easyquant-run", artifact, "--tokens=1,403,407", "--max-new-tokens=4", *options, env=environment)


def test_cuda_runs_what_the_simulator_runs(ptx_only, fake_cuda, tmp_path):
    log = tmp_path / "calls"
    result = run_cuda(ptx_only, fake_cuda(log=log), "--device=cuda")
    assert result.returncode == 0, result.stderr
    assert result.stdout == run_cuda(ptx_only, fake_cuda(), "--device=cpu").stdout
    calls = dict(line.split() for line in log.read_text().splitlines())
    # One prompt, and three decode steps: one capture, replayed.
    assert (calls["cuStreamBeginCapture"], calls["cuGraphLaunch"]) == ("1", "3")
    assert calls["allocated"] == "0"


@pytest.mark.parametrize("image, name", [
    (None, "Fake GPU (sm_86, PTX assembled by its driver)"),  # as a driver older than the assembler
    ("sm_86", "Fake GPU (sm_86)"),
    ("sm_80", "Fake GPU (sm_86, PTX assembled by its driver)"),  # a driver that prefers the fatbin's PTX, of another chip
])
def test_code_of_the_chip_whose_program_runs(artifact, stories, fake_cuda, tmp_path, image, name):
    out = artifact(stories, "--scheme=W8A8", "--target=sm_80,sm_86,cpu", ISA)
    if not json.loads((out / "manifest.json").read_text())["gpu"]["chips"]["sm_86"]["machine_code"]:
        pytest.skip("unsupported: no ptxas (the extra `gpu` has it)")
    settings = {"capability": 86} | ({"image": out / f"kernels.{image}.ptx"} if image else {})
    file = tmp_path / "run.json"
    result = run_cuda(out, fake_cuda(**settings), "--device=cuda", f"--json={file}")
    assert result.returncode == 0, result.stderr
    assert json.loads(file.read_text())["device_name"] == name
    assert result.stdout == run_cuda(out, fake_cuda(), "--device=cpu").stdout


def test_what_the_drivers_assembler_says(ptx_only, fake_cuda, tmp_path):
    import subprocess
    import sys

    out = tmp_path / "artifact"
    shutil.copytree(ptx_only, out)
    ptx = out / "kernels.sm_80.ptx"
    ptx.write_text(ptx.read_text().replace(".entry ", ".entri ", 1))
    command = [sys.executable, "-c", "import sys; from easyquant import _runtime; _runtime.Model(sys.argv[1], device='cuda', skip_checksums=True)", out]
    result = subprocess.run(command, env=fake_cuda() | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}, capture_output=True, text=True)
    assert result.returncode == 1
    for word in ("kernels.sm_80.ptx", "Fake GPU (sm_80)", ".entri", "compile the artifact again"):
        assert word in result.stderr


def test_auto_takes_the_gpu_that_is_there(ptx_only, fake_cuda, tmp_path):
    for settings, device in (({}, "cuda"), ({"devices": 0}, "cpu"), ({"capability": 75}, "cpu"), ({"version": 11080}, "cpu")):
        file = tmp_path / "run.json"
        result = run_cuda(ptx_only, fake_cuda(**settings), f"--json={file}")
        assert result.returncode == 0, result.stderr
        assert json.loads(file.read_text())["device"] == device


@pytest.mark.parametrize("settings, words", [
    ({"devices": 0}, ["no GPU", "--device cpu"]),
    ({"version": 11080}, ["too old", "11.8", "12.0"]),
    ({"capability": 75}, ["sm_80", "Fake GPU (sm_75)", "--target"]),
    ({"memory": 100000}, ["bytes on the device", "100000 free", "of weights"]),
    ({"fail": 3}, ["CUDA_ERROR_LAUNCH_FAILED", "the last launch was kernel", "site", "Fake GPU"]),
])
def test_cuda_that_cannot_be(ptx_only, fake_cuda, settings, words):
    assert_refused(run_cuda(ptx_only, fake_cuda(**settings), "--device=cuda"), *words)


def test_no_driver(ptx_only):
    """Where there is one, nothing is to be said."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert_refused(run_cuda(ptx_only, dict(os.environ), "--device=cuda"), "no NVIDIA driver", "libcuda.so.1", "--device cpu")
        return
    pytest.skip("this machine has an NVIDIA driver")


def test_cuda_measures_by_events(ptx_only, fake_cuda, tmp_path):
    """The fake driver takes a millisecond a launch."""
    file = tmp_path / "bench.json"
    command = [sys.executable, "-m", "easyquant", "bench", str(ptx_only), "--device=cuda", "--prefill=3", "--decode=2", "--repeats=1", "--breakdown", f"--json={file}"]
    result = subprocess.run(command, env=fake_cuda() | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    report = json.loads(file.read_text())
    decode = report["breakdown"]["decode"]
    for phase in ("quantize", "gemm", "attention", "other"):
        assert decode[phase]["seconds"] == pytest.approx(decode[phase]["launches"] / 1000)
    assert report["decode_tokens_per_s"] > 0 and "decode_share_of_roof" not in report
