# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which of several ranks this process is, that mpirun, srun or torchrun have started.

Rank 0 reads text, writes results and prints. The front desk of another rank only starts the tool that computes, which
gets from rank 0 what it is not given. That tool opens MPI, this process does not: it would be a second rank of the same number.
`easyquant eval` computes in this process, which then joins the others itself.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from easyquant.formats import hub
from easyquant.runtime.extension import runtime
from easyquant.support.errors import UserError

# The variables of a launcher; those of srun's tasks are there in a batch script, too, but for the step.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"),
    ("RANK", "WORLD_SIZE", "WORLD_SIZE"),
)


TIMEOUT = 600.0  # seconds


class Comm(str, Enum):
    auto = "auto"
    mpi = "mpi"
    nccl = "nccl"
    none = "none"


@dataclass(frozen=True)
class Ranks:
    """How ranks are joined; easyquant-compile checks the variables, of which here only rank and number count."""

    comm: Comm = Comm.none
    timeout: float | None = None  # seconds that a rank waits for the others

    @property
    def launched(self) -> tuple[int, int]:
        """Rank and number of ranks, as the launcher has it."""
        for rank, size, mark in LAUNCHERS:
            if mark in os.environ:
                values = os.environ.get(rank, ""), os.environ.get(size, "")
                return (int(values[0]), int(values[1])) if all(value.isdigit() for value in values) else (0, 1)
        return 0, 1

    @property
    def rank(self) -> int:
        return self.launched[0] if self.comm != Comm.none else 0

    @property
    def size(self) -> int:
        return self.launched[1] if self.comm != Comm.none else 1

    def arguments(self) -> list[str]:
        """Arguments of easyquant-compile."""
        if self.launched[1] == 1:
            return []
        return [f"--comm={self.comm.value}", *([f"--comm-timeout={self.timeout}"] if self.timeout else [])]

    @contextlib.contextmanager
    def joined(self) -> Iterator:
        """The extension's Ranks: this process and those of the other ranks, which hear why where one gives up."""
        try:
            others = runtime().Ranks(self.comm.value if self.size > 1 else "none", self.timeout or TIMEOUT)
        except runtime().Error as error:
            raise UserError(str(error)) from None
        try:
            yield others
            others.close()
        except BaseException as error:
            if others.size > 1:
                others.abort(str(error) or type(error).__name__)
            if isinstance(error, runtime().Error):
                raise UserError(str(error)) from None
            raise

    def own_folder(self, folder: Path) -> Path:
        """Each rank has one of its own, also where all see the same disk."""
        return Path(f"{folder}.rank{self.rank}") if self.rank else folder


ALONE = Ranks()


def model_of_rank(model: Path) -> Path:
    """The model where this rank has it; else as it was named, and rank 0 sends it."""
    found = hub.locate(model) if not model.exists() else model
    return found if found.exists() else model


CommOption = Annotated[Comm, typer.Option("--comm", help="What joins the ranks that mpirun, srun or torchrun started; none: each works alone.")]
CommTimeoutOption = Annotated[
    float | None, typer.Option("--comm-timeout", min=0.1, metavar="SECONDS", help="How long a rank waits for the others. (default: 600)")
]
