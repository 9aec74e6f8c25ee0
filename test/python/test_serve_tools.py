# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Formats and tools over HTTP, with the `openai` client: a random model says what it is made to say."""

import json
import re
import shutil

import jsonschema
import openai
import pytest
from tokenizers import Tokenizer

from helpers import random_llama, write_byte_level, write_model
from serve_client import serving

# Qwen2.5's form, shortened.
HERMES = """{% if tools %}<s>system
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}</tools> <tool_call>
{% endif %}{% for message in messages %}<s>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}<s>assistant
{% endif %}"""
LLAMA = '{{ tools | tojson if tools }}{"name": function name, "parameters": dictionary of argument name and its value}' + HERMES
MISTRAL = "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% if m.tool_calls %}[TOOL_CALLS]{{ m.tool_calls | length }}{% endif %}{% endfor %}"
PYTHONIC = "{{ tools }} [func_name1(params_name1=params_value1)]" + MISTRAL.replace("[TOOL_CALLS]", "")
CODER = """{% if tools %}<tools>{{ tools | tojson }}</tools> <tool_call><function=name>{% endif %}{% for message in messages %}<s>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>
<function={{ call.function.name }}>{% for key, value in call.function.arguments | items %}<parameter={{ key }}>
{{ value }}
</parameter>{% endfor %}</function>
</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}<s>assistant
{% endif %}"""
TEMPLATES = {"coder": CODER, "hermes": HERMES, "tokens": HERMES, "llama": LLAMA, "mistral": MISTRAL, "pythonic": PYTHONIC, "none": "{{ messages[0].content }}", "thinking": HERMES + "<think>\n"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
FLAT = [{"type": "function", **tool["function"]} for tool in (WEATHER, NOW)]
HI = [{"role": "user", "content": "Hi"}]
PERSON = {"type": "object", "properties": {"name": {"enum": ["A", "B"]}, "age": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["name", "age"], "additionalProperties": False}


@pytest.fixture(scope="module")
def folders(artifact, workspace):
    """One model with the templates of several families. Artifacts do not say what is in their tokenizer's files."""
    model = write_byte_level(write_model(workspace / "tools-model", *random_llama(seed=11, vocab=340, context=2048, bos_token_id=0, eos_token_id=0)))
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    (workspace / "marks").mkdir()
    tokenizer.save(str(workspace / "marks" / "tokenizer.json"))
    plain, marks = (artifact(model, "--scheme=W8A8", f"--copy-file={folder / 'tokenizer.json'}") for folder in (model, workspace / "marks"))
    made = {name: workspace / f"tools-{name}" for name in TEMPLATES}
    for name, folder in made.items():
        shutil.copytree(marks if name in ("thinking", "tokens") else plain, folder)
        (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<s>", "chat_template": TEMPLATES[name]}))
    return made


@pytest.fixture(scope="module")
def client(folders):
    with serving(folders) as client:
        yield client


@pytest.fixture(scope="module")
def api(client):
    return client.openai()


def streamed(api, **asked):
    """The message that the pieces of a stream make, and its finish reason."""
    content, calls, reason = "", {}, None
    for chunk in api.chat.completions.create(stream=True, **asked):
        (choice,) = chunk.choices
        content += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            entry = calls.setdefault(call.index, {"id": call.id, "name": call.function.name, "arguments": ""})
            entry["arguments"] += call.function.arguments or ""
        reason = choice.finish_reason or reason
    return content, [calls[index] for index in sorted(calls)], reason


@pytest.mark.parametrize("name", ["hermes", "llama", "mistral", "pythonic", "coder"])
@pytest.mark.parametrize("choice, names", [("required", {"get_weather", "now"}), ({"type": "function", "function": {"name": "get_weather"}}, {"get_weather"}),
    ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "now"}}]}}, {"now"})])  # fmt: skip
