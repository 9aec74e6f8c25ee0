# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the text of an answer is made of: what the model says, and what it thinks before.

A parser takes the text in pieces as it comes and gives deltas: pairs of a field of a message, which is "content", "reasoning_content" or
"tool_calls", and what is appended to it.
"""

from collections.abc import Sequence
from typing import Protocol

Delta = tuple[str, object]

_BEGIN, _END = "<think>", "</think>"


class OutputParser(Protocol):
    def push(self, piece: str) -> list[Delta]: ...
    def finish(self) -> list[Delta]: ...
    def finish_reason(self, reason: str) -> str:
        """What a client is told for the engine's reason."""


class PlainText:
    """All of it is what the model says."""

    def push(self, piece: str) -> list[Delta]:
        return [("content", piece)] if piece else []

    def finish(self) -> list[Delta]:
        return []

    def finish_reason(self, reason: str) -> str:
        return reason


def held_back(text: str, marks: Sequence[str]) -> int:
    """How many of its last characters may be the beginning of one of the marks."""
    longest = min(len(text), max(map(len, marks)) - 1)
    return next((count for count in range(longest, 0, -1) if any(mark.startswith(text[-count:]) for mark in marks)), 0)


class Thinking:
    """Between <think> and </think> it thinks. `rest` parses what it says."""

    def __init__(self, begun: bool, rest: OutputParser):
        """begun: the prompt has ended with <think>."""
        self._rest, self._held = rest, ""
        self._state = "thinking" if begun else "begin"  # then "gap", the blanks behind </think>, and "saying"
        self._is_blank = True  # nothing was thought yet

    def push(self, piece: str) -> list[Delta]:
        text, deltas = self._held + piece, []
        self._held = ""
        if self._state == "begin":
            bare = text.lstrip()
            if not bare.startswith(_BEGIN):
                if _BEGIN.startswith(bare):
                    self._held = text
                    return []
                self._state = "saying"
            else:
                self._state, text = "thinking", bare[len(_BEGIN) :]
        if self._state == "thinking":
            place = text.find(_END)
            end = place if place >= 0 else len(text) - held_back(text, [_END])
            thought = text[:end].lstrip() if self._is_blank else text[:end]
            if thought:
                deltas.append(("reasoning_content", thought))
                self._is_blank = False
            if place < 0:
                self._held = text[end:]
                return deltas
            self._state, text = "gap", text[place + len(_END) :]
        if self._state == "gap":
            text = text.lstrip()
            if not text:
                return deltas
            self._state = "saying"
        return deltas + self._rest.push(text)

    def finish(self) -> list[Delta]:
        held, self._held = self._held, ""
        if not held:
            return self._rest.finish()
        if self._state == "thinking":
            return [("reasoning_content", held), *self._rest.finish()]
        return [*self._rest.push(held), *self._rest.finish()]

    def finish_reason(self, reason: str) -> str:
        return self._rest.finish_reason(reason)


def parse_whole(parser: OutputParser, text: str) -> dict:
    """The fields of a message, all of a text at once."""
    message: dict = {}
    for name, value in [*parser.push(text), *parser.finish()]:
        if name == "tool_calls":
            merge_calls(message.setdefault(name, []), value)
        else:
            message[name] = message.get(name, "") + value
    return message


def merge_calls(calls: list[dict], deltas: list[dict]) -> None:
    """Appends what streaming says of calls of functions to what there is."""
    for delta in deltas:
        index = delta["index"]
        if index == len(calls):
            calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call, function = calls[index], delta.get("function", {})
        call["id"] = delta.get("id") or call["id"]
        for name in ("name", "arguments"):
            call["function"][name] += function.get(name) or ""
