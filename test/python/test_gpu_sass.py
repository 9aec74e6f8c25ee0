# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machine code of the GPU kernels, for every chip: what the main loops of the linears consist of."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from helpers import run_tool

CHIPS = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a")
# The least share of a loop's instructions that are matrix products, as measured with ptxas 13.0, less a little.
LEAST_SHARE = {"linear_4096x4096_i8_q_f32_mma_128x128x64": 0.40, "linear_4096x4096_i4_g128_q_f32_mma_128x128x64": 0.30}

MODEL = """
func.func @linears(%x: tensor<?x4096xf32>, %w: tensor<4096x4096xi8>, %w4: tensor<4096x4096xi4>, %s: tensor<4096x1xf32>, %s4: tensor<4096x32xf32>)
    -> (tensor<?x4096xf32>, tensor<?x4096xf32>) {
  %y = equant.linear %x, %w scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i8, symmetric, channel>,
         input_scheme = #equant.scheme<i8, symmetric, token, dynamic>}
         : (tensor<?x4096xf32>, tensor<4096x4096xi8>, tensor<4096x1xf32>) -> tensor<?x4096xf32>
  %z = equant.linear %x, %w4 scale(%s4) {sites = ["b"], weight_scheme = #equant.scheme<i4, symmetric, group = 128>,
         input_scheme = #equant.scheme<i8, symmetric, token, dynamic>}
         : (tensor<?x4096xf32>, tensor<4096x4096xi4>, tensor<4096x32xf32>) -> tensor<?x4096xf32>
  return %y, %z : tensor<?x4096xf32>, tensor<?x4096xf32>
}
"""


def cuda_program(name):
    """A program of the extra `gpu`, which pins their versions; the test is about its code."""
    for path in Path(sysconfig.get_paths()["purelib"]).glob(f"nvidia/cu*/bin/{name}"):
        return path
    return None


@pytest.fixture(scope="module", params=CHIPS)
def functions(request, tmp_path_factory):
    """{kernel: its instructions in order, labels among them as 'NAME:'}"""
    nvdisasm = cuda_program("nvdisasm")
    if not nvdisasm or not cuda_program("ptxas"):
        pytest.skip("unsupported: no ptxas or nvdisasm (the extra `gpu` has both)")
    folder = tmp_path_factory.mktemp("sass")
    (folder / "model.mlir").write_text(MODEL)
    result = run_tool("easyquant-opt", folder / "model.mlir", f"--equant-emit-gpu-kernels=chip={request.param}",
                      f"--equant-lower-to-nvvm=chip={request.param}",
                      f"--equant-emit-gpu-binary=cubin={folder / 'kernels.cubin'}", "-o", "/dev/null")
    assert result.returncode == 0, result.stderr
    text = subprocess.run([nvdisasm, "-c", folder / "kernels.cubin"], check=True, capture_output=True, text=True).stdout
    found, current = {}, None
    for line in text.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.([\w$]+)", line):
            current = found.setdefault(section[1], [])
        elif label := re.match(r"(\.L_x_\d+):", line):
            current.append(f"{label[1]}:")
        elif (instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line)) and current is not None:
            current.append(instruction[1])
    return found


def loops(instructions):
    """Bodies of loops: from a label to a branch back to it."""
    places = {line[:-1]: i for i, line in enumerate(instructions) if line.endswith(":")}
    for i, line in enumerate(instructions):
        if (branch := re.search(r"\bBRA\b.*?`\((\.L_x_\d+)\)", line)) and places.get(branch[1], i) < i:
            yield [word for word in instructions[places[branch[1]] : i + 1] if not word.endswith(":")]


def count(body, opcode):
    return sum(bool(re.match(rf"(@!?U?P\d+ )?{opcode}\b", instruction)) for instruction in body)


@pytest.mark.parametrize("kernel", LEAST_SHARE)
def test_main_loop_is_mostly_matrix_products(functions, kernel):
    # The innermost loop with products: the shortest of those that have any.
    body = min((body for body in loops(functions[kernel]) if count(body, "IMMA")), key=len)
    share = count(body, "IMMA") / len(body)
    print(f"{kernel}: {count(body, 'IMMA')} IMMA of {len(body)} instructions")
    assert share >= LEAST_SHARE[kernel]
    assert count(body, "LDGSTS") > 0, "slabs are to arrive asynchronously"
    assert count(body, "LDSM") > 0, "activations are to come by ldmatrix"
    assert count(body, "LDG") == 0, "nothing is to be waited for"
    assert all("128" in i for i in body if re.match(r"(@!?U?P\d+ )?LDS\b", i)), "weights come 16 bytes a lane"


def test_nothing_is_kept_in_local_memory(functions):
    assert len(functions) > 10
    for kernel, instructions in functions.items():
        assert not [i for i in instructions if re.match(r"(@!?U?P\d+ )?(LDL|STL)\b", i)], kernel


def test_few_rows_are_multiplied_by_dp4a(functions):
    instructions = functions["linear_4096x4096_i8_q_f32_dp4a_1"]
    assert count(instructions, "IDP") > 0
    assert any(re.search(r"LDG\.E\.128", i) for i in instructions), "weights come 16 bytes a lane"
