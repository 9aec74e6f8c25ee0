# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long a grammar takes for a token, and a chat template for a chat, with a model's own tokenizer and template.

    benchmarks/grammars.py OUT [--answers 20] [--tokens 200]

An answer takes random ones of the tokens that its grammar allows, which is harder than a model's: these go wherever they can. Printed are the
compilation, and of a token the median, the 99th percentile and the greatest time, of the CPU in the calling thread: the mask of all tokens and
what the chosen one changes. Then the model answers itself, at temperature 1: printed are, of an answer, its tokens and the steps of the model that they took; the others were
forced by the grammar, and read beside the token before them. Then of a chat's rendering the median time that passes once its process runs, and the CPU's in both processes.
"""

import argparse
import json
import os
import threading
import time
from pathlib import Path

import numpy as np

from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.engine import Engine
from easyquant.runtime.grammar import Form, lark_schema
from easyquant.runtime.requests import PromptReader, Settings
from easyquant.text.messages import Conversation
from easyquant.text.tool_calls import HERMES
from easyquant.text.tool_grammars import Marks, forced_calls

_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"}, "age": {"type": "integer"}, "kind": {"enum": ["human", "robot", "cat"]},
        "hobbies": {"type": "array", "items": {"type": "string"}}, "address": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
    "required": ["name", "age", "kind", "hobbies"],
    "additionalProperties": False,
}  # fmt: skip
FORMATS = {
    "json_object": {"type": "json_object"},
    "a schema of five fields": {"type": "json_schema", "json_schema": {"schema": _PERSON}},
    "regex, a date and a name": {"type": "regex", "regex": r"\d{4}-\d{2}-\d{2}: [A-Z][a-z]+( [A-Z][a-z]+)*"},
    "lark, arithmetic": {"type": "grammar", "grammar": 'start: sum\nsum: product ("+" product)*\nproduct: atom ("*" atom)*\natom: /[0-9]+/ | "(" sum ")"'},
}
_CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"], "additionalProperties": False}
_CALLS = forced_calls(HERMES, [{"name": "get_weather_forecast", "parameters": _CITY}, {"name": "search_the_web"}], False, Marks(json.dumps, lambda text: False), lark_schema)
ASKED = {
    "a schema of five fields": ("Invent a person.", FORMATS["a schema of five fields"]),
    "a call of one of two functions": ("What will the weather be in Paris tomorrow?", {"type": "grammar", "grammar": _CALLS}),
}
RENDERINGS = 1000
CHAT = [{"role": "system", "content": "You are helpful."}, *[{"role": role, "content": "Some words. " * 20} for _ in range(5) for role in ("user", "assistant")], {"role": "user", "content": "Hi"}]


def cpu_of_children() -> float:
    """Seconds of those that run."""
    (children,) = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}").glob("children")
    fields = [Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split() for pid in children.read_text(encoding="utf-8").split()]
    return sum(int(own[11]) + int(own[12]) for own in fields) / os.sysconf("SC_CLK_TCK")


def answer_times(grammar, vocabulary: int, tokens: int, random: np.random.Generator) -> list[float]:
    constraint, times = grammar.start(), []
    for _ in range(tokens):
        begin = time.thread_time()
        bits = constraint.allowed()
        seconds = time.thread_time() - begin
        token = int(random.choice(np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")[:vocabulary])))
        begin = time.thread_time()
        is_done = token in constraint.end_tokens or constraint.take(token)
        times.append(seconds + time.thread_time() - begin)
        if is_done:
            break
    return times


def print_steps(reader: PromptReader, answers: int, tokens: int) -> None:
    model, chat = load_model(reader.artifact), reader.tokenizer.has_chat_template
    print(f"{'':32} {'tokens':>8} {'steps':>8}")
    for name, (prompt, kind) in ASKED.items():
        requests = [reader.request(prompt, Settings(temperature=1.0, seed=seed, max_tokens=tokens, response_format=kind, chat=chat)) for seed in range(answers)]
        positions = [request.positions for request in requests]
        with Engine(model, reader.artifact, reader, BatchSize.of(reader.artifact, model.device, positions, 1)) as engine:
            written = {number: len(completion.tokens) for number, _, completion in engine.complete(requests)}
        whole = sum(written.values())
        print(f"{name:32} {whole / answers:8.1f} {(whole - engine.speed.forced_tokens) / answers:8.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--answers", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=200)
    asked = parser.parse_args()
    reader, random = PromptReader(Artifact.open(asked.artifact)), np.random.default_rng(0)
    begin = time.perf_counter()
    reader.grammars.compile(Form({"type": "regex", "regex": "a"}))
    print(f"vocabulary of {reader.vocabulary}: the tokenizer is read for grammars in {time.perf_counter() - begin:.2f} s, once")
    print(f"{'':28} {'compiled, ms':>12} {'median, µs':>10} {'p99':>8} {'greatest':>8}")
    for name, kind in FORMATS.items():
        begin = time.perf_counter()
        grammar = reader.grammars.compile(Form(kind))
        compiled = 1e3 * (time.perf_counter() - begin)
        times = 1e6 * np.array([value for _ in range(asked.answers) for value in answer_times(grammar, reader.vocabulary, asked.tokens, random)])
        print(f"{name:28} {compiled:12.1f} {np.median(times):10.1f} {np.quantile(times, 0.99):8.1f} {times.max():8.1f}")
    print_steps(reader, asked.answers, asked.tokens)
    if reader.tokenizer.has_chat_template:
        chat, times = Conversation(CHAT), []
        reader.tokenizer.render_chat(chat)
        begin_cpu, begin_child = time.thread_time(), cpu_of_children()
        for _ in range(RENDERINGS):
            begin = time.perf_counter()
            reader.tokenizer.render_chat(chat)
            times.append(1e3 * (time.perf_counter() - begin))
        of_cpu = 1e3 * (time.thread_time() - begin_cpu + cpu_of_children() - begin_child) / RENDERINGS
        print(f"a chat of {len(CHAT)} messages: {np.median(times):.2f} ms, {of_cpu:.2f} ms of the CPU")


if __name__ == "__main__":
    main()
