# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machine code of the GPU kernels, for every chip: what the main loops of linears and attention consist of."""

import re
import sys

import pytest

from helpers import REPO, tool, with_slow

sys.path.insert(0, str(REPO / "benchmarks"))
from easyquant.prediction.chips import CHIPS  # noqa: E402
from easyquant.prediction.kernels import Kernel  # noqa: E402
from easyquant.prediction.machine_code import (access_bytes, count, loads_of_waits, main_loop, main_path, matching, reads_and_writes,  # noqa: E402
                                               waits)
from easyquant.support.tools import cuda_program  # noqa: E402
from gpu_static import CACHES, SIZE as S, attention_kernel, model_text, under_way  # noqa: E402
from sass import compile_kernels, functions_in  # noqa: E402

# The least share of the instructions of a loop of the tile of 128 x 128 that are matrix products, as measured with ptxas 13.0, less
# a little.
LEAST_SHARE = {"i8_q": 0.40, "i4_g128_q": 0.30, "i4_sf16_g128_q": 0.30, "i2_sf16_g128_q": 0.22, "i4_g128_bf16": 0.27, "i4_sf16_g128_bf16": 0.27,
               "i8_bf16": 0.21, "i3_g128_bf16": 0.15, "i2_g128_bf16": 0.20, "bf16_bf16": 0.42}
# The most instructions with one row, for each block of weights that a warp reads (16 bytes a lane, 24 with 3 bits).
MOST_INSTRUCTIONS = {"i8_bf16": 60, "i4_g128_bf16": 70, "i4_sf16_g128_bf16": 70, "i3_g128_bf16": 165, "i2_g128_bf16": 110, "bf16_bf16": 14}
# The same of attention, of the short way through its loop: one turn is 64 cached tokens, of which the warps of `split` (few tokens) have
# 16 each, those of `blocked` all.
LEAST_ATTENTION_SHARE = {("f16", "split"): 0.088, ("f16", "blocked"): 0.175, ("int8", "split"): 0.048, ("int8", "blocked"): 0.12,
                         ("int4", "split"): 0.041, ("int4", "blocked"): 0.11}
PRODUCTS = {"split": 32, "blocked": 128}  # of a turn: 16 queries, 128 dimensions, keys and values
RUNS = 16  # of eight dimensions of keys or values that a lane brings in a turn
RUN_BYTES = {"f16": 16, "int8": 8, "int4": 4}
PAGES = [8]  # where the page of a tile lies
# With few rows a lane asks for that many bytes of weights before it waits for the first of them, wherever the loop waits: four blocks;
# with floats and 8 bits two rows of blocks or none.
LEAST_UNDER_WAY = {"i8_q_f32_dot_1": 64, "i8_q_f32_dot_4": 64, "i8_bf16_f32_stream_1": 64, "i4_g128_bf16_f32_stream_1": 64,
                   "i4_sf16_g128_bf16_f32_stream_1": 64,
                   "i3_g128_bf16_f32_stream_1": 96, "i2_g128_bf16_f32_stream_1": 64, "bf16_bf16_f32_stream_1": 128,
                   "i4_g128_bf16_f32_stream_8": 64, "i8_bf16_f32_stream_16": 64, "bf16_bf16_f32_stream_16": 128}


@pytest.fixture(scope="module", params=with_slow(CHIPS, "sm_86", "sm_87", "sm_89"))
def functions(request, tmp_path_factory):
    """{kernel: its instructions in order, labels among them as 'NAME:'}"""
    if not cuda_program("nvdisasm") or not cuda_program("ptxas"):
        pytest.skip("unsupported: no ptxas or nvdisasm (the extra `gpu` has both)")
    folder = tmp_path_factory.mktemp("sass")
    (folder / "model.mlir").write_text(model_text())
    result = compile_kernels(tool("easyquant-opt"), folder / "model.mlir", request.param, folder / "kernels.cubin", folder / "kernels.ptx")
    assert result.returncode == 0, result.stderr
    return functions_in(folder / "kernels.cubin")


