# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant compile`: hands a model to the C++ compiler and shows how far it is."""

import contextlib
import json
import os
import resource
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Callable

import typer

from easyquant import console
from easyquant.artifact import Artifact, is_artifact
from easyquant.errors import UserError
from easyquant.memory import peak_rss_bytes
from easyquant.recipe import recipe_as_json
from easyquant.tools import find_tool

# What a Hugging Face folder may hold besides weights and config.json that running it needs.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)


# Options of CompileOptions and of the command line that make the KV cache one of codes.
KV_OPTIONS = ("kv_scheme", "kv_group", "kv_residual", "kv_sinks", "kv_keys", "kv_key_scales")


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


class CompileTarget(str, Enum):
    cpu = "cpu"


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
            "head",
            "kv_cache",
            *KV_OPTIONS,
            "threads",
            "emit_ir_after",
        ):
            if (value := getattr(self, name)) is not None:
                result.append(f"--{name.replace('_', '-')}={value}")
        if self.mixed:
            result.append("--mixed")
        result += [f"--ignore={pattern}" for pattern in self.ignore]
        result += [f"--targets={pattern}" for pattern in self.targets]
        if self.dump_pipeline:
            result.append("--dump-pipeline")
        if self.force:
            result.append("--force")
        return result


@dataclass
class CompileCost:
    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int


def check_model(model: Path) -> None:
    if is_artifact(model):
        raise UserError(f"{model}: is already a compiled artifact; give the model it came from, a Hugging Face folder or a GGUF file")
    if model.is_dir() and not (model / "config.json").is_file():
        raise UserError(f"{model}: has no config.json; expected a Hugging Face folder (config.json, *.safetensors, tokenizer.json) or a GGUF file")
    if not model.exists():
        raise UserError(f"{model}: there is no such file or folder; expected a Hugging Face folder or a GGUF file")


@contextlib.contextmanager
def tokenizer_files(model: Path, keep: bool = False):
    """The tokenizer files that belong to `model`: its own, or what a GGUF's tokenizer turns into.

    Those of a GGUF are temporary, unless a printed command is going to name them (`keep`).
    """
    if model.is_dir():
        yield [model / name for name in TOKENIZER_FILES if (model / name).is_file()]
        return
    from easyquant.tokenizer import write_tokenizer_files

    if keep:
        folder = Path(tempfile.mkdtemp(prefix="easyquant-tokenizer-"))
        console.note(f"the tokenizer files of {model.name} are in {folder}")
        write_tokenizer_files(model, folder)
        yield sorted(folder.iterdir())
        return
    with tempfile.TemporaryDirectory(prefix="easyquant-tokenizer-") as folder:
        write_tokenizer_files(model, Path(folder))
        yield sorted(Path(folder).iterdir())


def wait_and_watch(process: subprocess.Popen) -> tuple[resource.struct_rusage, int]:
    """Waits for `process`; gives what it used and its peak memory in bytes.

    The peak is read from the running process: the kernel's ru_maxrss also counts what the child of a fork
    shares with its parent before it becomes another program.
    """
    peak = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid != 0:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage, peak
        with contextlib.suppress(OSError):
            peak = max(peak, peak_rss_bytes(process.pid))
        time.sleep(0.02)


def run_compiler(arguments: list[str], on_progress: Callable[[str, int, int], None] | None = None) -> CompileCost:
    """Runs easyquant-compile; `on_progress(phase, done, total)` follows it.

    Raises UserError with the tool's own error text. Its warnings go to stderr as they come.
    """
    tool = find_tool("easyquant-compile")
    begin = time.monotonic()
    process = subprocess.Popen([tool, *arguments, "--progress=json"], stderr=subprocess.PIPE, text=True, errors="replace")
    messages: list[str] = []

    def follow() -> None:
        for line in process.stderr:
            if line.startswith("{"):
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    event = json.loads(line)
                    report = (str(event["phase"]), int(event["done"]), int(event["total"]))
                    if on_progress:
                        on_progress(*report)
                    continue
            messages.append(line.rstrip("\n"))

    reader = threading.Thread(target=follow)
    reader.start()
    try:
        usage, peak = wait_and_watch(process)
    except BaseException:
        # Interrupted: the compiler leaves nothing behind when it is asked to end.
        process.terminate()
        process.wait()
        raise
    finally:
        reader.join()
        process.stderr.close()
    text = "\n".join(line for line in messages if line.strip())
    if process.returncode == -signal.SIGPIPE:
        raise BrokenPipeError  # nobody reads the IR to its end: `easyquant compile ... | head`
    if process.returncode != 0:
        if process.returncode < 0:
            ended = f"{tool.name} was ended by signal {-process.returncode}: {shlex.join([str(tool), *arguments])}"
            text = "\n".join(filter(None, [text, ended]))
        raise UserError((text or f"{tool.name} failed with status {process.returncode} and no message").removeprefix("error: "))
    if text:
        console.err.print(text, markup=False, soft_wrap=True)
    return CompileCost(
        wall_seconds=time.monotonic() - begin,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_rss_bytes=peak,
    )


