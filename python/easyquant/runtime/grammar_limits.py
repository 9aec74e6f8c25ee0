# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How large grammars may be.

llguidance bounds most of its work itself. What it does not bound is a text that must come as it stands: it looks to the end of it each
time, which takes 10 ms for 10,000 characters and a second for a million. Repetitions within repetitions, and rules that name rules,
write such texts shortly. So their lengths are added up here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from easyquant.support.errors import UserError

MOST_CHARACTERS = 1 << 18  # of a grammar or a schema
LONGEST_TEXT = 10_000  # characters that must come as they stand
DEEPEST = 64  # schemas within each other
DEEPEST_RULES = 256
LARGEST_MULTIPLE = 1000  # of multipleOf, whose automaton grows with its square
_NOTES = {"title", "description", "$comment", "examples", "default"}  # of schemas: nothing follows from them

_COUNTS = r"\{\s*(?P<least>\d+)\s*(?P<range>,\s*\d*\s*)?\}|~\s*(?P<times>\d+)(?:\s*\.\.\s*\d+)?"
_REGEX_PARTS = re.compile(rf"(?P<text>\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|{_COUNTS}|(?P<sign>[()|*?+])|(?P<other>.)", re.DOTALL)
_LARK_PARTS = re.compile(
    rf'"(?P<text>(?:\\.|[^"\\])*)"|/(?P<regex>(?:\\.|[^/\\])+)/|//[^\n]*|#[^\n]*|{_COUNTS}|(?P<name>[A-Za-z_]\w*)|(?P<sign>[()|*?+])|(?P<open>\[)|(?P<close>\])|(?P<other>.)',
    re.DOTALL,
)
_LARK_RULE = re.compile(r"^[ \t]*[?!]?([A-Za-z_]\w*)[^:\n\"/|]*:", re.MULTILINE)


def _refuse(what: str, found: str, most: int, unit: str = ""):
    raise UserError(f"{what}: found {found}, expected at most {most}{unit and ' '}{unit}; make it smaller")


def _check_text(what: str, text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        _refuse(what, str(len(text)), MOST_CHARACTERS, "characters")


@dataclass
class _Forced:
    """Characters that a pattern makes come as they stand: those of its text, and the most within parts that may be left out."""

    length: int = 0
    most: int = 0

    def repeated(self, least: int) -> "_Forced":
        return _Forced(self.length * least, max(self.most, self.length))


class _Adder:
    """Adds up what comes part by part; the longest of alternatives counts."""

    def __init__(self):
        self._groups = [(_Forced(), _Forced())]  # (the longest alternative so far, this one), from the outermost group to the open one
        self._last = _Forced()

    def add(self, part: _Forced) -> None:
        whole = self._groups[-1][1]
        whole.length, whole.most = whole.length + part.length, max(whole.most, part.most)
        self._last = part

    def repeat(self, least: int) -> None:
        """What came last, at least so often."""
        whole, repeated = self._groups[-1][1], self._last.repeated(least)
        whole.length, whole.most = whole.length - self._last.length + repeated.length, max(whole.most, repeated.most)
        self._last = repeated

    def sign(self, sign: str) -> None:
        if sign == "(":
            self._groups.append((_Forced(), _Forced()))
            self._last = _Forced()
        elif sign == ")" and len(self._groups) > 1:
            self.add(self._closed())
        elif sign == "|":
            self._groups.append((self._closed(), _Forced()))
            self._last = _Forced()
        elif sign in "*?":
            self.repeat(0)

    def _closed(self) -> _Forced:
        """A group, or what there is of its alternatives, which is left."""
        longest, own = self._groups.pop()
        return _Forced(max(longest.length, own.length), max(longest.most, own.most))

    def total(self) -> _Forced:
        while len(self._groups) > 1:
            self.add(self._closed())
        return self._closed()


def _least(part: re.Match) -> int | None:
    digits = part["least"] or part["times"]
    return None if digits is None else int(digits[:10])


def _of_regex(pattern: str) -> _Forced:
    adder = _Adder()
    for part in _REGEX_PARTS.finditer(pattern):
        if part["sign"]:
            adder.sign(part["sign"])
        elif (least := _least(part)) is not None:
            adder.repeat(least)
        else:
            adder.add(_Forced(1))
    return adder.total()


class _Rules:
    """The rules of a Lark grammar. One that comes back to itself counts nothing there."""

    def __init__(self, text: str):
        heads = list(_LARK_RULE.finditer(text))
        ends = [*(head.start() for head in heads), len(text)][1:]
        self._bodies = {head[1]: text[head.end() : end] for head, end in zip(heads, ends, strict=True)}
        self._known: dict[str, _Forced] = {}

    def all(self) -> Iterator[tuple[str, _Forced]]:
        for name in self._bodies:
            yield name, self._of(name, 0)

    def _of(self, name: str, depth: int) -> _Forced:
        if name not in self._known and name in self._bodies:
            if depth > DEEPEST_RULES:
                _refuse("response_format: grammar", "more", DEEPEST_RULES, "rules within each other")
            self._known[name] = _Forced()
            self._known[name] = self._of_body(self._bodies[name], depth)
        return self._known.get(name, _Forced())

    def _of_body(self, body: str, depth: int) -> _Forced:
        adder = _Adder()
        for part in _LARK_PARTS.finditer(body):
            if part["text"] is not None:
                adder.add(_Forced(len(part["text"])))
            elif part["regex"]:
                adder.add(_of_regex(part["regex"]))
            elif part["name"]:
                adder.add(self._of(part["name"], depth + 1))
            elif part["sign"] or part["open"]:
                adder.sign(part["sign"] or "(")
            elif part["close"]:
                adder.sign(")")
                adder.repeat(0)
            elif (least := _least(part)) is not None:
                adder.repeat(least)
        return adder.total()


def _check_forced(what: str, forced: _Forced) -> None:
    if max(forced.length, forced.most) > LONGEST_TEXT:
        _refuse(what, f"a text of {max(forced.length, forced.most)} characters", LONGEST_TEXT, "that must come as they stand")


def check_regex(what: str, pattern: str) -> None:
    _check_text(what, pattern)
    _check_forced(what, _of_regex(pattern))


def check_lark(text: str) -> None:
    _check_text("response_format: grammar", text)
    for name, forced in _Rules(text).all():
        _check_forced(f"response_format: grammar: rule {name[:80]}", forced)


def check_schema(schema: Mapping, what: str) -> str:
    """Its text. What it says is llguidance's to understand."""
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{what}: found what is no JSON ({str(error)[:200]}), expected a JSON schema") from None
    _check_text(what, text)
    pending = [(schema, 1, "")]
    while pending:
        value, depth, key = pending.pop()
        if depth > DEEPEST:
            _refuse(what, "more", DEEPEST, "levels")
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            _refuse(what, f"a text of {len(value)} characters", LONGEST_TEXT, "that must come as they stand")
        if key == "pattern" and isinstance(value, str):
            check_regex(f"{what}: pattern", value)
        if key == "multipleOf" and isinstance(value, int) and value > LARGEST_MULTIPLE:
            _refuse(f"{what}: multipleOf", str(value)[:40], LARGEST_MULTIPLE)
        if isinstance(value, Mapping):
            for name, inner in value.items():
                pending.append((name, depth + 1, "pattern" if key == "patternProperties" else ""))
                if name not in _NOTES or key in ("properties", "$defs", "definitions"):
                    pending.append((inner, depth + 1, name))
        elif isinstance(value, (list, tuple)):
            pending += [(inner, depth + 1, "") for inner in value]
    return text