@pytest.mark.parametrize("kernel", LEAST_SHARE)
def test_main_loop_is_mostly_matrix_products(functions, kernel):
    # How long slabs are depends on the shared memory of the chip.
    [name] = [name for name in functions if re.fullmatch(rf"linear_{S}x{S}_{kernel}_f32_mma_128x128x\d+", name)]
    body = main_loop(functions[name])
    products = count(body, "IMMA|HMMA")
    print(f"{kernel}: {products} products of {len(body)} instructions")
    assert products / len(body) >= LEAST_SHARE[kernel]
    assert count(body, "LDGSTS") > 0, "slabs are to arrive asynchronously"
    assert count(body, "LDSM") > 0, "activations are to come by ldmatrix"
    assert count(body, "LDG") == 0, "nothing is to be waited for"
    # With 3 bits the upper plane is half as wide.
    least = 8 if kernel.startswith("i3") else 16
    assert all(access_bytes(i) >= least for i in matching(body, "LDS")), "weights come 16 bytes a lane"


def test_nothing_is_kept_in_local_memory(functions):
    assert len(functions) > 40
    for kernel, instructions in functions.items():
        assert not count(instructions, "LDL|STL"), kernel


def test_nothing_but_constants_is_read_before_the_launch_before_has_ended(functions, request):
    overlaps = request.node.callspec.params["functions"] == "sm_90a"
    for kernel, instructions in functions.items():
        waits_at = next((i for i, word in enumerate(instructions) if "ACQBULK" in word), None)
        assert (waits_at is not None) == overlaps, kernel
        early = matching(instructions[:waits_at or 0], "LDG|LDGSTS|STG|RED|ATOM|ATOMG")
        assert all("CONSTANT" in word for word in early), (kernel, early)


def test_few_rows_are_multiplied_by_dp4a(functions):
    body = main_loop(functions[f"linear_{S}x{S}_i8_q_f32_dot_1"], "IDP")
    assert {access_bytes(i) for i in matching(body, "LDG")} == {4, 16}, "weights come 16 bytes a lane, four codes of the row at a time"


@pytest.mark.parametrize("kernel", LEAST_UNDER_WAY)
def test_loads_of_few_rows_are_under_way_together(functions, kernel):
    name = f"linear_{S}x{S}_{kernel}"
    if name.endswith("_stream_16") and name not in functions:
        # A chip with fewer multiprocessors: where more blocks than run at a time would split K, a tile has activations in shared memory.
        assert any(tile.startswith(name.replace("stream_16", "mma_16x")) for tile in functions)
        return
    body = main_loop(functions[name], "IDP|HMMA")
    found = loads_of_waits(waits(body), least_bytes=8)
    print(f"{kernel}: {found}")
    assert found and all(sum(loads) >= LEAST_UNDER_WAY[kernel] for loads in found)


def test_loads_of_groups_are_under_way_together(functions):
    # A warp has four groups of four blocks, and no loop: they come in at most two goes of one row, four of four.
    for rows, most in (1, 2), (4, 4):
        found = loads_of_waits(waits(functions[f"linear_{S}x{S}_i4_g128_q_f32_dot_{rows}"], turns=1), least_bytes=8)
        print(f"{rows} rows: {found}")
        assert len(found) <= most and sum(map(sum, found)) == 256


def test_a_row_is_read_in_one_go(functions):
    [loads] = loads_of_waits(waits(functions["quantize_4096_f32"], turns=1), least_bytes=4)
    assert loads == [16] * 4


