# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What chat templates get of the messages of OpenAI's API."""

import json

import pytest

from easyquant.support.errors import UserError
from easyquant.text.chat import ChatTemplate
from easyquant.text.messages import Conversation

USER = {"role": "user", "content": "Hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1, "é"]}'}}
LOOP = "{% for m in messages %}{% for part in m['content'] %}{{ part.text }};{% endfor %}{% endfor %}"
CHECKED_LOOP = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endif %}{% endfor %}"
WHOLE = "{{ messages | tojson }}"


def given(template, messages, **options):
    return Conversation(messages, **options).given_to(template, {"bos_token": "<s>"})


def content(template, value):
    return given(template, [{"role": "user", "content": value}])["messages"][0]["content"]


def test_variables():
    tools, documents = [{"type": "function", "function": {"name": "f"}}], [{"title": "t", "text": "x"}]
    found = given(WHOLE, [USER], tools=tools, documents=documents, variables={"enable_thinking": False})
    assert found == {"messages": [USER], "tools": tools, "documents": documents, "enable_thinking": False, "add_generation_prompt": True, "bos_token": "<s>"}
    assert given(WHOLE, [USER], tools=[]) == {"messages": [USER], "add_generation_prompt": True, "bos_token": "<s>"}
    assert not given(WHOLE, [USER], add_generation_prompt=False)["add_generation_prompt"] and not given(WHOLE, [USER], continue_final_message=True)["add_generation_prompt"]
    with pytest.raises(UserError, match="chat_template_kwargs: found 'messages', expected names of variables other than messages, tools"):
        Conversation([USER], variables={"messages": []})


def test_developers_are_systems_where_a_template_knows_none():
    developer = [{"role": "developer", "content": "x"}]
    assert given("{% if role == 'developer' %}", developer)["messages"][0]["role"] == "developer"
    assert given(WHOLE, developer)["messages"][0]["role"] == "system"


def test_content_in_parts():
    parts = [{"type": "text", "text": "a", "cache_control": None}, {"type": "text", "text": "b"}]
    assert content(WHOLE, parts) == "a\nb" and content(LOOP, parts) == content(CHECKED_LOOP, parts) == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert content(WHOLE, "a") == content(CHECKED_LOOP, "a") == "a" and content(LOOP, "a") == [{"type": "text", "text": "a"}]
    for template, text in ((LOOP, "Hi;a;b;"), (CHECKED_LOOP, "Hia;b;"), (WHOLE, json.dumps([USER, {"role": "user", "content": "a\nb"}]))):
        assert ChatTemplate(template, "").render(given(template, [USER, {"role": "user", "content": parts}])) == text
    with pytest.raises(UserError, match="message 0: a part of content: found .*image_url.*, expected an object of type \"text\""):
        content(WHOLE, [{"type": "image_url", "image_url": {"url": "x"}}])


def test_tools_and_their_results():
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None}, {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "42"}]}]
    _, call, result = given(WHOLE, messages)["messages"]
    assert call == {"role": "assistant", "content": "", "tool_calls": [CALL | {"function": {"name": "f", "arguments": {"a": [1, "é"]}}}]}
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "42"}
    empty = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}
    assert given(WHOLE, [USER, empty])["messages"][1]["tool_calls"] == [{"function": {"name": "f", "arguments": {}}}]


@pytest.mark.parametrize("message, words", [
    ({"role": "user"}, 'message 1: found .*, expected an object with the texts "role" and "content"'),
    ("Hi", "message 1: found 'Hi'"), ({"content": "a"}, "message 1"), ({"role": "user", "content": 1}, "message 1"), ({"role": "user", "content": [1]}, "message 1: a part of content: found 1"),
    ({"role": "assistant", "tool_calls": "x"}, "message 1: tool_calls: found 'x', expected a list"), ({"role": "assistant", "tool_calls": [{"id": "1"}]}, r"message 1: tool_calls\[0\]: found"),
    ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, r"tool_calls\[0\]: arguments: found '{', expected the JSON text of an object"),
    ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}, r"arguments: found \[1\]"),
    ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[" * 100000}}]}, "arguments: found "),
])  # fmt: skip
def test_what_is_refused(message, words):
    with pytest.raises(UserError, match=words):
        given(WHOLE, [USER, message])


def test_a_message_that_goes_on():
    template = ChatTemplate("{% for m in messages %}[{{ m.role }}] {{ m.content | trim if m.role == 'user' else m.content }}</end>{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}", "")

    def render(*messages, **options):
        chat = Conversation(messages, **options)
        return chat.cut(template.render(chat.given_to(template.text, {})))

    answer = {"role": "assistant", "content": "Once upon "}
    assert render(USER, answer) == "[user] Hi</end>[assistant] Once upon </end>[assistant] "
    assert render(USER, answer, continue_final_message=True) == "[user] Hi</end>[assistant] Once upon "
    assert render({"role": "user", "content": " Hi "}, continue_final_message=True) == "[user] Hi"
    with pytest.raises(UserError, match="continue_final_message: the last message: found"):
        render(USER, {"role": "assistant", "content": " "}, continue_final_message=True)
    with pytest.raises(UserError, match="does not write the last message's content as it stands"):
        chat = Conversation([USER], continue_final_message=True)
        chat.cut("nothing")
    with pytest.raises(UserError, match="messages: found .*, expected a list of at least one message"):
        Conversation([])
