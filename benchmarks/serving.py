#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether a server of OpenAI's API bears a crowd that misbehaves; how fast it is, peers_serving.py says.

    benchmarks/serving.py soak ARTIFACT [--clients 64] [--seconds 3600] [--longest 4000] [--pause 0]
    benchmarks/serving.py fuzz ARTIFACT [--bodies 100000] [--clients 8]

`soak`: clients ask for answers to prompts of 1 to --longest tokens, whole and streamed, greedy and seeded, and a third of them leave before
the end; others send what is no request. Every request is one of a fixed list, and every whole answer must be the one that its request
got the first time. With --pause clients wait so many seconds between two requests, in the mean. The server's memory and its figures are
read each second; it must bear no error of its own, keep no page in the end, and have grown by less than --growth MB after the first quarter
of the time.

`fuzz`: bodies that are nearly right (fuzzed_bodies.py), for all endpoints. Each is answered, or gets an error object of a status from 400
to 499; then the server must answer as before, and what holds of a soak's memory holds here.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path

from crowds import Client, Reply, Watched, served
from fuzzed_bodies import Fuzz


# ------------------------------------------------------------------------------------------------------------------ soak


class Soak(Watched):
    """A crowd, and what is found out of it."""

    GARBAGE = (b"", b"\x00" * 100, b"GET /\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n{", b"HELP / HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def __init__(self, asked, client: Client, pid: int, vocabulary: int):
        super().__init__(asked, client, pid)
        choice = random.Random(asked.seed)
        self.bodies = [self._body(choice, vocabulary) for _ in range(asked.requests)]
        self.known: dict[int, str] = {}
        self.counts = dict.fromkeys(("whole", "left", "refused", "garbage", "compared"), 0)
        self.until = time.monotonic() + asked.seconds

    def _body(self, choice: random.Random, vocabulary: int) -> dict:
        tokens = [choice.randrange(3, vocabulary) for _ in range(round(self.asked.longest ** choice.random()))]
        way = choice.choice([{"temperature": 0}, {"temperature": 1.0, "seed": choice.randrange(1000)}, {"temperature": 0.8, "top_p": 0.9, "seed": 5, "n": 2}])
        return {"model": "model", "prompt": tokens, "max_tokens": choice.randint(1, self.asked.new), **way}

    async def _client(self, number: int) -> None:
        choice = random.Random(number)
        while time.monotonic() < self.until:
            await asyncio.sleep(choice.uniform(0, 2 * self.asked.pause))
            kind = choice.random()
            if kind < 0.05:
                await self.client.send(choice.choice(self.GARBAGE), leave_after=0)
                self.counts["garbage"] += 1
                continue
            place = choice.randrange(len(self.bodies))
            body = self.bodies[place]
            if kind < 0.35:
                await self.client.post("/completions", body | {"stream": choice.random() < 0.7}, leave_after=choice.choice([0, 1, 3]))
                self.counts["left"] += 1
                continue
            reply = await self.client.post("/completions", body | {"stream": kind < 0.7})
            if reply.status == 429:
                self.counts["refused"] += 1
                await asyncio.sleep(0.2)
            elif reply.status != 200:
                self.wrong.append(f"status {reply.status}: {reply.body[:200]}")
            else:
                self._compare(place, self._texts(reply, body))

    def _texts(self, reply: Reply, body: dict) -> str:
        """The texts of all choices."""
        if not reply.times:
            return json.dumps([choice["text"] for choice in json.loads(reply.body)["choices"]])
        if not reply.body.rstrip().endswith(b"data: [DONE]"):
            self.wrong.append(f"a stream without an end: {reply.body[-200:]}")
        texts = [""] * body.get("n", 1)
        for line in reply.body.split(b"\n"):
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if "error" in event:
                    self.wrong.append(f"an error in a stream: {line[:200]}")
                    continue
                texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
        return json.dumps(texts)

    def _compare(self, place: int, text: str) -> None:
        self.counts["whole"] += 1
        self.counts["compared"] += place in self.known
        if self.known.setdefault(place, text) != text:
            self.wrong.append(f"request {place} has got another answer: {text[:100]} for {self.known[place][:100]}")

    async def run(self) -> dict:
        await self.watch(asyncio.gather(*(self._client(number) for number in range(self.asked.clients))))
        return self.counts | {"memory": (self.memory[:1] + self.memory[-1:]), "growth_mb": self.growth, "wrong": self.wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("soak", "fuzz"))
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--options", default="", help="more of `easyquant serve`")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--waiting", type=int, default=64)
    parser.add_argument("--clients", type=int)
    parser.add_argument("--new", type=int)
    parser.add_argument("--longest", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--bodies", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=200, help="different ones of a soak")
    parser.add_argument("--growth", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asked.clients = asked.clients or {"soak": 64, "fuzz": 8}[asked.mode]
    asked.new = asked.new or {"soak": 32, "fuzz": 4}[asked.mode]
    vocabulary = json.loads((asked.artifact / "manifest.json").read_text())["model"]["vocab_size"]
    options = [*asked.options.split(), f"--threads={asked.threads}", f"--sequences={asked.sequences}", f"--max-waiting={asked.waiting}"]
    with served(asked.artifact, options) as (client, pid):
        way = {"soak": lambda: Soak(asked, client, pid, int(vocabulary)).run(), "fuzz": lambda: Fuzz(asked, client, pid).run()}
        result = asyncio.run(way[asked.mode]())
    for name, value in result.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
    if asked.json:
        asked.json.write_text(json.dumps(result) + "\n")
    return 1 if result.get("wrong") else 0


if __name__ == "__main__":
    sys.exit(main())