def compile_model(model: Path, output: Path | None, options: CompileOptions) -> CompileCost:
    """Compiles with a progress bar on stderr."""
    check_model(model)
    with contextlib.ExitStack() as stack:
        if options.recipe is not None:
            options = replace(options, recipe=stack.enter_context(recipe_as_json(options.recipe)))
        arguments = [str(model), *options.arguments()]
        if output is not None:
            arguments += ["-o", str(output)]
        arguments += [f"--copy-file={file}" for file in stack.enter_context(tokenizer_files(model, keep=options.dump_pipeline))]
        if options.dump_pipeline or options.emit_ir_after:
            return run_compiler(arguments)
        bar = stack.enter_context(console.progress())
        task = bar.add_task("starting", total=None)

        def follow(phase: str, done: int, total: int) -> None:
            bar.update(task, description=phase, completed=done, total=total or None)

        return run_compiler(arguments, follow)


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
            help="absmax, zeropoint, symmetric, zeroquant, smoothquant, awq, gptq, and such joined by +: "
            "smoothquant+gptq, zeroquant+lkd. (default: absmax)",
        ),
    ] = None,
    recipe: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML or JSON of scheme and method per site, instead of the options.")] = None,
    activations: Annotated[
        Activations | None, typer.Option(help="Scales of 8-bit activations: per token at run time, or per tensor from calibration. (default: dynamic)")
    ] = None,
    weight_observer: Annotated[WeightObserver | None, typer.Option(help="Range of the weights that share a scale. (default: absmax, all of them)")] = None,
    percentile: Annotated[float | None, typer.Option(metavar="P", help="Of --weight-observer percentile. (default: 99.99)")] = None,
    mixed: Annotated[bool, typer.Option("--mixed", help="With zeroquant: weights of 4 bits in MLPs, of 8 in attention.")] = False,
    max_fallback: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Sites that may stay float where they cannot be quantized as asked. (default: 0)")
    ] = None,
    target: Annotated[CompileTarget, typer.Option(help="What to compile for.")] = CompileTarget.cpu,
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
    threads: Annotated[int | None, typer.Option(min=1, metavar="N", help="Threads to compile with. (default: all CPUs)")] = None,
    emit_ir_after: Annotated[str | None, typer.Option(metavar="PHASE", help="Print the IR after import, quantize, materialize or kernels, and stop.")] = None,
    dump_pipeline: Annotated[bool, typer.Option("--dump-pipeline", help="Print the easyquant-opt command that does the same, and stop.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
) -> None:
    """Quantize and compile a model into an artifact.

    Example: [bold]easyquant compile SmolLM2-135M -o smol-w8a8 --scheme W8A8[/bold]
    """
    options = CompileOptions(
        scheme=scheme.value if scheme else None,
        method=method,
        recipe=recipe,
        activations=activations.value if activations else None,
        weight_observer=weight_observer.value if weight_observer else None,
        percentile=percentile,
        mixed=mixed,
        max_fallback=max_fallback,
        target=target.value,
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
        emit_ir_after=emit_ir_after,
        dump_pipeline=dump_pipeline,
        force=force,
    )
    prints_only = dump_pipeline or emit_ir_after is not None
    if output is None and not prints_only:
        raise UserError("-o OUT is missing: the folder to write the artifact to")
    cost = compile_model(model, output, options)
    if prints_only:
        return
    artifact = Artifact.open(output)
    console.out.print(
        f"{output}: {artifact.describe()}, {console.human_bytes(artifact.total_bytes)}, "
        f"compiled in {cost.wall_seconds:.1f} s with at most {console.human_bytes(cost.peak_rss_bytes)} of memory",
        markup=False,
        soft_wrap=True,
    )