def test_forced_calls_there_and_back(api, client, name, choice, names):
    asked = {"model": name, "messages": HI, "tools": [WEATHER, NOW], "tool_choice": choice, "parallel_tool_calls": False, "temperature": 1.0, "seed": 3, "max_tokens": 200}
    done = api.chat.completions.create(**asked)
    (choice,) = done.choices
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and choice.message.content is None and call.function.name in names and call.type == "function"
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        jsonschema.validate(arguments, WEATHER["function"]["parameters"])
    else:
        assert arguments == {}
    content, (other,), reason = streamed(api, **asked)
    assert (content, reason, other["name"], other["arguments"]) == ("", "tool_calls", call.function.name, call.function.arguments) and other["id"]
    # The result goes back.
    messages = [*HI, choice.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    again = api.chat.completions.create(**asked | {"messages": messages, "tool_choice": "none", "max_tokens": 3})
    tokenizer = client.models[name].reader.tokenizer
    given = [*HI, choice.message.model_dump(exclude_none=True), messages[-1]]
    assert again.choices[0].message.tool_calls is None and again.usage.prompt_tokens == len(tokenizer.encode_chat(given))


def test_several_calls(api):
    """As many as the model likes, up to 16."""
    counts = set()
    for seed in range(6):
        done = api.chat.completions.create(model="hermes", messages=HI, tools=[NOW], tool_choice="required", temperature=1.0, seed=seed, max_tokens=1500)
        counts.add(len(done.choices[0].message.tool_calls))
    assert max(counts) > 1


def test_strict_tools_that_may_be_called(api, client):
    """Text is free; a call that begins follows its schema, and the others are as the model likes."""
    (opens,) = client.models["tokens"].reader.tokenizer.encode("<tool_call>", add_special_tokens=False)
    loose = {"type": "function", "function": {**WEATHER["function"], "strict": False}}
    asked = {"model": "tokens", "messages": HI, "temperature": 1.0, "max_tokens": 250, "logit_bias": {opens: 100}}
    called, texts = 0, 0
    for seed in range(3):
        for several in (False, True):  # with several the bias makes one call after the other
            own = asked | {"seed": seed, "parallel_tool_calls": several, "tools": [WEATHER]}
            (choice,) = api.chat.completions.create(**own).choices
            calls = choice.message.tool_calls or []
            assert {call.function.name for call in calls} <= {"get_weather"}
            if calls and choice.finish_reason == "length" and not calls[-1].function.arguments.endswith("}"):
                calls = calls[:-1]  # max_tokens has cut it
            for call in calls:
                jsonschema.validate(json.loads(call.function.arguments), WEATHER["function"]["parameters"])
                called += 1
            texts += bool(choice.message.content)
            content, others, _ = streamed(api, **own)
            assert content == (choice.message.content or "") and [other["arguments"] for other in others][: len(calls)] == [call.function.arguments for call in calls]
    assert called >= 3 and texts > 0
    free = api.chat.completions.create(**asked | {"seed": 1, "tools": [loose]}).choices[0]
    assert not free.message.tool_calls and "<tool_call>" in free.message.content, "one that is not strict is not held to anything"
    flat = [{"type": "function", **WEATHER["function"]}]
    done = api.responses.create(model="tokens", input="Hi", tools=flat, parallel_tool_calls=False, temperature=1.0, max_output_tokens=300, extra_body={"seed": 2})
    assert all(json.loads(item.arguments).keys() == {"city", "days"} for item in done.output if item.type == "function_call" and item.status == "completed")


def test_tools_are_shown_to_the_template(client):
    served = client.models["hermes"]
    plain = client.chat(model="hermes").json["usage"]["prompt_tokens"]
    tools = [{name: value for name, value in WEATHER["function"].items() if name != "strict"}]
    text = served.reader.tokenizer.render_chat(HI)
    assert client.chat(model="hermes", tools=[WEATHER], tool_choice="none").json["usage"]["prompt_tokens"] == plain == len(served.reader.tokenizer.encode(text))
    assert client.chat(model="hermes", tools=[WEATHER]).json["usage"]["prompt_tokens"] > plain + 100 and tools


FORMATS = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}}, lambda text: jsonschema.validate(json.loads(text), PERSON)),
    ({"response_format": {"type": "regex", "regex": "[a-c]{3}"}}, lambda text: re.fullmatch("[a-c]{3}", text)[0]),
    ({"response_format": {"type": "grammar", "grammar": 'start: "x" | "y"'}}, lambda text: ["x", "y"].index(text)),
    ({"structured_outputs": {"choice": ["a|b", "c d", "(é"]}}, lambda text: ["a|b", "c d", "(é"].index(text)),
    ({"structured_outputs": {"json": PERSON}}, lambda text: jsonschema.validate(json.loads(text), PERSON)),
    ({"structured_outputs": {"regex": "(yes|no)"}}, lambda text: ["yes", "no"].index(text)),
]  # fmt: skip


@pytest.mark.parametrize("fields, check", FORMATS)
def test_formats(api, client, fields, check):
    for seed in range(3):
        own = {"model": "hermes", "messages": HI, "temperature": 1.0, "seed": seed, "max_tokens": 100}
        done = api.chat.completions.create(**own, extra_body=fields)
        assert done.choices[0].finish_reason == "stop"
        check(done.choices[0].message.content)
        assert streamed(api, **own, extra_body=fields) == (done.choices[0].message.content, [], "stop")
    value = next(iter(fields.values()))
    body = {"model": "hermes", "input": "Hi", "temperature": 1.0, "max_output_tokens": 100}
    flat = fields if "structured_outputs" in fields else {"text": {"format": {"type": value["type"], **value.get("json_schema", {})} if value["type"] == "json_schema" else value}}
    reply = client.post("/v1/responses", body | flat).json
    check(reply["output"][0]["content"][0]["text"])
    assert reply["status"] == "completed"


