# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""/v1/completions: texts that are continued as they stand."""

import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from easyquant.runtime.generation import Completion
from easyquant.runtime.requests import Request, is_chat, is_one_prompt
from easyquant.server.answers import Answers
from easyquant.server.asking import Asker, read_tokens
from easyquant.server.chat import read_stream_options
from easyquant.server.errors import ApiError
from easyquant.server.fields import Body, Field, Fields, refused, wrong
from easyquant.server.limits import MOST_CHOICES
from easyquant.server.sampling import EXTRAS, LABELS, MODEL, PENALTIES, SAMPLING, check_logprobs, read_copies, read_priority, read_settings, room_for
from easyquant.server.served import ServedModel
from easyquant.server.streaming import DONE, Line, line
from easyquant.server.tokens import prompt_entries, text_logprobs, usage

MAX_TOKENS = 16  # where nothing is said, as in OpenAI's API
_MARK = "\ue000"

FIELDS: Fields = {
    "prompt": Field("a text, a list of texts, a list of token ids, or a list of these"),
    **MODEL,
    **SAMPLING,
    **PENALTIES,
    "n": Field("answers to each prompt, which share what is read of it"),
    "max_tokens": Field(f"new tokens, {MAX_TOKENS} by default; 0 with `echo` scores the prompt"),
    "logprobs": Field("log-probabilities of tokens, with so many of the most likely ones in the place of each"),
    "echo": Field("the prompt comes back before the answer; with `logprobs`, its tokens too"),
    "stream": Field("server-sent events"),
    "stream_options": Field("`include_usage`; `include_obfuscation` is taken as false only"),
    **EXTRAS,
    **LABELS,
    "best_of": Field("taken where it is `n`"),
    "suffix": refused("the model continues texts at their end", ""),
}


@dataclass
class Texts:
    """A request that was read."""

    served: ServedModel
    requests: list[Request]  # one a prompt
    shown: list[str]  # what of the prompts is a part of answers
    copies: int
    priority: int
    stream: bool
    include_usage: bool
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def head(self) -> dict:
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": self.served.name, "system_fingerprint": self.served.fingerprint}


def _read_prompts(body: Body) -> list:
    prompt = body.required("prompt")
    prompts = [prompt] if is_one_prompt(prompt) else prompt
    if not isinstance(prompts, list) or not 0 < len(prompts) <= MOST_CHOICES or not all(isinstance(one, (str, list)) and not is_chat(one) for one in prompts):
        raise wrong("prompt", prompt, f"a text, a list of token ids, or a list of 1 to {MOST_CHOICES} of these")
    return prompts


def read_texts(value, asker: Asker) -> Texts:
    body = Body(value, FIELDS)
    served = asker.model(body)
    prompts = _read_prompts(body)
    copies, echo, priority, include_usage = read_copies(body, len(prompts)), body.flag("echo"), read_priority(body), read_stream_options(body)
    if body.whole("best_of", 1, None, copies) != copies:
        raise ApiError(400, f"best_of: found {body.get('best_of')}, expected n, which is {copies}", "best_of", "unsupported_parameter")
    logprobs = body.whole("logprobs", 0)
    if logprobs is not None:
        check_logprobs("logprobs", logprobs)
    asked = body.whole("max_tokens", 0 if echo else 1)
    settings = read_settings(body, served, asked or MAX_TOKENS, logprobs)
    requests, shown = [], []
    for prompt in prompts:
        tokens = read_tokens(served, prompt, "prompt")
        room = 0 if asked == 0 else room_for(served, len(tokens), asked, "max_tokens", MAX_TOKENS)
        score = logprobs if echo and logprobs is not None else 0 if asked == 0 else None
        requests.append(asker.request(tokens, room, settings, begins_text=prompt == "", score=score))
        shown.append("" if not echo else prompt if isinstance(prompt, str) else served.reader.tokenizer.decode(tokens, skip_special_tokens=False))
    return Texts(served, requests, shown, copies, priority, body.flag("stream"), include_usage)


def _scored(texts: Texts, answers: Answers, index: int) -> Completion | None:
    """The answer that has the log-probabilities of a choice's prompt."""
    first = index - index % texts.copies
    completion = answers.completions[first]
    wanted = texts.shown[index // texts.copies] != "" and texts.requests[index // texts.copies].settings.logprobs is not None
    return completion if wanted and completion.prompt_logprobs is not None else None


def _logprobs(texts: Texts, answers: Answers, index: int, begin: int, end: int, written: int, with_prompt: bool) -> dict | None:
    """What is told of tokens of a choice. written: characters of it before these."""
    completion = answers.completions[index]
    if texts.requests[0].settings.logprobs is None:
        return None
    prompt = texts.requests[index // texts.copies].tokens
    scored = _scored(texts, answers, index) if with_prompt else None
    entries = prompt_entries(prompt, scored) if scored else []
    entries += [(one.token, one.logprob, one.best) for one in (completion.logprobs or [])[begin:end]]
    return text_logprobs(texts.served.reader.tokenizer, entries, written, begins=scored is not None)


async def whole(texts: Texts, answers: Answers) -> dict:
    completions, choices = await answers.finish(), []
    for index, completion in enumerate(completions):
        shown = texts.shown[index // texts.copies]
        logprobs = _logprobs(texts, answers, index, 0, len(completion.tokens), 0, with_prompt=True)
        choices.append({"index": index, "text": shown + completion.text, "logprobs": logprobs, "finish_reason": completion.finish_reason})
    return texts.head() | {"choices": choices, "usage": usage(completions[:: texts.copies], completions)}


class _Choice:
    """One that is streamed."""

    def __init__(self, texts: Texts, answers: Answers, index: int):
        self._texts, self._answers, self._index = texts, answers, index
        self._shown = texts.shown[index // texts.copies]
        self._tokens = self._written = 0
        self._has_begun = False
        self._head, self._usage = texts.head(), {"usage": None} if texts.include_usage else {}
        self._line = Line(self._chunk(_MARK), _MARK)
        self._is_plain = texts.requests[0].settings.logprobs is None

    def _chunk(self, text: str, reason: str | None = None, logprobs: dict | None = None) -> dict:
        return self._head | {"choices": [{"index": self._index, "text": text, "logprobs": logprobs, "finish_reason": reason}]} | self._usage

    def lines(self, event) -> bytes:
        text = event.piece if self._has_begun else self._shown + event.piece
        if self._is_plain:
            self._has_begun = True
            told = self._line.of(text) if text else b""
            return told + (line(self._chunk("", event.reason)) if event.reason else b"")
        logprobs = None
        if event.tokens > self._tokens or not self._has_begun:
            logprobs = _logprobs(self._texts, self._answers, self._index, self._tokens, event.tokens, self._written, with_prompt=not self._has_begun)
        self._has_begun, self._tokens = True, event.tokens
        self._written += len(text)
        return line(self._chunk(text, event.reason, logprobs))


async def stream(texts: Texts, answers: Answers) -> AsyncIterator[bytes]:
    choices = [_Choice(texts, answers, index) for index in range(len(answers.completions))]
    async for events in answers.steps():
        told = []
        for index, event in events:
            if event.reason == "error":
                raise answers.error(event)
            if event.tokens or event.reason:
                told.append(choices[index].lines(event))
        if data := b"".join(told):
            yield data
    if texts.include_usage:
        completions = answers.completions
        yield line(texts.head() | {"choices": [], "usage": usage(completions[:: texts.copies], completions)})
    yield DONE
