# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant compile`: hands a model to the C++ compiler and shows how far it is."""

import contextlib
import time
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from easyquant import console
from easyquant.advice import better_method
from easyquant.artifact import Artifact
from easyquant.calibration import CalibrationText, tokens_of
from easyquant.compiler import CompileCost, compiler_progress, find_model, run_compiler, tokenizer_files, warn_without_tokenizer
from easyquant.device import check_threads
from easyquant.errors import UserError
from easyquant.memory import age_seconds, peak_rss_bytes
from easyquant.plans import plans_of, print_dry_run
from easyquant.recipe import recipe_as_json
from easyquant.usage import Command, completes

# What the compiler knows; other words are its own to refuse.
METHODS = ("absmax", "zeropoint", "symmetric", "zeroquant", "smoothquant", "awq", "gptq", "lkd")
TARGETS = ("cpu", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90a")
PHASES = ("import", "quantize", "materialize", "kernels")

# Options of CompileOptions and of the command line that make the KV cache one of codes.
KV_OPTIONS = ("kv_scheme", "kv_group", "kv_residual", "kv_sinks", "kv_keys", "kv_key_scales")
# Those that methods read.
METHOD_OPTIONS = ("observer", "alpha", "search_samples", "damping", "epochs")
METHOD_FLAGS = ("clip", "act_order", "static_groups")


class Scheme(str, Enum):
    none = "none"
    W8A8 = "W8A8"
    W8A16 = "W8A16"
    W4A16 = "W4A16"
    W4A8 = "W4A8"
    W3A16 = "W3A16"
    W2A16 = "W2A16"
    W8A8_ASYM = "W8A8_ASYM"
    W8A16_ASYM = "W8A16_ASYM"
    W4A16_ASYM = "W4A16_ASYM"
    W4A8_ASYM = "W4A8_ASYM"
    W3A16_ASYM = "W3A16_ASYM"
    W2A16_ASYM = "W2A16_ASYM"


class Activations(str, Enum):
    dynamic = "dynamic"
    static = "static"


class WeightObserver(str, Enum):
    absmax = "absmax"
    minmax = "minmax"
    percentile = "percentile"
    mse = "mse"
    entropy = "entropy"


class Observer(str, Enum):
    minmax = "minmax"
    absmax = "absmax"
    percentile = "percentile"
    mse = "mse"
    entropy = "entropy"
    ema = "ema"


class Head(str, Enum):
    float = "float"
    int8 = "int8"


class CacheType(str, Enum):
    auto = "auto"
    f32 = "f32"
    f16 = "f16"


class KVScheme(str, Enum):
    none = "none"
    int8 = "int8"
    int4 = "int4"
    int2 = "int2"


class KVKeys(str, Enum):
    post_rope = "post-rope"
    pre_rope = "pre-rope"


class KVKeyScales(str, Enum):
    channel = "channel"
    token = "token"


@dataclass
class CompileOptions:
    """The options of easyquant-compile; None leaves its default."""

    scheme: str | None = None
    method: str | None = None
    recipe: Path | None = None
    target: str = "cpu"
    group_size: int | None = None
    activations: str | None = None
    weight_observer: str | None = None
    percentile: float | None = None
    mixed: bool = False
    max_fallback: int | None = None
    calibration: CalibrationText | None = None
    work: Path | None = None
    observer: str | None = None
    alpha: str | None = None
    search_samples: int | None = None
    clip: bool | None = None
    act_order: bool | None = None
    static_groups: bool | None = None
    damping: float | None = None
    epochs: int | None = None
    ignore: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    head: str | None = None
    kv_cache: str | None = None
    kv_scheme: str | None = None
    kv_group: int | None = None
    kv_residual: int | None = None
    kv_sinks: int | None = None
    kv_keys: str | None = None
    kv_key_scales: str | None = None
    threads: int | None = None
    max_shard_bytes: int | None = None
    emit_ir_after: str | None = None
    dump_pipeline: bool = False
    force: bool = False

    def arguments(self) -> list[str]:
        result = [f"--target={self.target}"]
        for name in (
            "scheme",
            "method",
            "recipe",
            "group_size",
            "activations",
            "weight_observer",
            "percentile",
            "max_fallback",
            "work",
            *METHOD_OPTIONS,
            "head",
            "kv_cache",
            *KV_OPTIONS,
            "threads",
            "max_shard_bytes",
            "emit_ir_after",
        ):
            if (value := getattr(self, name)) is not None:
                result.append(f"--{name.replace('_', '-')}={value}")
        if self.mixed:
            result.append("--mixed")
        for name in METHOD_FLAGS:
            if (value := getattr(self, name)) is not None:
                result.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
        result += [f"--ignore={pattern}" for pattern in self.ignore]
        result += [f"--targets={pattern}" for pattern in self.targets]
        if self.dump_pipeline:
            result.append("--dump-pipeline")
        if self.force:
            result.append("--force")
        return result


def compile_model(model: Path, output: Path | None, options: CompileOptions) -> CompileCost:
    """Compiles with a progress bar on stderr."""
    begin = time.monotonic()
    model = find_model(model)
    with contextlib.ExitStack() as stack:
        if options.recipe is not None:
            options = replace(options, recipe=stack.enter_context(recipe_as_json(options.recipe, keep=options.dump_pipeline)))
        arguments = [str(model), *options.arguments()]
        if output is not None:
            arguments += ["-o", str(output)]
        files = stack.enter_context(tokenizer_files(model, keep=options.dump_pipeline))
        arguments += [f"--copy-file={file}" for file in files]
        if output is not None:
            warn_without_tokenizer(model, files)
        if options.calibration is not None:
            arguments.append(f"--tokens={stack.enter_context(tokens_of(model, options.calibration, keep=options.dump_pipeline))}")
        if options.dump_pipeline or options.emit_ir_after:
            return run_compiler(arguments)
        cost = run_compiler(arguments, stack.enter_context(compiler_progress()))
    return replace(cost, wall_seconds=time.monotonic() - begin)


class CompileCommand(Command):
    groups = {
        "What to make": ("--output", "--target", "--threads", "--max-shard-bytes", "--force"),
        "Quantization": (
            "--scheme", "--method", "--recipe", "--group-size", "--activations", "--head", "--ignore", "--targets", "--weight-observer", "--percentile", "--observer", "--mixed",
            "--max-fallback",
        ),
        "Calibration": ("--calib", "--nsamples", "--seqlen", "--seed", "--calib-bos", "--work"),
        "Options of methods": ("--alpha", "--search-samples", "--clip", "--act-order", "--static-groups", "--damping", "--lkd", "--epochs"),
        "KV cache": ("--kv-cache", "--kv-scheme", "--kv-group", "--kv-residual", "--kv-sinks", "--kv-keys", "--kv-key-scales"),
        "Look, and stop": ("--dry-run", "--dump-pipeline", "--emit-ir-after"),
    }  # fmt: skip


@console.command
def compile_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A Hugging Face folder (safetensors, config.json) or a GGUF file.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="OUT", help="The artifact folder to write.")] = None,
    scheme: Annotated[
        Scheme | None, typer.Option(help="Bits of weights and activations; _ASYM: weights with zero points; none is float. (default: W8A8)")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            autocompletion=completes(METHODS, "+"),
            help="absmax, zeropoint, symmetric, zeroquant, smoothquant, awq, gptq, and such joined by +: "
            "smoothquant+gptq, zeroquant+lkd. (default: absmax; zeropoint for _ASYM)",
        ),
    ] = None,
    recipe: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML or JSON of scheme and method per site, instead of the options.")] = None,
    activations: Annotated[
        Activations | None, typer.Option(help="Scales of 8-bit activations: per token at run time, or per tensor from calibration. (default: dynamic)")
    ] = None,
    weight_observer: Annotated[WeightObserver | None, typer.Option(help="Range of the weights that share a scale. (default: absmax, all of them)")] = None,
    percentile: Annotated[float | None, typer.Option(metavar="P", help="Of --weight-observer percentile. (default: 99.99)")] = None,
    mixed: Annotated[bool, typer.Option("--mixed", help="With zeroquant: weights of 4 bits in MLPs, of 8 in attention.")] = False,
    calib: Annotated[Path | None, typer.Option("--calib", metavar="FILE", help="The text that methods and static activations are calibrated on, UTF-8.")] = None,
    nsamples: Annotated[int, typer.Option(min=1, metavar="N", help="Windows of the calibration text.")] = 64,
    seqlen: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens of a window.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Chooses the windows.")] = 0,
    calib_bos: Annotated[bool, typer.Option("--calib-bos", help="Begin every window with the beginning-of-text token, which no statistic counts.")] = False,
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of what calibration and methods compute; a run that was ended goes on from it. (default: OUT.work, removed at the end)"),
    ] = None,
    observer: Annotated[Observer | None, typer.Option(help="Range of static activations. (default: minmax)")] = None,
    alpha: Annotated[
        str | None, typer.Option(metavar="A", help="SmoothQuant: 0 leaves activations as they are, 1 makes channels alike; search: the best for each site. (default: 0.5)")
    ] = None,
    search_samples: Annotated[int | None, typer.Option(min=1, metavar="N", help="AWQ: samples that candidates are compared on. (default: 4)")] = None,
    clip: Annotated[bool | None, typer.Option("--clip/--no-clip", help="AWQ: search ranges too. (default: yes)")] = None,
    act_order: Annotated[bool | None, typer.Option("--act-order/--no-act-order", help="GPTQ: columns that matter most first. (default: yes)")] = None,
    static_groups: Annotated[
        bool | None, typer.Option("--static-groups/--no-static-groups", help="GPTQ: scales of groups from the weights as they were; always so with --act-order. (default: no)")
    ] = None,
    damping: Annotated[float | None, typer.Option(min=0, metavar="D", help="GPTQ: share of the Hessian's mean diagonal added to it. (default: 0.01)")] = None,
    lkd: Annotated[bool, typer.Option("--lkd", help="Distill layer by layer at the end: METHOD+lkd.")] = False,
    epochs: Annotated[int | None, typer.Option(min=1, metavar="N", help="LKD: passes over the samples. (default: 4)")] = None,
    max_fallback: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Sites that may stay float where they cannot be quantized as asked. (default: 0)")
    ] = None,
    target: Annotated[str, typer.Option(metavar="TARGETS", autocompletion=completes(TARGETS, ","), help="What to compile for: cpu, sm_80, sm_86, sm_87, sm_89, sm_90a; several joined by commas.")] = "cpu",
    group_size: Annotated[int | None, typer.Option(min=0, metavar="N", help="Weights that share a scale: a multiple of 8, or 0 for a whole row. (default: 128 below 8 bits)")] = None,
    ignore: Annotated[list[str], typer.Option(metavar="P", help="Sites to leave float: a name or re:PATTERN. Repeatable.")] = [],
    targets: Annotated[list[str], typer.Option(metavar="P", help="Quantize only these sites: a name or re:PATTERN. Repeatable.")] = [],
    head: Annotated[Head | None, typer.Option(help="The output head and tied embedding. (default: int8 in quantized schemes, float in none)")] = None,
    kv_cache: Annotated[CacheType | None, typer.Option(help="Type of the KV cache. (default: auto)")] = None,
    kv_scheme: Annotated[KVScheme | None, typer.Option(help="Keys and values of the past as codes. (default: none, a float cache)")] = None,
    kv_group: Annotated[int | None, typer.Option(min=1, metavar="N", help="Tokens of a channel, or dimensions of a token, that share a scale in the cache. (default: 64)")] = None,
    kv_residual: Annotated[int | None, typer.Option(min=1, metavar="N", help="Newest tokens whose keys and values stay float: a multiple of --kv-group. (default: 128)")] = None,
    kv_sinks: Annotated[int | None, typer.Option(min=0, metavar="N", help="First tokens whose keys and values stay float. (default: 4)")] = None,
    kv_keys: Annotated[KVKeys | None, typer.Option(help="Keep keys after or before their rotation. (default: post-rope)")] = None,
    kv_key_scales: Annotated[KVKeyScales | None, typer.Option(help="Scales of keys. (default: channel)")] = None,
    threads: Annotated[int | None, typer.Option(min=1, metavar="N", callback=check_threads, help="Threads to compile with. (default: all CPUs)")] = None,
    max_shard_bytes: Annotated[int | None, typer.Option(min=1, metavar="BYTES", help="Weights in one file, beyond which they are sharded. (default: 5 GB)")] = None,
    emit_ir_after: Annotated[str | None, typer.Option(metavar="PHASE", autocompletion=completes(PHASES), help="Print the IR after import, quantize, materialize or kernels, and stop.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show sites, schemes, predicted bytes, memory and time, and stop.")] = False,
    dump_pipeline: Annotated[bool, typer.Option("--dump-pipeline", help="Print the easyquant-opt command that does the same, and stop.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
) -> None:
    """Quantize and compile a model into an artifact.

    Example: [bold]easyquant compile SmolLM2-135M -o smol-w8a8 --scheme W8A8[/bold]
    """
    if lkd:
        method = f"{method or 'absmax'}+lkd"
    options = CompileOptions(
        scheme=scheme.value if scheme else None,
        method=method,
        calibration=CalibrationText(calib, nsamples, seqlen, seed, calib_bos) if calib else None,
        work=work,
        observer=observer.value if observer else None,
        alpha=alpha,
        search_samples=search_samples,
        clip=clip,
        act_order=act_order,
        static_groups=static_groups,
        damping=damping,
        epochs=epochs,
        recipe=recipe,
        activations=activations.value if activations else None,
        weight_observer=weight_observer.value if weight_observer else None,
        percentile=percentile,
        mixed=mixed,
        max_fallback=max_fallback,
        target=target,
        group_size=group_size,
        ignore=ignore,
        targets=targets,
        head=head.value if head else None,
        kv_cache=kv_cache.value if kv_cache else None,
        kv_scheme=kv_scheme.value if kv_scheme else None,
        kv_group=kv_group,
        kv_residual=kv_residual,
        kv_sinks=kv_sinks,
        kv_keys=kv_keys.value if kv_keys else None,
        kv_key_scales=kv_key_scales.value if kv_key_scales else None,
        threads=threads,
        max_shard_bytes=max_shard_bytes,
        emit_ir_after=emit_ir_after,
        dump_pipeline=dump_pipeline,
        force=force,
    )
    if dry_run:
        return print_dry_run(plans_of(model, options), options)
    prints_only = dump_pipeline or emit_ir_after is not None
    if output is None and not prints_only:
        raise UserError("-o OUT is missing: the folder to write the artifact to")
    cost = compile_model(model, output, options)
    if prints_only:
        return
    artifact = Artifact.open(output)
    console.out.print(
        f"{output}: {artifact.describe()}, {console.human_bytes(artifact.total_bytes)}, "
        f"compiled in {age_seconds():.1f} s with at most {console.human_bytes(max(cost.total_peak_bytes, peak_rss_bytes()))} of memory",
        markup=False,
        soft_wrap=True,
    )
    if method is None and recipe is None and (advice := better_method(options, model, output)):
        console.note(advice)
