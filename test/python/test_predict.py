# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant predict`: the model of time against hand calculations, launches counted as they are listed, and what is refused."""

import json
import math
import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from command_line import run_command_line as easyquant
from easyquant.prediction import chips
from easyquant.prediction.chips import CHIPS
from easyquant.prediction.kernels import Kernel, cycles_of, unknown_opcodes
from easyquant.prediction.launch_list import read_program
from easyquant.prediction.launch_time import COMBINING_TRIPS, PARTS, Traffic, launch_time
from easyquant.prediction.step import cubin_of, predict, predict_step
from easyquant.prediction.traffic import CacheRead, distinct_experts, traffic_of
from easyquant.prediction.warp_time import MemoryCycles, cycles_through
from easyquant.runtime.artifact import Artifact
from easyquant.support.errors import UserError
from easyquant.support.tools import cuda_program
from helpers import REPO, random_llama, write_model

H200 = CHIPS["sm_90a"]
# A lane brings 16 bytes a turn, waits for them, and adds.
LOOP = [".L_x_0:", "LDG.E.128 R4, desc[UR4][R2.64]", "FADD R8, R4, R8", "IADD3 R2, R2, 0x10, RZ", "@P0 BRA `(.L_x_0)", "EXIT"]
STREAM = Kernel(LOOP, threads=128, registers=32, shared=0)
LINEAR = "linear_256x512_i8_q_f32_dot_1"
NORM = "rms_norm_512_eps0_f32_quantize"
STRAIGHT = Kernel(["LDG.E R4, desc[UR4][R2.64]", "PREEXIT", "FADD R8, R4, R4", "STG.E desc[UR4][R2.64], R8", "EXIT"], 128, 32, 0)


def document(version=7, **changes):
    kernels = [{"name": NORM, "grid": [[1, 4], [1, 0], [1, 0]], "parameters": [], "shared_bytes": 0, "threads": 128},
               {"name": LINEAR, "grid": [[8, 0], [1, 1], [1, 0]], "parameters": [], "shared_bytes": 0, "threads": 128}]  # fmt: skip
    launches = [
        {"site": "norm", "phase": "quantize", "kernel": 0, "over": "rows", "min_rows": 1, "max_rows": 0, "arguments": [["arena", 0], ["weights", 0]]},
        {"site": "q_proj", "phase": "gemm", "kernel": 1, "over": "rows", "min_rows": 1, "max_rows": 4, "arguments": [["weights", 2048]]},
        {"site": "q_proj", "phase": "gemm", "kernel": 1, "over": "rows", "min_rows": 5, "max_rows": 0, "arguments": [["weights", 2048]]},
        {"site": "heads", "phase": "attention", "kernel": 0, "over": "pieces", "min_rows": 1, "max_rows": 0, "arguments": [["weights"], ["pieces"]]},
        {"site": "heads", "phase": "attention", "kernel": 0, "over": "pieces", "min_rows": 1, "max_rows": 0, "arguments": [["weights"], ["pieces", 1]]},
    ]
    entry = {"max_rows": 512, "cache": {"page_tokens": 64, "page_bytes": 0, "window_bytes": 0}, "kernels": kernels, "pieces": [{"min_rows": 1, "max_rows": 8}, {"min_rows": 9, "max_rows": 0}], "launches": launches, "choosing": None} | changes
    return {"format": "easyquant-gpu-program", "format_version": version, "chips": {"sm_90a": entry}}


@pytest.fixture
def program(tmp_path):
    def read(chip="sm_90a", **changes):
        (tmp_path / "program.gpu.json").write_text(json.dumps(document(**changes)))
        return read_program(tmp_path / "program.gpu.json", chip)

    return read


WEIGHTS = {0: 2048, 2048: 256 * 512}


