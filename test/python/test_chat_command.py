# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant chat`, with lines of a file and at a terminal."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import easyquant
from helpers import random_llama, write_letters, write_model

COMMAND = (sys.executable, "-m", "easyquant", "chat")
LONG = ("--max-new-tokens", "8", "--temperature", "3", "--seed", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, artifact):
    source = write_letters(write_model(tmp_path_factory.mktemp("chat") / "letters", *random_llama(seed=11, context=8000)))
    return artifact(source, "--scheme=W8A8", *(f"--copy-file={source / name}" for name in ("tokenizer.json", "tokenizer_config.json")))


def chat(folder, lines, *options, **environment):
    command = [*COMMAND, str(folder), *options]
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, env=os.environ | environment)


def test_answers_lines(folder, tmp_path):
    saved = tmp_path / "talk.json"
    done = chat(folder, f"abc\n\nde\\\nf\n/stats\n/save {saved}\n/reset\nabc\n//x\n", *LONG)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    with easyquant.Model(folder, threads=1) as model:
        talk = model.chat(max_tokens=8, temperature=3.0, seed=1)
        assert answers[:2] == [talk.send("abc").text, talk.send("de\nf").text]
        assert json.loads(saved.read_text())["messages"] == talk.messages
        talk.reset()
        assert answers[2:] == [talk.send("abc").text, talk.send("/x").text]
    assert "prompt tokens, " in done.stderr and " 8 new at " in done.stderr and "of 8000 tokens of the context" in done.stderr
    assert f"4 messages are in {saved}" in done.stderr


def test_goes_on_with_a_conversation(folder, tmp_path):
    saved, again = tmp_path / "talk.json", tmp_path / "again.json"
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "abc"}, {"role": "assistant", "content": "def"}]
    saved.write_text(json.dumps({"messages": messages}))
    one = chat(folder, f"ghi\n/save {again}\n", "--load", str(saved), *LONG)
    other = chat(folder, f"/load {saved}\nghi\n", *LONG)
    assert one.returncode == other.returncode == 0 and one.stdout == other.stdout, one.stderr + other.stderr
    found = json.loads(again.read_text())["messages"]
    assert found[:3] == messages and found[3:] == [{"role": "user", "content": "ghi"}, {"role": "assistant", "content": one.stdout.rstrip("\n")}]
    both = chat(folder, "/system S\nabc\n", *LONG), chat(folder, "abc\n", "--system", "S", *LONG)
    assert both[0].stdout == both[1].stdout != chat(folder, "abc\n", *LONG).stdout


@pytest.mark.parametrize("lines, options, message", [
    ("/savee x\n", (), "unknown command /savee; did you mean /save?"),
    ("/quit\n", (), "unknown command /quit; there are /reset, /system, /save, /load, /stats, /help; a message that begins with / is written with //"),
    ("/save\n", (), "the name of a file is missing"),
    ("/load none.json\n", (), "none.json: there is no such file"),
    ("abc\n", ("--load", __file__), "is not valid JSON"),
    ("a" * 9000 + "\n", (), "but the context of"),
    ("abc\n", ("--scheme", "W8A8"), "is compiled already, so that scheme does not apply"),
])  # fmt: skip
def test_mistakes_of_a_script_end_it(folder, lines, options, message):
    done = chat(folder, lines + "never read\n", *options)
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr and done.stdout == ""


def test_a_model_without_a_template_is_refused(artifact, letters_model):
    plain = artifact(letters_model, "--scheme=W8A8", f"--copy-file={letters_model / 'tokenizer.json'}")
    done = chat(plain, "abc\n")
    assert done.returncode == 1 and "has no chat template; `easyquant run --prompt` continues plain text" in done.stderr


class Terminal:
    """A process at a terminal."""

    def __init__(self, *command, **environment):
        self.process, self.seen = None, ""
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, os.environ | {"TERM": "dumb"} | environment)

    def type(self, text):
        os.write(self.handle, text.encode())

    def wait_for(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} did not come: {self.seen!r}"
            if select.select([self.handle], [], [], 0.1)[0]:
                self.seen += os.read(self.handle, 4096).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def interrupt(self):
        """Presses Ctrl-C at a prompt, once the process waits for a key: Python loses a signal between the prompt and that wait."""
        end = time.monotonic() + 60
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":  # asleep
            assert time.monotonic() < end, "the process does not wait for a key"
            time.sleep(0.01)
        self.type("\x03")

    def ends(self):
        while True:  # until it is closed
            try:
                self.seen += os.read(self.handle, 4096).decode(errors="replace")
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_at_a_terminal(folder, tmp_path):
    terminal = Terminal(*COMMAND, str(folder), "--max-new-tokens", "7000", EASYQUANT_CACHE=str(tmp_path))
    try:
        terminal.wait_for("/help shows")
        terminal.wait_for("> ")
        terminal.type("/helpp\n")
        terminal.wait_for("did you mean /help?")
        terminal.wait_for("> ")
        terminal.type("/help\n")
        terminal.wait_for("Ctrl-C stops an answer")
        terminal.wait_for("> ")
        terminal.interrupt()
        terminal.wait_for("(Ctrl-D ends)")
        terminal.wait_for("> ")
        terminal.type("abcd\n")  # which it answers with the same letter again and again
        terminal.wait_for("````````")
        terminal.type("\x03")
        terminal.wait_for("(stopped)")
        terminal.wait_for("> ")
        terminal.type("/stats\n")
        terminal.wait_for("tokens of the context")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.ends() == 0
    finally:
        os.close(terminal.handle)
    assert "abcd" in (tmp_path / "chat-history").read_text()


def test_another_signal_ends_it(folder):
    process = subprocess.Popen([*COMMAND, str(folder), "--max-new-tokens", "7000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write("abc\n")
    process.stdin.flush()
    process.stdout.read(1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM and "ended by SIGTERM" in process.stderr.read()
    process.stdin.close(), process.stdout.close(), process.stderr.close()
