# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chat templates: where a model has its own, and what it makes of messages within limits."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from easyquant.support.children import ends_with_me
from easyquant.support.errors import UserError
from easyquant.text.tokenizer_checks import LARGEST_TEMPLATE, read_text

MEMORY = 512 * 2**20
SECONDS = 2  # of a CPU; trained models' templates take milliseconds
PATIENCE = 60  # seconds on a busy machine
LARGEST_OUTPUT = 2**24
SHARE = 32  # texts of one process


@dataclass(frozen=True)
class ChatTemplate:
    text: str
    source: str  # the file that has it

    def __post_init__(self) -> None:
        if len(self.text) > LARGEST_TEMPLATE:
            raise self._error(f"has {len(self.text)} characters, expected at most {LARGEST_TEMPLATE}")

    def _error(self, what: str) -> UserError:
        return UserError(f"{self.source}: the chat template {what}; run without --chat, or take the template that belongs to the model")

    def render(self, variables: Mapping) -> str:
        """What the template makes of the variables, in a process of its own (chat_child.py)."""
        (result,) = self.render_all([variables])
        if isinstance(result, UserError):
            raise result
        return result

    def render_all(self, several: Sequence[Mapping]) -> list[str | UserError]:
        """The same of several, for which processes are shared: a text takes less than the start of one."""
        results: list[str | UserError] = []
        for begin in range(0, len(several), SHARE):
            share = several[begin : begin + SHARE]
            texts = self._render_share(share)
            # One that takes too much takes the others' results along.
            if isinstance(texts, UserError):
                texts = [texts] if len(share) == 1 else [text for variables in share for text in self.render_all([variables])]
            results += texts
        return results

    def _render_share(self, share: Sequence[Mapping]) -> list[str | UserError] | UserError:
        request = {"template": self.text, "variables": list(share), "memory": MEMORY, "seconds": SECONDS, "characters": LARGEST_OUTPUT}
        # -P: the script's folder, this one, has modules that go by names of the standard library.
        command = [sys.executable, "-P", str(Path(__file__).with_name("chat_child.py"))]
        try:
            done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, timeout=PATIENCE, preexec_fn=ends_with_me())
        except subprocess.TimeoutExpired:
            return self._error(f"is not done after {PATIENCE} s")
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return self._error(f"takes longer than {SECONDS} s")
        try:
            replies = json.loads(done.stdout)
        except ValueError:  # as where a template overflows the stack
            return self._error(f"ended its process with status {done.returncode} ({done.stderr.strip()[-200:] or 'no message'})")
        if "limit" in replies[-1]:
            return self._error(replies[-1]["limit"])
        return [reply["text"] if "text" in reply else self._error(f"refuses these messages ({reply['refuses']})") for reply in replies]


def chat_template(folder: Path, config: Mapping) -> ChatTemplate | None:
    """The default one: chat_template.jinja, else that of tokenizer_config.json, which is `config`."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return ChatTemplate(read_text(file, LARGEST_TEMPLATE), str(file))
    template = config.get("chat_template")
    if isinstance(template, list):  # Several, by name.
        template = next((entry.get("template") for entry in template if isinstance(entry, Mapping) and entry.get("name") == "default"), None)
    return ChatTemplate(template, str(folder / "tokenizer_config.json")) if isinstance(template, str) and template else None
