# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From the threads of engines to the event loop, where answers wait for what they are told."""

import asyncio
from collections import deque

from easyquant.runtime.events import Event


class Bridge:
    """Wakes the loop once for all that a step tells."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = loop
        self._events: deque = deque()
        self._is_woken = False

    def put(self, receiver, event: Event) -> None:
        """In an engine's thread. `receiver.take(event)` follows in the loop's."""
        self._events.append((receiver, event))
        if not self._is_woken:
            self._is_woken = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop was closed, and nobody waits any more
                self._events.clear()

    def _deliver(self) -> None:
        self._is_woken = False  # before what is there is taken, so that nothing is left behind
        while self._events:
            receiver, event = self._events.popleft()
            receiver.take(event)