def test_a_row_is_rotated_in_registers(functions):
    """Blocks of 512 columns: of 4 a vector, 32 lanes and 4 vectors. Two stages, five by shuffles, two, and one product."""
    body = functions["copy_4096_h512_f32_to_f32"]
    assert loads_of_waits(waits(body, turns=1), least_bytes=4) == [[16] * 4]
    assert [access_bytes(i) for i in matching(body, "STG")] == [16] * 4
    assert count(body, "SHFL") == 16 * 5
    assert count(body, "FADD") == 16 * 4 and count(body, "FFMA") == 16 * 5 and count(body, "FMUL") == 16
    assert count(body, "LDS|STS|BAR|LDL|STL") == 0


def test_what_a_loop_waits_for():
    body = ["LDG.E.128 R4, desc[UR6][R20.64+-0x2000]", "@!P1 LDG.E.CONSTANT R9, desc[UR6][R2.64]", "IDP.4A.S8.S8 R30, R7, R9.reuse, R30",
            "LDG.E.64 R10, desc[UR6][R20.64]", "HMMA.16816.F32.BF16 R48, R8, R12, R48", "@P0 BRA `(.L_x_1)"]
    assert [(sorted(reads), sorted(writes)) for reads, writes in map(reads_and_writes, body)] == [
        ([20, 21], [4, 5, 6, 7]), ([2, 3], [9]), ([7, 9, 30], [30]), ([20, 21], [10, 11]),
        ([8, 9, 10, 11, 12, 13, 48, 49, 50, 51], [48, 49, 50, 51]), ([], [])]
    assert loads_of_waits(waits(body), 8) == [[16], [8]] and loads_of_waits(waits(body), 4) == [[16, 4], [8]]
    # Two groups of copies may stay under way.
    copies = ["DEPBAR.LE SB0, 0x2", "BAR.SYNC 0x0", "LDGSTS.E.BYPASS.128 [R4], desc[UR4][R8.64]", "LDGDEPBAR"]
    assert [len(loads) for loads in waits(copies)] == [3]
    assert [(sorted(reads), sorted(writes)) for reads, writes in map(reads_and_writes, [
        "STS.128 [R81+0x880], R56", "IMAD.WIDE.U32 R14, R18, 0x200, R26", "ISETP.GE.AND P1, PT, R18, R25, PT", "CS2R R20, SRZ",
        "IADD3.X R4, R5, -R7, RZ, P3, !PT"])] == [([56, 57, 58, 59, 81], []), ([18, 26, 27], [14, 15]), ([18, 25], []), ([], [20, 21]), ([5, 7], [4])]


def test_what_a_multiprocessor_has_under_way():
    # 48 x 256 registers a block; 256 blocks of eight warps for 132 multiprocessors, four loads of 16 bytes a lane.
    kernel, machine = Kernel([], threads=256, registers=43, shared=512, asked=2), CHIPS["sm_90a"]
    assert kernel.resident(machine) == 5
    assert under_way(kernel, machine, 256, 5, [["LDG.E.128 R4, desc[UR6][R20.64]"] * 4], 8) == (["4.0", "1.9", "32", "32", "25"], True)
    assert under_way(kernel, machine, 256, 1, [["LDG.E.128 R4, desc[UR6][R20.64]"] * 4, ["LDG.E R4, desc[UR6][R20.64]"]], 8)[1] is False


@pytest.mark.parametrize("kernel", MOST_INSTRUCTIONS)
def test_weights_of_few_rows_go_straight_to_the_tensor_cores(functions, kernel):
    body = main_loop(functions[f"linear_{S}x{S}_{kernel}_f32_stream_1"])
    blocks = len([i for i in matching(body, "LDG") if access_bytes(i) == 16])
    print(f"{kernel}: {len(body)} instructions, {blocks} blocks, {count(body, 'HMMA')} products")
    assert blocks >= 4 and count(body, "HMMA") > 0
    assert len(body) / blocks <= MOST_INSTRUCTIONS[kernel]
    assert count(body, "LDS|LDSM|STS|BAR") == 0, "nothing but registers between memory and products"


