# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""/v1/responses, without what OpenAI stores between requests: each has all of its conversation in `input`."""

import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from easyquant.runtime.requests import Request
from easyquant.server.answers import Answers
from easyquant.server.asking import Asker, chat_tokens, render
from easyquant.server.chat import MOST_TOP_LOGPROBS
from easyquant.server.errors import ApiError
from easyquant.server.fields import Body, Field, Fields, refused, wrong
from easyquant.server.forms import TOOLS, AnswerForm, read_text_form
from easyquant.server.messages import read_messages
from easyquant.server.sampling import CACHE_LABELS, EXTRAS, MODEL, PENALTIES, SAMPLING, read_priority, read_settings, room_for
from easyquant.server.served import ServedModel
from easyquant.server.streaming import line
from easyquant.server.tokens import chat_logprobs, usage
from easyquant.text.output import OutputParser

_LOGPROBS = "message.output_text.logprobs"
_INCLUDED = (_LOGPROBS, "reasoning.encrypted_content")

FIELDS: Fields = {
    "input": Field("a text, or a list of messages and of items that earlier responses had"),
    "instructions": Field("a message of the system before all others"),
    **MODEL,
    **SAMPLING,
    **{f"{name}": Field(f"an extra here: {entry.meaning}") for name, entry in PENALTIES.items()},
    **EXTRAS,
    "max_output_tokens": Field("new tokens; default: what the context holds"),
    "top_logprobs": Field(f"so many of the most likely tokens in the place of each, up to {MOST_TOP_LOGPROBS}; with `include`"),
    "include": Field(f"`{_LOGPROBS}`; `reasoning.encrypted_content` is taken: what the model thought comes back as it is"),
    "reasoning": Field("`effort`, which is given to the chat template, with `enable_thinking`; `summary` is taken and not used"),
    "text": Field("`format` of type text, json_object or json_schema, or of the extras `regex` and `grammar`; `verbosity` medium"),
    "chat_template_kwargs": Field("an extra: variables of the chat template"),
    "stream": Field("server-sent events, as OpenAI's responses have them"),
    "stream_options": Field("`include_obfuscation` is taken as false only"),
    "metadata": Field("comes back"),
    **CACHE_LABELS,
    "store": refused("nothing is stored; leave it out, or say false", False),
    "previous_response_id": refused("nothing is stored; send the whole conversation as input"),
    "conversation": refused("nothing is stored; send the whole conversation as input"),
    "background": refused("nothing is stored, so that an answer could not be fetched later", False),
    "background_options": refused("nothing is stored, so that an answer could not be fetched later"),
    "prompt": refused("there are no stored prompts; send input"),
    "context_management": refused("a conversation is read as it is"),
    "truncation": refused("an input that is too long is an error", "disabled"),
    "service_tier": refused("there is one; `priority` says who comes first", "auto", "default"),
    "moderation": refused("there is no moderation"),
    "access_programs": refused("there are none"),
    "image": refused("the model reads texts"),
    "max_tool_calls": refused("the server has no tools of its own"),
    **TOOLS,
}


@dataclass
class Query:
    """A request that was read."""

    served: ServedModel
    requests: list[Request]
    priority: int
    stream: bool
    has_logprobs: bool
    rendered: str
    form: AnswerForm
    echoed: dict  # what a response repeats of the request
    copies: int = 1
    id: str = field(default_factory=lambda: f"resp_{secrets.token_hex(12)}")
    created: float = field(default_factory=time.time)

    def parser(self) -> OutputParser:
        return self.form.parser(self.rendered)

    def response(self, status: str, output: list, **more) -> dict:
        found = {"id": self.id, "object": "response", "created_at": int(self.created), "status": status, "error": None, "incomplete_details": None}
        return found | {"model": self.served.name, "output": output, "usage": None} | self.echoed | more


