# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where an artifact runs: --device and --simt-chip of run, eval and bench; on how many threads: --threads of every command."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import typer

from easyquant.runtime.extension import runtime
from easyquant.support.errors import UserError


class Device(str, Enum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    simt = "simt"


DeviceOption = Annotated[
    Device,
    typer.Option(help="cuda: an NVIDIA GPU; simt: a simulated one; auto: cuda if the artifact has code for GPUs and there is one that runs it, else cpu."),
]
SimtChipOption = Annotated[str | None, typer.Option(metavar="CHIP", help="The GPU that simt simulates, of those in the artifact. (default: its first)")]


def check_threads(count: int | None) -> int | None:
    if count and count > (most := runtime().max_threads()):
        raise typer.BadParameter(f"found {count}, expected 1 to {most} (so many for the CPUs that the process may run on), or 0 for one a CPU")
    return count


ThreadsOption = Annotated[int, typer.Option(min=0, metavar="N", callback=check_threads, help="Threads; 0: all CPUs.")]


@dataclass(frozen=True)
class Placement:
    device: str = "auto"
    simt_chip: str | None = None

    @classmethod
    def of(cls, device: Device, simt_chip: str | None) -> "Placement":
        if simt_chip is not None and device != Device.simt:
            raise UserError("--simt-chip: goes with --device simt")
        return cls(device.value, simt_chip)

    def of_reference(self, reference) -> "Placement":
        """The same for an artifact that another is compared with; a CPU where it has no code for GPUs."""
        return self if reference.gpu else Placement("cpu")


AUTO = Placement()
