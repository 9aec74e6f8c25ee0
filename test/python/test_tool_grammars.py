# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Grammars of calls within free text, walked at random: what begins as a call is one, whatever is chosen."""

import json
import random

import jsonschema
import numpy as np
import pytest
from tokenizers import Tokenizer

from easyquant.runtime.grammar import Form, GrammarCompiler, lark_schema
from easyquant.text.output import parse_whole
from easyquant.text.tokenizer import load_tokenizer
from easyquant.text.tool_calls import FUNCTION_GEMMA, HERMES, LLAMA, MISTRAL, MISTRAL_ARGS, PYTHONIC, QWEN_CODER, TOOL_CODE, ToolCalls
from easyquant.text.tool_grammars import Marks, calls_in_text, forced_calls
from easyquant.support.errors import UserError
from helpers import write_byte_level

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}, "exact": {"type": "boolean"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
STRICT, LOOSE = {"name": "get_weather", "parameters": SCHEMA, "strict": True}, {"name": "now", "parameters": SCHEMA}
FAMILIES = [HERMES, QWEN_CODER, LLAMA, MISTRAL, MISTRAL_ARGS, PYTHONIC, TOOL_CODE, FUNCTION_GEMMA]
OPENED = {
    HERMES: "Let me <see>.\n<tool_call>", QWEN_CODER: "Let me <see>.\n<tool_call>", LLAMA: "So: <|python_tag|>", MISTRAL: " [x] [TOOL_CALLS]", MISTRAL_ARGS: "I. [TOOL_CALLS]",
    PYTHONIC: "\n[", TOOL_CODE: "I ask.\n```tool_code", FUNCTION_GEMMA: "I <ask> <start_function_call>",
}  # fmt: skip
ARGUMENTS = {HERMES: '{"name": "get_weather", "arguments": {"city": "Ber', LLAMA: '{"name": "get_weather", "parameters": {"city": "Ber'}
END = 0


@pytest.fixture(scope="module", params=[False, True], ids=["marks are texts", "marks are tokens"])
def compiler(request, tmp_path_factory):
    folder = write_byte_level(tmp_path_factory.mktemp("marks"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if request.param:
        tokenizer.add_tokens(sorted({mark for family in FAMILIES for mark in family.marks if mark[0] in "<["}))
        tokenizer.save(str(folder / "tokenizer.json"))
    loaded = load_tokenizer(folder)
    return GrammarCompiler(loaded, loaded.vocab_size, frozenset([END])), loaded


def compiled(compiler, make, family, functions, several=True):
    grammars, _ = compiler
    marks = Marks(grammars.mark, lambda text: grammars.token(text) is not None)
    return grammars.compile(Form(calls=make(family, functions, several, marks, lark_schema)))


def allowed(constraint):
    return set(np.flatnonzero(np.unpackbits(constraint.allowed().view(np.uint8), bitorder="little")).tolist())


def takes(compiler, grammar, text):
    """Where the answer is behind a text; None where it may not be one."""
    constraint = grammar.start()
    for token in compiler[1].encode(text, add_special_tokens=False):
        if token not in allowed(constraint):
            return None
        constraint.take(token)
    return constraint


def walk(compiler, constraint, choice, most=600):
    """Tokens that may come next, at random."""
    tokens = []
    while len(tokens) < most:
        token = choice.choice(sorted(allowed(constraint)))
        if token == END:
            break
        tokens.append(token)
        if constraint.take(token):
            break
    return compiler[1].decode(tokens, skip_special_tokens=False)


def read(family, text, several=True):
    return parse_whole(ToolCalls(family, ["get_weather", "now"], several, {"get_weather": SCHEMA, "now": SCHEMA}), text)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_call_that_begins_follows_its_schema(compiler, family):
    grammar = compiled(compiler, calls_in_text, family, [STRICT])
    for seed in range(6):
        constraint = takes(compiler, grammar, OPENED[family])
        assert constraint is not None
        text = OPENED[family] + walk(compiler, constraint, random.Random(seed))
        calls = read(family, text)["tool_calls"]
        assert {call["function"]["name"] for call in calls} == {"get_weather"}
        jsonschema.validate(json.loads(calls[0]["function"]["arguments"]), SCHEMA)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_text_is_free_and_calls_are_not(compiler, family):
    grammar = compiled(compiler, calls_in_text, family, [STRICT, LOOSE])
    for text in ("", "It is 5 < 6.\n", "\n ", "a [b] {c} `d`\n```python\nx\n```", "<tool", "é💣"):
        constraint = takes(compiler, grammar, text)
        assert constraint is not None and END in allowed(constraint), text
    assert takes(compiler, grammar, OPENED[family] + "nothing of the kind") is None
    if family in ARGUMENTS:
        opened = {HERMES: "<tool_call>\n"}.get(family, "<|python_tag|>") + ARGUMENTS[family]
        assert takes(compiler, grammar, opened[:-3]) is not None and takes(compiler, grammar, opened) is None
        assert takes(compiler, grammar, opened.replace("get_weather", "now")) is not None, "that one is not strict"
        assert takes(compiler, grammar, " " + ARGUMENTS[family][:-3]) is not None and takes(compiler, grammar, '{"x') is None, "an answer that begins like a call"


def test_several_calls_and_one(compiler):
    one = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}\n</tool_call>'
    both = f"Yes.\n{one}\nAnd:{one} So."
    assert takes(compiler, compiled(compiler, calls_in_text, HERMES, [STRICT]), both) is not None
    single = compiled(compiler, calls_in_text, HERMES, [STRICT], several=False)
    assert takes(compiler, single, f"Yes.\n{one} So.") is not None and takes(compiler, single, both) is None
    xml = "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
    coder = compiled(compiler, calls_in_text, QWEN_CODER, [STRICT])
    assert takes(compiler, coder, f"Yes.\n{xml}\n<tool_call>\n{xml}\n{xml}") is not None, "also without the first mark"
    assert takes(compiler, coder, "<tool_call>\n<function=get_weather>\n<parameter=days>") is None, "the city is required"


TEXTS = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "string", "minLength": 2, "maxLength": 4}, "c": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "d": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
    "required": ["b", "d"],
}  # fmt: skip


def test_forced_calls_in_xml(compiler):
    function = {"name": "f", "parameters": TEXTS}
    grammar = compiled(compiler, forced_calls, QWEN_CODER, [function], several=False)
    for seed in range(20):
        text = walk(compiler, grammar.start(), random.Random(seed), most=1500)
        calls = parse_whole(ToolCalls(QWEN_CODER, ["f"], schemas={"f": TEXTS}), text)["tool_calls"]
        if text.endswith("</tool_call>"):
            jsonschema.validate(json.loads(calls[0]["function"]["arguments"]), TEXTS)
    for value, fits in (("ab", True), ("a", False), ("abcde", False), ("</b>", True)):
        text = f"<tool_call>\n<function=f>\n<parameter=b>\n{value}\n</parameter>\n<parameter=d>"
        assert (takes(compiler, grammar, text) is not None) == fits, value
    with pytest.raises(UserError, match="tools: parameters of f: x: cannot be forced in this model's form of calls"):
        compiled(compiler, forced_calls, QWEN_CODER, [{"name": "f", "parameters": {"properties": {"x": {"type": "string", "pattern": "a"}}}}])
