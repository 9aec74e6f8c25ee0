#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A server of OpenAI's API under load: how fast it answers a crowd, and whether it bears one that misbehaves.

    benchmarks/serving.py speed ARTIFACT [--clients 16] [--prompt 256] [--new 128] [--rounds 3] [--threads 2] [--json FILE]
    benchmarks/serving.py speed --url http://127.0.0.1:8080/v1 --model NAME --vocabulary 49152 --extra '{"ignore_eos": true}'
    benchmarks/serving.py soak ARTIFACT [--clients 64] [--seconds 3600] [--longest 4000]

`speed`: each client asks for one streamed completion of a prompt of random tokens per round, all at once. Printed are new tokens a second
from the first request to the last token, the time to the first token (median and 95th percentile), and the time per token after it (median
and 99th percentile), over all rounds; and of a server that the script has started the CPU time of the event loop for each token. With --arrivals a further client sends prompts of --longest tokens meanwhile. With an artifact the
script starts `easyquant serve` itself; --url names any other server, a peer's, too. --extra is put into bodies: it is how a peer is told
to go on behind an end token, which the artifact's end tokens are forbidden for here.

`soak`: clients ask for answers to prompts of 1 to --longest tokens, whole and streamed, greedy and seeded, and a third of them leave before
the end; others send what is no request. Every request is one of a fixed list, and every whole answer must be the one that its request
got the first time. The server's memory and its figures are read each second; it must bear no error of its own, keep no page in the end,
and have grown by less than --growth MB after the first quarter of the time.

The client is one asyncio loop that looks for events and reads no JSON but whole answers.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

CHUNKS = b"transfer-encoding: chunked"


@dataclass
class Reply:
    status: int
    body: bytes = b""
    times: list[float] = field(default_factory=list)  # of events that came, seconds after the request


