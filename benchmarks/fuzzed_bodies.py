# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bodies of requests that are nearly right, from a seed, and a server that is sent them (`serving.py fuzz`)."""

import asyncio
import copy
import json
import random
from collections.abc import Mapping

from crowds import Client, Reply, Watched
from easyquant.server.app import ENDPOINTS

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}, "days": {"type": "integer", "minimum": 1}}, "required": ["city"], "additionalProperties": False}
_FUNCTION = {"name": "get_weather", "description": "Of a city", "parameters": _SCHEMA, "strict": True}
_TALK = [{"role": "system", "content": "Be-brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "abc"}]
EXAMPLES: Mapping[str, list[dict]] = {
    "/v1/chat/completions": [
        {"messages": _TALK, "max_tokens": 4},
        {"messages": _TALK, "max_tokens": 4, "response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": _SCHEMA}}, "logprobs": True, "top_logprobs": 2},
        {"messages": _TALK, "max_tokens": 4, "tools": [{"type": "function", "function": _FUNCTION}], "tool_choice": "auto", "stream": True, "stream_options": {"include_usage": True}},
    ],
    "/v1/completions": [
        {"prompt": "abc", "max_tokens": 4, "echo": True, "logprobs": 1}, {"prompt": ["abc", "de"], "max_tokens": 4, "stop": ["x"], "logit_bias": {"5": 1.5}, "n": 2, "seed": 1},
        {"prompt": [[5, 6], [7]], "max_tokens": 4, "temperature": 0.5, "top_p": 0.9, "stream": True},
    ],
    "/v1/responses": [
        {"input": "abc", "max_output_tokens": 4, "instructions": "Be-brief."},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], "max_output_tokens": 4, "text": {"format": {"type": "json_schema", "name": "it", "schema": _SCHEMA}}, "tools": [{"type": "function", **_FUNCTION}]},
    ],
    "/tokenize": [{"prompt": "abc"}, {"messages": _TALK}],
    "/detokenize": [{"tokens": [5, 6]}],
}  # fmt: skip


class Mutator:
    """Bodies that are nearly right, from a seed."""

    VALUES = [None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 0.5, 1e308, "", "a", "\x00", "💣" * 20, "a" * 300, [], {}, [[]], [None], {"a": None}, {"type": "text"}, [[[[1]]]], "auto", ["a"], [5, 6], "NaN"]

    def __init__(self, seed: int, fields):
        self.choice, self.names = random.Random(seed), [*fields, "__proto__", "", "stream", "n"]

    def value(self, depth: int = 0):
        if depth < 3 and self.choice.random() < 0.3:
            if self.choice.random() < 0.5:
                return [self.value(depth + 1) for _ in range(self.choice.randrange(3))]
            return {self.choice.choice(["type", "role", "content", "text", "name", "5", "x"]): self.value(depth + 1) for _ in range(self.choice.randrange(3))}
        return copy.deepcopy(self.choice.choice(self.VALUES))

    def _change(self, value) -> None:
        """One of the values within it, or one more."""
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not places:
            return
        place = self.choice.choice(places)
        if isinstance(value[place], dict | list) and value[place] and self.choice.random() < 0.8:
            self._change(value[place])
        elif self.choice.random() < 0.2:
            del value[place]
        else:
            value[place] = self.value()

    def body(self, needed: dict) -> bytes:
        body = copy.deepcopy(needed)
        for _ in range(self.choice.randint(1, 3)):
            if self.choice.random() < 0.5:
                body[self.choice.choice(self.names)] = self.value()
            else:
                self._change(body)
        raw = json.dumps(body).encode()
        if self.choice.random() < 0.1:  # not JSON any more
            place = self.choice.randrange(len(raw))
            raw = raw[:place] + self.choice.choice([b"", b"\xff", b'"', b"}", b"\\u12"]) + raw[place + 1 :]
        return raw


class Fuzz(Watched):
    """Clients that send such bodies, in turn to all endpoints."""

    def __init__(self, asked, client: Client, pid: int):
        super().__init__(asked, client, pid)
        self.statuses: dict[int, int] = {}

    async def _client(self, number: int) -> None:
        choice = random.Random(f"{self.asked.seed} {number}")
        mutators = {path: Mutator(choice.randrange(2**32), ENDPOINTS[path][0]) for path in EXAMPLES}
        for _ in range(number, self.asked.bodies, self.asked.clients):
            path = choice.choice(list(EXAMPLES))
            raw = mutators[path].body(choice.choice(EXAMPLES[path]))
            reply = await self.client.send(self.client.request(path, raw))
            self.statuses[reply.status] = self.statuses.get(reply.status, 0) + 1
            if fault := _fault(reply):
                self.wrong.append(f"{path} {fault}: {raw[:1000]} gets {reply.body[:300]}")
            if reply.status == 429:
                await asyncio.sleep(0.2)

    async def run(self) -> dict:
        plain = self.client.request("/v1/completions", b'{"prompt": "abc", "max_tokens": 8, "temperature": 0}')
        before = json.loads((await self.client.send(plain)).body)["choices"]
        await self.watch(asyncio.gather(*(self._client(number) for number in range(self.asked.clients))))
        after = json.loads((await self.client.send(plain)).body)["choices"]
        if after != before:
            self.wrong.append(f"the answer was {before}, and is now {after}")
        return {"bodies": sum(self.statuses.values()), "statuses": dict(sorted(self.statuses.items())), "memory": self.memory[:1] + self.memory[-1:], "growth_mb": self.growth, "wrong": self.wrong}


def _fault(reply: Reply) -> str:
    """What is wrong with a reply; empty: nothing."""
    if reply.status == 200:
        return "a stream with an error" if b'"error": {' in reply.body and b"data: " in reply.body else ""
    if not 400 <= reply.status < 500:
        return f"status {reply.status}"
    try:
        (error,) = json.loads(reply.body).values()
        is_whole = set(error) == {"message", "type", "param", "code"} and 0 < len(error["message"]) < 2000 and "\n" not in error["message"]
    except (ValueError, AttributeError, TypeError):
        is_whole = False
    return "" if is_whole else "no error object"
