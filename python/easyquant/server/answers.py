# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The answers to one HTTP request: several prompts, each answered once or more, as the event loop sees them."""

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Callable

from easyquant.runtime.events import Event, Handle
from easyquant.runtime.generation import Completion
from easyquant.runtime.requests import Request
from easyquant.server.errors import ApiError
from easyquant.server.served import ServedModel

_LOGGER = logging.getLogger("uvicorn.error")


def with_copies(requests: list[Request], copies: int) -> list[list[Request]]:
    """For each prompt its requests, which differ in their seeds: s, s + 1, …"""
    return [[_copy(request, number) for number in range(copies)] for request in requests]


def _copy(request: Request, number: int) -> Request:
    settings = request.settings
    if number == 0 or request.max_tokens == 0:
        return request
    if settings.seed is not None:
        settings = dataclasses.replace(settings, seed=(settings.seed + number) % 2**64)
    return dataclasses.replace(request, score=None, settings=settings)


class Answers:
    """A choice is one answer; those of a prompt follow each other. In the loop's thread but for what the bridge is given.

    The first answer to a prompt begins at once. The others begin when it has its first token: what the engine keeps of the prompt is theirs then.
    """

    def __init__(self, served: ServedModel, requests: list[Request], copies: int = 1, priority: int = 0):
        self.served, self.completions = served, [Completion() for _ in range(len(requests) * copies)]
        self.started, self._deadline, self._priority = time.monotonic(), time.monotonic() + served.limits.seconds, priority
        self._groups, self._copies = with_copies(requests, copies), copies
        self._handles: dict[int, tuple[int, Handle]] = {}  # choices that are under way, by the numbers of their requests
        self._later = set(range(len(requests))) if copies > 1 else set()  # prompts of which one answer only has begun
        self._left = set(range(len(self.completions)))  # choices that are not done
        self._events: list[tuple[int, Event]] = []
        self._news = asyncio.Event()
        self.was_left = False
        self._over: Callable[[], None] | None = None
        self._timing = [_Timing(served.metrics, self.started) for _ in self.completions]
        served.admit(len(self.completions))
        try:
            for prompt, group in enumerate(self._groups):
                self._submit(prompt * copies, group[0])
        except BaseException:
            self.leave()
            raise

    def _submit(self, choice: int, request: Request) -> None:
        handle = self.served.engine.submit(request, self._priority, self._deadline, _Sender(self, self.served.bridge))
        self._handles[handle.number] = (choice, handle)

    def take(self, event: Event) -> None:
        """From the bridge."""
        if event.number not in self._handles:
            return  # of an answer that was left
        choice, _ = self._handles[event.number]
        self.completions[choice] = event.received().completion
        prompt, copy = divmod(choice, self._copies)
        if copy == 0 and prompt in self._later and (event.tokens or event.reason):
            self._later.discard(prompt)
            self._follow(prompt, event)
        if event.tokens or event.reason:
            self._timing[choice].token(event)
        self._events.append((choice, event))
        if event.reason:
            self._done(choice, event)
        self._news.set()

    def _follow(self, prompt: int, event: Event) -> None:
        begin = prompt * self._copies
        for copy in range(1, self._copies):
            if event.reason == "error":  # what is wrong with the first is wrong with the others
                self.completions[begin + copy] = event.completion
                self._events.append((begin + copy, event))
                self._left.discard(begin + copy)
                self.served.release(1)
            else:
                self._submit(begin + copy, self._groups[prompt][copy])

    def _done(self, choice: int, event: Event) -> None:
        del self._handles[event.number]
        self._left.discard(choice)
        self.served.release(1, time.monotonic() - self.started)
        self.served.metrics.answered(self.completions[choice])

    async def steps(self) -> AsyncIterator[list[tuple[int, Event]]]:
        """What has been told since the last time, by choices, until all of them are done."""
        while self._left or self._events:
            await self._news.wait()
            self._news.clear()
            events, self._events = self._events, []
            yield events

    async def finish(self) -> list[Completion]:
        """All of them whole. ApiError where one is an error, or the client has left."""
        async for events in self.steps():
            for _, event in events:
                if event.reason == "error":
                    raise self.error(event)
        if self.was_left:
            raise ApiError(499, "the client has left", None, "client_left")
        return self.completions

    def error(self, event: Event) -> ApiError:
        if self.served.is_ending:
            return ApiError(503, "the server is ending; ask again", None, "server_ending", {"retry-after": "5"})
        if time.monotonic() >= self._deadline:
            return ApiError(504, f"the answer was not done after {self.served.limits.seconds:g} s, which is the server's limit", None, "timeout")
        _LOGGER.error("%s: %s", self.served.name, event.error)
        return ApiError(500, self.served.without_paths(event.error), None, "engine_error")

    def when_over(self, call: Callable[[], None]) -> None:
        """`call` follows `leave`."""
        self._over = call

    def cancel(self) -> None:
        """Ends what is not done; its events say so."""
        for _, handle in self._handles.values():
            handle.cancel()

    def leave(self) -> None:
        """Ends what is not done; the engine frees its pages before its next step."""
        self.was_left = self.was_left or bool(self._left)
        self.cancel()
        self.served.release(len(self._left))
        self._handles.clear()
        self._left.clear()
        self._later.clear()
        self._news.set()
        if self._over is not None:
            self._over()


class _Sender:
    """Where the engine puts events."""

    def __init__(self, answers: Answers, bridge):
        self._answers, self._bridge = answers, bridge

    def put(self, event: Event) -> None:
        self._bridge.put(self._answers, event)


class _Timing:
    """When the tokens of a choice come."""

    def __init__(self, metrics, begin: float):
        self._metrics, self._last, self._tokens = metrics, begin, 0

    def token(self, event: Event) -> None:
        if event.tokens == self._tokens:
            return
        now = time.monotonic()
        observe = self._metrics.next_token if self._tokens else self._metrics.first_token
        observe(now - self._last)
        self._last, self._tokens = now, event.tokens
