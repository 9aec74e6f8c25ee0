# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of functions in the text of an answer, read as it comes, in the form that the model's chat template teaches.

Each family of models writes calls in its own way; `family_of` finds it by what the template says. The parser takes the text character by
character, so that how it was cut into pieces makes no difference. What turns out to be no call is content, as it stands.
"""

import json
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from easyquant.text.call_forms import Call, read_escaped_call, read_python_calls
from easyquant.text.output import Delta, held_back
from easyquant.text.xml_calls import FUNCTION, XmlCall

LONGEST_BLOCK = 1 << 16  # characters of calls that are read once they are whole


@dataclass(frozen=True)
class Family:
    """How calls are written. Forms of JSON objects are told as they come; `read` gets whole blocks."""

    name: str
    opens: str = ""  # what is before calls; empty: they are all of the answer
    closes: str = ""
    arguments: str = "arguments"  # the key of a JSON object
    separators: str = ""  # characters between objects
    ends: str = ""  # the character behind the last object of a list
    names_first: str = ""  # the name of a function is text, up to this mark, and its arguments are the object
    also_bare: str = ""  # a character that begins a call without the mark, at the beginning of an answer
    also_opens: str = ""  # a mark that begins a call without the first one
    read: Callable[[str], list[Call] | None] | None = None
    short_id: bool = False

    @property
    def marks(self) -> list[str]:
        """Texts that may be special tokens, and then have to be seen."""
        return [mark for mark in (self.opens, self.closes, self.names_first, "<escape>" if self.read is read_escaped_call else "") if mark]


HERMES = Family("hermes", "<tool_call>", "</tool_call>", also_bare="{")  # Qwen2.5-Coder leaves the marks out
LLAMA = Family("llama", "<|python_tag|>", arguments="parameters", separators=";", also_bare="{")
MISTRAL = Family("mistral", "[TOOL_CALLS]", separators=",", ends="]", short_id=True)
MISTRAL_ARGS = Family("mistral with [ARGS]", "[TOOL_CALLS]", names_first="[ARGS]", short_id=True)
FUNCTION_GEMMA = Family("functiongemma", "<start_function_call>", "<end_function_call>", read=read_escaped_call)
TOOL_CODE = Family("tool_code", "```tool_code", "```", read=read_python_calls)
QWEN_CODER = Family("qwen3-coder", "<tool_call>", "</tool_call>", also_opens=FUNCTION)  # it leaves the first mark out now and then
PYTHONIC = Family("pythonic", also_bare="[", read=read_python_calls)


def family_of(template: str) -> Family | None:
    """The family of a model with this chat template; None: it teaches no form that is known here."""
    if "tools" not in template:
        return None
    if "<start_function_call>" in template:
        return FUNCTION_GEMMA
    if "[TOOL_CALLS]" in template:
        return MISTRAL_ARGS if "[ARGS]" in template else MISTRAL
    if "<tool_call>" in template:
        return QWEN_CODER if FUNCTION in template else HERMES
    if "```tool_code" in template:
        return TOOL_CODE
    if re.search(r"\[func_name1?\(", template):
        return PYTHONIC
    if "<|python_tag|>" in template or '"parameters": dictionary' in template:
        return LLAMA
    return None


class _Value:
    """Finds the end of a JSON object, or of a list of Python's, character by character."""

    def __init__(self, quotes: str = '"'):
        self.depth, self._quotes, self._quote, self._is_escaped = 0, quotes, "", False

    def push(self, c: str) -> bool:
        """Whether the object ends with it."""
        if self._is_escaped:
            self._is_escaped = False
        elif self._quote:
            self._is_escaped, self._quote = c == "\\", "" if c == self._quote else self._quote
        elif c in self._quotes:
            self._quote = c
        elif c in "{[":
            self.depth += 1
        elif c in "}]":
            self.depth -= 1
            return self.depth <= 0
        return False


