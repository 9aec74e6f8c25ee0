# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Artifacts: the folders that `easyquant compile` writes. docs/Architecture.md describes them."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from easyquant.runtime.device import AUTO, Placement
from easyquant.runtime.extension import runtime
from easyquant.support.errors import UserError

# Seconds in which every rank prints its error, before the launcher ends all others because one has ended.
LAST_WORDS = 1
# What it has, what its last call has begun with, and what a step writes; on GPUs, which run all pieces of a step at a time, one more.
SEQUENCE_STATES, GPU_SEQUENCE_STATES = 3, 4
# Pages that a sequence has where layers read a window of the newest tokens, beside those that are full of it: its ends lie amid pages, and one is
# kept so that it can be cut back a little.
WINDOW_PAGES = 2


def cache_bytes(cache: dict, tokens: int, sequences: int = 1) -> int:
    """Bytes of the keys and values of sequences of so many tokens together. `cache`: as in the manifest."""
    pages = -(-tokens // int(cache["page_tokens"]))
    return sequences * (int(cache["window_bytes"]) + sliding_bytes(cache, tokens)) + pages * int(cache["page_bytes"])


def sliding_bytes(cache: dict, tokens: int) -> int:
    """What the layers that keep a window alone have of these, for one sequence of so many tokens."""
    if (sliding := cache.get("sliding")) is None:
        return 0
    page = int(cache["page_tokens"])
    return min(-(-tokens // page), -(-int(sliding["window"]) // page) + WINDOW_PAGES) * int(sliding["page_bytes"])


def is_artifact(path: Path) -> bool:
    return (Path(path) / "manifest.json").is_file()


@dataclass(frozen=True)
class Artifact:
    """A folder and its manifest, read without loading any weights."""

    path: Path
    manifest: dict
    origin: Path | None = None  # the model that it was compiled from by this command, which named only that

    @classmethod
    def open(cls, path: Path, origin: Path | None = None) -> "Artifact":
        """Reads the manifest as every part of EasyQuant does: its checksum is compared first, then its fields are checked."""
        extension = runtime()
        try:
            text = extension.read_manifest(str(path))
        except extension.Error as error:
            raise UserError(str(error)) from None
        return cls(Path(path), json.loads(text), origin)

    @property
    def shown(self) -> Path:
        """What the user calls it."""
        return self.origin or self.path

    @property
    def model(self) -> dict:
        return self.manifest["model"]

    @property
    def scheme(self) -> str:
        return self.manifest["quantization"].get("scheme", "none")

    @property
    def cache_scheme(self) -> dict | None:
        """The scheme of a KV cache of codes: bits, group_size, residual, sinks, keys, key_scales. None where the cache is float."""
        return self.manifest["program"].get("cache_scheme")

    @property
    def lasting(self) -> str | None:
        """What has more of a text in it than a sequence can be cut back by; None where that leaves no trace."""
        if self.cache_scheme:
            return "a cache of codes"
        return "online scales" if "online" in self.manifest else None

    @property
    def state_bytes(self) -> int:
        """The recurrent state of a sequence; 0: no layer has one."""
        return 4 * int(self.manifest["program"].get("recurrent_values", 0))

    @property
    def is_cut_anywhere(self) -> bool:
        """Whether a sequence that is cut back goes on from any token, and reads none again."""
        return self.state_bytes == 0 and "sliding" not in self.manifest["program"]["cache"]

    @property
    def has_draft_head(self) -> bool:
        """Whether the program, for whatever it is, has a head that drafts tokens."""
        return bool(self.manifest["program"].get("draft_entries") or (self.gpu or {}).get("drafts"))

    def states_bytes(self, sequences: int, kept_states: int, device: str) -> int:
        """The recurrent states of a batch of so many sequences: each has room for those of its steps, and for those that it keeps."""
        own = SEQUENCE_STATES if device == "cpu" else GPU_SEQUENCE_STATES
        return sequences * (own + kept_states) * self.state_bytes

    def cache_pages(self, device: str) -> dict:
        """How the KV cache is cut where the model runs: page_tokens, page_bytes, window_bytes, and perhaps sliding, with window and page_bytes."""
        return (self.manifest["program"] if device == "cpu" else self.manifest["gpu"])["cache"]

    def cache_bytes(self, tokens: int) -> int:
        """Bytes of the keys and values of a session that holds so many tokens."""
        return cache_bytes(self.manifest["program"]["cache"], tokens)

    def describe_cache(self) -> str:
        """'f16', 'int4 in groups of 64, newest 128 and first 4 f16'"""
        kind, scheme = self.manifest["program"].get("cache_type", "unknown"), self.cache_scheme
        if not scheme:
            return kind
        text = f"int{scheme['bits']} in groups of {scheme['group_size']}, newest {scheme['residual']} and first {scheme['sinks']} {kind}"
        keys = [] if scheme["keys"] == "post-rope" else [scheme["keys"]]
        keys += ["per token"] if scheme["key_scales"] == "token" else []
        return f"{text}, keys {' '.join(keys)}" if keys else text

    @property
    def max_context(self) -> int:
        return int(self.model["max_context"])

    @property
    def weight_files(self) -> list[Path]:
        """weights.safetensors, or its shards in their order; without those for GPUs."""
        names = [name for name in sorted(self.manifest["files"]) if name.startswith("weights") and name.endswith(".safetensors")]
        return [self.path / name for name in names if not name.startswith("weights.gpu")]

    @property
    def ranks(self) -> int:
        """How many ranks share it (compile --tensor-parallel)."""
        return int(self.manifest["program"].get("tensor_parallel", {}).get("degree", 1))

    @property
    def gpu(self) -> dict | None:
        """What the manifest says of the program for GPUs; None where there is none."""
        return self.manifest.get("gpu")

    def file_of_tensor(self, name: str) -> Path:
        """The file that holds a tensor of the weights."""
        index = self.path / "weights.safetensors.index.json"
        if index.name not in self.manifest["files"]:
            return self.path / "weights.safetensors"
        try:
            shard = json.loads(index.read_bytes())["weight_map"][name]
        except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
            raise UserError(f"{index}: does not say where tensor {name} is ({error!r}); copy or compile the artifact again") from None
        if shard not in self.manifest["files"]:
            raise UserError(f"{index}: puts tensor {name} into {shard!r}, which the manifest does not list; copy or compile the artifact again")
        return self.path / shard

    @property
    def total_bytes(self) -> int:
        """Bytes of all files in the folder."""
        return sum(file.stat().st_size for file in self.path.iterdir() if file.is_file())

    def describe(self) -> str:
        """'SmolLM2-135M, W4A8 in groups of 32 (absmax)'"""
        quantization = self.manifest["quantization"]
        text = f"{self.manifest['source'].get('name', self.path.name)}, "
        if self.scheme == "none":
            return text + "float"
        if self.scheme == "keep":
            return text + "its own codes"
        text += self.scheme
        if group := quantization.get("group_size"):
            text += f" in groups of {group}"
        return f"{text} ({quantization.get('method', 'absmax')})"


def load_model(artifact: Artifact, isa: str | None = None, place: Placement = AUTO):
    """Maps the weights, or brings them to a GPU, and loads the program: a `_runtime.Model`."""
    extension = runtime()
    try:
        return extension.Model(str(artifact.path), isa=isa, device=place.device, simt_chip=place.simt_chip)
    except extension.Error as error:
        raise UserError(str(error)) from None


def load_model_on_ranks(artifact: Artifact, threads: int = 0, place: Placement = AUTO):
    """On rank 0 of those that share the artifact a model as that of `load_model`; None on the others, once they have followed it to its end."""
    if artifact.ranks == 1:
        return load_model(artifact, place=place)
    extension = runtime()
    try:
        model = extension.Model(str(artifact.path), device=place.device, simt_chip=place.simt_chip, comm="auto")
        if model.rank == 0:
            return model
        return model.follow(threads)
    except extension.Error as error:
        time.sleep(LAST_WORDS)
        raise UserError(str(error)) from None


def open_session(model, context: int = 0, threads: int = 0, measure: bool = False):
    """A `_runtime.Session` of `context` tokens (0: the model's own limit)."""
    extension = runtime()
    try:
        return extension.Session(model, context=context, threads=threads, measure=measure)
    except extension.Error as error:
        raise UserError(str(error)) from None


@dataclass(frozen=True)
class BatchSize:
    """What a batch has room for."""

    context: int  # tokens of a sequence
    sequences: int  # at a time
    tokens: int  # of all of them, each a whole number of pages

    @classmethod
    def of(cls, artifact: Artifact, device: str, lengths: Sequence[int], sequences: int) -> "BatchSize":
        """For sequences of these lengths, at most so many of them at a time, whichever they are."""
        page_tokens = int(artifact.cache_pages(device)["page_tokens"])
        sequences = min(sequences, len(lengths))
        longest = sorted(lengths)[-sequences:]
        return cls(max(lengths), sequences, sum(-(-length // page_tokens) * page_tokens for length in longest))

    def union(self, other: "BatchSize") -> "BatchSize":
        return BatchSize(max(self.context, other.context), max(self.sequences, other.sequences), max(self.tokens, other.tokens))

    def holds(self, other: "BatchSize") -> bool:
        return self.context >= other.context and self.sequences >= other.sequences and self.tokens >= other.tokens


def open_batch(model, size: BatchSize, threads: int = 0, measure: bool = False, kept_states: int = 0, drafts: bool = False):
    """A `_runtime.Batch`, empty."""
    extension = runtime()
    try:
        sizes = {"context": size.context, "sequences": size.sequences, "tokens": size.tokens}
        return extension.Batch(model, **sizes, threads=threads, measure=measure, kept_states=kept_states, drafts=drafts)
    except extension.Error as error:
        raise UserError(str(error)) from None
