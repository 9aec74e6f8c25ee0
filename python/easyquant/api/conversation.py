# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversations: `easyquant.Model.chat`.

The messages are the whole state. Each turn is a request of all of them, and the engine keeps what a turn has read and written (`Request.keeps_answer`),
so that the next one reads what is new, from a multiple of 64 tokens on. Where a template writes earlier turns otherwise, it reads
from there on.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, Unpack

from easyquant.api.calls import Call
from easyquant.runtime.generation import Completion
from easyquant.runtime.requests import CallOptions, Message
from easyquant.support.errors import expect

MAX_TOKENS = 1024


class Answering(Protocol):
    """What a conversation asks of a `Model`: to read its messages as a call, and to answer it piece by piece."""

    def _call(self, prompt: list[Message], options: CallOptions, single: bool) -> Call: ...
    def _pieces(self, call: Call) -> Iterator[str]: ...
    def _apieces(self, call: Call) -> AsyncIterator[str]: ...


class Chat:
    """A conversation with a model: `messages`, a list of {"role": …, "content": …} that may be changed between turns."""

    def __init__(self, model: Answering, system: str | None, messages: Sequence[Message], options: CallOptions):
        expect("system", system, system is None or isinstance(system, str), "a text")
        self.messages: list[Message] = [{"role": "system", "content": system}] if system else []
        self.messages += messages
        self.last: Completion | None = None
        """The last answer, with its figures."""
        self._model, self._options = model, {"max_tokens": MAX_TOKENS} | options

    def __repr__(self) -> str:
        return f"<easyquant.Chat of {len(self.messages)} messages, {self._model!r}>"

    def reset(self) -> None:
        """Forgets all but the system's message."""
        self.messages = [message for message in self.messages[:1] if message["role"] == "system"]
        self.last = None

    def send(self, text: str, **options: Unpack[CallOptions]) -> Completion:
        """The answer to a message of the user's. Where that is an error, the conversation is as it was."""
        for _ in self.stream(text, **options):
            pass
        return self.last

    async def asend(self, text: str, **options: Unpack[CallOptions]) -> Completion:
        """`send` in an event loop."""
        async with contextlib.aclosing(self.astream(text, **options)) as pieces:
            async for _ in pieces:
                pass
        return self.last

    def stream(self, text: str, **options: Unpack[CallOptions]) -> Iterator[str]:
        """The answer in pieces, as they come. Who leaves it ends the answer, and what was said until then belongs to the conversation."""
        call = self._call(text, options)
        with self._turn(text, call) as said, contextlib.closing(self._model._pieces(call)) as pieces:
            for piece in pieces:
                said.append(piece)
                yield piece

    async def astream(self, text: str, **options: Unpack[CallOptions]) -> AsyncIterator[str]:
        """`stream` in an event loop."""
        call = await asyncio.to_thread(self._call, text, options)
        with self._turn(text, call) as said:
            async with contextlib.aclosing(self._model._apieces(call)) as pieces:
                async for piece in pieces:
                    said.append(piece)
                    yield piece

    def _call(self, text: str, options: CallOptions) -> Call:
        expect("text", text, isinstance(text, str), "a text")
        call = self._model._call([*self.messages, {"role": "user", "content": text}], self._options | options, single=True)
        call.requests = [replace(request, keeps_answer=True) for request in call.requests]
        return call

    @contextlib.contextmanager
    def _turn(self, text: str, call: Call) -> Iterator[list[str]]:
        """A list for the pieces of the answer, which is a message in the end."""
        said: list[str] = []
        try:
            yield said
        except (GeneratorExit, KeyboardInterrupt, asyncio.CancelledError):
            if said:
                self._add(text, said, call)
            raise
        self._add(text, said, call)

    def _add(self, text: str, said: list[str], call: Call) -> None:
        (self.last,) = call.completions
        self.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "".join(said)}]
