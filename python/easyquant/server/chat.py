# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""/v1/chat/completions."""

import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from easyquant.runtime.requests import Request
from easyquant.server.answers import Answers
from easyquant.server.asking import Asker, chat_tokens, render
from easyquant.server.fields import Body, Field, Fields, refused, wrong
from easyquant.server.forms import TOOLS, AnswerForm, read_form
from easyquant.server.messages import read_messages
from easyquant.server.sampling import CACHE_LABELS, EXTRAS, MODEL, PENALTIES, SAMPLING, read_copies, read_priority, read_settings, room_for
from easyquant.server.served import ServedModel
from easyquant.server.streaming import DONE, Line, line
from easyquant.server.tokens import chat_logprobs, usage
from easyquant.text.output import OutputParser, parse_whole

MOST_TOP_LOGPROBS = 20
_MARK = "\ue000"  # where a text goes in a line that is prepared

FIELDS: Fields = {
    "messages": Field("roles system, developer, user, assistant and tool; content as a text or in parts of texts"),
    **MODEL,
    **SAMPLING,
    **PENALTIES,
    "n": Field("answers, which share what is read of the prompt"),
    "max_completion_tokens": Field("new tokens; default: what the context holds"),
    "max_tokens": Field("the older name of the same"),
    "logprobs": Field("log-probabilities of the tokens of the answer"),
    "top_logprobs": Field(f"so many of the most likely tokens in the place of each, up to {MOST_TOP_LOGPROBS}"),
    "stream": Field("server-sent events"),
    "stream_options": Field("`include_usage`; `include_obfuscation` is taken as false only"),
    "reasoning_effort": Field("is given to the chat template, which may know it, with `enable_thinking`, false for none and minimal"),
    "chat_template_kwargs": Field("an extra: variables of the chat template, such as `enable_thinking`"),
    **EXTRAS,
    "metadata": Field("comes back"),
    **CACHE_LABELS,
    "service_tier": refused("there is one; `priority` says who comes first", "auto", "default"),
    "store": refused("nothing is stored", False),
    "verbosity": refused("no template knows it", "medium"),
    "modalities": refused("the model writes text", ["text"]),
    "audio": refused("the model writes text"),
    "moderation": refused("there is no moderation"),
    "prediction": refused("predicted outputs are not used"),
    "web_search_options": refused("the server reads nothing from elsewhere"),
    "functions": refused("deprecated by OpenAI; use tools"),
    "function_call": refused("deprecated by OpenAI; use tool_choice", "none", "auto"),
    **TOOLS,
    "response_format": Field("text, json_object or json_schema; extras: `regex` and `grammar` (Lark)"),
}


@dataclass
class Chat:
    """A request that was read."""

    served: ServedModel
    requests: list[Request]
    copies: int
    priority: int
    stream: bool
    include_usage: bool
    metadata: dict
    rendered: str  # the chat as a text
    form: AnswerForm
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def parser(self) -> OutputParser:
        return self.form.parser(self.rendered)

    def head(self, kind: str) -> dict:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.served.name, "system_fingerprint": self.served.fingerprint}


def read_stream_options(body: Body) -> bool:
    """Whether usage is wanted."""
    options = body.object("stream_options", ("include_usage", "include_obfuscation"))
    if options and not body.flag("stream"):
        raise wrong("stream_options", options, "nothing, where stream is not true")
    for name, value in options.items():
        if value is not None and not isinstance(value, bool):
            raise wrong(f"stream_options.{name}", value, "true or false")
    if options.get("include_obfuscation"):
        raise wrong("stream_options.include_obfuscation", True, "false", "unsupported_parameter")
    return bool(options.get("include_usage"))


def read_variables(body: Body) -> dict:
    """The variables that the chat template is given."""
    variables = dict(body.object("chat_template_kwargs"))
    effort = body.text("reasoning_effort")
    if effort is not None:
        if effort not in ("none", "minimal", "low", "medium", "high", "xhigh", "max"):
            raise wrong("reasoning_effort", effort, "none, minimal, low, medium, high, xhigh or max")
        variables = {"reasoning_effort": effort, "enable_thinking": effort not in ("none", "minimal")} | variables
    return variables


