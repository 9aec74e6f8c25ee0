# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lark grammars of calls of functions, in the form of a family: for answers that have to be calls, and for texts that may have some."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from easyquant.support.errors import UserError
from easyquant.text.call_forms import read_escaped_call
from easyquant.text.tool_calls import HERMES, LLAMA, MISTRAL, MISTRAL_ARGS, PYTHONIC, QWEN_CODER, Family
from easyquant.text.xml_calls import types_of

MOST_CALLS = 16  # of one answer
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
_JSON_CALLS = (HERMES, LLAMA, MISTRAL, MISTRAL_ARGS)
_SAYS_NOTHING = {"type", "title", "description", "default", "examples", "$defs", "definitions"}  # of what a text may be

# schema, name of it for messages → a Lark expression
Schema = Callable[[Mapping, str], str]


@dataclass(frozen=True)
class Marks:
    """Texts as Lark has them, which may be special tokens."""

    write: Callable[[str], str]
    is_token: Callable[[str], bool]


@dataclass(frozen=True)
class _Shape:
    """How a family writes calls, in terms of the rule `call`."""

    body: str  # behind the mark that opens them
    joint: str | None = None  # between one that was opened and the next; None: the body has all calls
    bare: str = ""  # calls that are all of the answer, without a mark
    other: str = ""  # behind the other mark that opens them


def _shape(family: Family, several: bool, marks: Marks) -> _Shape:
    def listed(joint: str) -> str:
        return f"call ({json.dumps(joint)} call){{0,{MOST_CALLS - 1}}}" if several else "call"

    if family is HERMES:
        return _Shape(f'"\\n" call "\\n" {marks.write(family.closes)}', "\n", listed("\n"))
    if family is QWEN_CODER:
        end = f'"\\n" {marks.write(family.closes)}'
        return _Shape(f'"\\n{family.also_opens}" call {end}', "\n", other=f"call {end}")
    if family is LLAMA:
        return _Shape(listed("; "), bare=listed("; "))
    if family is MISTRAL:
        return _Shape(f'"[" {listed(", ")} "]"')
    if family is MISTRAL_ARGS:
        return _Shape("call", "")
    if family is PYTHONIC:
        return _Shape("", bare=f'"[" {listed(", ")} "]"')
    if family.read is read_escaped_call:
        return _Shape(f"call {marks.write(family.closes)}", "")
    lines = listed("\n")
    return _Shape(f'"\\n" {lines} "\\n{family.closes}"')


def forced_calls(family: Family, functions: Sequence[Mapping], several: bool, marks: Marks, schema: Schema) -> str:
    """Calls of some of the functions, each {"name", "parameters": a JSON schema}, and nothing else."""
    shape, rules = _shape(family, several, marks), _rules(family, functions, marks, schema)
    if family in (LLAMA, PYTHONIC):
        return "\n".join([f"start: {shape.bare}", *rules])
    start = "one"
    if several and shape.joint is not None:
        start += f" ({json.dumps(shape.joint)} one){{0,{MOST_CALLS - 1}}}" if shape.joint else f" one{{0,{MOST_CALLS - 1}}}"
    return "\n".join([f"start: {start}", f"one: {marks.write(family.opens)} {shape.body}", *rules])


