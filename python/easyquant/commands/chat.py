# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant chat`: a conversation in the terminal, or with the lines of a file."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from easyquant.commands import models
from easyquant.formats import hub
from easyquant.formats.model_files import read_json
from easyquant.api.conversation import MAX_TOKENS, Chat
from easyquant.runtime.device import Device, DeviceOption, SimtChipOption, ThreadsOption
from easyquant.runtime.engine import KEPT_STATES
from easyquant.api.model import Model
from easyquant.runtime.requests import Settings
from easyquant.support.errors import UserError
from easyquant.support.files import cache_folder, check_writable, write_json
from easyquant.terminal import console
from easyquant.terminal.usage import Command, did_you_mean

HISTORY_LINES = 1000


class Talk:
    """The commands of a conversation, by their names."""

    def __init__(self, chat: Chat, model: Model, name: str):
        self.chat, self.model, self.name = chat, model, name
        self.seconds: tuple[float, float] | None = None  # of the last answer: until its text began, and from there on
        self.commands: dict[str, tuple[Callable[[str], None], str]] = {
            "/reset": (self.reset, "forget the conversation; the system message stays"),
            "/system": (self.system, "TEXT: begin anew, with this system message; without a text, with none"),
            "/save": (self.save, "FILE: write the conversation, as JSON"),
            "/load": (self.load, "FILE: go on with a conversation that /save wrote"),
            "/stats": (self.stats, "show tokens and speed of the last answer"),
            "/help": (self.help, "show this"),
        }

    def obey(self, line: str) -> None:
        command, _, argument = line.partition(" ")
        if command not in self.commands:
            near = did_you_mean(command, self.commands) or f"; there are {', '.join(self.commands)}"
            raise UserError(f"unknown command {command}{near}; a message that begins with / is written with //")
        self.commands[command][0](argument.strip())

    def say(self, text: str) -> None:
        """Sends a message, and writes the answer as it comes. Ctrl-C ends it."""
        begin, first = time.perf_counter(), None
        try:
            for piece in self.chat.stream(text):
                first = first or time.perf_counter()
                sys.stdout.write(piece)
                sys.stdout.flush()
        except KeyboardInterrupt as error:
            if getattr(error, "status", 130) != 130:  # another signal than that of Ctrl-C
                raise
            console.note("\n(stopped)")
            return
        finally:
            end = time.perf_counter()
            self.seconds = ((first or end) - begin, end - (first or end))
        sys.stdout.write("\n")
        sys.stdout.flush()
        if self.chat.last.finish_reason == "length":
            console.note(f"(ended after {len(self.chat.last.tokens)} tokens: --max-new-tokens, or the end of the context)")

    def reset(self, _: str) -> None:
        self.chat.reset()

    def system(self, text: str) -> None:
        self.chat.messages = [{"role": "system", "content": text}] if text else []
        self.chat.reset()

    def save(self, name: str) -> None:
        check_writable(_file(name))
        write_json(_file(name), {"model": self.name, "messages": self.chat.messages})
        console.note(f"{len(self.chat.messages)} messages are in {name}")

    def load(self, name: str) -> None:
        self.chat.messages = read_messages(_file(name))
        console.note(f"{len(self.chat.messages)} messages from {name}")

    def stats(self, _: str) -> None:
        last = self.chat.last
        if last is None or self.seconds is None:
            console.note("there is no answer yet")
            return
        used, (wait, rest) = last.prompt_tokens + len(last.tokens), self.seconds
        rate = f" at {(len(last.tokens) - 1) / rest:.1f} tokens/s" if rest > 0 and len(last.tokens) > 1 else ""
        read = f"{last.prompt_tokens} prompt tokens, {last.cached_tokens} of them known"
        console.note(f"{read}, first text after {wait:.2f} s, {len(last.tokens)} new{rate}; {used} of {self.model.context} tokens of the context")

    def help(self, _: str) -> None:
        for name, (_, text) in self.commands.items():
            console.note(f"{name:8} {text}")
        console.note("A line that ends with \\ goes on in the next one. Ctrl-C stops an answer, Ctrl-D ends.")


def _file(name: str) -> Path:
    if not name:
        raise UserError("the name of a file is missing")
    return Path(name).expanduser()


