# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an answer has to look like: formats, tools, and the choice among them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from easyquant.runtime.grammar import Form, Grammar, check_response_format, lark_schema
from easyquant.server.errors import ApiError, of_user_error
from easyquant.server.fields import Body, Field, Fields, wrong
from easyquant.server.served import ServedModel
from easyquant.support.errors import UserError
from easyquant.text.output import OutputParser, PlainText, Thinking
from easyquant.text.tool_calls import Family, ToolCalls, family_of
from easyquant.text.tool_grammars import Marks, calls_in_text, forced_calls

MOST_TOOLS = 128
TOOLS: Fields = {
    "tools": Field(f"up to {MOST_TOOLS} functions that the model may call, in the form that its chat template teaches"),
    "tool_choice": Field("auto, none, required, a function, or allowed_tools; what is forced is forced by a grammar"),
    "parallel_tool_calls": Field("false: one call an answer at most"),
    "structured_outputs": Field("an extra, as in vLLM: one of `json` (a schema), `regex`, `choice` (a list of texts), `grammar` (Lark), `json_object`"),
}
_FUNCTION_FIELDS = ("name", "description", "parameters", "strict")
_SCHEMA_FIELDS = ("name", "description", "schema", "strict")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class Tools:
    """The functions that an answer may call."""

    functions: tuple[Mapping, ...] = ()  # {"name", "description", "parameters", "strict"}
    is_forced: bool = False
    several: bool = True
    choice: object = "auto"  # as the client said it

    @property
    def for_template(self) -> list[dict]:
        return [{"type": "function", "function": {name: value for name, value in function.items() if name != "strict"}} for function in self.functions]


def _read_function(function, where: str) -> dict:
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not _NAME.fullmatch(function["name"]):
        raise wrong(where, function, "an object with a name of up to 64 letters, digits, dashes, dots and underscores")
    for name in function:
        if name not in _FUNCTION_FIELDS:
            raise ApiError(400, f"{where}: found the field {name[:80]!r}, expected {', '.join(_FUNCTION_FIELDS)}", "tools", "unknown_parameter")
    found = {name: value for name, value in function.items() if value is not None}
    if not isinstance(found.get("parameters", {}), dict):
        raise wrong(f"{where}.parameters", found["parameters"], "an object, a JSON schema")
    if not isinstance(found.get("description", ""), str) or not isinstance(found.get("strict", True), bool):
        raise wrong(where, function, "a description that is a text, and strict true or false")
    return found


