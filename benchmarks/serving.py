#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A server of OpenAI's API under load: how fast it answers a crowd, and whether it bears one that misbehaves.

    benchmarks/serving.py speed ARTIFACT [--clients 16] [--prompt 256] [--new 128] [--rounds 3] [--threads 2] [--json FILE]
    benchmarks/serving.py speed --url http://127.0.0.1:8080/v1 --model NAME --vocabulary 49152 --extra '{"ignore_eos": true}'
    benchmarks/serving.py soak ARTIFACT [--clients 64] [--seconds 3600] [--longest 4000] [--pause 0]
    benchmarks/serving.py fuzz ARTIFACT [--bodies 100000] [--clients 8]

`speed`: each client asks for one streamed completion of a prompt of random tokens per round, all at once. Printed are new tokens a second
from the first request to the last token, the time to the first token (median and 95th percentile), and the time per token after it (median
and 99th percentile), over all rounds; and of a server that the script has started the CPU time of the event loop for each token. With --arrivals a further client sends prompts of --longest tokens meanwhile. With an artifact the
script starts `easyquant serve` itself; --url names any other server, a peer's, too. --extra is put into bodies: it is how a peer is told
to go on behind an end token, which the artifact's end tokens are forbidden for here.

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
import os
import random
import statistics
import sys
import time
from pathlib import Path

from crowds import Client, Reply, Watched, served
from fuzzed_bodies import Fuzz


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# ----------------------------------------------------------------------------------------------------------------- speed


def speed_body(asked, facts: dict, choice: random.Random, prompt: int, new: int) -> dict:
    tokens = [choice.randrange(min(100, facts["vocabulary"] // 2), facts["vocabulary"]) for _ in range(prompt)]
    return {"model": facts["model"], "prompt": tokens, "max_tokens": new, "temperature": asked.temperature, "stream": True, **facts["extra"]}


async def arrivals(asked, client: Client, facts: dict, choice: random.Random) -> None:
    """Long prompts, one after the other, until it is cancelled."""
    while True:
        await client.post("/completions", speed_body(asked, facts, choice, asked.longest, 1))


def loop_seconds(pid: int | None) -> float:
    """The CPU time of the server's first thread, which has its event loop."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def speed(asked, client: Client, pid: int | None, facts: dict) -> dict:
    choice = random.Random(1)
    await client.post("/completions", speed_body(asked, facts, choice, 16, 8))
    first, following, rates, begun = [], [], [], loop_seconds(pid)
    for _ in range(asked.rounds):
        bodies = [speed_body(asked, facts, choice, asked.prompt, asked.new) for _ in range(asked.clients)]
        meanwhile = asyncio.create_task(arrivals(asked, client, facts, choice)) if asked.arrivals else None
        begin = time.perf_counter()
        replies = await asyncio.gather(*(client.post("/completions", body) for body in bodies))
        seconds = time.perf_counter() - begin
        if meanwhile:
            meanwhile.cancel()
        for reply in replies:
            if reply.status != 200 or len(reply.times) < asked.new // 2:
                raise SystemExit(f"error: status {reply.status}, {len(reply.times)} events: {reply.body[:300]}")
            times = reply.times[: asked.new]
            first.append(times[0])
            following += [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
        rates.append(asked.clients * asked.new / seconds)
    loop = 1e6 * (loop_seconds(pid) - begun) / (asked.rounds * asked.clients * asked.new)
    return {
        "clients": asked.clients, "prompt": asked.prompt, "new": asked.new, "rounds": asked.rounds, "temperature": asked.temperature,
        "tokens_per_second": statistics.median(rates), "first_token_p50": quantile(first, 0.5), "first_token_p95": quantile(first, 0.95),
        "per_token_p50": quantile(following, 0.5), "per_token_p99": quantile(following, 0.99),
        **({"loop_us_per_token": loop} if pid else {}),
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------ soak


class Soak(Watched):
    """A crowd, and what is found out of it."""

    GARBAGE = (b"", b"\x00" * 100, b"GET /\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n{", b"HELP / HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def __init__(self, asked, client: Client, pid: int | None, facts: dict):
        super().__init__(asked, client, pid)
        choice = random.Random(asked.seed)
        self.bodies = [self._body(choice, facts) for _ in range(asked.requests)]
        self.known: dict[int, str] = {}
        self.counts = dict.fromkeys(("whole", "left", "refused", "garbage", "compared"), 0)
        self.until = time.monotonic() + asked.seconds

    def _body(self, choice: random.Random, facts: dict) -> dict:
        tokens = [choice.randrange(3, facts["vocabulary"]) for _ in range(round(self.asked.longest ** choice.random()))]
        way = choice.choice([{"temperature": 0}, {"temperature": 1.0, "seed": choice.randrange(1000)}, {"temperature": 0.8, "top_p": 0.9, "seed": 5, "n": 2}])
        return {"model": facts["model"], "prompt": tokens, "max_tokens": choice.randint(1, self.asked.new), **way}

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
    parser.add_argument("mode", choices=("speed", "soak", "fuzz"))
    parser.add_argument("artifact", type=Path, nargs="?")
    parser.add_argument("--url", help="of a server that runs, with /v1")
    parser.add_argument("--key")
    parser.add_argument("--model", default="model")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--extra", default="{}", help="JSON that is put into bodies")
    parser.add_argument("--options", default="", help="more of `easyquant serve`")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--waiting", type=int, default=64)
    parser.add_argument("--clients", type=int)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--new", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--arrivals", action="store_true")
    parser.add_argument("--longest", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--bodies", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=200, help="different ones of a soak")
    parser.add_argument("--growth", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if (asked.artifact is None) == (asked.url is None):
        parser.error("give either an artifact or --url")
    asked.clients = asked.clients or {"speed": 16, "soak": 64, "fuzz": 8}[asked.mode]
    asked.new = asked.new or {"speed": 128, "soak": 32, "fuzz": 4}[asked.mode]
    with served(asked) as (client, pid, facts):
        way = {"speed": lambda: speed(asked, client, pid, facts), "soak": lambda: Soak(asked, client, pid, facts).run(), "fuzz": lambda: Fuzz(asked, client, pid).run()}
        result = asyncio.run(way[asked.mode]())
    for name, value in result.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
    if asked.json:
        asked.json.write_text(json.dumps(result) + "\n")
    return 1 if result.get("wrong") else 0


if __name__ == "__main__":
    sys.exit(main())