class _JsonCall:
    """A call as a JSON object with its name and its arguments."""

    def __init__(self, key: str):
        self._head = re.compile(r'\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*("(?:\\.|[^"\\])*")\s*,\s*"%s"\s*:\s*\{\Z' % key)
        self._key, self._whole, self._text = key, _Value(), ""
        self.name: str | None = None  # once it is certain
        self._arguments: _Value | None = None  # while they come
        self.is_done = False

    def push(self, c: str) -> str:
        """What it adds to the arguments."""
        if self.name is None:
            self._text += c
        was_open = self._arguments is not None and self._arguments.depth > 0
        self.is_done = self._whole.push(c)
        if was_open:
            self._arguments.push(c)
            return c
        if self.name is None and c == "{" and (head := self._head.match(self._text)) and (name := _loaded(head[1])):
            self.name, self._arguments = name, _Value()
            self._arguments.push(c)
            return c
        if self.is_done and self.name is None:
            return self._read_whole()
        return ""

    def _read_whole(self) -> str:
        """Its keys stand in another order, or its arguments are a text."""
        value = _loaded(self._text)
        function = value.get("function") if isinstance(value, dict) and isinstance(value.get("function"), dict) else value
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            return ""
        arguments = function.get(self._key, function.get("arguments", function.get("parameters", {})))
        arguments = _loaded(arguments) if isinstance(arguments, str) else arguments
        if not isinstance(arguments, dict):
            return ""
        self.name = function["name"]
        return json.dumps(arguments, ensure_ascii=False)


