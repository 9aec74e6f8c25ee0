# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of functions in the text of answers: each family's form, whatever the pieces in which it comes."""

import json
import random

import pytest

from easyquant.text.output import PlainText, Thinking, merge_calls, parse_whole
from easyquant.text.tool_calls import FUNCTION_GEMMA, HERMES, LLAMA, MISTRAL, MISTRAL_ARGS, PYTHONIC, QWEN_CODER, TOOL_CODE, ToolCalls, family_of

NAMES = ("f", "get_weather", "a.b")
PARIS = '{"city": "Paris \\"}{[", "days": [1, {"x": null}]}'
WEATHER = ("get_weather", {"city": 'Paris "}{[', "days": [1, {"x": None}]})
F = ("f", {})
SCHEMAS = {
    "get_weather": {
        "properties": {
            "city": {"type": "string"}, "days": {"type": "array"}, "count": {"$ref": "#/$defs/count"}, "exact": {"type": "boolean"}, "id": {"type": ["string", "integer"]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "unit": {"enum": ["C", "F"]},
        },
        "$defs": {"count": {"type": "integer"}},
    }
}  # fmt: skip


def xml(name, *parameters):
    return f"<function={name}>\n" + "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters) + "</function>"


CASES = [
    (HERMES, f'<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>', None, [WEATHER]),
    (HERMES, f'I look.\n\n<tool_call>{{"name":"f","arguments":{{}}}}</tool_call>\n<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>\n', "I look.", [F, WEATHER]),
    (HERMES, f'<tool_call>{{"arguments": {PARIS}, "name": "get_weather"}}</tool_call>', None, [WEATHER]),
    (HERMES, '<tool_call>{"name": "f", "arguments": "{}"}</tool_call> then', " then", [F]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {}}<tool_call>{"type": "function", "name": "f", "arguments": {}}', None, [F, F]),
    (HERMES, '<tool_call>{"name": "f"}</tool_call>', None, [F]),
    (HERMES, 'a <tool_call> {"title": 1} b', 'a <tool_call> {"title": 1} b', []),
    (HERMES, "a < b <tool_cal", "a < b <tool_cal", []), (HERMES, "a \n<tool_call>\nno", "a \n<tool_call>\nno", []), (HERMES, '<tool_call>{"name"', '<tool_call>{"name"', []),
    (HERMES, " \n plain\n", " \n plain\n", []), (HERMES, "", None, []), (HERMES, '{"name": "g", "arguments": {}}', '{"name": "g", "arguments": {}}', []),
    (HERMES, '{"name": "f", "arguments": {}}\n{"name": "f", "arguments": {}}', None, [F, F]), (HERMES, '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n<tool_call>{"na', None, [F]),
    (HERMES, '{"name": "f", "arguments": {}}\n{"a": 1} b', '\n{"a": 1} b', [F]),
    (LLAMA, f'{{"name": "get_weather", "parameters": {PARIS}}}', None, [WEATHER]),
    (LLAMA, f'\n<|python_tag|>{{"type": "function", "name": "get_weather", "parameters": {PARIS}}}; {{"name": "f", "parameters": {{}}}}', None, [WEATHER, F]),
    (LLAMA, '{"name": "other", "parameters": {}}', '{"name": "other", "parameters": {}}', []), (LLAMA, '{"a": 1}\nmore', '{"a": 1}\nmore', []),
    (LLAMA, '<|python_tag|>print(1)', "<|python_tag|>print(1)", []), (LLAMA, 'So: {"name": "f", "parameters": {}}', 'So: {"name": "f", "parameters": {}}', []),
    (MISTRAL, f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {PARIS}}}, {{"name": "f", "arguments": {{}}}}]', None, [WEATHER, F]),
    (MISTRAL, '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "123456789"}]', None, [F]), (MISTRAL, "ok [TOOL_CALLS] x", "ok [TOOL_CALLS] x", []),
    (MISTRAL_ARGS, f"Yes.[TOOL_CALLS]get_weather[ARGS]{PARIS}[TOOL_CALLS]f[ARGS]{{}}", "Yes.", [WEATHER, F]), (MISTRAL_ARGS, "[TOOL_CALLS]{", "[TOOL_CALLS]{", []),
    (TOOL_CODE, '```tool_code\nprint(get_weather(city=\'Paris "}{[\', days=[1, {"x": None}]))\n```\n', None, [WEATHER]), (TOOL_CODE, "I do:\n```tool_code\na.b(x=true)\nf()", "I do:", [("a.b", {"x": True}), F]),
    (TOOL_CODE, "```tool_code\nimport os\n```", "```tool_code\nimport os\n```", []), (TOOL_CODE, "```python\nf()\n```", "```python\nf()\n```", []),
    (PYTHONIC, "[get_weather(city='Paris \"}{[', days=[1, {'x': None}]), f()]", None, [WEATHER, F]), (PYTHONIC, "[1, f]", "[1, f]", []), (PYTHONIC, "[other()]", "[other()]", []),
    (PYTHONIC, "[f(x=[1])]", None, [("f", {"x": [1]})]), (PYTHONIC, "[f(x=__import__('os').system('x'))]", "[f(x=__import__('os').system('x'))]", []),
    (FUNCTION_GEMMA, '<start_function_call>call:get_weather{city:<escape>Paris "}{[<escape>,days:[1,{x:null}]}<end_function_call>', None, [WEATHER]),
    (FUNCTION_GEMMA, "<start_function_call>call:f{}<end_function_call><start_function_call>call:f{a:-1.5,b:true}<end_function_call>", None, [F, ("f", {"a": -1.5, "b": True})]),
    (QWEN_CODER, f"I look.\n<tool_call>\n{xml('get_weather', ('city', 'Paris'), ('days', '[1, 2]'), ('count', '3'), ('exact', 'True'))}\n</tool_call>\n<tool_call>\n{xml('f')}\n</tool_call>", "I look.",
     [("get_weather", {"city": "Paris", "days": [1, 2], "count": 3, "exact": True}), F]),
    (QWEN_CODER, f"{xml('get_weather', ('city', '5'), ('id', '5'), ('note', 'null'), ('unit', 'C'))}\n</tool_call>", None, [("get_weather", {"city": "5", "id": 5, "note": None, "unit": "C"})]),
    (QWEN_CODER, xml("get_weather", ("city", 'a "quote"\n\n\t<b>\\</b></function>\n'), ("id", "x"), ("note", "nullable"), ("days", "none of them [")), None,
     [("get_weather", {"city": 'a "quote"\n\n\t<b>\\</b></function>\n', "id": "x", "note": "nullable", "days": "none of them ["})]),
    (QWEN_CODER, "<tool_call><function=f><parameter=other>1</parameter></function></tool_call> then", " then", [("f", {"other": "1"})]),
    (QWEN_CODER, '<tool_call>\n{"name": "f"}', '<tool_call>\n{"name": "f"}', []), (QWEN_CODER, "a <function=\n", "a <function=\n", []), (QWEN_CODER, "a < b <func", "a < b <func", []),
    (FUNCTION_GEMMA, "<start_function_call>call:f{a:}<end_function_call>", "<start_function_call>call:f{a:}<end_function_call>", []),
]  # fmt: skip


