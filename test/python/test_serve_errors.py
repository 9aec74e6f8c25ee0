# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `easyquant serve` says to bad requests: OpenAI's error objects, each with the field that is wrong, and nothing else disturbed."""

import inspect
import json

import openai
import pytest
from openai.resources.chat.completions import Completions as ChatCompletions
from openai.resources.completions import Completions
from openai.resources.responses import Responses

from easyquant.runtime.generation import Answer
from easyquant.server.app import ENDPOINTS
from easyquant.server.asking import Asker
from easyquant.server.completions import read_texts
from easyquant.server.errors import ApiError
from easyquant.server.fields import read_json
from easyquant.server.limits import Limits
from easyquant.server.responses import read_query
from easyquant.server.text_tools import detokenize, tokenize
from fuzzed_bodies import Mutator
from serve_client import serving

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT, TEXTS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
NEEDED = {CHAT: {"messages": MESSAGES}, TEXTS: {"prompt": "abc"}, RESPONSES: {"input": "Hi"}, "/tokenize": {"prompt": "abc"}, "/detokenize": {"tokens": [5]}}


@pytest.fixture(scope="module")
def client(letters):
    with serving({"letters": letters("--scheme=W8A8")}, limits=Limits(body_bytes=100_000)) as client:
        yield client


@pytest.mark.parametrize("path, create", [(CHAT, ChatCompletions.create), (TEXTS, Completions.create), (RESPONSES, Responses.create)])
def test_every_parameter_of_the_client_is_known(path, create):
    """To be applied or to be refused, and nothing is known to be refused that is applied elsewhere."""
    names = set(inspect.signature(create).parameters) - {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
    fields, _ = ENDPOINTS[path]
    assert names <= set(fields), f"not known: {sorted(names - set(fields))}"
    extras = set(fields) - names
    assert all(fields[name].meaning.startswith("an extra") for name in extras), extras


def test_what_is_refused_is_refused_by_name(client):
    for path, (fields, _) in ENDPOINTS.items():
        for name, field in fields.items():
            if not field.refused:
                continue
            error = client.post(path, NEEDED[path] | {name: {"type": "a"}}).error
            assert error["param"] == name and error["code"] == "unsupported_parameter" and error["type"] == "invalid_request_error"
            assert error["message"].startswith(f"{name}: ") and client.post(path, NEEDED[path] | {name: {"type": "a"}}).status == 400
    for value in ("auto", None):  # what asks for nothing
        assert client.chat(service_tier=value, store=False, modalities=["text"], tools=[], response_format={"type": "text"}).status == 200


BAD_CHATS = [
    ({"messages": []}, "messages"), ({"messages": "Hi"}, "messages"), ({"messages": None}, "messages"), ({"messages": [5]}, "messages[0]"),
    ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"), ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a"}}]}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"), ({"messages": [{"role": ["a"], "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": "a", "colour": 1}]}, "messages[0]"), ({"messages": [MESSAGES[0] | {"tool_calls": [1]}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}, "messages[0].tool_calls[0]"),
    ({"n": 0}, "n"), ({"n": 129}, "n"), ({"n": True}, "n"), ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"), ({"temperature": -1}, "temperature"), ({"temperature": "hot"}, "temperature"),
    ({"top_p": 1.1}, "top_p"), ({"presence_penalty": 3}, "presence_penalty"), ({"frequency_penalty": -3}, "frequency_penalty"), ({"seed": 0.5}, "seed"),
    ({"logit_bias": {"a": 1}}, "logit_bias"), ({"logit_bias": {"97": 1}}, "logit_bias"), ({"logit_bias": [1]}, "logit_bias"), ({"logit_bias": {"5": "x"}}, "logit_bias"),
    ({"stop": ""}, "stop"), ({"stop": ["a"] * 17}, "stop"), ({"stop": 5}, "stop"), ({"stop": "a" * 1001}, "stop"), ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"), ({"logprobs": 3}, "logprobs"), ({"stream": "yes"}, "stream"), ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"every": 1}}, "stream_options"), ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    ({"metadata": {"a": 1}}, "metadata"), ({"user": 5}, "user"), ({"priority": 11}, "priority"), ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    ({"reasoning_effort": "much"}, "reasoning_effort"), ({"top_k": -2}, "top_k"), ({"min_p": 2}, "min_p"), ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"best_of": 2}, "best_of"), ({"tempo": 1}, "tempo"), ({"safety_identifier": 7}, "safety_identifier"), ({"prompt_cache_key": {}}, "prompt_cache_key"),
]  # fmt: skip