@pytest.mark.parametrize("form", PRODUCTS)
@pytest.mark.parametrize("cache", CACHES)
def test_attention_brings_keys_and_values_once(functions, cache, form):
    body = main_path(functions[attention_kernel(functions, cache, form)])
    products = count(body, "HMMA")
    print(f"{cache} {form}: {products} products of {len(body)} instructions")
    assert products == PRODUCTS[form]
    assert products / len(body) >= LEAST_ATTENTION_SHARE[cache, form]
    copies, loads = ([access_bytes(i) for i in matching(body, opcode)] for opcode in ("LDGSTS", "LDG"))
    assert loads == PAGES and set(copies) == {16}, "keys and values arrive asynchronously"
    fragments, words = ([access_bytes(i) for i in matching(body, opcode)] for opcode in ("LDSM", "LDS"))
    assert fragments == [16] * (PRODUCTS[form] // 2), "four tiles of keys or values at once"
    if cache == "f16":
        assert len(copies) == RUNS and not words, "queries stay in registers"
        return
    # Beside the codes, a word of minimum and scale for each run of values, and those of the keys' channels once.
    assert len(copies) == RUNS * RUN_BYTES[cache] // 16 + 2
    assert sorted(words) == sorted([RUN_BYTES[cache]] * RUNS + [4] * (RUNS // 2) + [16, 16])
    assert [access_bytes(i) for i in matching(body, "STS")] == [16] * RUNS


FP4_MODEL = f"""
!w = !equant.weight<{S}x{S}, #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>, #equant.layout<m16n8k16>>
ml_program.global private @w(#ml_program.extern : !w) : !w {{equant.offset = array<i64: 0, {S * S}, {2 * S * S}>}}
func.func @forward(%x: tensor<?x{S}xf32>) -> tensor<?x{S}xf32> {{
  %w = ml_program.global_load_const @w : !w
  %y = equant.packed_linear %x, %w {{sites = ["y"], input_scale = 2.5e-03 : f32,
    input_scheme = #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>}} : (tensor<?x{S}xf32>, !w) -> tensor<?x{S}xf32>
  return %y : tensor<?x{S}xf32>
}}
"""


def test_fp4_is_multiplied_with_its_scales(tmp_path):
    """On sm_120a alone: OMMA with a scale for 16 columns of either side, in tiles and with few rows."""
    if not cuda_program("nvdisasm") or not cuda_program("ptxas"):
        pytest.skip("unsupported: no ptxas or nvdisasm (the extra `gpu` has both)")
    (tmp_path / "model.mlir").write_text(FP4_MODEL)
    result = compile_kernels(tool("easyquant-opt"), tmp_path / "model.mlir", "sm_120a", tmp_path / "kernels.cubin", tmp_path / "kernels.ptx")
    assert result.returncode == 0, result.stderr
    kernels = functions_in(tmp_path / "kernels.cubin")
    for kernel, instructions in kernels.items():
        assert not count(instructions, "LDL|STL"), kernel
    [tile] = [name for name in kernels if "_blocks_f32_mma_128x128x" in name]
    body = main_loop(kernels[tile], "OMMA")
    print(f"{tile}: {count(body, 'OMMA')} products of {len(body)} instructions")
    assert all(".SF.16864.F32.E2M1.E2M1.UE4M3.4X" in product for product in matching(body, "OMMA"))
    # Two steps of 64 columns of 64 x 64 of y a warp. Weights: a shuffle and three permutations for each two registers of eight rows.
    assert count(body, "OMMA") == 2 * 4 * 8 and count(body, "SHFL") == 2 * 8 and count(body, "LDSM") == 2 * 4
    assert count(body, "OMMA") / len(body) >= 0.18
    assert all(access_bytes(i) == 16 for i in matching(body, "LDS")), "weights come 16 bytes a lane"
    [dot] = [name for name in kernels if name.endswith("_blocks_f32_dot")]
    found = loads_of_waits(waits(main_loop(kernels[dot], "OMMA")), least_bytes=8)
    assert found and all(sum(loads) >= 64 for loads in found), "four blocks of weights are to be under way"