def _read_tool(tool, where: str, is_flat: bool) -> dict:
    """is_flat: as in /v1/responses, where a function's fields are the tool's own."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != "function":
        raise ApiError(400, f"{where}: found a tool of type {str(kind)[:80]!r}, expected function; the server has no tools of its own", "tools", "unsupported_parameter")
    if is_flat:
        return _read_function({name: value for name, value in tool.items() if name != "type"}, where)
    if set(tool) != {"type", "function"}:
        raise wrong(where, tool, 'an object of "type" and "function"')
    return _read_function(tool["function"], f"{where}.function")


def _chosen(choice: dict, is_flat: bool) -> tuple[list[str] | None, bool]:
    """The names of the only functions that may be called, and whether one has to be."""
    named = choice if is_flat else choice.get("function")
    if choice.get("type") == "function" and isinstance(named, dict) and isinstance(named.get("name"), str):
        return [named["name"]], True
    allowed = choice if is_flat else choice.get("allowed_tools")
    if choice.get("type") == "allowed_tools" and isinstance(allowed, dict) and allowed.get("mode") in ("auto", "required") and isinstance(allowed.get("tools"), list):
        found = [tool if is_flat else tool.get("function") for tool in allowed["tools"] if isinstance(tool, dict)]
        return [tool.get("name") for tool in found if isinstance(tool, dict)], allowed["mode"] == "required"
    raise wrong("tool_choice", choice, 'auto, none, required, or an object such as {"type": "function", …} that names a function')


def read_tools(body: Body, is_flat: bool = False) -> Tools:
    tools, choice = body.get("tools") or [], body.get("tool_choice")
    if not isinstance(tools, list) or len(tools) > MOST_TOOLS:
        raise wrong("tools", tools, f"a list of at most {MOST_TOOLS} tools")
    functions = [_read_tool(tool, f"tools[{number}]", is_flat) for number, tool in enumerate(tools)]
    names = [function["name"] for function in functions]
    if len(set(names)) < len(names):
        raise wrong("tools", names, "functions of different names")
    several, only, is_forced = body.flag("parallel_tool_calls", True), None, choice == "required"
    if isinstance(choice, dict):
        only, is_forced = _chosen(choice, is_flat)
        several = several and choice.get("type") != "function"
        if missing := [name for name in only if name not in names]:
            raise wrong("tool_choice", missing[0], f"a function of tools ({', '.join(names) or 'there are none'})")
    elif choice not in (None, "auto", "none", "required"):
        raise wrong("tool_choice", choice, "auto, none, required, or an object that names a function")
    if choice == "none":
        functions = []
    elif only is not None:
        functions = [function for function in functions if function["name"] in only]
    if is_forced and not functions:
        raise wrong("tool_choice", choice, "tools, where one has to be called")
    return Tools(tuple(functions), is_forced, several, "auto" if choice is None else choice)


def read_schema_format(given, where: str) -> dict:
    """The object of a json_schema, without what only says what it is for."""
    if not isinstance(given, dict):
        raise wrong(where, given, 'an object with "schema"')
    for name in given:
        if name not in _SCHEMA_FIELDS:
            raise ApiError(400, f"{where}: found the field {name[:80]!r}, expected {', '.join(_SCHEMA_FIELDS)}", where, "unknown_parameter")
    return {"type": "json_schema", "json_schema": {"schema": given.get("schema")}}


def read_format(value, where: str) -> dict | None:
    """A response_format; None: any text."""
    if isinstance(value, dict) and value.get("type") == "json_schema":
        value = read_schema_format(value.get("json_schema"), f"{where}.json_schema")
    try:
        check_response_format(value)
    except UserError as error:
        raise ApiError(400, str(error), where, "invalid_value") from None
    return None if value is None or value["type"] == "text" else value


def _read_structured(body: Body) -> dict | None:
    given = body.object("structured_outputs", ("json", "regex", "choice", "grammar", "json_object"))
    given = {name: value for name, value in given.items() if value not in (None, False)}
    if not given:
        return None
    if len(given) > 1:
        raise wrong("structured_outputs", given, "one of its fields")
    ((kind, value),) = given.items()
    if kind == "json_object":
        value = {"type": "json_object"}
    elif kind == "json":
        value = {"type": "json_schema", "json_schema": {"schema": value}}
    elif kind == "choice":
        if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
            raise wrong("structured_outputs.choice", value, "a list of texts that are not empty")
        value = {"type": "regex", "regex": "|".join(f"(?:{_literal(text)})" for text in value)}
    else:
        value = {"type": kind, kind: value}
    return read_format(value, "structured_outputs")


def _literal(text: str) -> str:
    """As a regular expression."""
    return re.sub(r"[\\.+*?()|\[\]{}^$#&\-~/\s]", lambda match: f"\\x{{{ord(match[0]):x}}}", text)


@dataclass(frozen=True)
class AnswerForm:
    """All that the fields of a request say of the form of its answers."""

    served: ServedModel
    tools: Tools
    response_format: dict | None
    family: Family | None = field(init=False)

    def __post_init__(self) -> None:
        family = family_of(self.served.reader.tokenizer.chat_template or "") if self.tools.functions else None
        object.__setattr__(self, "family", family)
        if self.tools.functions and family is None:
            raise ApiError(400, f"tools: the chat template of {self.served.name} teaches no calls of functions in a form that is known here; ask without tools", "tools", "unsupported_parameter")

    def _thoughts(self, rendered: str) -> str:
        """What may come before the answer of a model that thinks."""
        if not self.served.thinks or rendered.rstrip().endswith("</think>"):
            return ""
        grammars = self.served.reader.grammars
        is_token = grammars.token("</think>") is not None
        thought = f"thought: /(?s:.*)/ {grammars.mark('</think>')}" if is_token else r"thought[lazy]: /(?s:.*)<\/think>/"
        whole = "thought /\\s{1,8}/?"
        if not rendered.rstrip().endswith("<think>"):
            whole = f"({grammars.mark('<think>')} {whole})?"
        return f"before: {whole}\n{thought}"

    def grammar(self, rendered: str) -> Grammar | None:
        """rendered: the prompt as a text."""
        tools, calls, grammars = self.tools, None, self.served.reader.grammars
        is_alone = tools.is_forced or bool(self.response_format)  # calls without text around them
        try:
            if self.family and (is_alone or any(function.get("strict") for function in tools.functions)):
                marks = Marks(grammars.mark, lambda text: grammars.token(text) is not None)
                calls = (forced_calls if is_alone else calls_in_text)(self.family, tools.functions, tools.several, marks, lark_schema)
            form = Form(None if tools.is_forced else self.response_format, calls, self._thoughts(rendered))
            return grammars.compile(form)
        except UserError as error:
            raise of_user_error(error, "tools" if calls else "response_format") from None

    @property
    def shown(self) -> frozenset[int]:
        """Special tokens that the parser has to see."""
        marks = (self.family.marks if self.family else []) + (["<think>", "</think>"] if self.served.thinks else [])
        ids = (self.served.reader.tokenizer.special_token(mark) for mark in marks)
        return frozenset(token for token in ids if token is not None)

    def parser(self, rendered: str) -> OutputParser:
        schemas = {function["name"]: function.get("parameters") or {} for function in self.tools.functions}
        said: OutputParser = ToolCalls(self.family, schemas, self.tools.several, schemas) if self.family else PlainText()
        return Thinking(rendered.rstrip().endswith("<think>"), said) if self.served.thinks else said


def read_form(body: Body, served: ServedModel) -> AnswerForm:
    """Of /v1/chat/completions."""
    value, structured = read_format(body.get("response_format"), "response_format"), _read_structured(body)
    if value and structured:
        raise wrong("structured_outputs", body.get("structured_outputs"), "nothing, where there is a response_format")
    return AnswerForm(served, read_tools(body), value or structured)


def read_text_form(body: Body, served: ServedModel) -> AnswerForm:
    """Of /v1/responses, where the format is one of `text`."""
    given = body.object("text", ("format", "verbosity")).get("format")
    if isinstance(given, dict) and given.get("type") == "json_schema":
        value = read_schema_format({name: entry for name, entry in given.items() if name != "type"}, "text.format")
        value = read_format(value, "text.format")
    else:
        value = read_format(given, "text.format")
    structured = _read_structured(body)
    if value and structured:
        raise wrong("structured_outputs", body.get("structured_outputs"), "nothing, where text has a format")
    return AnswerForm(served, read_tools(body, is_flat=True), value or structured)
