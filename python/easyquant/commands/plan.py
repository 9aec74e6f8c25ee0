# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant plan`: what a model would take under each scheme, and which machines hold it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from easyquant.commands.bench import read_bandwidth
from easyquant.compiler.footprint import DEFAULT_CONTEXT, Footprint, config_of, footprint_of, without_weights
from easyquant.compiler.machines import MACHINES, SHARE, Machine
from easyquant.compiler.options import OPTIONS, CompileOptions, check_table, choices_of
from easyquant.compiler.plans import read_plans
from easyquant.formats.model_files import read_json
from easyquant.runtime.artifact import GPU_SEQUENCE_STATES, SEQUENCE_STATES
from easyquant.support.errors import UserError
from easyquant.support.files import check_writable, write_json
from easyquant.support.memory import available_bytes
from easyquant.terminal import console
from easyquant.terminal.usage import completes, did_you_mean

# From all of the model to the least that is used: floats, and schemes of 8 to 2 bits.
SCHEMES = ("none", "W8A8", "Q6", "Q5", "W4A8", "W4A16", "Q4", "Q3", "W3A16", "W2A16")
_TYPES_OF_CACHE = Literal[tuple(choices_of("kv-scheme"))] if OPTIONS else str
_KEEP = "keep"
# Characters of columns of the table of machines.
_WIDTH_OF_MACHINE, _WIDTH_OF_SPEED = 52, 8


def schemes_of(model: Path, chosen: list[str]) -> list[str]:
    """The schemes that are asked for, or the usual ones; a checkpoint of codes has these first. Reads the model, whose errors come before all else."""
    default = read_plans(model, []).recipe.get("scheme")
    if not chosen:
        return [_KEEP, *SCHEMES] if default == _KEEP else list(SCHEMES)
    known = choices_of("scheme")
    for scheme in chosen:
        if scheme not in known:
            raise UserError(f"--scheme {scheme}: expected one of {', '.join(known)}{did_you_mean(scheme, known)}")
    return list(dict.fromkeys(chosen))


def plan_on_gpus(model: Path, options: CompileOptions, context: int | None, streams: int) -> Footprint | str:
    """Or the reason why GPUs have no kernels for it. What is stored is the same for every chip."""
    chip = next(machine.target for machine in MACHINES if machine.is_gpu)
    try:
        return footprint_of(model, replace(options, target=chip), context, streams)
    except UserError as error:
        return str(error)


def this_machine(bandwidth: float) -> Machine:
    """Its memory is what is free now, all of which a model may take."""
    return Machine("this machine, now", (available_bytes() or 0) / SHARE, bandwidth)


def speed_on(machine: Machine, cpu: Footprint, gpu: Footprint | str) -> float | None:
    """The roof of decoding in tokens/s; None where the scheme does not run or does not fit."""
    footprint = gpu if machine.is_gpu else cpu
    return footprint.tokens_per_s(machine.bandwidth) if isinstance(footprint, Footprint) and footprint.fits(machine) else None


def figures_of(footprint: Footprint) -> dict:
    return {
        "weight_bytes": footprint.weight_bytes, "bits_per_weight": footprint.bits_per_weight, "cache_bytes": footprint.cache_bytes,
        "state_bytes": footprint.state_bytes, "step_bytes": footprint.step_bytes, "run_bytes": footprint.run_bytes,
    }  # fmt: skip


def print_footprints(footprints: list[Footprint], bandwidth: float) -> None:
    table = console.table("On CPUs")
    table.add_column("scheme")
    for title in ("weights", "bits a weight", "KV cache", "memory to compile", "memory to run", "tokens/s here"):
        table.add_column(title, justify="right")
    for each in footprints:
        table.add_row(
            each.scheme, console.human_bytes(each.weight_bytes), f"{each.bits_per_weight:.1f}", console.human_bytes(each.cache_bytes),
            console.human_bytes(each.compile_bytes), console.human_bytes(each.run_bytes), describe_speed(each.tokens_per_s(bandwidth)),
        )  # fmt: skip
    console.out.print(table)


def describe_speed(tokens_per_s: float | None) -> str:
    return "–" if tokens_per_s is None else f"{tokens_per_s:.1f}" if tokens_per_s < 9.95 else f"{tokens_per_s:,.0f}"