def read_messages(file: Path) -> list[dict]:
    if not file.is_file():
        raise UserError(f"{file}: there is no such file")
    messages = read_json(file).get("messages")
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and set(message) == {"role", "content"} and all(isinstance(value, str) for value in message.values()) for message in messages
    ):
        raise UserError(f'{file}: holds no conversation; expected an object with "messages", each with the texts "role" and "content"')
    return messages


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Lines of earlier conversations, for the arrow keys."""
    try:
        import readline
    except ImportError:
        yield
        return
    file = cache_folder() / "chat-history"
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(HISTORY_LINES)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # it is a convenience
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)
            os.chmod(file, 0o600)


def _typed() -> Iterator[str]:
    """What is typed, line by line."""
    with _history():
        while True:
            try:
                yield input("> ")
            except EOFError:
                sys.stdout.write("\n")
                return
            except KeyboardInterrupt as error:
                if getattr(error, "status", 130) != 130:
                    raise
                console.note("\n(Ctrl-D ends)")


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """Messages and commands: a line that ends with a backslash goes on in the next one."""
    begun = ""
    for line in lines:
        line = line.rstrip("\r\n")
        if line.endswith("\\"):
            begun += line[:-1] + "\n"
            continue
        text, begun = begun + line, ""
        if text.strip():
            yield text
    if begun.strip():
        yield begun.rstrip("\n")


def converse(talk: Talk) -> None:
    """With who sits at the terminal; else with the lines of standard input, where an error ends it."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal:
        console.note(f"{talk.model!r}\n/help shows what there is besides messages.")
    for text in _joined(_typed() if is_terminal else sys.stdin):
        try:
            if text.startswith("/") and not text.startswith("//"):
                talk.obey(text)
            else:
                talk.say(text.removeprefix("/") if text.startswith("//") else text)
        except UserError as error:
            if not is_terminal:
                raise
            console.fail(str(error))


class ChatCommand(Command):
    groups = models.groups({
        "Conversation": ("--system", "--load", "--max-new-tokens"),
        "Answers": ("--temperature", "--top-k", "--top-p", "--min-p", "--repetition-penalty", "--seed"),
        "Where it runs": ("--speculate", "--draft-tokens", "--context", "--kept-states", "--threads", "--device", "--simt-chip"),
    })  # fmt: skip


@console.command
@models.takes_models
def chat_command(
    model: models.ModelArgument,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The system message.")] = None,
    load: Annotated[Path | None, typer.Option(metavar="FILE", help="Go on with a conversation that /save wrote.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Stop an answer after so many tokens.")] = MAX_TOKENS,
    temperature: Annotated[float, typer.Option(min=0.0, metavar="T", help="0 takes the most likely token.")] = Settings.temperature,
    top_k: Annotated[int, typer.Option(min=0, metavar="K", help="Sample from so many of the most likely tokens; 0: from all.")] = Settings.top_k,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, metavar="P", help="Sample from the most likely tokens of this total probability.")] = Settings.top_p,
    min_p: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="P", help="Sample from tokens that are at least so likely beside the most likely one.")
    ] = Settings.min_p,
    repetition_penalty: Annotated[
        float, typer.Option(metavar="F", help="Above 1: tokens of the conversation become less likely (logits above 0 are divided by it).")
    ] = Settings.repetition_penalty,
    seed: Annotated[int | None, typer.Option(min=0, metavar="S", help="Equal seeds give equal answers. (default: random)")] = Settings.seed,
    speculate: models.SpeculateOption = None,
    draft_tokens: models.DraftTokensOption = None,
    context: Annotated[int, typer.Option(min=0, metavar="TOKENS", help="Tokens that a conversation may have; 0: as many as the model can.")] = 0,
    kept_states: models.KeptStatesOption = KEPT_STATES,
    threads: ThreadsOption = 0,
    device: DeviceOption = Device.auto,
    simt_chip: SimtChipOption = None,
    calib: models.CalibOption = None,
    **given,
) -> None:
    """Talk with a model. Each turn reads only what is new in it.

    Example: [bold]easyquant chat smol-w8a8 --system "Answer briefly."[/bold]
    """
    messages = read_messages(load) if load is not None else []
    if system and messages[:1] and messages[0]["role"] == "system":
        raise UserError(f"--system: {load} begins with a system message; give one of them")
    models.speculation(speculate, draft_tokens)  # what is wrong with it
    artifact = models.artifact_of(model, calib, given)
    place = {"device": device.value, "threads": threads, "context": context, "simt_chip": simt_chip}
    with Model(artifact.path, **place, sequences=1, speculate=speculate, draft_tokens=draft_tokens, kept_states=kept_states) as loaded:
        if not loaded.has_chat_template:
            raise UserError(f"{artifact.shown}: the model has no chat template; `easyquant run --prompt` continues plain text")
        options = {"max_tokens": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
        chat = loaded.chat(system, messages, repetition_penalty=repetition_penalty, **options)
        converse(Talk(chat, loaded, hub.model_name(artifact.shown)))