def test_a_turn_of_a_loop_takes_as_long_as_it_waits():
    memory = MemoryCycles(wide=1000, narrow=100)
    # A load, its value, four cycles of the sum; each turn begins when the one before has the load's value.
    assert cycles_through(LOOP, memory, 8) == pytest.approx(1002, abs=4)
    twice = [*LOOP[:3], "LDG.E.128 R12, desc[UR4][R8.64]", "FADD R8, R12, R8", *LOOP[3:]]
    assert cycles_through(twice, memory, 8) > 1.9 * cycles_through(LOOP, memory, 8), "a load behind a load waits twice"
    together = [LOOP[0], LOOP[1], "LDG.E.128 R12, desc[UR4][R2.64]", LOOP[2], "FADD R8, R12, R8", *LOOP[3:]]
    assert cycles_through(together, memory, 8) < 1.1 * cycles_through(LOOP, memory, 8), "two at a time wait once"
    ring = ["DEPBAR.LE SB0, 0x1", "LDGSTS.E.BYPASS.128 [R4], desc[UR4][R8.64]", "LDGDEPBAR"]
    assert cycles_through(ring, memory, 40) == pytest.approx(500, rel=0.05), "two groups are under way"


def test_a_launch_by_hand():
    # Memory: 132 blocks, one a multiprocessor, of 2048 bytes a turn and few turns.
    blocks, memory = 132, 1e9
    time = launch_time(STREAM, H200, blocks, Traffic(memory, streamed=132 * 2048))
    assert time.parts["launch"] == chips.LAUNCH and time.binds == "bandwidth"
    assert time.parts["bandwidth"] == pytest.approx(memory / (0.85 * 4800e9))
    assert time.seconds == pytest.approx(chips.LAUNCH + chips.LATENCY + memory / (0.85 * 4800e9))
    # Waits: 1000 turns, each of which waits for memory.
    time = launch_time(STREAM, H200, blocks, Traffic(1, streamed=132 * 2048 * 1000))
    turn = cycles_through(LOOP, MemoryCycles(chips.LATENCY * 1.83e9, chips.CACHE_LATENCY * 1.83e9), 8)
    assert time.binds == "latency" and time.parts["latency"] == pytest.approx(chips.LATENCY + 1000 * turn / 1.83e9)
    assert launch_time(STREAM, H200, blocks, Traffic(1, asked=1e9)).parts["caches"] == pytest.approx(1e9 / 132 / chips.ASKED_BYTES / 1.83e9)
    assert launch_time(STREAM, H200, blocks, Traffic(1), overlapped=True).parts["launch"] == chips.OVERLAPPED_LAUNCH


def test_the_compiler_chooses_tiles_by_the_same_model():
    """Whose constants are in cycles of an H200."""
    text = (REPO / "lib/Codegen/GPU/TileTime.cpp").read_text()
    constant = {name: float(value) for name, value in re.findall(r"constexpr double k(\w+) = ([0-9.]+);", text)}
    assert constant["AskedBytes"] == chips.ASKED_BYTES and constant["CopyShare"] == chips.COPY_SHARE and constant["Trips"] == COMBINING_TRIPS
    for name, seconds in (("Latency", chips.LATENCY), ("CacheTrip", chips.CACHE_LATENCY), ("Launch", chips.LAUNCH + chips.LATENCY)):
        assert constant[name] == pytest.approx(seconds * H200.hertz, rel=0.005), name
    rows = re.findall(r'ChipId::\w+, "(\w+)", \d+ \* KiB, (\d+) \* KiB, (\d+), (\d+), ([0-9.]+), (\d+)}', (REPO / "lib/Codegen/GPU/Chip.cpp").read_text())
    found = {name: tuple(map(float, numbers)) for name, *numbers in rows}
    assert set(found) - set(CHIPS) == {"sm_120a"}, "which has no constants yet"
    for name, chip in CHIPS.items():
        assert found[name] == pytest.approx((chip.shared_kb, chip.threads, chip.multiprocessors, chip.memory_bytes, chip.byte_products), rel=0.02), name


def test_cycles_of_products_and_of_issue():
    cycles = cycles_of(["HMMA.16816.F32.BF16 R4, R8, R12, R4", "IMMA.16832.S8.S8 R4, R8, R12, R4", "MUFU.EX2 R4, R4"], 4, H200)
    assert cycles["tensor cores"] == 4 * (2048 / 2048 + 4096 / 4096) and cycles["issue"] == 3 and cycles["special"] == 4 * 2


