# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A decode step of an artifact on a GPU, launch by launch: an estimate, from what the artifact holds."""

import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from easyquant.formats.model_files import read_safetensors_header
from easyquant.prediction.chips import CHIPS
from easyquant.prediction.kernels import Kernel, read_kernels, unknown_opcodes
from easyquant.prediction.launch_list import Happening, Program, read_program
from easyquant.prediction.launch_time import LaunchTime, Traffic, launch_time
from easyquant.prediction.machine_code import functions_of
from easyquant.prediction.traffic import cache_read, traffic_of
from easyquant.runtime.artifact import Artifact
from easyquant.support.errors import UserError, expect
from easyquant.support.files import scratch_folder
from easyquant.support.tools import cuda_program

DISASSEMBLER = "nvidia-cuda-nvdisasm"  # the package at PyPI; the extra `gpu` has it
# A fatbin as fatbinary of CUDA 13 writes it: its header, and the header of an entry: kind, version, its own bytes, those of the code.
_FATBIN, _FATBIN_MAGIC = "<IHHQ", 0xBA55ED50
_ENTRY, _MACHINE_CODE, _ARCHITECTURE = "<HHIQ", 2, 28
_ELF = b"\x7fELF"


@dataclass(frozen=True)
class PredictedLaunch:
    happening: Happening
    traffic: Traffic
    time: LaunchTime  # of one time


@dataclass(frozen=True)
class Prediction:
    chip: str
    sequences: int
    context: int
    launches: Sequence[PredictedLaunch]

    @property
    def seconds(self) -> float:
        return sum(each.time.seconds for each in self.launches)

    @property
    def count(self) -> int:
        """The number of launches."""
        return len(self.launches)

    @property
    def bytes(self) -> float:
        """Bytes of the device's memory that are read and written."""
        return sum(each.traffic.memory for each in self.launches)


def cubin_of(fatbin: bytes, chip: str, path: Path) -> bytes:
    """The machine code of a chip in a fatbin; `path`: what messages call it."""
    number = int("".join(filter(str.isdigit, chip)))
    try:
        magic, _, header, size = struct.unpack_from(_FATBIN, fatbin)
        if magic != _FATBIN_MAGIC:
            raise UserError(f"{path}: begins with {magic:#x}, expected {_FATBIN_MAGIC:#x}, a fatbin; copy or compile the artifact again")
        at = header
        while at < header + size:
            kind, _, own, length = struct.unpack_from(_ENTRY, fatbin, at)
            code = fatbin[at + own : at + own + length]
            if kind == _MACHINE_CODE and struct.unpack_from("<I", fatbin, at + _ARCHITECTURE)[0] == number and code.startswith(_ELF):
                return code
            if own + length <= 0:
                break
            at += own + length
    except struct.error:
        raise UserError(f"{path}: is cut short; copy or compile the artifact again") from None
    raise UserError(f"{path}: has no plain machine code for {chip}; compile the model again where the extra `gpu` of this package is installed")


def disassemble(cubin: bytes) -> str:
    """What `nvdisasm -c` prints."""
    if (program := cuda_program("nvdisasm")) is None:
        raise UserError(f"predict reads machine code, and there is no nvdisasm: pip install {DISASSEMBLER} (the extra `gpu` of this package has it)")
    with scratch_folder() as folder:
        (folder / "kernels.cubin").write_bytes(cubin)
        said = subprocess.run([program, "-c", folder / "kernels.cubin"], capture_output=True, text=True)
    if said.returncode != 0:
        raise UserError(f"{program}: {said.stderr.strip() or f'status {said.returncode}'}; install the version of {DISASSEMBLER} that the extra `gpu` names")
    return said.stdout


def kernels_of(artifact: Artifact, chip: str) -> dict[str, Kernel]:
    """{name: Kernel} of an artifact's machine code for a chip."""
    gpu = artifact.gpu
    if not gpu["fatbin"] or not gpu["chips"][chip]["machine_code"]:
        raise UserError(f"{artifact.path}: has PTX for {chip}, and no machine code; compile it again where the extra `gpu` of this package is installed")
    path = artifact.path / gpu["fatbin"]
    functions = functions_of(disassemble(cubin_of(path.read_bytes(), chip, path)))
    ptx = artifact.path / gpu["chips"][chip]["ptx"]
    try:
        return read_kernels(ptx.read_text(), functions)
    except (KeyError, UnicodeDecodeError) as error:
        raise UserError(f"{ptx}: has other kernels than {path} ({error!r}); copy or compile the artifact again") from None


def check(artifact: Artifact, chip: str, sequences: int, context: int) -> Program:
    if artifact.gpu is None:
        raise UserError(f"{artifact.path}: was compiled for {artifact.manifest.get('target')}, expected a program for GPUs; compile it with --target {chip}")
    expect("--chip", chip, chip in CHIPS, f"a chip whose rates are known: {', '.join(CHIPS)}")
    compiled = artifact.gpu["chips"]
    if chip not in compiled:
        raise UserError(f"{artifact.path}: has code for {', '.join(compiled)}, and none for {chip}; compile it with --target {chip}")
    if artifact.ranks > 1:
        raise UserError(f"{artifact.path}: is shared by {artifact.ranks} ranks, whose exchanges have no known time; compile it without --tensor-parallel")
    program = read_program(artifact.path / artifact.gpu["program"], chip)
    expect("--batch", sequences, 1 <= sequences <= program.max_rows, f"1 to {program.max_rows}, the rows of a step of this artifact")
    expect("--context", context, 1 <= context <= artifact.max_context, f"1 to {artifact.max_context}, the context of the model")
    return program


def predict(artifact: Artifact, chip: str, sequences: int, context: int) -> Prediction:
    """A step in which each of the sequences gets one token, and sees `context` of them, itself included."""
    program = check(artifact, chip, sequences, context)
    tensors = read_safetensors_header(artifact.path / "weights.gpu.safetensors")
    return predict_step(program, kernels_of(artifact, chip), {tensor.offset: tensor.bytes for tensor in tensors}, chip, sequences, context)


def predict_step(program: Program, kernels: dict[str, Kernel], weights: dict[int, int], chip: str, sequences: int, context: int) -> Prediction:
    """`weights`: bytes of the tensor at each offset."""
    cache, launches, overlapped = cache_read(program, context), [], False
    for happening in program.step(sequences):
        listed = happening.launch.kernel
        traffic, blocks = traffic_of(happening, weights, cache)
        if (kernel := kernels.get(listed.name)) is None:
            raise UserError(f"site {happening.launch.site!r}: kernel {listed.name} is not in the machine code; copy or compile the artifact again")
        if unknown := unknown_opcodes(kernel.code):
            raise UserError(f"kernel {listed.name}: opcode {', '.join(unknown)} takes nobody knows how long here, expected those that easyquant/prediction/kernels.py "
                            "counts; compile with the assembler that the extra `gpu` names")  # fmt: skip
        launches.append(PredictedLaunch(happening, traffic, launch_time(kernel, CHIPS[chip], blocks, traffic, listed.shared_bytes, overlapped)))
        overlapped = kernel.begins_next
    return Prediction(chip, sequences, context, launches)
