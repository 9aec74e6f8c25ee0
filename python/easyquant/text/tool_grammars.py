# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lark grammars of calls of functions, in the form of a family: for answers that have to be calls."""

import json
from collections.abc import Callable, Mapping, Sequence

from easyquant.support.errors import UserError
from easyquant.text.call_forms import read_escaped_call
from easyquant.text.tool_calls import HERMES, LLAMA, MISTRAL, MISTRAL_ARGS, Family

MOST_CALLS = 16  # of one answer
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}

# schema, name of it for messages → a Lark expression
Schema = Callable[[Mapping, str], str]


def forced_calls(family: Family, functions: Sequence[Mapping], several: bool, mark: Callable[[str], str], schema: Schema) -> str:
    """Calls of some of the functions, each {"name", "parameters": a JSON schema}. mark: a text that may be a special token, as Lark has it."""
    rules, calls = [], []
    for number, function in enumerate(functions):
        name, parameters = function["name"], function.get("parameters") or _NO_PARAMETERS
        where = f"tools: parameters of {name}"
        if family in (HERMES, LLAMA, MISTRAL, MISTRAL_ARGS):
            rules.append(f"arguments{number}: {schema(parameters, where)}")
        if family is MISTRAL_ARGS:
            calls.append(f"{mark(family.opens)} {json.dumps(name)} {mark(family.names_first)} arguments{number}")
        elif family in (HERMES, LLAMA, MISTRAL):
            head = f'{{"name": {json.dumps(name)}, "{family.arguments}": '
            calls.append(f'{json.dumps(head)} arguments{number} "}}"')
        else:
            own, call = _named_values(number, name, parameters, family.read is read_escaped_call, mark, schema, where)
            rules += own
            calls.append(call)
    rules.append(f"call: {' | '.join(calls)}")
    again = f"{{0,{MOST_CALLS - 1}}}" if several else "{0,0}"
    if family is HERMES:
        rules.append(f'one: {mark(family.opens)} "\\n" call "\\n" {mark(family.closes)}')
        start = f'one ("\\n" one){again}' if several else "one"
    elif family is MISTRAL:
        start = f'{mark(family.opens)} "[" call (", " call){again} "]"' if several else f'{mark(family.opens)} "[" call "]"'
    elif family is LLAMA:
        start = f'call ("; " call){again}' if several else "call"
    elif family is MISTRAL_ARGS:
        start = f"call call{again}" if several else "call"
    elif family.read is read_escaped_call:
        rules.append(f"one: {mark(family.opens)} call {mark(family.closes)}")
        start = f"one one{again}" if several else "one"
    elif family.opens:
        start = f'"{family.opens}\\n" call ("\\n" call){again} "\\n```"' if several else f'"{family.opens}\\n" call "\\n```"'
    else:
        start = f'"[" call (", " call){again} "]"' if several else '"[" call "]"'
    return "\n".join([f"start: {start}", *rules])


def _named_values(number: int, name: str, parameters: Mapping, is_escaped: bool, mark, schema: Schema, where: str) -> tuple[list[str], str]:
    """Rules of a call whose arguments are names and values, in the order of the schema: the required ones, then some of the others."""
    properties, required = parameters.get("properties") or {}, parameters.get("required") or []
    if not isinstance(properties, Mapping) or not all(isinstance(one, Mapping) for one in properties.values()) or not isinstance(required, list):
        raise UserError(f"{where}: found what is no JSON schema of an object; give it properties, each with a schema")
    names = [one for one in properties if one in required] + [one for one in properties if one not in required]
    equals, comma = (":", ",") if is_escaped else ("=", ", ")
    rules = []
    for place, one in enumerate(names):
        own = {key: value for key, value in {"$defs": parameters.get("$defs"), "definitions": parameters.get("definitions")}.items() if value} | dict(properties[one])
        value = _escaped(own, mark, schema, f"{where}: {one}") if is_escaped else schema(own, f"{where}: {one}")
        rules.append(f"value{number}_{place}: {value}")
        # One that is the first of those that are there, and one that others are before.
        behind = f" more{number}_{place + 1}"
        first, more = f"{json.dumps(one + equals)} value{number}_{place}{behind}", f"{json.dumps(comma + one + equals)} value{number}_{place}{behind}"
        is_required = one in required
        rules.append(f"first{number}_{place}: {first}" + ("" if is_required else f" | first{number}_{place + 1}"))
        rules.append(f"more{number}_{place}: {more}" + ("" if is_required else f" | more{number}_{place + 1}"))
    rules += [f'first{number}_{len(names)}: ""', f'more{number}_{len(names)}: ""']
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
    raise UserError(f"{where}: cannot be forced in this model's form of calls, where texts, numbers and booleans can; ask with tool_choice auto")