def calls_in_text(family: Family, functions: Sequence[Mapping], several: bool, marks: Marks, schema: Schema) -> str:
    """Any text, and calls in it: what begins as one has to be one. Arguments of functions that are not `strict` may be any.

    An answer that begins with the character of calls without a mark is such a call.
    """
    shape, rules = _shape(family, several, marks), _rules(family, functions, marks, schema, only_strict=True)
    openings = [(mark, body) for mark, body in ((family.opens, shape.body), (family.also_opens, shape.other)) if mark and body]
    texts = "|".join(_literal(mark) for mark, _ in openings if not marks.is_token(mark))
    without = f" & ~/(?s:.*)({texts})(?s:.*)/" if texts else ""
    begins = rf"\s*[^\s{re.escape(family.also_bare)}](?s:.*)" if family.also_bare else "(?s:.+)"
    rules += [f"TEXT: /(?s:.+)/{without}", f"FIRST: /{begins}/{without}"]
    first, later = [], []
    for number, (mark, body) in enumerate(openings):
        rules.append(f"body{number}: {body}")
        if marks.is_token(mark):
            first.append(f"(FIRST | BLANKS)? {marks.write(mark)} body{number}")
            later.append(f"TEXT? {marks.write(mark)} body{number}")
        else:  # what is before it and it are one lexeme, which ends with the first mark
            rules.append(rf"first{number}[lazy]: /({begins})?\s*{_literal(mark)}/")
            rules.append(f"later{number}[lazy]: /(?s:.*){_literal(mark)}/")
            first.append(f"first{number} body{number}")
            later.append(f"later{number} body{number}")
    ways = ["FIRST?", "BLANKS"]
    if openings:
        again = f" later{{0,{MOST_CALLS - 1}}}" if several and shape.joint is not None else ""
        ways.append(f"first{again} TEXT?")
        rules += [f"first: {' | '.join(first)}", f"later: {' | '.join(later)}"]
    if shape.bare:
        ways.append(f"BLANKS? {shape.bare}")
    return "\n".join([f"start: {' | '.join(ways)}", r"BLANKS: /\s+/", *rules])


def _literal(text: str) -> str:
    """A text in a regular expression of Lark's."""
    return re.escape(text).replace("/", r"\/")


def _rules(family: Family, functions: Sequence[Mapping], marks: Marks, schema: Schema, only_strict: bool = False) -> list[str]:
    """The rule `call` and what it needs, without what opens and closes it. only_strict: the other functions take any arguments."""
    rules, calls = [], []
    for number, function in enumerate(functions):
        name, is_free = function["name"], only_strict and not function.get("strict")
        parameters = function.get("parameters") or _NO_PARAMETERS
        where = f"tools: parameters of {name}"
        if family in _JSON_CALLS:
            rules.append(f"arguments{number}: {schema({'type': 'object'} if is_free else parameters, where)}")
            if family is MISTRAL_ARGS:
                calls.append(f"{json.dumps(name)} {marks.write(family.names_first)} arguments{number}")
            else:
                head = f'{{"name": {json.dumps(name)}, "{family.arguments}": '
                calls.append(f'{json.dumps(head)} arguments{number} "}}"')
        elif family is QWEN_CODER and is_free:
            rules.append(rf"free{number}[lazy]: /(?s:.*)<\/function>/")
            calls.append(f"{json.dumps(name + '>')} free{number}")
        elif family is QWEN_CODER:
            own, values = _xml_values(number, parameters, schema, where)
            rules += own
            calls.append(f'{json.dumps(name + ">")} "\\n" {values}"</function>"')
        elif is_free:
            begin, end, inside = (f"call:{name}{{", "}", "{}") if family.read is read_escaped_call else (f"{name}(", ")", "()")
            calls.append(rf"{json.dumps(begin)} /(?s:[^{inside}]*)/ {json.dumps(end)}")
        else:
            own, call = _named_values(number, name, parameters, family.read is read_escaped_call, marks.write, schema, where)
            rules += own
            calls.append(call)
    return [*rules, f"call: {' | '.join(calls)}"]


def _properties(parameters: Mapping, where: str) -> tuple[dict[str, dict], list[str]]:
    """Schemas by name, each with the definitions of all, the required ones first; and the names of these."""
    properties, required = parameters.get("properties") or {}, parameters.get("required") or []
    if not isinstance(properties, Mapping) or not all(isinstance(one, Mapping) for one in properties.values()) or not isinstance(required, list):
        raise UserError(f"{where}: found what is no JSON schema of an object; give it properties, each with a schema")
    names = [one for one in properties if one in required] + [one for one in properties if one not in required]
    shared = {key: parameters[key] for key in ("$defs", "definitions") if parameters.get(key)}
    return {name: shared | dict(properties[name]) for name in names}, required


