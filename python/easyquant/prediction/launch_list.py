# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The launches of a step, as an artifact's program.gpu.json lists them (docs/Architecture.md), and which of them happen."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from easyquant.formats.model_files import read_json
from easyquant.support.errors import UserError

# What the runtime launches behind a step (lib/Runtime/DeviceLogits.cpp), and of how many choices at a time.
CHOOSING = (("keep", "logits"), ("weigh", "weights of logits"), ("choose", "choice"))
MOST_CHOICES = 256
FORMAT, VERSION = "easyquant-gpu-program", 7


@dataclass(frozen=True)
class ListedKernel:
    name: str
    grid: tuple[tuple[int, int], ...]  # factor and rows of a block, of each dimension; 0: the factor alone
    shared_bytes: int

    def row_blocks(self, rows: int) -> int:
        """How often the grid has the same work for other rows."""
        return math.prod(math.ceil(rows / per_block) for _, per_block in self.grid if per_block)

    def blocks(self, rows: int) -> int:
        return math.prod(factor for factor, _ in self.grid) * self.row_blocks(rows)


@dataclass(frozen=True)
class ListedLaunch:
    site: str
    phase: str
    kernel: ListedKernel
    min_rows: int
    max_rows: int
    weights: tuple[int, ...]  # offsets of arguments into the weights
    least_rows: int  # of the sequences that have a part in it
    multiple: int = 1  # rows of it for each row of the step, one for each expert that is chosen

    def happens_for(self, rows: int) -> bool:
        return rows >= self.min_rows and (self.max_rows == 0 or rows <= self.max_rows)


@dataclass(frozen=True)
class Happening:
    """A launch of a step: over so many rows, each of a sequence of its own, or of so many as the launch's `multiple` says."""

    launch: ListedLaunch
    rows: int


@dataclass(frozen=True)
class Program:
    max_rows: int
    page_tokens: int
    page_bytes: int
    window_bytes: int
    launches: tuple[ListedLaunch, ...]
    choosing: tuple[ListedLaunch, ...] = ()  # behind the step: what keeps rows of logits, weighs them, and chooses tokens

    def step(self, sequences: int) -> Iterator[Happening]:
        """The launches that happen where each of the sequences has one token, in their order."""
        for launch in self.launches:
            if launch.happens_for(sequences * launch.multiple) and launch.least_rows == 1:
                yield Happening(launch, sequences * launch.multiple)
        for launch in self.choosing[:1]:
            yield Happening(launch, sequences)
        for first in range(0, sequences, MOST_CHOICES):
            for launch in self.choosing[1:]:
                yield Happening(launch, min(sequences - first, MOST_CHOICES))


def read_program(path: Path, chip: str) -> Program:
    document = read_json(path)
    if (found := (document.get("format"), document.get("format_version"))) != (FORMAT, VERSION):
        raise UserError(f"{path}: found format {found[0]!r}, version {found[1]!r}, expected {FORMAT!r}, version {VERSION}; compile the model again")
    try:
        entry = document["chips"][chip]
        kernels = [
            ListedKernel(str(kernel["name"]), tuple((int(factor), int(rows)) for factor, rows in kernel["grid"]), int(kernel["shared_bytes"]))
            for kernel in entry["kernels"]
        ]
        cache = entry["cache"]
        launches = []
        for launch in entry["launches"]:
            if "collective" in launch:
                raise UserError(f"{path}: site {launch['site']!r} exchanges data among ranks, whose time is not known here; compile without --tensor-parallel")
            if launch["over"] not in ("rows", "logit_rows", "pieces"):
                raise UserError(f"{path}: site {launch['site']!r} is over {launch['over']!r}, expected rows, logit_rows or pieces; compile the model again")
            cuts = [entry["pieces"][argument[1] if len(argument) > 1 else 0] for argument in launch["arguments"] if argument[0] == "pieces"]
            offsets = tuple(int(argument[1]) if len(argument) > 1 else 0 for argument in launch["arguments"] if argument[0] == "weights")
            launches.append(ListedLaunch(str(launch["site"]), str(launch["phase"]), kernels[launch["kernel"]],
                                         int(launch["min_rows"]), int(launch["max_rows"]), offsets,
                                         max([1, *(int(cut["min_rows"]) for cut in cuts)]), int(launch.get("multiple", 1))))  # fmt: skip
        choosing = [ListedLaunch(site, "other", kernels[entry["choosing"][name]], 1, 0, (), 1) for name, site in CHOOSING if entry["choosing"]]
        return Program(
            int(entry["max_rows"]), int(cache["page_tokens"]), int(cache["page_bytes"]), int(cache["window_bytes"]), tuple(launches), tuple(choosing)
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise UserError(f"{path}: does not say what the launches of {chip} are ({error!r}); copy or compile the artifact again") from None