class Client:
    """Requests to one server, a connection each."""

    def __init__(self, url: str, key: str | None):
        parts = urlsplit(url)
        self.host, self.port, self.path = parts.hostname, parts.port or 80, parts.path.rstrip("/")
        self._key = f"Authorization: Bearer {key}\r\n" if key else ""

    def request(self, path: str, body: bytes | None) -> bytes:
        method = "GET" if body is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nConnection: close\r\n{self._key}"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(body or b'')}\r\n\r\n".encode() + (body or b"")

    async def send(self, data: bytes, leave_after: int | None = None) -> Reply:
        """`leave_after`: events, after which the connection is closed."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 22)
        begin, reply = time.perf_counter(), Reply(0)
        try:
            writer.write(data)
            if leave_after == 0:
                await asyncio.sleep(0.05)
                return reply
            head = await reader.readuntil(b"\r\n\r\n")
            reply.status = int(head[9:12])
            is_chunked = CHUNKS in head.lower()
            while True:
                piece = await (self._chunk(reader) if is_chunked else reader.read(1 << 16))
                if not piece:
                    return reply
                reply.body += piece
                if is_chunked:
                    reply.times += [time.perf_counter() - begin] * piece.count(b"data: {")
                if leave_after is not None and len(reply.times) >= leave_after:
                    return reply
        except (asyncio.IncompleteReadError, ConnectionError):
            return reply
        finally:
            writer.close()

    @staticmethod
    async def _chunk(reader: asyncio.StreamReader) -> bytes:
        size = int(await reader.readline(), 16)
        piece = await reader.readexactly(size + 2)
        return piece[:-2]

    async def post(self, path: str, body: dict, leave_after: int | None = None) -> Reply:
        return await self.send(self.request(self.path + path, json.dumps(body).encode()), leave_after)

    async def get(self, path: str) -> bytes:
        return (await self.send(self.request(path, None))).body


@contextlib.contextmanager
def served(asked):
    """A Client, the id of the server's process or None, and facts: the model's name, its vocabulary and what bodies have besides."""
    if asked.url:
        yield Client(asked.url, asked.key), None, {"model": asked.model, "vocabulary": asked.vocabulary, "extra": json.loads(asked.extra)}
        return
    model = json.loads((asked.artifact / "manifest.json").read_text())["model"]
    extra = {"logit_bias": {str(token): -100 for token in model.get("eos_token_ids", [])}} | json.loads(asked.extra)
    options = [*asked.options.split(), f"--threads={asked.threads}", "--port=0", f"--sequences={asked.sequences}", f"--max-waiting={asked.waiting}", "--served-name=model"]
    process = subprocess.Popen([sys.executable, "-m", "easyquant", "serve", asked.artifact, *options], stdout=subprocess.PIPE, text=True)
    try:
        url = next((line.split()[0] for line in process.stdout if line.startswith("http")), None)
        if url is None:
            raise SystemExit("error: the server did not start")
        yield Client(url, None), process.pid, {"model": "model", "vocabulary": int(model["vocab_size"]), "extra": extra}
        process.terminate()
        if process.wait(60) != 0:
            raise SystemExit(f"error: the server ended with status {process.returncode}")
    finally:
        process.kill()


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


class Soak:
    """A crowd, and what is found out of it."""

    GARBAGE = (b"", b"\x00" * 100, b"GET /\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n{", b"HELP / HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def __init__(self, asked, client: Client, pid: int | None, facts: dict):
        self.asked, self.client, self.pid = asked, client, pid
        choice = random.Random(asked.seed)
        self.bodies = [self._body(choice, facts) for _ in range(asked.requests)]
        self.known: dict[int, str] = {}
        self.counts = dict.fromkeys(("whole", "left", "refused", "garbage", "compared"), 0)
        self.memory: list[int] = []
        self.wrong: list[str] = []
        self.until = time.monotonic() + asked.seconds

    def _body(self, choice: random.Random, facts: dict) -> dict:
        tokens = [choice.randrange(3, facts["vocabulary"]) for _ in range(round(self.asked.longest ** choice.random()))]
        way = choice.choice([{"temperature": 0}, {"temperature": 1.0, "seed": choice.randrange(1000)}, {"temperature": 0.8, "top_p": 0.9, "seed": 5, "n": 2}])
        return {"model": facts["model"], "prompt": tokens, "max_tokens": choice.randint(1, self.asked.new), **way}

    async def _client(self, number: int) -> None:
        choice = random.Random(number)
        while time.monotonic() < self.until:
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

    async def _watch(self) -> None:
        while time.monotonic() < self.until:
            await asyncio.sleep(1)
            if self.pid:
                status = Path(f"/proc/{self.pid}/status").read_text()
                self.memory.append(int(status.partition("VmRSS:")[2].split()[0]) // 1024)

    async def _settled(self) -> None:
        """Nothing runs, and no page is taken but by what is kept."""
        for _ in range(300):
            figures = {line.partition("{")[0]: float(line.split()[-1]) for line in (await self.client.get("/metrics")).decode().split("\r\n\r\n")[-1].splitlines() if line and line[0] != "#"}
            if figures["easyquant_requests_running"] == figures["easyquant_requests_waiting"] == 0:
                return
            await asyncio.sleep(0.1)
        self.wrong.append("requests of clients that have left still run")

    async def run(self) -> dict:
        await asyncio.gather(self._watch(), *(self._client(number) for number in range(self.asked.clients)))
        if self.pid:
            await self._settled()
        growth = max(self.memory[len(self.memory) // 4 :], default=0) - max(self.memory[: len(self.memory) // 4 + 1], default=0)
        if growth > self.asked.growth:
            self.wrong.append(f"memory has grown by {growth} MB: {self.memory[:: max(1, len(self.memory) // 20)]}")
        return self.counts | {"memory": (self.memory[:1] + self.memory[-1:]), "growth_mb": growth, "wrong": self.wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("speed", "soak"))
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
    parser.add_argument("--requests", type=int, default=200, help="different ones of a soak")
    parser.add_argument("--growth", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if (asked.artifact is None) == (asked.url is None):
        parser.error("give either an artifact or --url")
    asked.clients = asked.clients or {"speed": 16, "soak": 64}[asked.mode]
    asked.new = asked.new or {"speed": 128, "soak": 32}[asked.mode]
    with served(asked) as (client, pid, facts):
        result = asyncio.run(speed(asked, client, pid, facts) if asked.mode == "speed" else Soak(asked, client, pid, facts).run())
    for name, value in result.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
    if asked.json:
        asked.json.write_text(json.dumps(result) + "\n")
    return 1 if result.get("wrong") else 0


if __name__ == "__main__":
    sys.exit(main())
