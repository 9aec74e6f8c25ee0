# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What answers look like, as a command line says it: by a JSON schema, or by a regular expression."""

import json
from pathlib import Path
from typing import Annotated

import typer

from easyquant.runtime.grammar import Form
from easyquant.runtime.requests import PromptReader
from easyquant.support.errors import UserError

JsonSchemaOption = Annotated[
    str | None,
    typer.Option("--json-schema", metavar="FILE|TEXT", help="Answer with JSON that is valid by this schema: a file, or the schema itself, which begins with {."),
]
RegexOption = Annotated[str | None, typer.Option("--regex", metavar="PATTERN", help="Answer with a text that this regular expression matches from its first character to its last.")]


def response_format(json_schema: str | None, regex: str | None) -> dict | None:
    """None: any text."""
    if json_schema is not None and regex is not None:
        raise UserError("--json-schema and --regex: an answer has one form; give one of them")
    if json_schema is not None:
        return {"type": "json_schema", "json_schema": {"schema": _read_schema(json_schema)}}
    if regex == "":
        raise UserError("--regex: found an empty text, expected a regular expression")
    return None if regex is None else {"type": "regex", "regex": regex}


def _read_schema(given: str) -> dict:
    is_text = given.lstrip().startswith("{")
    where = "--json-schema" if is_text else f"--json-schema {given}"
    try:
        schema = json.loads(given if is_text else Path(given).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: is not UTF-8 (byte {error.start}); convert the file, for instance with iconv") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: is not valid JSON ({error}); expected an object, a JSON schema") from None
    except OSError as error:
        raise UserError(f"{where}: {error.strerror}; give a file, or a schema that begins with {{") from None
    if not isinstance(schema, dict):
        raise UserError(f"{where}: found JSON that is no object, expected a JSON schema")
    return schema


def check_form(reader: PromptReader, given: dict | None) -> None:
    """Compiles it, once for all prompts. UserError, by the name of the option, where that cannot be done."""
    if given is None:
        return
    try:
        reader.grammars.compile(Form(given))
    except UserError as error:
        option = "--regex" if given["type"] == "regex" else "--json-schema"
        raise UserError(f"{option}{str(error).removeprefix('response_format').removeprefix(': schema')}") from None