def test_more_bytes_take_more_time():
    def seconds(factor):
        return launch_time(STREAM, H200, 264, Traffic(factor * 1e6, factor * 1e6, factor * 1e6)).seconds

    times = [seconds(factor) for factor in (1, 2, 10, 100, 1000)]
    assert times == sorted(times) and times[-1] > 100 * times[0] / 10


@pytest.mark.parametrize("sequences, launches", [(1, 3), (4, 3), (5, 3), (16, 3)])
def test_launches_are_those_of_the_list(program, sequences, launches):
    """One of each that happens, whatever the number of sequences: what takes those of few rows takes single tokens."""
    found = predict_step(program(), {NORM: STRAIGHT, LINEAR: STREAM}, WEIGHTS, "sm_90a", sequences, 10)
    assert found.count == launches
    assert found.seconds == pytest.approx(sum(each.time.seconds for each in found.launches))
    linear = next(each for each in found.launches if each.happening.launch.kernel.name == LINEAR)
    assert linear.traffic.memory == 256 * 512 + sequences * (512 + 256 * 4)
    assert linear.traffic.streamed == 256 * 512 * sequences, "a block of this kernel takes one row"
    assert linear.time.parts["launch"] == chips.OVERLAPPED_LAUNCH, "the norm lets it begin"


@pytest.mark.parametrize("changes, words", [
    ({"version": 4}, ("version 4", "expected", "compile the model again")),
    ({"launches": [{"site": "a", "collective": 0}]}, ("'a'", "--tensor-parallel")),
    ({"launches": [{"site": "a", "over": "moons"}]}, ("'moons'", "expected rows")),
    ({"kernels": None}, ("does not say", "compile the artifact again")),
])
def test_lists_that_are_refused(program, changes, words):
    with pytest.raises(UserError) as error:
        program(**changes)
    assert all(word in str(error.value) for word in ("program.gpu.json", *words)), error.value


def test_kernels_and_opcodes_that_are_not_known(program):
    strange = Kernel(["WARPDRIVE.16 R4, R5", *STRAIGHT.code], 128, 32, 0)
    assert unknown_opcodes(strange.code) == ["WARPDRIVE"]
    with pytest.raises(UserError, match="rms_norm_512.*WARPDRIVE.*expected"):
        predict_step(program(), {NORM: strange, LINEAR: STREAM}, WEIGHTS, "sm_90a", 1, 10)
    with pytest.raises(UserError, match="'norm': kernel rms_norm.* is not in the machine code"):
        predict_step(program(), {LINEAR: STREAM}, WEIGHTS, "sm_90a", 1, 10)
    new = document()["chips"]["sm_90a"]["kernels"]
    new[0]["name"] = "convolution_3"
    with pytest.raises(UserError, match="kernel convolution_3 is of a family"):
        predict_step(program(kernels=new), {"convolution_3": STRAIGHT}, WEIGHTS, "sm_90a", 1, 10)


@pytest.mark.parametrize("kernel, memory, blocks", [
    # A token of 2048 columns and its result, two rows that are kept read and written, and the weights.
    ("conv1d_2048x3_of4096_silu", 16 * 2048 * 4 * (2 + 4) + 2048, 16),
    # 32 heads of 128 x 128 numbers read and written, two keys for each of 16 heads, values, results, a decay and a strength.
    ("gated_delta_16x128_32x128_tiled_of524288", 16 * 4 * (2 * 32 * 128 * 128 + 2 * 16 * 128 + 32 * (2 * 128 + 2)) + 2048, 528),
    ("gated_delta_1x12_2x20_of480", 16 * 4 * (2 * 2 * 12 * 20 + 2 * 12 + 2 * (2 * 20 + 2)) + 2048, 32),
])  # fmt: skip
def test_bytes_of_what_layers_keep(program, kernel, memory, blocks):
    grid = [[1, 1], [1, 0], [1, 0]] if kernel.startswith("conv1d") else [[528, 0], [1, 0], [1, 0]]
    kernels = [{"name": kernel, "grid": grid, "parameters": [], "shared_bytes": 0, "threads": 128}]
    launches = [{"site": "mixer", "phase": "other", "kernel": 0, "over": "rows", "min_rows": 1, "max_rows": 0, "arguments": [["recurrent"], ["weights", 0]]}]
    [happening] = program(kernels=kernels, launches=launches).step(16)
    traffic, busy = traffic_of(happening, WEIGHTS, CacheRead(10, {}, {}))
    assert (traffic.memory, busy) == (memory, blocks)