def _read_item(item, where: str) -> dict | None:
    """An item of the input as a message of a chat; None: nothing of it goes to the model."""
    if not isinstance(item, dict):
        raise wrong(where, item, "an object")
    kind = item.get("type", "message")
    if kind == "message":
        for name in item:
            if name not in ("type", "role", "content", "id", "status", "phase"):
                raise ApiError(400, f"{where}: found the field {name[:80]!r}, expected type, role, content", "input", "unknown_parameter")
        return {"role": item.get("role"), "content": item.get("content")}
    if kind == "reasoning":
        return None  # templates leave out what was thought in earlier turns
    if kind == "function_call":
        call = {"id": item.get("call_id"), "type": "function", "function": {"name": item.get("name"), "arguments": item.get("arguments")}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
    raise ApiError(400, f"{where}: found an item of type {str(kind)[:80]!r}, expected message, reasoning, function_call or function_call_output", "input", "unsupported_content")


def _read_input(body: Body) -> list[dict]:
    given = body.required("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise wrong("input", given, "a text, or a list of messages")
    items = [_read_item(item, f"input[{number}]") for number, item in enumerate(given)]
    instructions = body.text("instructions")
    first = [] if instructions is None else [{"role": "system", "content": instructions}]
    return read_messages(_joined(first + [item for item in items if item is not None]), "input")


def _joined(messages: list[dict]) -> list[dict]:
    """Calls are items of their own here; templates want those of one answer in its message."""
    found: list[dict] = []
    for message in messages:
        if message.get("tool_calls") and found and found[-1].get("role") == "assistant":
            found[-1] = found[-1] | {"tool_calls": found[-1].get("tool_calls", []) + message["tool_calls"]}
        else:
            found.append(message)
    return found


def _read_variables(body: Body) -> dict:
    reasoning = body.object("reasoning", ("effort", "summary", "generate_summary"))
    effort = reasoning.get("effort")
    if effort is not None and not isinstance(effort, str):
        raise wrong("reasoning.effort", effort, "a text")
    own = {} if effort is None else {"reasoning_effort": effort, "enable_thinking": effort not in ("none", "minimal")}
    return own | body.object("chat_template_kwargs")


def _check_text(body: Body) -> None:
    text = body.object("text", ("format", "verbosity"))
    if text.get("verbosity") not in (None, "medium"):
        raise ApiError(400, "text.verbosity: no template knows it; expected medium", "text.verbosity", "unsupported_parameter")
    if body.object("stream_options", ("include_obfuscation",)).get("include_obfuscation"):
        raise wrong("stream_options.include_obfuscation", True, "false", "unsupported_parameter")


def read_query(value, asker: Asker) -> Query:
    body = Body(value, FIELDS)
    served = asker.model(body)
    messages = _read_input(body)
    _check_text(body)
    include = body.get("include") or []
    if not isinstance(include, list) or any(name not in _INCLUDED for name in include):
        raise wrong("include", include, f"a list of {', '.join(_INCLUDED)}")
    top, asked, priority = body.whole("top_logprobs", 0, MOST_TOP_LOGPROBS, 0), body.whole("max_output_tokens", 1), read_priority(body)
    settings = read_settings(body, served, asked or served.reader.context, top if _LOGPROBS in include else None)
    form = read_text_form(body, served)
    rendered = render(served, "input", messages, variables=_read_variables(body), tools=form.tools.for_template)
    tokens = chat_tokens(served, rendered, "input")
    request = asker.request(tokens, room_for(served, len(tokens), asked, "max_output_tokens"), settings, begins_text=True, grammar=form.grammar(rendered), shown=form.shown)
    echoed = {
        "instructions": body.text("instructions"), "max_output_tokens": asked, "metadata": body.labels("metadata"), "parallel_tool_calls": form.tools.several,
        "previous_response_id": None, "reasoning": body.object("reasoning"), "store": False, "temperature": settings.temperature,
        "text": {"format": body.object("text").get("format") or {"type": "text"}}, "tool_choice": form.tools.choice, "tools": body.get("tools") or [], "top_logprobs": top, "top_p": settings.top_p,
        "truncation": "disabled", "user": body.text("user"),
    }  # fmt: skip
    return Query(served, [request], priority, body.flag("stream"), _LOGPROBS in include, rendered, form, echoed)


class _Output:
    """The items of a response, as deltas make them, and the events that tell of it."""

    def __init__(self, query: Query):
        self.query, self.items = query, []
        self._number = 0  # of the next event
        self._told = 0  # tokens whose log-probabilities have been given

    def event(self, kind: str, **fields) -> bytes:
        told = line({"type": kind, "sequence_number": self._number, **fields}, kind)
        self._number += 1
        return told

    def _place(self) -> dict:
        return {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1, "content_index": 0}

    def _open(self, kind: str) -> list[bytes]:
        if kind == "reasoning":
            item = {"id": f"rs_{secrets.token_hex(12)}", "type": "reasoning", "summary": [], "content": [], "status": "in_progress"}
            part = {"type": "reasoning_text", "text": ""}
        else:
            item = {"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self.items.append(item)
        told = [self.event("response.output_item.added", output_index=len(self.items) - 1, item=item)]
        told.append(self.event("response.content_part.added", **self._place(), part=part))
        item["content"].append(part)
        return told

    def close(self, status: str) -> list[bytes]:
        """The last item, which nothing is added to any more."""
        if not self.items or self.items[-1]["status"] != "in_progress":
            return []
        item = self.items[-1]
        if item["type"] == "function_call":
            item["status"] = status
            place = {"item_id": item["id"], "output_index": len(self.items) - 1}
            told = [self.event("response.function_call_arguments.done", **place, name=item["name"], arguments=item["arguments"])]
            return [*told, self.event("response.output_item.done", output_index=len(self.items) - 1, item=item)]
        part = item["content"][0]
        place, item["status"] = self._place(), status
        if item["type"] == "reasoning":
            told = [self.event("response.reasoning_text.done", **place, text=part["text"])]
        else:
            told = [self.event("response.output_text.done", **place, text=part["text"], logprobs=part["logprobs"])]
        told.append(self.event("response.content_part.done", **place, part=part))
        return [*told, self.event("response.output_item.done", output_index=len(self.items) - 1, item=item)]

    def add(self, deltas: list, logprobs: list[dict]) -> list[bytes]:
        """logprobs: those of the tokens that have come with them."""
        told = []
        for name, text in deltas:
            if name == "tool_calls":
                told += [line for call in text for line in self._add_call(call)]
                continue
            kind = "reasoning" if name == "reasoning_content" else "message"
            if not self.items or self.items[-1]["type"] != kind:
                told += self.close("completed") + self._open(kind)
            part = self.items[-1]["content"][0]
            part["text"] += text
            if kind == "reasoning":
                told.append(self.event("response.reasoning_text.delta", **self._place(), delta=text))
            else:
                part["logprobs"] += logprobs
                told.append(self.event("response.output_text.delta", **self._place(), delta=text, logprobs=logprobs))
                logprobs = []
        return told

    def _add_call(self, call: dict) -> list[bytes]:
        """What streaming says of a call: first its name, then pieces of its arguments."""
        told, arguments = [], call["function"]["arguments"]
        if "id" in call:
            told += self.close("completed")
            item = {"id": f"fc_{secrets.token_hex(12)}", "type": "function_call", "call_id": call["id"], "name": call["function"]["name"], "arguments": "", "status": "in_progress"}
            self.items.append(item)
            told.append(self.event("response.output_item.added", output_index=len(self.items) - 1, item=item))
        if arguments:
            item = self.items[-1]
            item["arguments"] += arguments
            told.append(self.event("response.function_call_arguments.delta", item_id=item["id"], output_index=len(self.items) - 1, delta=arguments))
        return told

    def take(self, parser: OutputParser, event, completion) -> list[bytes]:
        """What an event of the engine adds."""
        deltas, logprobs = parser.push(event.piece), []
        if event.reason:
            deltas += parser.finish()
        if self.query.has_logprobs and deltas:
            new = completion.logprobs[self._told : event.tokens]
            logprobs, self._told = chat_logprobs(self.query.served.reader.tokenizer, new), event.tokens
        told = self.add(deltas, logprobs)
        if event.reason:
            if not any(item["type"] in ("message", "function_call") for item in self.items) and event.reason == "stop":
                told += self.close("completed") + self._open("message")
            told += self.close("incomplete" if event.reason == "length" else "completed")
        return told

    def response(self, completion) -> dict:
        """All of it."""
        counts = usage([completion], [completion])
        own = {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": completion.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["total_tokens"],
        }
        if completion.finish_reason == "length":
            return self.query.response("incomplete", self.items, usage=own, incomplete_details={"reason": "max_output_tokens"})
        return self.query.response("completed", self.items, usage=own)


async def whole(query: Query, answers: Answers) -> dict:
    output, parser = _Output(query), query.parser()
    async for events in answers.steps():
        for _, event in events:
            if event.reason == "error":
                raise answers.error(event)
            output.take(parser, event, answers.completions[0])
    await answers.finish()
    return output.response(answers.completions[0])


async def stream(query: Query, answers: Answers) -> AsyncIterator[bytes]:
    output, parser = _Output(query), query.parser()
    begun = query.response("in_progress", [])
    yield output.event("response.created", response=begun) + output.event("response.in_progress", response=begun)
    async for events in answers.steps():
        told = []
        for _, event in events:
            if event.reason == "error":
                error = answers.error(event)
                failed = query.response("failed", output.items, error={"code": "server_error", "message": error.message})
                yield b"".join(told) + output.event("error", code=error.code, message=error.message, param=None)
                yield output.event("response.failed", response=failed)
                return
            told += output.take(parser, event, answers.completions[0])
        if data := b"".join(told):
            yield data
    if not answers.was_left:
        response = output.response(answers.completions[0])
        yield output.event(f"response.{response['status']}", response=response)
