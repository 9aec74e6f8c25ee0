# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages of OpenAI's API, as the chat templates of models want them."""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from easyquant.support.errors import UserError, expect

_OWN_VARIABLES = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")
_LOOP_OVER_PARTS = re.compile(r"""\bfor\s+\w+\s+in\s+\w+(?:\.content\b|\[\s*(?:'content'|"content")\s*\])""")


@dataclass(frozen=True)
class Conversation:
    """What a template is given."""

    messages: Sequence[Mapping]
    tools: Sequence[Mapping] | None = None  # {"type": "function", "function": {"name": …, "parameters": a JSON schema}}
    documents: Sequence[Mapping] | None = None
    variables: Mapping = field(default_factory=dict)  # more of them, by name, such as enable_thinking
    add_generation_prompt: bool = True  # what begins an answer comes last
    continue_final_message: bool = False  # the last message is not closed: the answer goes on with it

    def __post_init__(self) -> None:
        expect("messages", self.messages, isinstance(self.messages, Sequence) and len(self.messages) > 0, "a list of at least one message")
        for name in self.variables:
            expect("chat_template_kwargs", name, name not in _OWN_VARIABLES, f"names of variables other than {', '.join(_OWN_VARIABLES)}, which requests have themselves")
        if self.continue_final_message:
            last = self.messages[-1]
            is_text = isinstance(last, Mapping) and isinstance(last.get("content"), str) and last["content"].strip()
            expect("continue_final_message: the last message", last, is_text, "one whose content is a text with more than spaces")

    def given_to(self, template: str, special_tokens: Mapping[str, str]) -> dict:
        """The variables of a template."""
        messages = [_message(number, message, template) for number, message in enumerate(self.messages)]
        own = {"messages": messages, "add_generation_prompt": self.add_generation_prompt and not self.continue_final_message}
        for name, value in (("tools", self.tools), ("documents", self.documents)):
            if value:
                own[name] = list(value)
        return {**special_tokens, **self.variables, **own}

    def cut(self, text: str) -> str:
        """What the template wrote, up to the end of the last message's content where that is to be continued."""
        if not self.continue_final_message:
            return text
        content = self.messages[-1]["content"]
        begin = text.rfind(content.strip())
        if begin < 0:
            raise UserError("continue_final_message: the chat template does not write the last message's content as it stands; leave it out")
        end = begin + len(content.strip())
        space = content[len(content.rstrip()) :]
        return text[:end] + (space if text.startswith(space, end) else "")


def _message(number: int, message, template: str) -> dict:
    what = f"prompt: message {number}"
    is_message = isinstance(message, Mapping) and isinstance(message.get("role"), str)
    calls = message.get("tool_calls") if is_message else None
    is_message = is_message and (isinstance(message.get("content"), (str, list)) or message.get("content") is None and bool(calls))
    expect(what, message, is_message, 'an object with the texts "role" and "content"')
    result = {key: value for key, value in message.items() if value is not None}
    if message["role"] == "developer" and "developer" not in template:
        result["role"] = "system"
    result["content"] = _content(what, message.get("content"), template)
    if calls:
        expect(f"{what}: tool_calls", calls, isinstance(calls, Sequence) and not isinstance(calls, str), "a list")
        result["tool_calls"] = [_tool_call(f"{what}: tool_calls[{place}]", call) for place, call in enumerate(calls)]
    return result


@functools.lru_cache(16)
def _takes_parts(template: str) -> bool:
    return _LOOP_OVER_PARTS.search(template) is not None


def _content(what: str, content, template: str) -> str | list:
    """Templates that loop over parts get parts, others a text."""
    takes_parts = _takes_parts(template)
    if content is None:
        return ""
    if isinstance(content, str):
        return content if not takes_parts or "is string" in template or not content else [{"type": "text", "text": content}]
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        expect(f"{what}: a part of content", part, kind == "text" and isinstance(part.get("text"), str), 'an object of type "text" with a "text", since models read text alone')
    return [{"type": "text", "text": part["text"]} for part in content] if takes_parts else "\n".join(part["text"] for part in content)


def _tool_call(what: str, call) -> dict:
    """Clients write arguments as JSON text; templates want the object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    expect(what, call, isinstance(function, Mapping) and isinstance(function.get("name"), str), 'an object with "function", which has a "name"')
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            pass
    expect(f"{what}: arguments", arguments, isinstance(arguments, Mapping), "the JSON text of an object")
    return {**call, "function": {**function, "arguments": arguments}}
