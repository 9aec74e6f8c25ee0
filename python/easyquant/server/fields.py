# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bodies of requests: which fields there are, and what becomes of each. No field is passed over in silence."""

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from easyquant.server.errors import ApiError
from easyquant.support.errors import is_number, is_whole
from easyquant.terminal.usage import did_you_mean

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 80


@dataclass(frozen=True)
class Field:
    meaning: str  # for the documentation; or why it is refused
    refused: bool = False
    harmless: tuple = ()  # values of a refused one that ask for nothing; null is one always


def refused(why: str, *harmless) -> Field:
    return Field(why, True, harmless)


Fields = Mapping[str, Field]


def _same(one, other) -> bool:
    return type(one) is type(other) and one == other


def wrong(name: str, found, expected: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, f"{name}: found {_shown.repr(found)}, expected {expected}", name, code)


class Body:
    """A JSON object, whose fields were all found to be known and none to be refused. A field that is null is not there."""

    def __init__(self, value, fields: Fields):
        if not isinstance(value, dict):
            raise ApiError(400, f"the body: found {_shown.repr(value)}, expected a JSON object", None, "invalid_type")
        for name, entry in value.items():
            field = fields.get(name)
            if field is None:
                shown = _shown.repr(name)
                raise ApiError(400, f"the body: found the field {shown}, which this endpoint does not know{did_you_mean(name, fields)}", name[:80], "unknown_parameter")
            if field.refused and entry is not None and not any(_same(entry, other) for other in field.harmless):
                raise ApiError(400, f"{name}: is not supported here: {field.meaning}", name, "unsupported_parameter")
        self._value = value

    def get(self, name: str):
        return self._value.get(name)

    def required(self, name: str):
        if self.get(name) is None:
            raise ApiError(400, f"{name}: is missing", name, "missing_required_parameter")
        return self.get(name)

    def whole(self, name: str, low: int, high: int | None = None, default: int | None = None) -> int | None:
        value = self.get(name)
        if value is None:
            return default
        if not is_whole(value) or value < low or high is not None and value > high:
            raise wrong(name, value, f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}")
        return int(value)

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float | None:
        value = self.get(name)
        if value is None:
            return default
        if not is_number(value) or not math.isfinite(value) or not low <= value <= high:
            raise wrong(name, value, f"a number from {low:g} to {high:g}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise wrong(name, value, "true or false", "invalid_type")
        return default if value is None else value

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise wrong(name, value, "a text", "invalid_type")
        return default if value is None else value

    def object(self, name: str, known: Sequence[str] | None = None) -> dict:
        """`known`: its fields, where others are an error."""
        value = self.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise wrong(name, value, "an object", "invalid_type")
        for key in value:
            if known is not None and key not in known:
                raise ApiError(400, f"{name}: found the field {_shown.repr(key)}, expected {', '.join(known)}", name, "unknown_parameter")
        return value

    def labels(self, name: str) -> dict:
        """An object of up to 16 texts."""
        value = self.object(name)
        if len(value) > 16 or not all(isinstance(text, str) and len(key) <= 64 and len(text) <= 512 for key, text in value.items()):
            raise wrong(name, value, "at most 16 texts of up to 512 characters, with names of up to 64")
        return value


def read_json(raw: bytes):
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body: is no valid JSON ({error})", None, "invalid_json") from None
