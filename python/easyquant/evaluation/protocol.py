# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The evaluation protocol: how a text becomes windows, and the stamp that says so beside every figure."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from easyquant import __version__
from easyquant.runtime.artifact import Artifact
from easyquant.support.errors import UserError
from easyquant.support.files import read_text, sha256

DEFAULT_CONTEXT = {"gpt2": 1024}
LONGEST_DEFAULT_CONTEXT = 2048


def default_context(artifact: Artifact) -> int:
    """1024 for GPT-2, 2048 otherwise, or what a smaller model supports."""
    usual = DEFAULT_CONTEXT.get(artifact.model.get("architecture"), LONGEST_DEFAULT_CONTEXT)
    return min(usual, artifact.max_context)


def check_context(artifact: Artifact, context: int | None) -> int:
    if context is None:
        return default_context(artifact)
    if not 2 <= context <= artifact.max_context:
        raise UserError(f"--context {context}: expected 2 to {artifact.max_context}, the context that {artifact.shown} was made for")
    return context


def windows(tokens: np.ndarray, context: int, limit: int | None = None) -> np.ndarray:
    """Disjoint windows: a matrix of `context` columns. The incomplete tail is dropped."""
    count = len(tokens) // context
    if limit is not None:
        count = min(count, limit)
    return tokens[: count * context].reshape(count, context)


@dataclass(frozen=True)
class Corpus:
    """A text that was tokenized once, as a whole."""

    path: Path
    split: str
    sha256: str
    tokens: np.ndarray  # int32
    bos: bool

    @classmethod
    def read(cls, path: Path, tokenizer, bos_token: int | None, split: str = "whole file") -> "Corpus":
        """`bos_token`, where given, is put once, before the first token of the text."""
        tokens = tokenizer.encode(read_text(path), add_special_tokens=False)
        if bos_token is not None:
            tokens = [bos_token, *tokens]
        return cls(Path(path), split, sha256(path), np.asarray(tokens, dtype=np.int32), bos_token is not None)

    def windows(self, context: int, limit: int | None) -> np.ndarray:
        result = windows(self.tokens, context, limit)
        if len(result) == 0:
            raise UserError(
                f"{self.path}: {len(self.tokens)} tokens do not fill one window of {context}; give a longer text or a smaller --context"
            )
        return result


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return "unknown"


def version() -> str:
    """'0.1.0 (commit 1a2b3c4d5e6f)'; the commit where this package runs from a repository."""
    folder = Path(__file__).resolve().parent
    try:
        commit = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout.strip()
        tracked = subprocess.run(
            ["git", "-C", str(folder), "ls-files", "--error-unmatch", "__init__.py"], capture_output=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return __version__
    # An installed copy inside somebody else's repository must not borrow that repository's commit.
    return f"{__version__} (commit {commit})" if tracked.returncode == 0 else __version__


def machine_stamp(artifact: Artifact, model, threads: int) -> dict:
    """`model`: what of the artifact was loaded."""
    return {
        "easyquant": version(),
        "artifact": artifact.describe(),
        "target": artifact.manifest.get("target", "cpu"),
        "device": model.device_name,
        "isa": model.isa,
        "kv_cache": artifact.describe_cache(),
        "cpu": cpu_name(),
        "threads": threads or len(os.sched_getaffinity(0)),
    }


def source_stamp(artifact: Artifact) -> dict:
    source = artifact.manifest["source"]
    return {
        "model": source.get("name"),
        "model_kind": source.get("kind"),
        "model_xxh3_128": source.get("xxh3_128"),
        "tokenizer": "tokenizer.json of the artifact",
        "tokenizer_sha256": sha256(artifact.path / "tokenizer.json"),
    }


def evaluation_stamp(
    artifact: Artifact, model, threads: int, corpus: Corpus, context: int, window_count: int, reference: str | None
) -> dict:
    """Everything that has to stand beside a number."""
    return machine_stamp(artifact, model, threads) | source_stamp(artifact) | {
        "corpus": corpus.path.name,
        "corpus_sha256": corpus.sha256,
        "split": corpus.split,
        "bos": "once, before the text" if corpus.bos else "none",
        "tokens_in_text": len(corpus.tokens),
        "context": context,
        "stride": context,
        "windows": window_count,
        "scored_per_window": context - 1,
        "tail": "dropped",
        "reference": reference,
        "perplexity_stderr": "exp(loss) * s / sqrt(n) over the n window losses (delta method, n - 1 variance)",
    }  # fmt: skip