@pytest.mark.parametrize("kernel, grid, streamed, asked, combined", [
    # 4 x 8 tiles of 64 x 64 on 200 rows: weights four times, activations eight times.
    ("linear_512x1024_i8_q_f32_mma_64x64x64", [[1, 64], [8, 0], [1, 0]], 4 * 2**19 + 8 * 256 * 1024, 0, 0),
    # Three blocks a tile: each writes 64 x 64 sums, and the last one reads those of two others.
    ("linear_512x1024_i8_q_f32_mma_64x64x64_split3", [[1, 64], [8, 0], [3, 0]], 4 * 2**19 + 8 * 256 * 1024, 3 * 32 * 64 * 64 * 4, 2 * 64 * 64 * 4),
    # Two blocks share each 16 columns of y and read half a row of activations each.
    ("linear_512x1024_i8_bf16_f32_stream_8", [[32, 0], [2, 0], [1, 8]], 25 * 2**19, 25 * 32 * 8 * 1024 * 2 + 25 * 64 * 8 * 16 * 4, 8 * 16 * 4),
])  # fmt: skip
def test_bytes_of_blocks_that_share_columns(program, kernel, grid, streamed, asked, combined):
    kernels = [{"name": kernel, "grid": grid, "parameters": [], "shared_bytes": 0, "threads": 128}]
    launches = [{"site": "up", "phase": "gemm", "kernel": 0, "over": "rows", "min_rows": 1, "max_rows": 0, "arguments": [["weights", 0]]}]
    [happening] = program(kernels=kernels, launches=launches).step(200)
    traffic, blocks = traffic_of(happening, {0: 512 * 1024}, CacheRead(1, {}, {}))
    assert (traffic.streamed, traffic.asked, traffic.combined) == (streamed, streamed + asked, combined)
    assert traffic.memory == 512 * 1024 + 200 * 1024 * (2 if "bf16" in kernel else 1) + 200 * 512 * 4, "sums of parts stay in the cache"
    assert blocks == math.prod(factor * (math.ceil(200 / rows) if rows else 1) for factor, rows in grid)


def test_the_last_block_adds_up_behind_the_loop():
    alone, shared = (launch_time(STREAM, H200, 132, Traffic(1e9, 132 * 2048, 1e6, combined)) for combined in (0, 22.8 * 1830))
    assert alone.binds == shared.binds == "bandwidth"
    assert shared.seconds - alone.seconds == pytest.approx(3 * chips.CACHE_LATENCY + 1e-6)


@pytest.mark.parametrize("tokens, experts, expected", [(1, 128, 8), (16, 128, 128 * (1 - (15 / 16) ** 16)), (1000, 128, 128), (5, 8, 8)])
def test_distinct_experts(tokens, experts, expected):
    """By drawing them: eight of so many for each token, all as likely."""
    assert distinct_experts(experts, 8, tokens) == pytest.approx(expected)
    random = np.random.default_rng(0)
    drawn = [len(set().union(*(random.permutation(experts)[:8].tolist() for _ in range(min(tokens, 200))))) for _ in range(50)]
    assert np.mean(drawn) == pytest.approx(expected, rel=0.02) and max(drawn) <= experts


