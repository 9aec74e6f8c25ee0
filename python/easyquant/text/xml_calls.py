# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of functions as Qwen3-Coder writes them, read as they come:

    <function=name>
    <parameter=key>
    value
    </parameter>
    </function>

A value is text as it stands. What it means follows from the function's schema: where a text is expected, the text, else JSON.
"""

import json
from collections.abc import Mapping

FUNCTION, _PARAMETER, _ENDS_VALUE, _ENDS_CALL = "<function=", "<parameter=", "</parameter>", "</function>"
_LONGEST_NAME = 256
_DEEPEST = 16
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object", type(None): "null"}
_WORDS = {"true": True, "false": False, "null": None, "none": None}  # also as Python writes them


def types_of(schema, root: Mapping, depth: int = 0) -> set[str]:
    """The types that a schema within another one, `root`, allows; none where it does not say."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return set()
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#/"):
        found: object = root
        for key in reference[2:].split("/"):
            found = found.get(key) if isinstance(found, Mapping) else None
        return types_of(found, root, depth + 1)
    if kind := schema.get("type"):
        return set(kind) if isinstance(kind, list) else {kind} if isinstance(kind, str) else set()
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return set().union(*(types_of(one, root, depth + 1) for one in schema[key]))
    if isinstance(schema.get("enum"), list):
        return {_TYPES[type(value)] for value in schema["enum"] if type(value) in _TYPES}
    return {_TYPES[type(schema["const"])]} if type(schema.get("const")) in _TYPES and "const" in schema else set()


def _meant(text: str, types: set[str]) -> str:
    """A value of one of these types as JSON; the text itself, where it is none."""
    bare = text.strip()
    try:
        value = _WORDS[bare.lower()] if bare.lower() in _WORDS else json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    if "string" in types and (isinstance(value, str) or _TYPES[type(value)] not in types):
        return json.dumps(text, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _refuse(constant: str):
    raise ValueError


class XmlCall:
    """A call, from behind `<function=` on. schemas: the parameters of functions, by name."""

    def __init__(self, schemas: Mapping[str, Mapping]):
        self._schemas, self._text, self._take = schemas, "", self._in_name
        self.name: str | None = None  # once it is certain
        self.is_done = self.is_none = False  # is_none: what has come is no call
        self._types: set[str] = set()  # of the value that comes
        self._keys = 0

    def push(self, c: str) -> str:
        """What it adds to the arguments, as JSON."""
        self._text += c
        return self._take()

    def _in_name(self) -> str:
        name = self._text[:-1].strip()
        if self._text[-1] == ">" and name:
            self.name, self._text, self._take = name, "", self._between
            return "{"
        self.is_none = self._text[-1] in "\n<>{" or len(self._text) > _LONGEST_NAME
        return ""

    def _between(self) -> str:
        """Parameters."""
        if self._text.endswith(_ENDS_CALL):
            self.is_done = True
            return "}"
        if self._text.endswith(_PARAMETER):
            self._text, self._take = "", self._in_key
        return ""

    def _in_key(self) -> str:
        if self._text[-1] != ">":
            return ""
        key = self._text[:-1].strip()
        root = self._schemas.get(self.name)
        properties = root.get("properties") if isinstance(root, Mapping) else None
        self._types = types_of(properties.get(key), root) if isinstance(properties, Mapping) else set()
        self._text, self._keys = "", self._keys + 1
        self._take = self._first if self._types <= {"string"} else self._in_value
        return ("" if self._keys == 1 else ", ") + json.dumps(key, ensure_ascii=False) + ": " + ('"' if self._types <= {"string"} else "")

    def _in_value(self) -> str:
        """One that has a meaning only once it is whole."""
        if not self._text.endswith(_ENDS_VALUE):
            return ""
        value = self._text[: -len(_ENDS_VALUE)].removeprefix("\n").removesuffix("\n")
        self._text, self._take = "", self._between
        return _meant(value, self._types)

    def _first(self) -> str:
        """A line end before a text is none of it."""
        self._text, self._take = self._text.removeprefix("\n"), self._in_text
        return self._in_text() if self._text else ""

    def _in_text(self) -> str:
        """What is certain of a text: nothing of its end, and of the line end before that."""
        for end in (f"\n{_ENDS_VALUE}", _ENDS_VALUE):
            if self._text.endswith(end):
                said, self._text, self._take = self._text[: -len(end)], "", self._between
                return _quoted(said) + '"'
        end = f"\n{_ENDS_VALUE}"
        held = next((count for count in range(min(len(self._text), len(end)), 0, -1) if end.startswith(self._text[-count:]) or _ENDS_VALUE.startswith(self._text[-count:])), 0)
        said, self._text = self._text[: len(self._text) - held], self._text[len(self._text) - held :]
        return _quoted(said)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