def read_chat(value, asker: Asker) -> Chat:
    body = Body(value, FIELDS)
    served = asker.model(body)
    messages = read_messages(body.required("messages"))
    top = body.whole("top_logprobs", 0, MOST_TOP_LOGPROBS)
    if top is not None and not body.flag("logprobs"):
        raise wrong("top_logprobs", top, "nothing, where logprobs is not true")
    logprobs = (top or 0) if body.flag("logprobs") else None
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    asked, copies, priority, include_usage = body.whole(name, 1), read_copies(body), read_priority(body), read_stream_options(body)
    settings = read_settings(body, served, asked or served.reader.context, logprobs)
    form = read_form(body, served)
    rendered = render(served, "messages", messages, variables=read_variables(body), tools=form.tools.for_template)
    tokens = chat_tokens(served, rendered, "messages")
    request = asker.request(tokens, room_for(served, len(tokens), asked, name), settings, begins_text=True, grammar=form.grammar(rendered), shown=form.shown)
    return Chat(served, [request], copies, priority, body.flag("stream"), include_usage, body.labels("metadata"), rendered, form)


async def whole(chat: Chat, answers: Answers) -> dict:
    completions, choices = await answers.finish(), []
    for index, completion in enumerate(completions):
        parser = chat.parser()
        message = {"role": "assistant", "content": None, "refusal": None} | parse_whole(parser, completion.text)
        if message["content"] is None and "tool_calls" not in message:
            message["content"] = ""
        logprobs = completion.logprobs
        choices.append({
            "index": index,
            "message": message,
            "logprobs": None if logprobs is None else {"content": chat_logprobs(chat.served.reader.tokenizer, logprobs), "refusal": None},
            "finish_reason": parser.finish_reason(completion.finish_reason),
        })
    found = chat.head("chat.completion") | {"choices": choices, "usage": usage(completions[:1], completions)}
    return found | ({"metadata": chat.metadata} if chat.metadata else {})


class _Choice:
    """One that is streamed."""

    def __init__(self, chat: Chat, index: int):
        self.parser, self._index, self._chat, self._told = chat.parser(), index, chat, 0
        self._head = chat.head("chat.completion.chunk")
        self._usage = {"usage": None} if chat.include_usage else {}
        self._line = Line(self._chunk({"content": _MARK}), _MARK)

    def _chunk(self, delta: dict, reason: str | None = None, logprobs: dict | None = None) -> dict:
        return self._head | {"choices": [{"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}]} | self._usage

    def begin(self) -> bytes:
        return line(self._chunk({"role": "assistant", "content": ""}))

    def lines(self, event, completion) -> bytes:
        """What an event adds."""
        deltas = self.parser.push(event.piece)
        if event.reason:
            deltas += self.parser.finish()
        told, logprobs = b"", None
        if completion.logprobs is not None and event.tokens > self._told:
            new = completion.logprobs[self._told : event.tokens]
            logprobs, self._told = {"content": chat_logprobs(self._chat.served.reader.tokenizer, new), "refusal": None}, event.tokens
            deltas = deltas or [("content", "")]
        for name, value in deltas:
            if name == "content" and logprobs is None:
                told += self._line.of(value)
            else:
                told += line(self._chunk({name: value}, logprobs=logprobs))
                logprobs = None
        if event.reason:
            told += line(self._chunk({}, self.parser.finish_reason(event.reason)))
        return told


async def stream(chat: Chat, answers: Answers) -> AsyncIterator[bytes]:
    choices = [_Choice(chat, index) for index in range(len(answers.completions))]
    yield b"".join(choice.begin() for choice in choices)
    async for events in answers.steps():
        told = []
        for index, event in events:
            if event.reason == "error":
                raise answers.error(event)
            if event.piece or event.tokens or event.reason:
                told.append(choices[index].lines(event, answers.completions[index]))
        if data := b"".join(told):
            yield data
    if chat.include_usage:
        completions = answers.completions
        yield line(chat.head("chat.completion.chunk") | {"choices": [], "usage": usage(completions[:1], completions)})
    yield DONE
