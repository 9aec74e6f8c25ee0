# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chat templates: where a model has its own, and what it makes of variables within limits."""

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from easyquant.support.errors import UserError
from easyquant.text.tokenizer_checks import LARGEST_TEMPLATE, read_text

MEMORY = 512 * 2**20
SECONDS = 2  # of a CPU; trained models' templates take milliseconds
PATIENCE = 60  # seconds on a busy machine
LARGEST_OUTPUT = 2**24


@dataclass(frozen=True)
class ChatTemplate:
    """A template and the process that renders it (chat_child.py), which starts with the first rendering and stays."""

    text: str
    source: str  # the file that has it

    def __post_init__(self) -> None:
        if len(self.text) > LARGEST_TEMPLATE:
            raise self._error(f"has {len(self.text)} characters, expected at most {LARGEST_TEMPLATE}")
        object.__setattr__(self, "_child", _Child(self.text))

    def _error(self, what: str) -> UserError:
        return UserError(f"{self.source}: the chat template {what}; run without --chat, or take the template that belongs to the model")

    def render(self, variables: Mapping) -> str:
        """What the template makes of the variables, which are JSON. Any thread may ask."""
        try:
            text = json.dumps(variables, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"prompt: its messages, or what else the chat template is given, hold what is no JSON ({str(error)[:200]})") from None
        reply = self._child.ask(text)
        if "text" in reply:
            return reply["text"]
        raise self._error(reply["limit"] if "limit" in reply else f"refuses these messages ({reply['refuses']})")


class _Child:
    """A process that renders one template, one rendering after the other. What reaches a limit ends it, and the next one gets another."""

    def __init__(self, template: str):
        self._setup = json.dumps({"template": template, "memory": MEMORY, "seconds": SECONDS, "characters": LARGEST_OUTPUT})
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._owner = 0  # a process that forked has no child of its own

    def ask(self, variables: str) -> dict:
        """{"text"}, {"refuses"}: the reason, or {"limit"}: what was reached."""
        with self._lock:
            reply = self._ask(self._running(), variables)
            if "limit" in reply:
                self._finalizer()
            return reply

    def _running(self) -> subprocess.Popen:
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            # -P: the script's folder, this one, has modules that go by names of the standard library.
            command = [sys.executable, "-P", str(Path(__file__).with_name("chat_child.py"))]
            # It ends where its input does, and so with its owner, in whichever thread it was started.
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
            self._owner = os.getpid()
            self._finalizer = weakref.finalize(self, self._end, self._process)
            self._send(self._process, self._setup)
        return self._process

    def _ask(self, process: subprocess.Popen, variables: str) -> dict:
        self._send(process, variables)
        line = self._receive(process)
        if line is None:
            return {"limit": f"is not done after {PATIENCE} s"}
        try:
            return json.loads(line)
        except ValueError:  # it ended, as where a template overflows the stack
            status, message = process.wait(), process.stderr.read().strip()[-200:]
        if status in (-signal.SIGPROF, -signal.SIGKILL):
            return {"limit": f"takes longer than {SECONDS} s"}
        return {"limit": f"ended its process with status {status} ({message or 'no message'})"}

    @staticmethod
    def _send(process: subprocess.Popen, line: str) -> None:
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # there is no reply either, and its status says why

    @staticmethod
    def _receive(process: subprocess.Popen) -> str | None:
        """A line, which comes at once where it begins to come. None: it takes too long."""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            return process.stdout.readline() if selector.select(PATIENCE) else None

    @staticmethod
    def _end(process: subprocess.Popen) -> None:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass  # what it has not read


def chat_template(folder: Path, config: Mapping) -> ChatTemplate | None:
    """The default one: chat_template.jinja, else that of tokenizer_config.json, which is `config`."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return ChatTemplate(read_text(file, LARGEST_TEMPLATE), str(file))
    template = config.get("chat_template")
    if isinstance(template, list):  # Several, by name.
        template = next((entry.get("template") for entry in template if isinstance(entry, Mapping) and entry.get("name") == "default"), None)
    return ChatTemplate(template, str(folder / "tokenizer_config.json")) if isinstance(template, str) and template else None
