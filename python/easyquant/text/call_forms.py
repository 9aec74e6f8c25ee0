# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of functions that are not written as JSON: Python's form, and that of FunctionGemma."""

import ast
import json
import re
import warnings
from dataclasses import dataclass

_NAMES = {"true": True, "false": False, "null": None, "none": None}  # as JSON writes them
_ESCAPE = "<escape>"
_DEEPEST = 32


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict


def read_python_calls(text: str) -> list[Call] | None:
    """`f(a=1)`, one a line or in a list, also within `print`. Values are literals. None: it is something else."""
    try:
        with warnings.catch_warnings(action="ignore"):
            body = ast.parse(text.strip()).body
        expressions = [statement.value for statement in body if isinstance(statement, ast.Expr)]
        if not body or len(expressions) != len(body):
            return None
        if len(expressions) == 1 and isinstance(expressions[0], ast.List):
            expressions = expressions[0].elts
        return [_python_call(expression) for expression in expressions] or None
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):  # the last one in Python 3.11, where another thread parses at the same time
        return None


def _python_call(expression: ast.expr) -> Call:
    if not isinstance(expression, ast.Call):
        raise ValueError
    function, arguments = ast.unparse(expression.func), expression.args
    if function == "print" and len(arguments) == 1 and isinstance(arguments[0], ast.Call):
        return _python_call(arguments[0])
    if arguments or not re.fullmatch(r"[A-Za-z_][\w.]*", function) or any(keyword.arg is None for keyword in expression.keywords):
        raise ValueError
    found = {keyword.arg: _python_value(keyword.value) for keyword in expression.keywords}
    json.dumps(found, allow_nan=False)
    return Call(function, found)


def _python_value(expression: ast.expr):
    if isinstance(expression, ast.Name) and expression.id in _NAMES:
        return _NAMES[expression.id]
    if isinstance(expression, (ast.List, ast.Tuple)):
        return [_python_value(item) for item in expression.elts]
    if isinstance(expression, ast.Dict):
        return {ast.literal_eval(key): _python_value(value) for key, value in zip(expression.keys, expression.values, strict=True) if key is not None}
    value = ast.literal_eval(expression)
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise ValueError
    return value


def read_escaped_call(text: str) -> list[Call] | None:
    """`call:f{a:<escape>text<escape>,b:[1,2]}`, FunctionGemma's form. None: it is something else."""
    head = re.match(r"\s*call:([\w.-]+)", text)
    if head is None:
        return None
    try:
        value, end = _escaped_value(text, head.end(), 0)
    except (ValueError, IndexError):
        return None
    return [Call(head[1], value)] if isinstance(value, dict) and not text[end:].strip() else None


def _escaped_value(text: str, at: int, depth: int) -> tuple[object, int]:
    """A value that begins at `at`, and where it ends."""
    if depth > _DEEPEST:
        raise ValueError
    if text.startswith(_ESCAPE, at):
        end = text.index(_ESCAPE, at + len(_ESCAPE))
        return text[at + len(_ESCAPE) : end], end + len(_ESCAPE)
    if text[at] == "{":
        found, at = {}, at + 1
        while text[at] != "}":
            colon = text.index(":", at)
            name = text[at:colon].strip().removeprefix(_ESCAPE).removesuffix(_ESCAPE)
            found[name], at = _escaped_value(text, colon + 1, depth + 1)
            at = _behind_comma(text, at, "}")
        return found, at + 1
    if text[at] == "[":
        items, at = [], at + 1
        while text[at] != "]":
            item, at = _escaped_value(text, at, depth + 1)
            items.append(item)
            at = _behind_comma(text, at, "]")
        return items, at + 1
    word = re.compile(r"[^,}\]]*").match(text, at)
    bare = word[0].strip()
    if bare.lower() in _NAMES:
        return _NAMES[bare.lower()], word.end()
    return json.loads(bare, parse_constant=_refuse), word.end()


def _behind_comma(text: str, at: int, end: str) -> int:
    if text[at] == ",":
        return at + 1
    if text[at] != end:
        raise ValueError
    return at


def _refuse(constant: str):
    raise ValueError