def print_machines(machines: list[Machine], pairs: list[tuple[Footprint, Footprint | str]]) -> None:
    """In as many tables as the terminal needs for all schemes side by side."""
    side_by_side = max(1, (console.out.width - _WIDTH_OF_MACHINE) // _WIDTH_OF_SPEED)
    for first in range(0, len(pairs), side_by_side):
        print_speeds(machines, pairs[first : first + side_by_side])


def print_speeds(machines: list[Machine], pairs: list[tuple[Footprint, Footprint | str]]) -> None:
    table = console.table("Roof of decoding, tokens/s (–: does not fit, or has no kernels)")
    table.add_column("machine", no_wrap=True)
    table.add_column("GB", justify="right")
    table.add_column("GB/s", justify="right")
    for cpu, _ in pairs:
        table.add_column(cpu.scheme, justify="right")
    for machine in machines:
        memory = machine.usable / 1e9 if machine is machines[0] else machine.memory / 1e9
        table.add_row(machine.name, f"{memory:.0f}", f"{machine.bandwidth / 1e9:.0f}", *(describe_speed(speed_on(machine, *pair)) for pair in pairs))
    console.out.print(table)


@console.command
def plan_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A config.json, a Hugging Face folder with weights or without, a GGUF file, or the name of a download.")],
    scheme: Annotated[list[str], typer.Option("--scheme", metavar="SCHEME", autocompletion=completes(choices_of("scheme")), help=f"A scheme to plan. Repeatable (default: {', '.join(SCHEMES)}).")] = [],  # noqa: B006
    context: Annotated[int | None, typer.Option("--context", min=1, metavar="TOKENS", help=f"Tokens of each stream in the KV cache (default: {DEFAULT_CONTEXT}, or all that the model takes).")] = None,
    streams: Annotated[int, typer.Option("--batch", min=1, metavar="N", help="Streams that are decoded together, each with its own KV cache.")] = 1,
    kv_scheme: Annotated[_TYPES_OF_CACHE | None, typer.Option("--kv-scheme", metavar="TYPE", help="How keys and values of the past are kept, none being float. (default: none).")] = None,
    assistant: Annotated[Path | None, typer.Option("--assistant", metavar="FOLDER", help="The model that drafts for this one (gemma4_assistant), whose bytes are counted too. A config.json where MODEL has no weights.")] = None,
    bandwidth: Annotated[float | None, typer.Option("--bandwidth", min=0.001, metavar="GB/S", help="Speed of reading memory, in place of this machine's, which is measured.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures here as well.")] = None,
) -> None:
    """Say what a model takes under each scheme, and which machines hold it.

    A config.json is enough, so that one can ask before weights are downloaded. Speeds are roofs: a step reads every weight and all of the KV cache once, at the speed of the memory.

    Example: [bold]hf download Qwen/Qwen3-14B config.json && easyquant plan Qwen/Qwen3-14B[/bold]

    Example: [bold]easyquant plan config.json --scheme Q4 --scheme W4A8 --context 32768 --kv-scheme int4[/bold]
    """
    check_table()
    check_writable(json_file)
    model = without_weights(model)
    schemes = schemes_of(model, scheme)
    if model.suffix == ".json" and "quantization_config" in read_json(model):
        console.note(f"{model}: the checkpoint is quantized; its own codes (--scheme keep) are known where its weights are, and other schemes round them again")
    if assistant and model.suffix == ".json":  # the bytes of both follow from their configurations
        assistant = config_of(assistant)
    options = [CompileOptions(scheme=name, kv_scheme=kv_scheme, assistant=assistant) for name in schemes]
    cpu = [footprint_of(model, each, context, streams) for each in options]
    gpu = [plan_on_gpus(model, each, context, streams) for each in options]
    roof = bandwidth * 1e9 if bandwidth else read_bandwidth(len(os.sched_getaffinity(0)))
    machines = [this_machine(roof), *MACHINES]
    sizes = cpu[0].plans.model
    tokens = context or min(DEFAULT_CONTEXT, sizes["max_context"])
    if json_file:
        write_json(json_file, {
            "model": sizes, "context": tokens, "batch": streams, "kv_scheme": kv_scheme or "none", "assistant": assistant and str(assistant), "bandwidth_bytes_per_s": roof,
            "schemes": [
                {"scheme": own.scheme, "cpu": figures_of(own) | {"compile_bytes": own.compile_bytes},
                 "gpu": figures_of(other) if isinstance(other, Footprint) else {"refused": other}}
                for own, other in zip(cpu, gpu, strict=True)
            ],
            "machines": [
                {"name": machine.name, "target": machine.target, "usable_bytes": machine.usable, "bandwidth_bytes_per_s": machine.bandwidth,
                 "tokens_per_s": {own.scheme: speed_on(machine, own, other) for own, other in zip(cpu, gpu, strict=True)}}
                for machine in machines
            ],
        })  # fmt: skip
    table = console.pairs()
    table.add_row("model", f"{sizes['architecture']}, {sizes['parameters']:,} parameters, context of up to {sizes['max_context']:,} tokens")
    if assistant:
        table.add_row("assistant", f"{assistant}, whose weights are counted; a step without drafts reads none of them")
    table.add_row("KV cache", f"{streams} stream{'' if streams == 1 else 's'} of {tokens:,} tokens, {'float' if kv_scheme in (None, 'none') else kv_scheme}")
    if state := cpu[0].plans.state_bytes:
        table.add_row("state", f"{console.human_bytes(state)} a stream, in memory {SEQUENCE_STATES} times, {GPU_SEQUENCE_STATES} on GPUs")
    table.add_row("memory", f"read at {roof / 1e9:.1f} GB/s{'' if bandwidth else ', measured now'}")
    console.out.print(table)
    console.out.print()
    print_footprints(cpu, roof)
    print_machines(machines, list(zip(cpu, gpu, strict=True)))
