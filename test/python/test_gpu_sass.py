# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machine code of the GPU kernels, for every chip: what the main loops of the linears consist of."""

import re
import sys

import pytest

from helpers import REPO, tool

sys.path.insert(0, str(REPO / "benchmarks"))
from gpu_static import SIZE as S, model_text  # noqa: E402
from sass import CHIPS, access_bytes, compile_kernels, count, cuda_program, functions_of, main_loop, matching  # noqa: E402

# The least share of the instructions of a loop of the tile of 128 x 128 that are matrix products, as measured with ptxas 13.0, less
# a little.
LEAST_SHARE = {"i8_q": 0.40, "i4_g128_q": 0.30, "i4_g128_bf16": 0.27, "i8_bf16": 0.21, "i3_g128_bf16": 0.15, "i2_g128_bf16": 0.20,
               "bf16_bf16": 0.42}
# Of one row: the most instructions for each block of weights that a warp reads (16 bytes a lane; of 3 bits 24).
MOST_INSTRUCTIONS = {"i8_bf16": 60, "i4_g128_bf16": 70, "i3_g128_bf16": 165, "i2_g128_bf16": 110, "bf16_bf16": 14}


@pytest.fixture(scope="module", params=CHIPS)
def functions(request, tmp_path_factory):
    """{kernel: its instructions in order, labels among them as 'NAME:'}"""
    if not cuda_program("nvdisasm") or not cuda_program("ptxas"):
        pytest.skip("unsupported: no ptxas or nvdisasm (the extra `gpu` has both)")
    folder = tmp_path_factory.mktemp("sass")
    (folder / "model.mlir").write_text(model_text())
    result = compile_kernels(tool("easyquant-opt"), folder / "model.mlir", request.param, folder / "kernels.cubin", folder / "kernels.ptx")
    assert result.returncode == 0, result.stderr
    return functions_of(folder / "kernels.cubin")


@pytest.mark.parametrize("kernel", LEAST_SHARE)
def test_main_loop_is_mostly_matrix_products(functions, kernel):
    # How long slabs are depends on the shared memory of the chip.
    [name] = [name for name in functions if name.startswith(f"linear_{S}x{S}_{kernel}_f32_mma_128x128x")]
    body = main_loop(functions[name])
    products = count(body, "IMMA|HMMA")
    print(f"{kernel}: {products} products of {len(body)} instructions")
    assert products / len(body) >= LEAST_SHARE[kernel]
    assert count(body, "LDGSTS") > 0, "slabs are to arrive asynchronously"
    assert count(body, "LDSM") > 0, "activations are to come by ldmatrix"
    assert count(body, "LDG") == 0, "nothing is to be waited for"
    # Of 3 bits the upper plane is half as wide.
    least = 8 if kernel.startswith("i3") else 16
    assert all(access_bytes(i) >= least for i in matching(body, "LDS")), "weights come 16 bytes a lane"


def test_nothing_is_kept_in_local_memory(functions):
    assert len(functions) > 40
    for kernel, instructions in functions.items():
        assert not count(instructions, "LDL|STL"), kernel


def test_few_rows_are_multiplied_by_dp4a(functions):
    instructions = functions[f"linear_{S}x{S}_i8_q_f32_dp4a_1"]
    assert count(instructions, "IDP") > 0
    assert any(re.search(r"LDG\.E\.128", i) for i in instructions), "weights come 16 bytes a lane"


@pytest.mark.parametrize("kernel", MOST_INSTRUCTIONS)
def test_weights_of_few_rows_go_straight_to_the_tensor_cores(functions, kernel):
    body = main_loop(functions[f"linear_{S}x{S}_{kernel}_f32_stream_1"])
    blocks = len([i for i in matching(body, "LDG") if access_bytes(i) == 16])
    print(f"{kernel}: {len(body)} instructions, {blocks} blocks, {count(body, 'HMMA')} products")
    assert blocks >= 4 and count(body, "HMMA") > 0
    assert len(body) / blocks <= MOST_INSTRUCTIONS[kernel]
    assert count(body, "LDS|LDSM|STS|BAR") == 0, "nothing but registers between memory and products"
