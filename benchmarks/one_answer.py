# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Are answers the same bytes alone and in a crowd?

    benchmarks/one_answer.py TEXT OUT... [--requests 300] [--clients 64] [--context 512] [--threads 2]

Requests, greedy and seeded, begin at places of TEXT, some of them at the same. Each artifact answers them one by one without a cache of
beginnings; then so many clients at a time, with a quarter of the pages that these would take and others that leave midway, with the cache
off and on; then, with it on, all of them once more, and as a next turn behind their answers; then with speculation from the text. Printed are the answers that differ: 0.
"""

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.drafts import NGRAM, Speculation
from easyquant.runtime.engine import Engine, EngineOptions
from easyquant.runtime.generation import Completion
from easyquant.runtime.requests import PromptReader, Request, Settings

KINDS = [{"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.8, "top_p": 0.9, "presence_penalty": 0.3}]


def make_requests(tokens: np.ndarray, count: int) -> list[Request]:
    choice, made = random.Random(0), []
    for number in range(count):
        first, length = choice.choice([0, 0, choice.randrange(len(tokens) - 400)]), choice.choice([1, 20, 63, 64, 65, 150, 300])
        settings = Settings(max_tokens=choice.choice([8, 32, 80]), seed=number, **KINDS[number % 3])
        made.append(Request(tokens[first : first + length], settings.max_tokens, settings, begins_text=False, is_text=True))
    return made


def answer(engine: Engine, requests: Sequence[Request], clients: int) -> list[Completion]:
    """So many requests at a time; one more for each eight leaves midway."""
    done: dict[int, Completion] = {}
    for first in range(0, len(requests), clients):
        part = requests[first : first + clients]
        leaving = [engine.submit(replace(request, max_tokens=80)) for request in part[::8]] if clients > 1 else []
        for number, _, completion in engine.complete(part):
            done[first + number] = completion
            if len(done) == first + len(part) // 2:
                for handle in leaving:
                    handle.cancel()
    return [done[number] for number in range(len(requests))]


def differing(found: list[Completion], expected: list[Completion]) -> int:
    return sum((one.tokens, one.finish_reason, one.error) != (other.tokens, other.finish_reason, None) for one, other in zip(found, expected, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("artifacts", type=Path, nargs="+")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    for folder in asked.artifacts:
        artifact, begin = Artifact.open(folder), time.monotonic()
        reader, model = PromptReader(artifact), load_model(artifact)
        tokens = np.asarray(reader.tokenizer.encode(asked.text.read_text()[:100_000]), np.int32)

        requests = make_requests(tokens, asked.requests)
        taken = sum(request.positions for request in requests) * asked.clients // len(requests)  # by so many at a time, in the mean

        def engine(clients: int, part: int, kept: int, speculation: Speculation | None = None, model=model, artifact=artifact, reader=reader, taken=taken) -> Engine:
            size = BatchSize(asked.context, clients, max(taken // part, 2 * asked.context))
            return Engine(model, artifact, reader, size, EngineOptions(threads=asked.threads, kept_tokens=kept, speculation=speculation))

        with engine(1, 1, 0) as alone:
            expected = answer(alone, requests, 1)
            turns = [
                replace(request, tokens=np.concatenate([request.tokens, np.asarray(done.tokens, np.int32), tokens[:5]]), max_tokens=16)
                for request, done in zip(requests, expected, strict=True)
            ][::3]
            expected_turns = answer(alone, turns, 1)
        with engine(asked.clients, 4, 0) as crowd:
            found = {"in a crowd": differing(answer(crowd, requests, asked.clients), expected)}
            aside = crowd.figures.set_aside
        with engine(asked.clients, 4, 1 << 16) as crowd:
            found["with beginnings that are kept"] = differing(answer(crowd, requests, asked.clients), expected)
            found["once more"] = differing(answer(crowd, requests, asked.clients), expected)
            found["next turns"] = differing(answer(crowd, turns, asked.clients), expected_turns)
            hits, aside = crowd.figures.hits, aside + crowd.figures.set_aside
        with engine(asked.clients, 4, 1 << 16, Speculation(NGRAM)) as crowd:
            found["with guesses of the text"] = differing(answer(crowd, requests, asked.clients), expected)
            aside += crowd.figures.set_aside
        total = sum(len(one.tokens) for one in expected)
        print(f"{folder.name}: {len(requests)} requests, {total} tokens; differing: {found}; {aside} set aside, {hits} hits, {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