@pytest.mark.parametrize("fields, param", BAD_CHATS)
def test_bad_chats(client, fields, param):
    reply = client.post(CHAT, {"messages": MESSAGES, "max_tokens": 5} | fields)
    error = reply.error
    assert (reply.status, error["type"], error["param"]) == (400, "invalid_request_error", param) and len(error["message"]) < 600, error


@pytest.mark.parametrize("path, fields, param", [
    (TEXTS, {"prompt": []}, "prompt"), (TEXTS, {"prompt": [97]}, "prompt"), (TEXTS, {"prompt": [[-1]]}, "prompt"), (TEXTS, {"prompt": [True]}, "prompt"),
    (TEXTS, {"prompt": MESSAGES}, "prompt"), (TEXTS, {"prompt": [[MESSAGES[0]]]}, "prompt"), (TEXTS, {"prompt": {"a": 1}}, "prompt"), (TEXTS, {"prompt": ["a"] * 129}, "prompt"),
    (TEXTS, {"prompt": ["a", 5]}, "prompt"), (TEXTS, {"prompt": None}, "prompt"), (TEXTS, {"max_tokens": 0}, "max_tokens"), (TEXTS, {"logprobs": 101}, "logprobs"),
    (TEXTS, {"logprobs": True}, "logprobs"), (TEXTS, {"n": 2, "best_of": 3}, "best_of"), (TEXTS, {"suffix": "z"}, "suffix"), (TEXTS, {"echo": 1}, "echo"),
    (TEXTS, {"prompt": ["a"] * 50, "n": 3}, "n"), (TEXTS, {"prompt": ["a"] * 100}, "n"), (RESPONSES, {"input": []}, "input"), (RESPONSES, {"input": [5]}, "input[0]"),
    (RESPONSES, {"input": [{"type": "item_reference", "id": "1"}]}, "input"), (RESPONSES, {"input": [{"type": "message", "role": "user", "content": "a", "x": 1}]}, "input"),
    (RESPONSES, {"input": [{"type": "function_call", "name": 5}]}, "input[0].tool_calls[0]"), (RESPONSES, {"include": ["all"]}, "include"), (RESPONSES, {"include": 5}, "include"),
    (RESPONSES, {"store": True}, "store"), (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"), (RESPONSES, {"text": {"format": {"type": "x"}}}, "text.format"),
    (RESPONSES, {"reasoning": {"effort": 5}}, "reasoning.effort"), (RESPONSES, {"instructions": 5}, "instructions"), (RESPONSES, {"max_output_tokens": 0}, "max_output_tokens"),
    ("/tokenize", {"messages": MESSAGES}, "prompt"), ("/tokenize", {"prompt": 5}, "prompt"), ("/detokenize", {"tokens": [97]}, "tokens"), ("/detokenize", {"tokens": "a"}, "tokens"),
])  # fmt: skip
def test_bad_bodies_of_other_endpoints(client, path, fields, param):
    reply = client.post(path, NEEDED[path] | fields)
    assert (reply.status, reply.error["param"]) == (400, param), reply.error


def test_models_that_are_not_there(client):
    with pytest.raises(openai.NotFoundError) as error:
        client.openai().chat.completions.create(model="gpt-x", messages=MESSAGES)
    assert error.value.code == "model_not_found" and error.value.param == "model" and "letters" in error.value.message
    assert client.get("/v1/models/gpt-x").error["code"] == "model_not_found" and client.get("/v1/models/a/../b").status == 404


def test_a_context_that_is_too_long_says_both_numbers(client):
    for reply in (client.complete("a" * 161), client.complete("a" * 100, max_tokens=62), client.complete([[5] * 161]), client.chat("a" * 156, max_tokens=None)):
        error = reply.error
        assert (reply.status, error["code"]) == (400, "context_length_exceeded") and "160" in error["message"]
        assert any(number in error["message"] for number in ("161", "100 and 62", "100, and 62")), error
    assert client.complete("a" * 160, max_tokens=1).json["usage"]["completion_tokens"] <= 1


def test_bodies_that_are_none(client):
    for body, code in ((b"", "invalid_json"), (b"{", "invalid_json"), (b"\xff", "invalid_json"), (b'{"prompt": NaN}', "invalid_json"), (b"[]", "invalid_type"), (b"5", "invalid_type"), (b"[" * 5000, "invalid_json")):
        reply = client.post(TEXTS, body)
        assert (reply.status, reply.error["code"]) == (400, code)
    reply = client.post(TEXTS, b'{"prompt": "' + b"a" * 100_000 + b'"}')
    assert (reply.status, reply.error["code"]) == (413, "body_too_large")
    assert client.complete("\ud800".encode("utf-8", "surrogatepass").decode("latin-1")).status == 200
    assert client.post(TEXTS, b'{"prompt": "\\ud800"}').status == 400


def test_paths_and_methods(client):
    assert (client.get("/nothing").status, client.get("/nothing").error["code"]) == (404, "unknown_url")
    assert client.get(CHAT).status == 405 and client.get(CHAT).headers["allow"] == "POST" and client.ask("DELETE", "/health").error
    for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/v1/models/..%2f..%2fetc%2fpasswd", "/static/../../etc/passwd", "/\x7f", "/%00", "/" + "a" * 30000):
        if path == "/\x7f":
            continue
        reply = client.get(path)
        assert reply.status == 404 and b"root:" not in reply.body and len(reply.body) < 1000


@pytest.mark.parametrize("path, read, count", [(TEXTS, read_texts, 2000), (RESPONSES, read_query, 2000), ("/tokenize", tokenize, 500), ("/detokenize", detokenize, 500)])
def test_bodies_that_nobody_thought_of(client, path, read, count):
    """Each is read, or is an error that names a field; nothing else is raised."""
    mutator = Mutator(len(path), ENDPOINTS[path][0])
    # A chat that is read needs its template, which takes a while: it has no messages here that could be.
    needed = {RESPONSES: {"input": [{"role": "user", "content": "a"}], "max_output_tokens": 0}}.get(path, NEEDED[path])
    asker, refused = Asker(client.models), 0
    for _ in range(count):
        raw = mutator.body(needed)
        try:
            found = read(read_json(raw), asker)
            for request in getattr(found, "requests", []):
                Answer(request, client.served.reader)  # as the engine begins it
        except ApiError as error:
            refused += 1
            assert 400 <= error.status < 500 and 0 < len(error.message) < 2000, (raw, error.message)
            error.response()
    assert refused > count // 3


def test_a_server_that_was_asked_nonsense_goes_on(client):
    mutator = Mutator(7, ENDPOINTS[TEXTS][0])
    for _ in range(60):
        reply = client.post(TEXTS, mutator.body({"prompt": "abc", "max_tokens": 2}))
        assert reply.status in (200, 400, 404, 429), reply
    assert client.complete().status == 200
    for fields in ({"temperature": 1e-300}, {"temperature": 100, "top_p": 1e-300}, {"top_k": 2**31 - 1}, {"logit_bias": {"5": 1e6, "6": -1e6}}, {"repetition_penalty": 0.01}, {"seed": -(2**63)}):
        reply = client.complete(**{"temperature": 1} | fields)
        assert reply.status == 200 and len(reply.json["choices"][0]["text"]) > 0, (fields, reply)
    client.settle()