def test_a_format_beside_tools_allows_calls(api):
    kinds = set()
    for seed in range(12):
        done = api.chat.completions.create(model="hermes", messages=HI, tools=[NOW], parallel_tool_calls=False, temperature=1.0, seed=seed, max_tokens=200,
                                           response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}})  # fmt: skip
        message = done.choices[0].message
        kinds.add(bool(message.tool_calls))
        assert message.tool_calls or jsonschema.validate(json.loads(message.content), PERSON) is None
    assert False in kinds


def test_thoughts_are_free(api, client):
    """A format and forced calls begin behind them."""
    (end,) = client.models["thinking"].reader.tokenizer.encode("</think>", add_special_tokens=False)
    bias = {end: 12}
    for seed in range(4):
        own = {"model": "thinking", "messages": HI, "temperature": 1.0, "seed": seed, "max_tokens": 600, "logit_bias": bias}
        (choice,) = api.chat.completions.create(**own, response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}).choices
        assert choice.finish_reason == "stop", choice
        jsonschema.validate(json.loads(choice.message.content), PERSON)
        done = api.chat.completions.create(**own, tools=[NOW], tool_choice="required", parallel_tool_calls=False).choices[0]
        assert [call.function.name for call in done.message.tool_calls] == ["now"] and done.finish_reason == "tool_calls"


def test_responses_call_functions(api):
    asked = {"model": "hermes", "input": "Hi", "tools": FLAT, "tool_choice": {"type": "function", "name": "get_weather"}, "temperature": 1.0, "max_output_tokens": 200, "extra_body": {"seed": 1}}
    done = api.responses.create(**asked)
    (call,) = done.output
    assert (call.type, call.name, call.status, done.status) == ("function_call", "get_weather", "completed", "completed") and call.call_id
    jsonschema.validate(json.loads(call.arguments), WEATHER["function"]["parameters"])
    events = list(api.responses.create(stream=True, **asked))
    assert "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta") == call.arguments
    kinds = [event.type for event in events]
    assert kinds[2] == "response.output_item.added" and kinds[-3:] == ["response.function_call_arguments.done", "response.output_item.done", "response.completed"]
    assert events[-1].response.output[0].arguments == call.arguments
    again = [{"role": "user", "content": "Hi"}, call.model_dump(), {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    assert api.responses.create(**asked | {"input": again, "tool_choice": "none", "max_output_tokens": 2}).usage.input_tokens > 50


@pytest.mark.parametrize("fields, param, words", [
    ({"tools": [{"type": "retrieval"}]}, "tools", "found a tool of type 'retrieval', expected function"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function", "a name of up to 64 letters"),
    ({"tools": [{"type": "function", "function": {"name": "f", "url": "x"}}]}, "tools", "found the field 'url'"),
    ({"tools": [NOW, NOW]}, "tools", "functions of different names"), ({"tools": [NOW] * 200}, "tools", "at most 128"),
    ({"tools": [NOW], "tool_choice": "always"}, "tool_choice", "found 'always', expected auto, none, required"),
    ({"tools": [NOW], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", "found 'g', expected a function of tools"),
    ({"tool_choice": "required"}, "tool_choice", "expected tools, where one has to be called"),
    ({"tools": [NOW], "model": "none"}, "tools", "teaches no calls of functions in a form that is known here"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}], "tool_choice": "required"}, "tools", "cannot be compiled .*Unimplemented keys"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "zork"}}}}, "response_format", "cannot be compiled .Invalid type: zork"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "expected an object with \"schema\""),
    ({"response_format": {"type": "yaml"}}, "response_format", "found 'yaml'"), ({"response_format": "json"}, "response_format", "found 'json'"),
    ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "structured_outputs", "nothing, where there is a response_format"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "one of its fields"), ({"structured_outputs": {"regex": "("}}, "response_format", "unclosed group"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "a list of texts"),
    ({"messages": [*HI, {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}}]}]}, None, "arguments"),
])  # fmt: skip
def test_what_is_refused(client, fields, param, words):
    reply = client.chat(**{"model": "hermes"} | fields)
    assert reply.status == 400 and re.search(words, reply.error["message"]) and (param is None or reply.error["param"] == param), reply.error
    assert isinstance(openai.BadRequestError, type)