def _loaded(text: str):
    """None: it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


class ToolCalls:
    """Content and calls of an answer. names: the functions that there are; parallel: more than the first call counts.

    schemas: the functions' parameters, by which values are read that are not written as JSON.
    """

    def __init__(self, family: Family, names: Collection[str], parallel: bool = True, schemas: Mapping[str, Mapping] | None = None):
        self._family, self._names, self._parallel, self._schemas = family, names, parallel, schemas or {}
        self._opens = [mark for mark in (family.opens, family.also_opens) if mark]
        self._take = self._text  # what the next character is for
        self._held = ""  # characters of which it is not known yet what they are
        self._blanks = ""  # between content and what may be a call
        self._call: _JsonCall | _Value | XmlCall | None = None
        self._name = ""
        self._is_bare = False  # the call has begun without a mark
        self._may_be_bare = bool(family.also_bare)
        self.calls = 0
        self._deltas: list[Delta] = []

    def push(self, piece: str) -> list[Delta]:
        for c in piece:
            self._take(c)
        return self._told()

    def finish(self) -> list[Delta]:
        if self._take == self._block and not self._is_bare and (calls := self._family.read(self._held[len(self._family.opens) :])):
            self._tell_whole(calls)  # a stop text may have taken its end away
        elif self._take == self._text and not (self.calls and self._held.isspace()):
            self._say(self._held)
        elif not self.calls and (self._take in (self._open, self._block, self._named) or self._take in (self._json, self._xml) and self._call.name is None):
            self._fail()  # behind calls it is one more that was cut
        self._held, self._take = "", self._text
        return self._told()

    def finish_reason(self, reason: str) -> str:
        return "tool_calls" if reason == "stop" and self.calls else reason

    # ------------------------------------------------------------------------------------------------ states, by character

    def _text(self, c: str) -> None:
        family = self._family
        self._held += c
        if self._may_be_bare and not self._held.isspace():
            self._may_be_bare = False
            if c == family.also_bare:
                self._is_bare, self._blanks, self._held = True, self._held[:-1], ""
                self._begin_call(c)
                return
        if opens := next((mark for mark in self._opens if self._held.endswith(mark)), ""):
            before = self._held[: -len(opens)]
            self._say(before.rstrip())
            self._blanks, self._held, self._is_bare = before[len(before.rstrip()) :], opens, False
            self._take = self._block if family.read else self._open
            if opens == family.also_opens:
                self._call, self._take = XmlCall(self._schemas), self._xml
            return
        end = len(self._held) - (held_back(self._held, self._opens) if self._opens else 0)
        end = len(self._held[:end].rstrip())  # blanks before a call are none of the content
        self._say(self._held[:end])
        self._held = self._held[end:]

    def _begin_call(self, c: str) -> None:
        if self._family.read:
            self._call, self._take = _Value("\"'"), self._block
        else:
            self._call, self._take = _JsonCall(self._family.arguments), self._json
        self._take(c)

    def _open(self, c: str) -> None:
        """Behind a mark, or between two objects."""
        family = self._family
        if c == "{" and not (family.names_first or family.also_opens):
            self._begin_call(c)
            return
        self._held += c
        if family.also_opens:
            behind = self._held[len(family.opens) :].lstrip()
            if behind == family.also_opens:
                self._call, self._take = XmlCall(self._schemas), self._xml
            elif not family.also_opens.startswith(behind):
                self._fail()
        elif family.names_first and not c.isspace():
            self._take, self._name = self._named, ""
            self._named_more(c)
        elif not c.isspace() and not (c == "[" and family.ends and self._held.count("[") <= 1 + family.opens.count("[")):
            self._fail()

    def _named(self, c: str) -> None:
        self._held += c
        self._named_more(c)

    def _named_more(self, c: str) -> None:
        """The name of a function, which a mark ends."""
        self._name += c
        mark = self._family.names_first
        if self._name.endswith(mark) and (name := self._name[: -len(mark)].strip()):
            self._take, self._call = self._named_arguments, _Value()
            self._tell(name)
        elif len(self._name) > 256 or c in "{\n":
            self._fail()

    def _named_arguments(self, c: str) -> None:
        if self._call.depth == 0 and c.isspace():
            return
        if self._call.depth == 0 and c != "{":
            self._held, self._take = "", self._text
            self._tell_more("{}")
            self._take(c)
            return
        self._tell_more(c)
        if self._call.push(c):
            self._held, self._take = "", self._text

    def _json(self, c: str) -> None:
        call, was_known = self._call, self._call.name is not None
        if not was_known:
            self._held += c
        added = call.push(c)
        if call.name is not None and not was_known:
            if self._is_bare and call.name not in self._names:
                self._fail()
                return
            self._tell(call.name)
        if added:
            self._tell_more(added)
        if call.is_done:
            if call.name is None:
                self._fail()
            else:
                self._held, self._take = "", self._after
        elif call.name is None and len(self._held) > LONGEST_BLOCK:
            self._fail()

    def _xml(self, c: str) -> None:
        call, was_known = self._call, self._call.name is not None
        if not was_known:
            self._held += c
        added = call.push(c)
        if call.is_none:
            self._fail()
            return
        if call.name is not None and not was_known:
            self._tell(call.name)
        if added:
            self._tell_more(added)
        if call.is_done:
            self._held, self._take = "", self._after

    def _after(self, c: str) -> None:
        """Behind an object: another one, the end of the list, or the mark that closes."""
        family = self._family
        self._held += c
        bare = self._held.strip()
        if not bare:
            return
        if self._is_bare and bare == "{":
            self._blanks, self._held = self._held[:-1], ""
            self._begin_call(c)
        elif bare == family.separators:
            self._held, self._take = "", self._open
        elif bare in (family.ends, family.closes):
            self._held, self._take = "", self._text
        elif not family.closes.startswith(bare):
            held, self._held, self._take = self._held, "", self._text
            for one in held:
                self._take(one)

    def _block(self, c: str) -> None:
        """Calls that are read once they are whole."""
        family = self._family
        self._held += c
        if self._call.push(c) if self._is_bare else self._held.endswith(family.closes) and len(self._held) > len(family.opens):
            calls = family.read(self._held if self._is_bare else self._held[len(family.opens) : -len(family.closes)])
            if calls and not (self._is_bare and any(call.name not in self._names for call in calls)):
                self._held, self._take = "", self._text
                self._tell_whole(calls)
            else:
                self._fail()
        elif len(self._held) > LONGEST_BLOCK:
            self._fail()

    def _fail(self) -> None:
        """It was none."""
        held, self._held, self._take = self._blanks + self._held, "", self._text
        self._blanks = ""
        self._say(held)

    # ------------------------------------------------------------------------------------------------------- what is told

    def _say(self, text: str) -> None:
        if text:
            self._deltas.append(("content", text))

    def _tell(self, name: str) -> None:
        self.calls, self._blanks = self.calls + 1, ""
        if self.calls == 1 or self._parallel:
            number = "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(9)) if self._family.short_id else f"call_{secrets.token_hex(12)}"
            call = {"index": self.calls - 1, "id": number, "type": "function", "function": {"name": name, "arguments": ""}}
            self._deltas.append(("tool_calls", [call]))

    def _tell_more(self, arguments: str) -> None:
        if self.calls == 1 or self._parallel:
            self._deltas.append(("tool_calls", [{"index": self.calls - 1, "function": {"arguments": arguments}}]))

    def _tell_whole(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self._tell(call.name)
            self._tell_more(json.dumps(call.arguments, ensure_ascii=False))

    def _told(self) -> list[Delta]:
        """Joined, so that a piece of text is at most one delta of a kind."""
        told: list[Delta] = []
        for kind, value in self._deltas:
            if told and kind == told[-1][0] == "content":
                told[-1] = (kind, told[-1][1] + value)
            elif told and kind == told[-1][0] and "id" not in value[0]:
                told[-1][1][-1]["function"]["arguments"] += value[0]["function"]["arguments"]
            else:
                told.append((kind, value))
        self._deltas = []
        return told
