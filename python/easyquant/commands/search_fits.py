# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recipes of a search, compiled: what they lose once their weights are fitted, and how fast they are."""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from easyquant.commands.bench import measure_apart
from easyquant.compiler.calibration import CalibrationText
from easyquant.compiler.compile import compile_model
from easyquant.compiler.options import CompileOptions
from easyquant.evaluation.comparison import store, stored
from easyquant.evaluation.evaluate import Evaluated, reference_artifact
from easyquant.evaluation.protocol import version
from easyquant.evaluation.search_peers import losses_of, windows_of
from easyquant.runtime.artifact import Artifact
from easyquant.terminal import console

PREFILL, DECODE, ROUNDS = 512, 128, 5  # tokens, where the context has room for them


@dataclass(frozen=True)
class Fit:
    """How the recipes of a search become artifacts, and on what these are judged."""

    model: Path
    text: CalibrationText  # that weights are fitted on
    searched: CalibrationText  # the text of the search,
    samples: int  # and how many of its windows losses are measured on
    objective: str
    threads: int
    expert_tokens: int | None

    def stamp(self, recipe: Path) -> str:
        facts = [recipe.read_text(), self.text.arguments(), self.searched.arguments(), self.samples, self.objective, self.threads, self.expert_tokens, version()]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def artifact(self, recipe: Path, output: Path) -> Artifact:
        console.note(f"compiling {recipe} into {output}")
        # In place of what an earlier recipe of this name became.
        compile_model(self.model, output, CompileOptions(recipe=recipe, calibration=self.text, threads=self.threads or None, force=True, expert_tokens=self.expert_tokens))
        return Artifact.open(output)

    def judge(self, artifact: Artifact, reference: Evaluated, windows: np.ndarray) -> dict:
        subject = Evaluated.open(artifact, self.searched.length, self.threads)
        divergence, loss, exact = losses_of(subject, reference, windows, int(self.searched.bos))
        decode = min(DECODE, artifact.max_context // 4)
        prefill = min(PREFILL, artifact.max_context - decode)
        speed = measure_apart(artifact, prefill, decode, self.threads, ROUNDS)
        figures = {"prefill": prefill, "decode": decode, "loss": divergence if self.objective == "kl" else loss - exact, "perplexity": math.exp(loss)}
        figures |= {key: speed[key] for key in ("prefill_tokens_per_s", "decode_tokens_per_s")}
        return figures | {"weights_bytes": sum(file.stat().st_size for file in artifact.weight_files)}


def measure_fits(fit: Fit, recipes: list[Path], work: Path) -> list[dict]:
    """What the artifact of each recipe, a folder beside it, loses, and how fast it is. What an earlier run has found is kept in `work`."""
    windows = windows_of(fit.model, fit.searched, fit.samples)
    found = []
    with reference_artifact(fit.model) as artifact:
        reference = Evaluated.open(artifact, fit.searched.length, fit.threads)
        for recipe in recipes:
            output, file = recipe.with_suffix(""), work / f"{recipe.stem}.json"
            stamp = fit.stamp(recipe)
            known = stored(file, stamp) if output.is_dir() else None
            if known is None:
                known = fit.judge(fit.artifact(recipe, output), reference, windows)
                store(file, stamp, known)
            found.append(known | {"artifact": output.name})
    return found
