# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an engine tells of a request, and the handle by which it is followed and cancelled."""

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from easyquant.runtime.generation import Completion


class Events(Protocol):
    """Where a request's events go, such as a queue."""

    def put(self, event: "Event") -> None:
        """Is called in the engine's thread, and must not wait."""


@dataclass(frozen=True)
class Event:
    number: int  # of the request, among those of its engine
    piece: str  # the text that it adds
    completion: Completion  # so far, and perhaps more; it has a finish_reason once this was its last event
    read: int  # tokens of the prompt that have been read
    tokens: int  # of the completion, as of this event
    reason: str | None = None  # of its end, in the last event
    error: str | None = None

    def received(self) -> "Event":
        """The engine is ahead of who reads events, so that a completion ends here."""
        self.completion.finish_reason, self.completion.error = self.reason, self.error
        return self


def received(events: "queue.SimpleQueue[Event]") -> Event:
    return events.get().received()


class Handle:
    """A request that an engine has: its events, as they come, unless these go elsewhere."""

    def __init__(self, number: int, cancel: Callable[[], None], events: Events):
        self.number = number  # of the request, as its events have it
        self.cancel = cancel  # ends it between two steps; its completion is then an error, unless it is done already
        self._events = events

    def __iter__(self) -> Iterator["Event"]:
        while True:
            event = received(self._events)
            yield event
            if event.reason:
                return
