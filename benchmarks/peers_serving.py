#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How fast `easyquant serve` answers: beside other servers, and beside its own engine without a server, in one run.

    benchmarks/peers_serving.py MODEL [--parts crowd,streams,arrivals,beginnings] [--threads 2] [--rounds 5] [--json FILE]

MODEL is a Hugging Face folder of the llama architecture. EasyQuant compiles it as W8A8 and Q4, and exports it as GGUF in Q4_0 and Q8_0
(embedding and head as Q8_0) for the peers. They are llama.cpp's `llama-server`, built for this CPU from the sources in the sdist of
llama-cpp-python, and openvino-genai's continuous batching in a process of its own, which reads the same files and is asked without HTTP.

  crowd       16 clients at once ask for --new tokens after a prompt of --prompt random ones: new tokens a second, and the time to
              the first token; the ratio of each of ours to the best peer of the same round.
  streams     16 streams, and one, beside `easyquant bench`'s steps of as many sequences (by the same calls): greedy, at
              temperature 1, and with a JSON schema at temperature 1. Only tokens count that came while all streams ran.
  arrivals    15 of these streams, while one more client sends prompts of --longest tokens: time per token, median and p99.
  beginnings  a prompt of --longest tokens, read, and asked for again from the cache: time to the first token.

Every server gets the same bodies in a round, one server after the other, in an order that turns around from round to round. Medians of
rounds, of which one more warms up. The client is one asyncio loop that looks for events and reads no JSON.
"""

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from crowds import Client, served
from peer import Worker, cache_folder, fail, llama_server, openvino_environment
from peers_llama_cpp import PAUSE_S, compile_ours, cpu_model

OURS = {"W8A8": ("--scheme=W8A8",), "Q4": ("--scheme=Q4",)}
PEER_TYPES = ("Q4_0", "Q8_0")
SCHEMA = {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": False}, "minItems": 20}
PARTS = ("crowd", "streams", "arrivals", "beginnings")


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


@dataclass
class Crowd:
    """Seconds after the first request at which each answer's events came: one a token, but for tokens that end no character, which share one."""

    times: list[list[float]]
    new: int  # tokens of each answer

    def rate(self) -> float:
        """New tokens a second, of all, with their prompts."""
        return len(self.times) * self.new / max(times[-1] for times in self.times)

    def first(self) -> list[float]:
        return [times[0] for times in self.times]

    def steady_rate(self) -> float:
        """New tokens a second while all answers were written."""
        begin, end = max(times[0] for times in self.times), min(times[-1] for times in self.times)
        if end <= begin:
            fail("no answer was left when the last began: ask for more --new tokens")
        tokens = sum(self.new / len(times) * sum(begin < moment <= end for moment in times) for times in self.times)
        return tokens / (end - begin)

    def gaps(self) -> list[float]:
        """Between one token of an answer and its next."""
        return [later - earlier for times in self.times for earlier, later in zip(times, times[1:], strict=False)]


@dataclass
class Server:
    """A server of OpenAI's API that runs, and what its bodies have besides."""

    client: Client
    name: str
    extra: dict = field(default_factory=dict)

    def crowd(self, prompts: list[list[int]], new: int, **more) -> Crowd:
        return asyncio.run(self.requests(prompts, new, **more))

    async def requests(self, prompts: list[list[int]], new: int, **more) -> Crowd:
        begin = time.perf_counter()
        replies = await asyncio.gather(*(self._one(prompt, new, begin, more) for prompt in prompts))
        return Crowd(replies, new)

    async def _one(self, prompt: list[int], new: int, begin: float, more: dict) -> list[float]:
        body = {"model": self.name, "max_tokens": new, "temperature": 0, "stream": True, **self.extra, **more}
        is_chat = "response_format" in more  # which texts alone have not
        body |= {"messages": [{"role": "user", "content": f"Invent people. {prompt[:4]}"}]} if is_chat else {"prompt": prompt}
        sent = time.perf_counter() - begin
        reply = await self.client.post("/chat/completions" if is_chat else "/completions", body)
        times = [sent + moment for moment in reply.times[is_chat:-1]]  # a chat's first event names the role; the last one of all says why it ended
        if reply.status != 200 or len(times) < new // 4:
            fail(f"{self.client.host}:{self.client.port}: status {reply.status}, {len(times)} events for {new} tokens: {reply.body[:300]!r}")
        return times


@dataclass
class Engine:
    """openvino-genai's continuous batching, in its worker."""

    worker: Worker
    name: str

    def crowd(self, prompts: list[list[int]], new: int) -> Crowd:
        return Crowd(self.worker.ask("crowd", id=self.name, prompts=prompts, new=new)["times"], new)


