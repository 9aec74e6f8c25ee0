# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model takes under each scheme, before it is compiled, or even there: bytes, memory, and the roof of its speed."""

from dataclasses import dataclass
from pathlib import Path

from easyquant.compiler.machines import Machine
from easyquant.compiler.options import CompileOptions
from easyquant.compiler.plans import Plans, plans_of, prediction
from easyquant.formats import hub
from easyquant.formats.model_files import lacks_weights
from easyquant.runtime.artifact import GPU_SEQUENCE_STATES, SEQUENCE_STATES
from easyquant.support.errors import UserError

FLOAT_BYTES = 4
# Floats of a step's row that are alive together, as multiples of the widths of the residual stream and of the MLP: at most so many in
# the programs that were looked at (float linears 2.7, int8 ones 2.2).
LIVE_WIDTHS = 3
# Rows of a step, as easyquant-emit-program and easyquant-emit-gpu-program have them by default.
STEP_ROWS, GPU_STEP_ROWS = 512, 4096
# What `easyquant bench` holds beside weights, KV cache and activations: Python, its libraries and the program.
PROCESS_BYTES = 68e6
# What `easyquant compile` holds beside the compiler.
FRONT_DESK_BYTES = 40e6


@dataclass(frozen=True)
class Footprint:
    """One scheme on one kind of target. Bytes are those of one artifact, and of the streams that are asked for."""

    scheme: str
    plans: Plans
    weight_bytes: int  # of the weights file, its header included
    cache_bytes: int  # keys and values of all streams
    read_cache_bytes: int  # those that a step reads
    state_bytes: int  # their recurrent states
    state_copies: int  # in memory
    compile_bytes: float  # memory to compile, roughly
    activation_bytes: int  # of a step of as many rows as a program takes, roughly
    streams: int

    @property
    def run_bytes(self) -> float:
        """Memory to run, roughly: mapped weights are counted as if all of them were read."""
        return self.weight_bytes + self.cache_bytes + self.state_copies * self.state_bytes + self.activation_bytes + PROCESS_BYTES

    @property
    def step_bytes(self) -> int:
        """What a decode step of all streams reads: every weight once, of experts those that streams choose independently of each other,
        and each stream's keys and values, of layers with windows those within them, and its state. The row a token that it reads of embeddings
        that are not the head's is not counted."""
        read = self.weight_bytes - self.plans.header_bytes - self.plans.gathered_bytes - self.plans.unread_bytes(self.streams)
        return read + self.read_cache_bytes + self.state_bytes

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.weight_bytes / self.plans.model["parameters"]

    def tokens_per_s(self, bandwidth: float) -> float:
        """The roof of decoding where memory is read at `bandwidth` bytes/s, all streams together."""
        return self.streams * bandwidth / self.step_bytes

    def fits(self, machine: Machine) -> bool:
        return self.run_bytes <= machine.usable


def without_weights(model: Path) -> Path:
    """The model, or its config.json where no weights lie beside it."""
    found = hub.locate(model)
    return config_of(found) if found.is_dir() and lacks_weights(found) else found


def config_of(folder: Path) -> Path:
    """Its config.json, where it has one."""
    config = folder / "config.json"
    return config if config.is_file() else folder


def check_context(context: int | None, model: dict) -> int:
    longest = model["max_context"]
    if context is None:
        return min(DEFAULT_CONTEXT, longest)
    if context > longest:
        raise UserError(f"--context {context}: expected at most {longest}, the longest context of the model")
    return context


DEFAULT_CONTEXT = 4096


def footprint_of(model: Path, options: CompileOptions, context: int | None, streams: int) -> Footprint:
    """What compiling with these options would give."""
    plans = plans_of(model, options)
    tokens = check_context(context, plans.model)
    widths = plans.model["hidden_size"] + plans.model["intermediate_size"]
    return Footprint(
        scheme=options.scheme,
        plans=plans,
        weight_bytes=plans.weight_bytes,
        cache_bytes=streams * plans.cache_bytes(tokens),
        read_cache_bytes=streams * plans.read_cache_bytes(tokens),
        state_bytes=streams * plans.state_bytes,
        state_copies=GPU_SEQUENCE_STATES if on_gpus(options) else SEQUENCE_STATES,
        compile_bytes=prediction(plans, options).memory_bytes + FRONT_DESK_BYTES + largest_codes(plans),
        activation_bytes=step_rows(options) * FLOAT_BYTES * LIVE_WIDTHS * widths,
        streams=streams,
    )


def step_rows(options: CompileOptions) -> int:
    return GPU_STEP_ROWS if on_gpus(options) else STEP_ROWS


def on_gpus(options: CompileOptions) -> bool:
    return any(target.startswith("sm_") for target in (options.target or "").split(","))


def largest_codes(plans: Plans) -> int:
    """Bytes of the largest weight that is rounded: its codes are held as a whole."""
    return max((site["bytes"] for site in plans.sites if site["weight"]), default=0)
