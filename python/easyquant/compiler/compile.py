# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiling one model, alone or among ranks, with its progress on stderr."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from easyquant.compiler.calibration import tokens_of
from easyquant.compiler.driver import CompileCost, compiler_progress, find_model, gguf_vocabulary, run_compiler, tokenizer_files, warn_without_tokenizer
from easyquant.compiler.options import CompileOptions
from easyquant.compiler.plans import gathers_loss, loss_memory, plans_of
from easyquant.compiler.recipe import recipe_as_json
from easyquant.runtime.ranks import ALONE, Ranks, model_of_rank
from easyquant.support.errors import UserError


def help_compile(model: Path, output: Path, options: CompileOptions, ranks: Ranks) -> None:
    """The part of a rank that writes nothing: it has the same options, and gets from rank 0 what it lacks."""
    with contextlib.ExitStack() as stack:
        if options.recipe is not None and options.recipe.is_file():
            options = replace(options, recipe=stack.enter_context(recipe_as_json(options.recipe)))
        run_compiler([str(model_of_rank(model)), *options.arguments(), "-o", str(output)], ranks=ranks)


def compile_model(
    model: Path, output: Path | None, options: CompileOptions, ranks: Ranks = ALONE, on_progress: Callable[[str, int, int], None] | None = None
) -> CompileCost:
    """Compiles; `on_progress(phase, done, total)` follows it, or a progress bar on stderr."""
    begin = time.monotonic()
    model = find_model(model)
    if model.suffix == ".json":
        raise UserError(f"{model}: a configuration alone has no weights to compile; give the folder that holds them, or ask `easyquant plan {model}`")
    with contextlib.ExitStack() as stack:
        if options.recipe is not None:
            options = replace(options, recipe=stack.enter_context(recipe_as_json(options.recipe, keep=options.dump_pipeline)))
        arguments = [str(model), *options.arguments()]
        if output is not None:
            arguments += ["-o", str(output)]
        if options.export == "gguf":
            arguments.append(f"--vocabulary={stack.enter_context(gguf_vocabulary(model, keep=options.dump_pipeline))}")
        else:
            files = stack.enter_context(tokenizer_files(model, keep=options.dump_pipeline))
            arguments += [f"--copy-file={file}" for file in files]
        if output is not None and not options.export:
            warn_without_tokenizer(model, files)
        if options.calibration is not None:
            # What is wrong with the options is said before the text is read.
            plans = plans_of(model, replace(options, dump_pipeline=False, emit_ir_after=None))
            if gathers_loss(plans, options) and not (options.dump_pipeline or options.emit_ir_after):
                loss_memory(plans, options, ranks.size).check()
            arguments.append(f"--tokens={stack.enter_context(tokens_of(model, options.calibration, options.dump_pipeline, options.expert_tokens))}")
        if options.dump_pipeline or options.emit_ir_after:
            return run_compiler(arguments)
        cost = run_compiler(arguments, on_progress or stack.enter_context(compiler_progress()), ranks)
    return replace(cost, wall_seconds=time.monotonic() - begin)