def _xml_values(number: int, parameters: Mapping, schema: Schema, where: str) -> tuple[list[str], str]:
    """Rules of a call's parameters, and the expression of all of them, in the order of the schema."""
    properties, required = _properties(parameters, where)
    rules, values = [], ""
    for place, (name, own) in enumerate(properties.items()):
        types, end = types_of(own, own), json.dumps("\n</parameter>\n")
        if "string" in types and isinstance(own.get("enum"), list) and all(isinstance(value, str) for value in own["enum"]):
            value = f"({' | '.join(json.dumps(value) for value in own['enum'])}) {end}"
        elif _is_any_text(own, types):
            length = f"{{{own.get('minLength', 0)},{own.get('maxLength', '')}}}"
            rules.append(rf"text{number}_{place}[lazy]: /(?s:.{length})\n<\/parameter>\n/ & ~/(?s:.*)<\/parameter>(?s:.+)<\/parameter>\n/")
            value = f"text{number}_{place}"
        elif types and "string" not in types:
            value = f"({schema(own, f'{where}: {name}')}) {end}"
        else:
            raise UserError(f"{where}: {name}: cannot be forced in this model's form of calls, where texts without a pattern and what is no text can; ask with tool_choice auto and without strict")
        rules.append(f"value{number}_{place}: {json.dumps(f'<parameter={name}>' + chr(10))} {value}")
        values += f"value{number}_{place}{'' if name in required else '?'} "
    return rules, values


def _is_any_text(own: Mapping, types: set[str]) -> bool:
    """Is every text valid, apart from its length?"""
    if types and "string" not in types:
        return False
    parts = [part for key in ("anyOf", "oneOf") for part in own.get(key, [])]
    lengths = {"minLength", "maxLength"} if types == {"string"} and not parts else set()
    return own.keys() <= _SAYS_NOTHING | lengths | {"anyOf", "oneOf"} and all(isinstance(part, Mapping) and part.keys() <= _SAYS_NOTHING for part in parts)


def _named_values(number: int, name: str, parameters: Mapping, is_escaped: bool, mark, schema: Schema, where: str) -> tuple[list[str], str]:
    """Rules of a call whose arguments are names and values, in the order of the schema: the required ones, then some of the others."""
    properties, required = _properties(parameters, where)
    equals, comma = (":", ",") if is_escaped else ("=", ", ")
    rules = []
    for place, (one, own) in enumerate(properties.items()):
        value = _escaped(own, mark, schema, f"{where}: {one}") if is_escaped else schema(own, f"{where}: {one}")
        rules.append(f"value{number}_{place}: {value}")
        # One that is the first of those that are there, and one that others are before.
        behind = f" more{number}_{place + 1}"
        first, more = f"{json.dumps(one + equals)} value{number}_{place}{behind}", f"{json.dumps(comma + one + equals)} value{number}_{place}{behind}"
        is_required = one in required
        rules.append(f"first{number}_{place}: {first}" + ("" if is_required else f" | first{number}_{place + 1}"))
        rules.append(f"more{number}_{place}: {more}" + ("" if is_required else f" | more{number}_{place + 1}"))
    rules += [f'first{number}_{len(properties)}: ""', f'more{number}_{len(properties)}: ""']
    begin, end = (f"call:{name}{{", "}") if is_escaped else (f"{name}(", ")")
    return rules, f"{json.dumps(begin)} first{number}_0 {json.dumps(end)}"


def _escaped(own: Mapping, mark, schema: Schema, where: str) -> str:
    """A value between marks where it is a text."""
    if "enum" in own and all(isinstance(value, str) for value in own["enum"]):
        return f"{mark('<escape>')} ({' | '.join(json.dumps(value) for value in own['enum'])}) {mark('<escape>')}"
    if own.get("type") == "string":
        return f"{mark('<escape>')} /[^<]{{0,1000}}/ {mark('<escape>')}"
    if own.get("type") in ("integer", "number", "boolean"):
        return schema(own, where)
    raise UserError(f"{where}: cannot be forced in this model's form of calls, where texts, numbers and booleans can; ask with tool_choice auto and without strict")
