# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chat templates of people one does not know: what they may not do, and how much of everything they may use."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from easyquant.support.errors import UserError
from easyquant.text.chat import LARGEST_OUTPUT, ChatTemplate
from easyquant.text.tokenizer import load_tokenizer, write_tokenizer_files
from easyquant.text.tokenizer_checks import LARGEST_TEMPLATE
from test_tokenizer_metadata import BYTE_LEVEL, write_gguf

MESSAGES = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}


def render(template: str) -> str:
    return ChatTemplate(template, "model/chat_template.jinja").render(MESSAGES)


def test_what_templates_are_written_for():
    loop = "{% for m in messages %}{% if loop.index > 3 %}{% break %}{% endif %}{{ m.content | tojson }}{% endfor %}"
    assert render(loop + "{{ strftime_now('%Y') | length }}{% if add_generation_prompt %}>{% endif %}") == '"Hi"4>'
    with pytest.raises(UserError, match="refuses these messages .TemplateError: no tools"):
        render("{{ raise_exception('no tools') }}")


@pytest.mark.parametrize("template", [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{% for", "{{ messages.append(1) }}", "{{ 1 / 0 }}", "{{ messages[9].role }}",
    "{% include '/etc/passwd' %}", "{{ '{0.__class__.__mro__}'.format(1) }}", "{{ range(10**9) | list }}", "(" * 5000 + "{{ " + "(" * 5000,
])  # fmt: skip
def test_what_is_refused(template):
    with pytest.raises(UserError, match="^model/chat_template.jinja: the chat template refuses these messages .*; run without --chat"):
        render(template)


@pytest.mark.parametrize("template, words", [
    ('{{ "a" * 10**10 }}', "needs more than 512 MB of memory"),
    ('{{ "%*d" | format(10**10, 1) }}', "needs more than 512 MB|OverflowError"),
    ('{{ "a" | center(10**10) }}', "needs more than 512 MB of memory"),
    ('{% set ns = namespace(s="abcdefgh") %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}', "needs more than 512 MB of memory"),
    ('{% for i in range(90000) %}{{ "a" * 1000 }}{% endfor %}', f"writes more than {LARGEST_OUTPUT} characters"),
    ("{{ 10 ** (10 ** 10) }}", "takes longer than 2 s|needs more than 512 MB"),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "takes longer than 2 s"),
    ("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "RecursionError|ended its process"),
    ("{{ " + "[" * 90 + "]" * 90 + " }}" + "{% if 1 %}" * 900 + "{% endif %}" * 900, "refuses these messages|ended its process"),
])  # fmt: skip
def test_what_there_is_not_enough_of(template, words, capfd):
    begin = time.monotonic()
    with pytest.raises(UserError, match=words) as error:
        render(template)
    assert str(error.value).startswith("model/chat_template.jinja: the chat template ") and "\n" not in str(error.value)
    assert time.monotonic() - begin < 60 and capfd.readouterr().err == ""


@pytest.fixture
def started(monkeypatch):
    """The processes that are started."""
    processes, real = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **options: processes.append(real(*arguments, **options)) or processes[-1])
    return processes


def test_one_process_stays_until_a_limit_is_reached(started):
    template = ChatTemplate("{% if role == 'long' %}{{ 'a' * 10**10 }}{% elif role == 'ever' %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}{{ role[0] + 1 | string }}", "file")
    assert started == [] and [template.render({"role": name}) for name in "abc"] == ["a1", "b1", "c1"]
    with pytest.raises(UserError, match="refuses these messages"):
        template.render({"role": 1})
    assert template.render({"role": "d"}) == "d1" and len(started) == 1
    for count, (role, words) in enumerate([("long", "needs more than 512 MB of memory"), ("ever", "takes longer than 2 s")], start=2):
        with pytest.raises(UserError, match=words):
            template.render({"role": role})
        assert [template.render({"role": "e"}) for _ in range(3)] == ["e1"] * 3 and len(started) == count
    started[-1].kill()
    started[-1].wait()
    assert template.render({"role": "f"}) == "f1" and len(started) == 4
    # Seconds are those of one rendering.
    busy = ChatTemplate("{% for i in range(90000) %}{% endfor %}{{ 1 }}", "file")
    while len(started) == 4 or _cpu_seconds(started[-1].pid) < 2.5:
        assert busy.render({}) == "1" and len(started) == 5


def _cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_process_ends_with_its_template(started):
    template = ChatTemplate("{{ 1 }}", "file")
    template.render({})
    del template
    assert started[0].poll() is not None
    # And with its owner, even where that is killed, and whatever it renders.
    script = "import os, signal; from easyquant.text.chat import ChatTemplate; t = ChatTemplate('{{ 1 }}', ''); t.render({}); print(t._child._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    pid = int(subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True).stdout)
    end = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end and Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2] != "Z":
        time.sleep(0.01)
    assert time.monotonic() < end


def test_threads_share_a_process(started):
    template = ChatTemplate("{{ name * 1000 }}", "file")
    found = {}
    threads = [threading.Thread(target=lambda name=name: found.update({name: [template.render({"name": name}) for _ in range(20)]})) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: [name * 1000] * 20 for name in "abcdefgh"} and len(started) == 1


def test_what_is_no_json_is_refused():
    for value in ({1, 2}, float("nan"), b"a"):
        with pytest.raises(UserError, match="hold what is no JSON"):
            ChatTemplate("{{ a }}", "file").render({"a": value})


def test_the_child_sees_no_module_of_ours(tmp_path, monkeypatch):
    """Nor of the working directory."""
    (tmp_path / "jinja2.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(tmp_path)
    assert render("{{ messages[0].role }}") == "user" and os.getcwd() == str(tmp_path)


def test_sizes_and_sources(tmp_path):
    """The error names the file that has the template."""
    file = write_gguf(tmp_path / "small.gguf", BYTE_LEVEL, chat_template="x" * (LARGEST_TEMPLATE + 1))
    with pytest.raises(UserError, match="small.gguf: tokenizer.chat_template has 1048577 characters, expected at most 1048576"):
        write_tokenizer_files(file, tmp_path)
    write_tokenizer_files(write_gguf(tmp_path / "small.gguf", BYTE_LEVEL, chat_template='{{ "a" * 10**10 }}'), tmp_path)
    with pytest.raises(UserError, match="tokenizer_config.json: the chat template needs more than 512 MB of memory; run without --chat"):
        load_tokenizer(tmp_path).render_chat(MESSAGES["messages"])
    (tmp_path / "chat_template.jinja").write_text("{% for")
    with pytest.raises(UserError, match="chat_template.jinja: the chat template refuses"):
        load_tokenizer(tmp_path).render_chat(MESSAGES["messages"])
    (tmp_path / "chat_template.jinja").write_text("x" * (LARGEST_TEMPLATE + 1))
    with pytest.raises(UserError, match="chat_template.jinja: has more than 1048576 bytes"):
        load_tokenizer(tmp_path)