def test_bytes_of_experts(program):
    """One of four tokens in each of two launches chooses two of eight experts, of which the weights are read."""
    names = {"choose_experts_2_of_8": 1, "sort_choices_2_of_8_few": 1, "linear_256x512_i8_q_of8_f32_mma_16x64x128": 2, "combine_experts_2x512_shared": 1}
    kernels = [{"name": name, "grid": [[264, 0], [1, 0], [1, 0]], "parameters": [], "shared_bytes": 0, "threads": 128} for name in names]
    launches = [{"site": "mlp", "phase": "other", "kernel": i, "over": "rows", "min_rows": 1, "max_rows": 0, "arguments": [["weights", 2048]] if multiple > 1 else []}
                | ({"multiple": multiple} if multiple > 1 else {}) for i, multiple in enumerate(names.values())]  # fmt: skip
    happenings = list(program(kernels=kernels, launches=launches).step(4))
    assert [happening.rows for happening in happenings] == [4, 4, 8, 4]
    weights = {2048: 8 * 256 * 512}
    found = [traffic_of(happening, weights, CacheRead(10, {}, {})) for happening in happenings]
    distinct = 8 * (1 - 0.75**4)
    assert found[0][0].memory == 4 * (8 * 4 + 2 * 8) and found[1][0].memory == 4 * 2 * 12
    assert found[2][0].memory == pytest.approx(distinct * 256 * 512 + 8 * (512 + 4 * 256))
    # An item of each expert that has rows, of four tiles of columns; each reads the weights of its columns, and rows of 512 bytes.
    assert found[2][0].streamed == pytest.approx(distinct * (256 * 512 + 4 * 16 * 512)) and found[2][1] == math.ceil(4 * distinct)
    assert found[3][0].memory == 4 * 512 * 4 * (2 + 1 + 1)
    [linear] = [each for each in program(kernels=kernels, launches=launches).step(400) if each.launch.multiple == 2]
    traffic, blocks = traffic_of(linear, weights, CacheRead(10, {}, {}))
    assert traffic.memory == pytest.approx(8 * 256 * 512 + 800 * (512 + 4 * 256)) and blocks == 8 * math.ceil(100 / 16) * 4, "all experts, and no more"


def test_launches_that_choose_tokens(program):
    kernels = [{"name": f"{name}_32000", "grid": [[1, 1], [40, 0], [1, 0]], "parameters": [], "shared_bytes": 0, "threads": 128} for name in ("keep_logits", "weigh_logits", "choose_tokens")]
    happenings = list(program(kernels=kernels, launches=[], choosing={"keep": 0, "weigh": 1, "choose": 2}).step(300))
    assert [(each.launch.site, each.rows) for each in happenings] == [("logits", 300), ("weights of logits", 256), ("choice", 256), ("weights of logits", 44), ("choice", 44)]
    assert [traffic_of(each, {}, CacheRead(10, {}, {}))[0].memory for each in happenings[:3]] == [300 * 32000 * 8, 256 * 32000 * 4.125, 256 * 32000 * 0.125]


def test_machine_code_in_a_fatbin():
    code = b"\x7fELF" + bytes(60)
    entry = struct.pack("<HHIQ", 2, 257, 64, len(code)) + bytes(12) + struct.pack("<I", 90) + bytes(32)
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(code)) + entry + code
    assert cubin_of(fatbin, "sm_90a", Path("k")) == code
    for damaged, words in ((b"no fatbin, but long enough", "expected 0xba55ed50"), (fatbin[:40], "cut short"), (fatbin, "machine code for sm_80")):
        with pytest.raises(UserError, match=words):
            cubin_of(damaged, "sm_80", Path("k"))


@pytest.fixture(scope="module")
def compiled(stories, artifact):
    if not cuda_program("nvdisasm") or not cuda_program("ptxas"):
        pytest.skip("unsupported: no ptxas or nvdisasm (the extra `gpu` has both)")
    return artifact(stories, "--scheme=W8A8", "--target=sm_90a", "--kv-scheme=int8", "--kv-group=16", "--kv-residual=16")


def test_an_artifact(compiled):
    listed = json.loads((compiled / "program.gpu.json").read_text())["chips"]["sm_90a"]
    times = {}
    for sequences in (1, 4):
        found = predict(Artifact.open(compiled), "sm_90a", sequences, 40)
        expected = 0
        for launch in listed["launches"]:
            cuts = [listed["pieces"][(*argument, 0)[1]] for argument in launch["arguments"] if argument[0] == "pieces"]
            happens = all(cut["min_rows"] == 1 for cut in cuts) and len(cuts) == (launch["over"] == "pieces")
            expected += happens and launch["min_rows"] <= sequences and (launch["max_rows"] == 0 or sequences <= launch["max_rows"])
        assert found.count == expected + 3, "and what keeps logits, weighs them, and chooses tokens"
        times[sequences] = found.seconds
    assert times[4] > times[1]
    bytes_read = [predict(Artifact.open(compiled), "sm_90a", 1, context).bytes for context in (40, 200, 400)]
    assert bytes_read == sorted(bytes_read) and bytes_read[0] < bytes_read[-1]