@contextlib.contextmanager
def started(command: list, url: str):
    """A Client of a server of others, once it answers."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        client = Client(url, None)
        for _ in range(600):
            with contextlib.suppress(OSError):
                if asyncio.run(client.send(client.request("/health", None))).status == 200:
                    break
            if process.poll() is not None:
                fail(f"{command[0]} ended with status {process.returncode}")
            time.sleep(0.1)
        yield client
    finally:
        process.terminate()
        process.wait(60)


def export_theirs(model: Path, kind: str, folder: Path) -> Path:
    """A GGUF file with a tokenizer; embedding and head are Q8_0."""
    out = folder / kind
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "easyquant", "export", model, "--format=gguf", f"--scheme={kind}", "-o", out]
    if subprocess.run([str(part) for part in command], stdout=sys.stderr).returncode != 0:
        fail(f"easyquant could not export {model} as {kind}; its message is above")
    return out / "model.gguf"


def ours_served(asked, artifact: Path):
    context = asked.longest + 256
    return served(artifact, [f"--threads={asked.threads}", f"--sequences={asked.clients}", f"--context={context}", f"--cache-tokens={(asked.clients + 4) * context // 2}"])


def forbidden_ends(artifact: Path) -> dict:
    ends = json.loads((artifact / "manifest.json").read_text())["model"].get("eos_token_ids", [])
    return {"logit_bias": {str(token): -100 for token in ends}}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def peer_served(asked, server: Path, file: Path):
    port = free_port()
    slots = ["-np", asked.clients, "-c", asked.clients * (asked.prompt + asked.new + 16)]
    command = [server, "-m", file, "-t", asked.threads, "-tb", asked.threads, *slots, "-fa", "on", "--port", port, "--no-webui"]
    return started(command, f"http://127.0.0.1:{port}/v1")


def random_prompts(choice: random.Random, count: int, tokens: int, vocabulary: int) -> list[list[int]]:
    return [[choice.randrange(min(100, vocabulary // 2), vocabulary) for _ in range(tokens)] for _ in range(count)]


def rounds_of(asked, variants: dict, make) -> dict:
    """{name: what each round of it gave}: `variants` {name: function of what `make()` made anew for the round}."""
    results = {name: [] for name in variants}
    for turn in range(asked.rounds + 1):
        given = make()
        for name in list(variants)[:: -1 if turn % 2 else 1]:
            time.sleep(PAUSE_S)
            result = variants[name](given)
            if turn:
                results[name].append(result)
        print(f"round {turn} of {asked.rounds}{'' if turn else ' (warm-up)'}", file=sys.stderr)
    return results


def crowd_part(asked, servers: dict, peers: dict, make) -> dict:
    measured = rounds_of(asked, {name: lambda prompts, server=server: server.crowd(prompts, asked.new) for name, server in {**servers, **peers}.items()}, make)
    report = {}
    for name, crowds in measured.items():
        first = [moment for crowd in crowds for moment in crowd.first()]
        report[name] = {"tokens_per_second": [crowd.rate() for crowd in crowds], "first_token_p50": quantile(first, 0.5), "first_token_p95": quantile(first, 0.95)}
        print(f"  {name:24} {statistics.median(report[name]['tokens_per_second']):8.1f} tokens/s   first token {report[name]['first_token_p50']:.3f} s, p95 {report[name]['first_token_p95']:.3f} s")
    for name in servers if peers else ():
        ratios = [own / max(report[peer]["tokens_per_second"][turn] for peer in peers) for turn, own in enumerate(report[name]["tokens_per_second"])]
        waits = report[name]["first_token_p95"] / min(report[peer]["first_token_p95"] for peer in peers)
        report[name] |= {"ratio": statistics.median(ratios), "first_token_p95_ratio": waits}
        print(f"  {name} is {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of the best peer, its p95 time to the first token {waits:.2f} of theirs")
    return report


def streams_part(asked, servers: dict, artifacts: dict, make) -> dict:
    engine = Worker(sys.executable, "easyquant_worker.py")
    variants = {}
    for name, artifact in artifacts.items():
        for count in (1, asked.clients):
            context = asked.prompt + asked.new + 16
            engine.ask("load", id=f"{name} {count}", path=str(artifact), sequences=count, isa=None, threads=asked.threads, context=context)

            def bench(prompts, name=name, count=count):
                steps = [[prompts[row][step % asked.prompt] for row in range(count)] for step in range(asked.new)]
                return count * asked.new / engine.ask("measure", id=f"{name} {count}", prompts=prompts[:count], steps=steps)["decode_s"]

            def streams(prompts, name=name, count=count, more=None):
                return servers[name].crowd(prompts[:count], asked.new, **(more or {})).steady_rate()

            variants[name, count, "bench"] = bench
            variants[name, count, "greedy"] = streams
            if count > 1:
                variants[name, count, "temperature 1"] = lambda prompts, run=streams: run(prompts, more={"temperature": 1, "seed": 1})
                variants[name, count, "schema"] = lambda prompts, run=streams: run(prompts, more={"temperature": 1, "seed": 1, "response_format": {"type": "json_schema", "json_schema": {"name": "people", "schema": SCHEMA}}})
    measured = rounds_of(asked, variants, make)
    engine.close()
    report = {}
    for (name, count, way), rates in measured.items():
        ratios = [rate / bench for rate, bench in zip(rates, measured[name, count, "bench"], strict=True)]
        report[f"{name}, {count}, {way}"] = {"tokens_per_second": rates, "ratio": statistics.median(ratios)}
        print(f"  {name}, {count} stream{'s' if count > 1 else ''}, {way:14} {statistics.median(rates):8.1f} tokens/s   {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) of bench")
    return report


async def with_arrivals(asked, server: Server, prompts: list[list[int]], choice: random.Random, vocabulary: int) -> Crowd:
    async def arrivals():
        while True:
            await server.requests(random_prompts(choice, 1, asked.longest, vocabulary), 1)

    meanwhile = asyncio.create_task(arrivals())
    crowd = await server.requests(prompts[:-1], asked.new)
    meanwhile.cancel()
    return crowd


def arrivals_part(asked, servers: dict, vocabulary: int, make) -> dict:
    choice = random.Random(2)
    measured = rounds_of(asked, {name: lambda prompts, server=server: asyncio.run(with_arrivals(asked, server, prompts, choice, vocabulary)) for name, server in servers.items()}, make)
    report = {}
    for name, crowds in measured.items():
        gaps = [gap for crowd in crowds for gap in crowd.gaps()]
        report[name] = {"per_token_p50": quantile(gaps, 0.5), "per_token_p99": quantile(gaps, 0.99)}
        print(f"  {name:8} time per token {1e3 * quantile(gaps, 0.5):.1f} ms, p99 {1e3 * quantile(gaps, 0.99):.1f} ms ({quantile(gaps, 0.99) / quantile(gaps, 0.5):.2f})")
    return report


def beginnings_part(asked, servers: dict, vocabulary: int) -> dict:
    choice = random.Random(3)

    def both(prompts, server):
        return [server.crowd(prompts, 4).first()[0] for _ in range(2)]

    measured = rounds_of(asked, {name: lambda prompts, server=server: both(prompts, server) for name, server in servers.items()}, lambda: random_prompts(choice, 1, asked.longest, vocabulary))
    report = {}
    for name, pairs in measured.items():
        shares = [again / read for read, again in pairs]
        report[name] = {"read": [read for read, _ in pairs], "from_cache": [again for _, again in pairs], "ratio": statistics.median(shares)}
        print(f"  {name:8} read {statistics.median(report[name]['read']):.3f} s, from the cache {statistics.median(report[name]['from_cache']):.4f} s ({100 * statistics.median(shares):.2f} %)")
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a Hugging Face folder of the llama architecture")
    parser.add_argument("--parts", default=",".join(PARTS), help="of %(default)s")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--longest", type=int, default=4000)
    parser.add_argument("--no-peers", action="store_true", help="EasyQuant alone")
    parser.add_argument("--llama-server", type=Path, help="one that is built already")
    parser.add_argument("--cache", type=Path, help="where the peers' environments and all models are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here as well")
    asked = parser.parse_args()
    parts = asked.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        fail(f"--parts {','.join(sorted(unknown))}: expected some of {','.join(PARTS)}")
    if not asked.model.is_dir():
        fail(f"{asked.model}: there is no such folder")
    cache = cache_folder(asked.cache)
    models = cache / "models" / asked.model.name
    models.mkdir(parents=True, exist_ok=True)
    vocabulary = json.loads((asked.model / "config.json").read_text())["vocab_size"]
    choice = random.Random(1)
    artifacts = {name: compile_ours(asked.model, name, options, models) for name, options in OURS.items()}
    report = {"cpu": cpu_model(), "threads": asked.threads, "clients": asked.clients, "prompt": asked.prompt, "new": asked.new, "rounds": asked.rounds, "model": asked.model.name}
    with contextlib.ExitStack() as stack:
        servers = {name: Server(stack.enter_context(ours_served(asked, artifact))[0], "model", forbidden_ends(artifact)) for name, artifact in artifacts.items()}
        peers = {}
        if "crowd" in parts and not asked.no_peers:
            files = {kind: export_theirs(asked.model, kind, models) for kind in PEER_TYPES}
            server = asked.llama_server or llama_server(cache)
            openvino = Worker(openvino_environment(cache), "openvino_worker.py")
            stack.callback(openvino.close)
            for kind, file in files.items():
                peers[f"llama-server {kind}"] = Server(stack.enter_context(peer_served(asked, server, file)), "model", {"ignore_eos": True, "cache_prompt": False})
                openvino.ask("load", id=kind, path=str(file), threads=asked.threads, sequences=asked.clients, tokens=asked.clients * (asked.prompt + asked.new + 16))
                peers[f"openvino-genai {kind}"] = Engine(openvino, kind)

        def make():
            return random_prompts(choice, asked.clients, asked.prompt, vocabulary)

        running = {
            "crowd": lambda: crowd_part(asked, servers, peers, make),
            "streams": lambda: streams_part(asked, servers, artifacts, make),
            "arrivals": lambda: arrivals_part(asked, servers, vocabulary, make),
            "beginnings": lambda: beginnings_part(asked, servers, vocabulary),
        }
        for part in parts:
            print(f"{part}:")
            report[part] = running[part]()
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
