# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model that is served: its engine, and what all requests for it have in common."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from easyquant.runtime.artifact import Artifact, BatchSize, load_model_on_ranks, sliding_bytes
from easyquant.runtime.device import AUTO, Placement
from easyquant.runtime.drafts import Speculation
from easyquant.runtime.engine import KEPT_STATES, STEP_MS, Engine, EngineOptions
from easyquant.runtime.requests import PromptReader
from easyquant.server.bridge import Bridge
from easyquant.server.defaults import read_defaults
from easyquant.server.errors import ApiError
from easyquant.server.limits import Limits
from easyquant.server.metrics import Metrics, ModelMetrics

KEPT_BEGINNINGS = 32  # each has a row of logits, as a sequence that runs


@dataclass(frozen=True)
class ServeOptions:
    context: int = 0  # tokens of a prompt and its answer; 0: as many as the model can
    sequences: int = 16  # that run at a time
    cache_tokens: int = 0  # of all sequences and of the beginnings that are kept; 0: what half of the free memory holds, and sequences can use
    threads: int = 0
    step_ms: float = STEP_MS
    place: Placement = AUTO
    limits: Limits = field(default_factory=Limits)
    speculation: Speculation | None = None
    kept_states: int = KEPT_STATES  # as of EngineOptions


class ServedModel:
    """Closed with `close`; `bridge` is set by whose loop serves it."""

    bridge: Bridge

    def __init__(self, artifact: Artifact, name: str, options: ServeOptions, metrics: Metrics):
        self.name, self.artifact, self.limits = name, artifact, options.limits
        self.reader = PromptReader(artifact, options.context)
        self.defaults = read_defaults(artifact.path)
        self.created = int((artifact.path / "manifest.json").stat().st_mtime)
        self.fingerprint = f"eq-{(artifact.path / 'manifest.xxh128').read_text()[:12]}"
        self.thinks = "<think>" in self.reader.tokenizer.vocabulary()
        model = load_model_on_ranks(artifact, options.threads, options.place)
        kept = {"kept_beginnings": KEPT_BEGINNINGS, "kept_states": options.kept_states}
        settings = EngineOptions(options.threads, options.step_ms, **kept, speculation=options.speculation)
        sequences = options.sequences + settings.beginnings(artifact)
        states = artifact.states_bytes(sequences, options.kept_states, model.device)
        states += sequences * sliding_bytes(artifact.cache_pages(model.device), self.reader.context)
        self.size = BatchSize(self.reader.context, options.sequences, self._tokens(options, model.device, states))
        settings = replace(settings, kept_tokens=self.size.tokens)
        self.engine = Engine(model, artifact, self.reader, self.size, settings)
        self.metrics: ModelMetrics = metrics.of(self)
        self.is_ending = False
        self._admitted = 0  # answers
        self._seconds = 1.0  # that an answer takes, a moving average

    def _tokens(self, options: ServeOptions, device: str, states: int) -> int:
        """That the cache has room for, beside so many bytes of recurrent states and windows."""
        cache = self.artifact.cache_pages(device)
        page = int(cache["page_tokens"])
        longest = -(-self.reader.context // page) * page
        most = options.sequences * longest
        if options.cache_tokens:
            most = max(longest, options.cache_tokens)
        elif device == "cpu":
            free = max(0, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 - states)
            most = max(longest, min(most, free // max(1, int(cache["page_bytes"])) * page))
        return -(-most // page) * page

    def admit(self, answers: int) -> None:
        """ApiError where too many wait already."""
        room = self.size.sequences + self.limits.waiting
        if answers > room:
            raise ApiError(400, f"asks for {answers} answers at a time, but the server takes {room}; ask for them in several requests", "n", "too_many_choices")
        if self._admitted + answers > room:
            seconds = max(1, round(self._seconds * self.limits.waiting / self.size.sequences))
            message = f"{self._admitted} answers are being written or wait already, and the server takes {room}; ask again later"
            raise ApiError(429, message, None, "rate_limit_exceeded", {"retry-after": str(min(seconds, 60))})
        self._admitted += answers

    def release(self, answers: int, seconds: float | None = None) -> None:
        """`seconds`: that one of them has taken, where it was whole."""
        self._admitted -= answers
        if seconds is not None:
            self._seconds += (seconds - self._seconds) * 0.1

    @property
    def admitted(self) -> int:
        return self._admitted

    def without_paths(self, message: str) -> str:
        """Clients need not know where the server has its files."""
        path = str(self.artifact.path)
        return message.replace(f"{path}/", "").replace(path, self.name)

    def close(self) -> None:
        """Nothing refers to the model then, of which ranks that share it are told."""
        self.engine.close()
        del self.engine


def open_all(artifacts: list[tuple[Artifact, str]], options: ServeOptions, metrics: Metrics, tell: Callable[[str], None]) -> dict[str, ServedModel]:
    """By name. `tell`: what is being done, for who waits."""
    served: dict[str, ServedModel] = {}
    try:
        for artifact, name in artifacts:
            begin = time.monotonic()
            served[name] = ServedModel(artifact, name, options, metrics)
            tell(f"{name}: {served[name].artifact.describe()}, loaded in {time.monotonic() - begin:.1f} s")
    except BaseException:
        for model in served.values():
            model.close()
        raise
    return served
