# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers as they go out: whole, or as server-sent events; either way a client that leaves ends them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import orjson
from starlette.responses import Response

from easyquant.server.answers import Answers
from easyquant.server.errors import ApiError

DONE = b"data: [DONE]\n\n"


def line(value, event: str | None = None) -> bytes:
    """A server-sent event."""
    return (f"event: {event}\n".encode() if event else b"") + b"data: " + orjson.dumps(value) + b"\n\n"


class Line:
    """A line of which only one text changes, which takes a microsecond."""

    def __init__(self, value: dict, text: str):
        """text: stands in `value` where the text goes."""
        self._head, self._tail = line(value).split(orjson.dumps(text))

    def of(self, text: str) -> bytes:
        return self._head + orjson.dumps(text) + self._tail


@contextlib.asynccontextmanager
async def watched(receive: Callable[[], Awaitable[dict]], answers: Answers):
    """Within, the answers end when the client leaves; behind it nothing of them is left."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        answers.leave()

    watcher = asyncio.create_task(watch())
    try:
        async with asyncio.timeout(answers.served.limits.seconds + 30):  # a client that does not read must not hold it longer
            yield
    finally:
        watcher.cancel()
        answers.leave()


class EventStream(Response):
    """`lines`: bytes of server-sent events. An ApiError that they raise becomes the event that `tell` makes of it."""

    media_type = "text/event-stream"

    def __init__(self, answers: Answers, lines: AsyncIterator[bytes], tell: Callable[[ApiError], bytes] | None = None):
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._answers, self._lines, self._tell = answers, lines, tell or (lambda error: line(error.body))

    async def __call__(self, scope, receive, send) -> None:
        try:
            async with watched(receive, self._answers):
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                try:
                    async for data in self._lines:
                        await send({"type": "http.response.body", "body": data, "more_body": True})
                except ApiError as error:
                    await send({"type": "http.response.body", "body": self._tell(error), "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # the connection is closed without an end, so that nobody takes what it has for all of it
