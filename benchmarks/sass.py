# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From MLIR and PTX to machine code, for what reads it (easyquant.prediction.machine_code). Needs ptxas and nvdisasm, both of the extra
`gpu`, which pins their versions: what is said of the code is said of the code of those."""

import subprocess

from easyquant.prediction.kernels import read_kernels
from easyquant.prediction.machine_code import functions_of
from easyquant.prediction.step import disassemble
from easyquant.support.tools import cuda_program


def compile_kernels(opt, model, chip, cubin, ptx):
    """Writes the kernels of an MLIR file for a chip as machine code and as PTX; returns the finished process of easyquant-opt."""
    return subprocess.run([opt, model, f"--easyquant-launches=target={chip}", f"--equant-lower-to-nvvm=target={chip}",
                           f"--equant-emit-gpu-binary=cubin={cubin} ptx={ptx}", "-o", "/dev/null"], capture_output=True, text=True)


def functions_in(cubin):
    """{kernel: its instructions in order, labels among them as 'NAME:'} of a file of machine code."""
    return functions_of(disassemble(cubin.read_bytes()))


def kernels_in(ptx, chip):
    """{name: Kernel} of a file of PTX, which is assembled."""
    cubin = ptx.with_suffix(".cubin")
    subprocess.run([cuda_program("ptxas"), f"-arch={chip}", ptx, "-o", cubin], check=True, capture_output=True)
    return read_kernels(ptx.read_text(), functions_in(cubin))
