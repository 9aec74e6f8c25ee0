# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant run --prompts`: a file of prompts, continued many at a time.

A line is a JSON text, or an object: `prompt` (a text, a list of token ids, or a list of messages), `id` (a text or a number,
which its result repeats) and the fields of `Settings`. Each line has one result, in the order of the lines, an error if
that is what became of it.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from easyquant import __version__
from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.device import Placement
from easyquant.runtime.engine import Engine, EngineOptions
from easyquant.runtime.generation import Completion, Speed
from easyquant.runtime.requests import Prompt, PromptReader, Request, Settings
from easyquant.support.errors import UserError, expect, is_whole
from easyquant.support.files import check_writable, sha256
from easyquant.support.journal import Journal
from easyquant.terminal import console
from easyquant.terminal.usage import did_you_mean

_OPTIONS = tuple(field.name for field in dataclasses.fields(Settings))
_FIELDS = ("prompt", "id", *_OPTIONS)


@dataclass
class Line:
    number: int
    where: str  # for messages
    id: str | int | None = None
    request: Request | None = None
    error: str | None = None

    def result(self, completion: Completion) -> dict:
        entry = {"line": self.number} | ({} if self.id is None else {"id": self.id})
        if completion.error:
            return entry | {"error": f"{self.where}: {completion.error}"} | ({"text": completion.text} if completion.text else {})
        entry |= {"text": completion.text, "finish_reason": completion.finish_reason, "prompt_tokens": completion.prompt_tokens}
        entry["completion_tokens"] = len(completion.tokens)
        if completion.logprobs is not None:
            entry["logprobs"] = [dataclasses.asdict(logprob) for logprob in completion.logprobs]
        return entry | ({} if completion.seed is None else {"seed": completion.seed})


def _read_line(line: Line, raw: bytes, settings: Settings) -> tuple[Prompt, Settings]:
    """Its prompt and its settings, `settings` where it has no others. Sets the line's id."""
    try:
        value = json.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8 (byte {error.start}); convert the file, for instance with iconv") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not valid JSON ({error}); expected a text in quotes, or an object with a prompt") from None
    if isinstance(value, str):
        value = {"prompt": value}
    expect("the line", value, isinstance(value, dict), "a JSON text, or an object with a prompt")
    identifier = value.get("id")
    is_name = identifier is None or is_whole(identifier) or isinstance(identifier, str) and identifier.isprintable()
    expect("id", identifier, is_name, "a text or a whole number")
    line.id = identifier
    for name in value:
        if name not in _FIELDS:
            raise UserError(f"found the field {name!r}, expected {', '.join(_FIELDS)}{did_you_mean(name, _FIELDS)}")
    if "prompt" not in value:
        raise UserError("has no prompt; expected a text, a list of token ids, or a list of messages")
    return value["prompt"], dataclasses.replace(settings, **{name: value[name] for name in _OPTIONS if name in value})


def read_lines(raw: list[tuple[int, bytes]], file: str, reader: PromptReader, settings: Settings) -> list[Line]:
    """Reads lines, given by their numbers and texts."""
    lines, prompts = [], []
    for number, text in raw:
        lines.append(line := Line(number, f"{file}, line {number}"))
        try:
            prompts.append((line, *_read_line(line, text, settings)))
        except UserError as error:
            line.error = str(error)
    requests = reader.requests([(prompt, own) for _, prompt, own in prompts])
    for (line, _, _), request in zip(prompts, requests, strict=True):
        if isinstance(request, UserError):
            line.error = str(request)
        else:
            line.request = request
    return lines


@dataclass(frozen=True)
class Way:
    """How many prompts are continued, and where."""

    sequences: int  # at a time
    placement: Placement
    engine: EngineOptions


def results(reader: PromptReader, lines: list[Line], way: Way, speed: Speed) -> Iterator[tuple[int, dict]]:
    """The result of each line, by its place in the list, as soon as it is there."""
    for place, line in enumerate(lines):
        if line.error:
            yield place, line.result(Completion(error=line.error))
    places = [place for place, line in enumerate(lines) if line.request]
    if not places:
        return
    requests = [lines[place].request for place in places]
    model = load_model(reader.artifact, place=way.placement)
    size = BatchSize.of(reader.artifact, model.device, [request.positions for request in requests], way.sequences)
    with Engine(model, reader.artifact, reader, size, way.engine) as engine:
        engine.speed = speed
        for number, _, completion in engine.complete(requests):
            if completion.finish_reason:
                yield places[number], lines[places[number]].result(completion)


def in_order(numbered: Iterable[tuple[int, dict]]) -> Iterator[dict]:
    """What is numbered from 0 on, in the order of the numbers."""
    waiting, following = {}, 0
    for number, item in numbered:
        waiting[number] = item
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def job_stamp(artifact: Artifact, data: bytes, settings: Settings) -> dict:
    """What results depend on."""
    return {
        "easyquant": __version__,
        "artifact": sha256(artifact.path / "manifest.json"),
        "prompts": hashlib.sha256(data).hexdigest(),
        "settings": dataclasses.asdict(settings),
    }


def answer_prompts(reader: PromptReader, file: Path, output: Path | None, settings: Settings, way: Way) -> None:
    """UserError at the end, when everything is written, if a prompt failed."""
    check_writable(output)
    name, data = ("standard input", sys.stdin.buffer.read()) if str(file) == "-" else (str(file), file.read_bytes())
    raw = [(number, text) for number, text in enumerate(data.split(b"\n"), 1) if text.strip()]
    if not raw:
        raise UserError(f"{name}: holds no prompt; expected a JSON text, or an object with a prompt, in each line")
    artifact = reader.artifact
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context(Journal(output, job_stamp(artifact, data, settings))) if output is not None else None
        done = [json.loads(line) for line in journal.lines] if journal else []
        if done:
            console.note(f"{journal.partial}: has {len(done)} of {len(raw)} results from a run that was interrupted")
        lines = read_lines(raw[len(done) :], name, reader, settings)
        errors = [entry["error"] for entry in done if "error" in entry]
        write = journal.append if journal else functools.partial(print, file=sys.stdout, flush=True)
        speed, begin, unanswered = Speed(), time.perf_counter(), 0
        with console.progress(shown=journal is not None or not sys.stdout.isatty()) as bar:
            task = bar.add_task("prompts", total=len(raw), completed=len(done))
            try:
                for line, entry in zip(lines, in_order(results(reader, lines, way, speed))):
                    write(json.dumps(entry, ensure_ascii=False))
                    unanswered += "error" not in entry and reader.is_unanswered(line.request, entry["text"])
                    bar.advance(task)
                    if "error" in entry:
                        errors.append(entry["error"])
            except (KeyboardInterrupt, UserError):
                if journal:
                    console.note(f"{journal.partial}: has {len(journal.lines)} of {len(raw)} results; the same command goes on from there")
                raise
        if journal:
            journal.finish()
    seconds = time.perf_counter() - begin
    rate = f"{speed.new_tokens} new in {seconds:.1f} s: {speed.new_tokens / seconds:.1f} tokens/s"
    if unanswered:
        console.warn(
            f"{unanswered} of {len(lines)} prompts got no answer: {artifact.path} is a chat model, and saw them without its template; "
            "--chat puts it around all prompts, \"chat\": true around that of a line"
        )
    console.note(f"{len(lines)} prompts, {speed.prompt_tokens} tokens, {rate}")
    if errors:
        raise UserError(f"{len(errors)} of {len(raw)} prompts failed, the first: {errors[0]}")
