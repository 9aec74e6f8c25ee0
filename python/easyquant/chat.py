# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chat templates: where a model has its own, and what it makes of messages within limits."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from easyquant.errors import UserError
from easyquant.tokenizer_checks import LARGEST_TEMPLATE, read_text

MEMORY = 512 * 2**20
SECONDS = 2  # of a CPU; trained models' templates take milliseconds
PATIENCE = 60  # seconds on a busy machine
LARGEST_OUTPUT = 2**24


@dataclass(frozen=True)
class ChatTemplate:
    text: str
    source: str  # the file that has it

    def __post_init__(self) -> None:
        if len(self.text) > LARGEST_TEMPLATE:
            self.fail(f"has {len(self.text)} characters, expected at most {LARGEST_TEMPLATE}")

    def fail(self, what: str) -> None:
        raise UserError(f"{self.source}: the chat template {what}; run without --chat, or take the template that belongs to the model") from None

    def render(self, variables: Mapping) -> str:
        """What the template makes of the variables, in a process of its own (chat_child.py)."""
        request = {"template": self.text, "variables": variables, "memory": MEMORY, "seconds": SECONDS, "characters": LARGEST_OUTPUT}
        # -P: the script's folder, this one, has modules that go by names of the standard library.
        command = [sys.executable, "-P", str(Path(__file__).with_name("chat_child.py"))]
        try:
            done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.fail(f"is not done after {PATIENCE} s")
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            self.fail(f"takes longer than {SECONDS} s")
        try:
            reply = json.loads(done.stdout)
        except ValueError:  # as where a template overflows the stack
            self.fail(f"ended its process with status {done.returncode} ({done.stderr.strip()[-200:] or 'no message'})")
        if "limit" in reply:
            self.fail(reply["limit"])
        if "refuses" in reply:
            self.fail(f"refuses these messages ({reply['refuses']})")
        return reply["text"]


def chat_template(folder: Path, config: Mapping) -> ChatTemplate | None:
    """The default one: chat_template.jinja, else that of tokenizer_config.json, which is `config`."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return ChatTemplate(read_text(file, LARGEST_TEMPLATE), str(file))
    template = config.get("chat_template")
    if isinstance(template, list):  # Several, by name.
        template = next((entry.get("template") for entry in template if isinstance(entry, Mapping) and entry.get("name") == "default"), None)
    return ChatTemplate(template, str(folder / "tokenizer_config.json")) if isinstance(template, str) and template else None
