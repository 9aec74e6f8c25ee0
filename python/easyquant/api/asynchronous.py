# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An engine's events in an event loop of asyncio."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from easyquant.runtime.engine import Engine, Following
from easyquant.runtime.events import Event
from easyquant.runtime.requests import Request


class Inbox:
    """Where an engine's thread puts events for a coroutine of the running loop."""

    def __init__(self):
        self._loop, self._queue = asyncio.get_running_loop(), asyncio.Queue()

    def put(self, event: Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits for it any more
            self._loop.call_soon_threadsafe(self._queue.put_nowait, event)

    async def get(self) -> Event:
        return (await self._queue.get()).received()


async def follow(engine: Engine, requests: Sequence[Request], priority: int = 0, deadline: float | None = None) -> AsyncIterator[tuple[Event, int]]:
    """As Engine.follow. A task that is cancelled while it waits ends its requests before the engine's next step."""
    inbox = Inbox()
    with Following(engine, requests, priority, deadline, inbox) as following:
        while following:
            yield following.place(await inbox.get())