def test_a_mixture(artifact, tmp_path):
    """More tokens call up more experts, up to all of them."""
    if not cuda_program("nvdisasm") or not cuda_program("ptxas"):
        pytest.skip("unsupported: no ptxas or nvdisasm (the extra `gpu` has both)")
    model = write_model(tmp_path / "model", *random_llama(23, arch="qwen3_moe", head_dim=16, hidden=64, heads=4, kv_heads=2, expert_ffn=64))
    opened = Artifact.open(artifact(model, "--scheme=W8A8", "--target=sm_90a"))
    found = [predict(opened, "sm_90a", sequences, 40) for sequences in (1, 2, 64)]
    read = [sum(each.traffic.memory for each in one.launches if "down_proj" in each.happening.launch.site and each.happening.launch.multiple > 1) for one in found]
    assert read[0] < read[1] < read[2] and found[0].seconds < found[2].seconds
    config = json.loads((model / "config.json").read_text())
    layers, experts, chosen = (config[name] for name in ("num_hidden_layers", "num_experts", "num_experts_per_tok"))
    rows = 64 * chosen * (64 + 4 * 64)
    assert read[2] == pytest.approx(layers * (experts * 64 * (64 + 4) + rows), rel=0.02), "codes and scales of all experts once"


def test_the_command(compiled, tmp_path):
    done = easyquant("predict", compiled, "--chip", "sm_90a", "--batch", "2", "--context", "100", "--json", tmp_path / "step.json")
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "step.json").read_text())
    assert "estimate" in figures["estimate"] and "nothing was measured" in done.stdout and "Estimate by site" in done.stdout
    assert figures["launches"] == sum(site["launches"] for site in figures["sites"])
    assert figures["seconds"] == pytest.approx(sum(figures["parts"].values())) == pytest.approx(sum(site["seconds"] for site in figures["sites"]))
    assert set(figures["parts"]) == set(PARTS) and all(site["binds"] in PARTS for site in figures["sites"])
    assert figures["tokens_per_s"] == pytest.approx(2 / figures["seconds"])


def test_by_default_no_more_context_than_the_model_takes(compiled):
    done = easyquant("predict", compiled, "--chip", "sm_90a")
    assert done.returncode == 0 and "1 × 1 token, each seeing 512 tokens" in done.stdout, done


@pytest.mark.parametrize("options, words", [
    (("--chip", "sm_75"), ("--chip", "'sm_75'", "sm_90a")),
    (("--chip", "sm_86"), ("none for sm_86", "--target sm_86")),
    (("--chip", "sm_90a", "--batch", "100000"), ("--batch", "1 to 4096")),
    (("--chip", "sm_90a", "--context", "100000"), ("--context", "1 to 512")),
])
def test_what_the_command_refuses(compiled, options, words):
    done = easyquant("predict", compiled, *options)
    assert done.returncode == 1 and all(word in done.stderr for word in words) and "Traceback" not in done.stderr, done.stderr


def test_an_artifact_without_machine_code(compiled, tmp_path, monkeypatch):
    copy = tmp_path / "artifact"
    shutil.copytree(compiled, copy)
    (copy / "kernels.fatbin").write_bytes(b"nothing")
    with pytest.raises(UserError, match="kernels.fatbin"):
        predict(Artifact.open(copy), "sm_90a", 1, 10)
    monkeypatch.setattr("easyquant.prediction.step.cuda_program", lambda name: None)
    with pytest.raises(UserError, match="pip install nvidia-cuda-nvdisasm"):
        predict(Artifact.open(compiled), "sm_90a", 1, 10)
