# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The messages of a chat, of which nothing is passed over in silence; text/messages.py makes of them what chat templates take."""

from collections.abc import Mapping

import orjson

from easyquant.server.errors import ApiError
from easyquant.server.fields import wrong

_ROLES = ("system", "developer", "user", "assistant", "tool")
_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning")
_EMPTY = ("refusal", "annotations", "audio", "function_call")  # of answers that are sent back; nothing is in them here
_TEXT_PARTS = ("text", "input_text", "output_text")
MOST_MESSAGES = 10000


def read_content(content, where: str) -> str | list[dict]:
    """A text, or parts of type text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(where, content, "a text, or a list of parts")
    parts = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "refusal" and isinstance(part.get("refusal"), str):
            parts.append({"type": "text", "text": part["refusal"]})
        elif kind in _TEXT_PARTS and isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        elif isinstance(kind, str) and kind not in (*_TEXT_PARTS, "refusal"):
            raise ApiError(400, f"{where}[{number}]: found a part of type {kind[:80]!r}, but the model reads texts only", where, "unsupported_content")
        else:
            raise wrong(f"{where}[{number}]", part, 'a part such as {"type": "text", "text": "Hi"}')
    return parts


def _read_call(call, where: str) -> dict:
    """A call of a function that an earlier answer made. Templates take its arguments as an object."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise wrong(where, call, 'a call such as {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}')
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments or "{}")
        except orjson.JSONDecodeError as error:
            raise ApiError(400, f"{where}.function.arguments: are no valid JSON ({error})", where, "invalid_value") from None
    return {"id": call.get("id"), "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _read_message(message, where: str) -> dict:
    if not isinstance(message, Mapping):
        raise wrong(where, message, 'an object such as {"role": "user", "content": "Hi"}')
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise wrong(f"{where}.role", role, f"one of {', '.join(_ROLES)}")
    for name, value in message.items():
        if name not in _FIELDS and (name not in _EMPTY or value not in (None, [], {}, "")):
            raise ApiError(400, f"{where}: found the field {name[:80]!r}, expected {', '.join(_FIELDS)}", where, "unknown_parameter")
    found = {"role": role}
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or calls and role != "assistant":
        raise wrong(f"{where}.tool_calls", calls, "a list, in a message of the assistant")
    content = message.get("content")
    found["content"] = "" if content is None and calls else read_content(content, f"{where}.content")
    if calls:
        found["tool_calls"] = [_read_call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(calls)]
    for name in ("name", "tool_call_id", "reasoning_content", "reasoning"):
        value = message.get(name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise wrong(f"{where}.{name}", value, "a text")
        found["reasoning_content" if name == "reasoning" else name] = value
    return found


def read_messages(messages, name: str = "messages") -> list[dict]:
    if not isinstance(messages, list) or not 0 < len(messages) <= MOST_MESSAGES:
        raise wrong(name, messages, f"a list of 1 to {MOST_MESSAGES} messages")
    return [_read_message(message, f"{name}[{number}]") for number, message in enumerate(messages)]