def simplified(message):
    """Without ids, which are random."""
    calls = message.pop("tool_calls", [])
    assert len({call["id"] for call in calls}) == len(calls)
    return message, [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def of_pieces(make, pieces):
    message, parser = {}, make()
    for deltas in [*map(parser.push, pieces), parser.finish()]:
        for name, value in deltas:
            if name == "tool_calls":
                merge_calls(message.setdefault(name, []), value)
            else:
                message[name] = message.get(name, "") + value
    return simplified(message), parser.finish_reason("stop")


def assert_same_in_pieces(make, text, seed=0):
    whole = of_pieces(make, [text])
    for place in range(len(text) + 1):
        assert of_pieces(make, [text[:place], text[place:]]) == whole
    assert of_pieces(make, text) == whole
    choice = random.Random(seed)
    for _ in range(5):
        cuts = sorted(choice.sample(range(len(text) + 1), min(len(text), 4)))
        assert of_pieces(make, [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == whole
    return whole


@pytest.mark.parametrize("family, text, content, calls", CASES)
def test_forms(family, text, content, calls):
    (message, found), reason = assert_same_in_pieces(lambda: ToolCalls(family, NAMES, schemas=SCHEMAS), text)
    assert [(name, json.loads(arguments)) for name, arguments in found] == calls
    assert message == ({} if content is None else {"content": content}) and reason == ("tool_calls" if calls else "stop")


def test_arguments_are_told_as_they_come():
    parser = ToolCalls(HERMES, NAMES)
    assert parser.push('<tool_call>\n{"name": "f", "argum') == []
    ((_, (call,)),) = parser.push('ents": {"a"')
    assert call | {"id": ""} == {"index": 0, "id": "", "type": "function", "function": {"name": "f", "arguments": '{"a"'}} and call["id"].startswith("call_")
    assert parser.push(': 1') == [("tool_calls", [{"index": 0, "function": {"arguments": ": 1"}}])]
    assert parser.push("}}\n</tool_call>") == [("tool_calls", [{"index": 0, "function": {"arguments": "}"}}])] and parser.finish() == []
    assert parser.finish_reason("length") == "length"


def test_texts_of_xml_are_told_as_they_come():
    parser = ToolCalls(QWEN_CODER, NAMES, schemas=SCHEMAS)

    def told(piece):
        return "".join(call["function"]["arguments"] for name, calls in parser.push(piece) for call in calls)

    assert parser.push("<tool_call>\n<function=get_") == []
    ((_, (call,)),) = parser.push("weather>")
    assert call["function"] == {"name": "get_weather", "arguments": "{"}
    assert [told(piece) for piece in ("\n<parameter=city>\nNew", ' "Y', "ork\n", "</para", "meter>", "<parameter=count>\n1", "2\n</parameter>\n</function>")] == [
        '"city": "New', ' \\"Y', "ork", "", '"', ', "count": ', "12}",
    ]  # fmt: skip


def test_ids_of_mistral_have_nine_characters():
    (call,) = parse_whole(ToolCalls(MISTRAL, NAMES), '[TOOL_CALLS] [{"name": "f", "arguments": {}}]')["tool_calls"]
    assert len(call["id"]) == 9 and call["id"].isalnum()


def test_one_call_where_they_are_not_parallel():
    for family, text, _, calls in CASES:
        found = parse_whole(ToolCalls(family, NAMES, parallel=False), text).get("tool_calls", [])
        assert [call["function"]["name"] for call in found] == [name for name, _ in calls[:1]]


def test_thoughts_before_calls():
    text = '<think>\nA <tool_call>?</think>\n\n<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    found = assert_same_in_pieces(lambda: Thinking(False, ToolCalls(HERMES, NAMES)), text)
    assert found == (({"reasoning_content": "A <tool_call>?"}, [("f", "{}")]), "tool_calls")
    assert assert_same_in_pieces(lambda: Thinking(True, PlainText()), "a</think>b")[0] == ({"reasoning_content": "a", "content": "b"}, [])


PARTS = ["<tool_call>", "</tool_call>", '{"name": "f", "arguments": ', "{}", "}", '{"a": "}"}', " \n", "text", "[TOOL_CALLS]", "[", "]", ",", ";", "[ARGS]", "f", "<|python_tag|>", '{"name": "f", "parameters": ',
         "```tool_code\n", "```", "f(a=1)", "<start_function_call>", "<end_function_call>", "call:f{", "<function=f>", "<parameter=a>", "</parameter>", "</function>", "<escape>", "a:", "\\", '"', "<", "é"]  # fmt: skip


@pytest.mark.parametrize("family", [HERMES, LLAMA, MISTRAL, MISTRAL_ARGS, TOOL_CODE, PYTHONIC, FUNCTION_GEMMA, QWEN_CODER], ids=lambda family: family.name)
def test_anything_is_the_same_in_pieces(family):
    for seed in range(50):
        choice = random.Random(seed)
        text = "".join(choice.choices(PARTS, k=choice.randint(1, 9)))
        (message, calls), _ = assert_same_in_pieces(lambda: ToolCalls(family, NAMES, schemas=SCHEMAS), text, seed)
        assert calls or message.get("content", "") == text  # nothing is lost


@pytest.mark.parametrize("template, family", [
    ("{% for tool in tools %}<tool_call>", HERMES), ("{{ tools }}<tool_call><function=name>", QWEN_CODER), ('{{ tools }}{"name": function name, "parameters": dictionary of', LLAMA),
    ("{{ tools }} <|python_tag|>", LLAMA), ("{% if tools %}[AVAILABLE_TOOLS][TOOL_CALLS] [", MISTRAL), ("{% if tools %}[TOOL_CALLS]{{ name }}[ARGS]", MISTRAL_ARGS),
    ("{{ tools }}<start_function_call>call:", FUNCTION_GEMMA), ("{{ tools }} in ```tool_code", TOOL_CODE), ("{{ tools }} [func_name1(params_name1=params_value1)]", PYTHONIC),
    ("{{ messages }}<tool_call>", None), ("{{ tools }}", None),
])  # fmt: skip
def test_families_are_known_by_their_templates(template, family):
    assert family_of(template) is family


def test_a_long_answer_is_read_in_time():
    text = '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "' + "x" * 50_000 + '"}}]'
    (call,) = parse_whole(ToolCalls(MISTRAL, NAMES), text)["tool_calls"]
    assert len(call["function"]["arguments"]) > 50_000
    assert parse_whole(ToolCalls(HERMES, NAMES), "<tool_call>" + "{" * 100_000)["content"].endswith("{{")
    assert parse_whole(ToolCalls(PYTHONIC, NAMES), "[" * 100_000 + "]" * 10_000)["content"].endswith("]")
