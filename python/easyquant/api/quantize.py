# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant.quantize`: `easyquant compile` as a function."""

import contextlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from easyquant.compiler.compile import compile_model
from easyquant.compiler.driver import CompileCost
from easyquant.compiler.keywords import COMPILED, CompileKeywords, ModelKeywords, compile_options
from easyquant.runtime.artifact import Artifact
from easyquant.support.errors import expect
from easyquant.terminal import console

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Quantized(os.PathLike):
    """What was written. It stands for its folder where a path is expected, as in `easyquant.Model(quantized)`."""

    path: Path
    description: str
    """'SmolLM2-135M, W4A8 in groups of 32 (absmax)'; or the format of a checkpoint"""
    bytes: int
    """The size of all files."""
    cost: CompileCost

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        memory = console.human_bytes(self.cost.total_peak_bytes)
        return f"{self.path}: {self.description}, {console.human_bytes(self.bytes)}, in {self.cost.wall_seconds:.1f} s with at most {memory} of memory"


def quantize(model: str | Path, output: str | Path, *, progress: Progress | bool | None = None, **options: Unpack[CompileKeywords]) -> Quantized:
    """Quantizes and compiles a model into an artifact, the folder `output`.

        import easyquant

        quantized = easyquant.quantize("SmolLM2-135M", "smol-w4a8", scheme="W4A8", method="gptq", calib="novels.txt", progress=True)
        with easyquant.Model(quantized) as model:
            print(model.generate("The capital of France is", max_tokens=16))

    model: a Hugging Face folder (safetensors, config.json), a GGUF file, or a name in the Hub's cache.
    output: the folder to write; with force=True it may be an artifact already.
    progress: True shows a bar on standard error; a function is called with the name of a phase, what is done of it and its total
        (0: unknown), in another thread. What it raises ends the compilation and comes out here.
    options: those of `easyquant compile`, with _ for -; `easyquant compile --help` says what they mean, and None is the default.
        With export="gguf", or another format, a checkpoint is written instead.

    Mistakes raise `easyquant.UserError`. Until the artifact is whole there is no folder `output`.
    """
    expect("progress", progress, progress in (None, True, False) or callable(progress), "True, None or a function")
    chosen, output = compile_options(options), Path(output)
    with contextlib.nullcontext() if progress is True else console.without_progress():
        cost = compile_model(Path(model), output, chosen, on_progress=progress if callable(progress) else None)
    size = sum(file.stat().st_size for file in output.iterdir())
    return Quantized(output, f"checkpoint in {chosen.export}" if chosen.export else Artifact.open(output).describe(), size, cost)


def _with_the_table(function):
    """For `help` and editors that ask a running Python: the keywords with their choices."""
    signature = inspect.signature(function)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind != inspect.Parameter.VAR_KEYWORD]
    text = [name for name in ModelKeywords.__annotations__ if name not in COMPILED]
    kinds = [(name, ModelKeywords.__annotations__[name] | None) for name in text] + [(name, option.annotation) for name, option in COMPILED.items()]
    keywords = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in kinds]
    function.__signature__ = signature.replace(parameters=[*own, *keywords])
    return function


quantize = _with_the_table(quantize)
