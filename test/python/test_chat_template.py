# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chat templates of people one does not know: what they may not do, and how much of everything they may use."""

import os
import subprocess
import time

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


def test_several_are_rendered_in_one_process_and_each_has_its_own_mistake(monkeypatch):
    template = ChatTemplate("{% if messages[0].content == 'long' %}{{ 'a' * 10**10 }}{% endif %}{{ messages[0].content[0] }}{{ messages[0].role + 1 }}", "file")
    started = []
    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: started.append(1) or real(*arguments, **options))
    chats = [{"messages": [{"role": role, "content": content}]} for role, content in ((1, "a"), ("b", "c"), (3, "d"))]
    one, two, three = template.render_all(chats)
    assert (one, three) == ("a2", "d4") and "refuses these messages" in str(two) and len(started) == 1
    found = template.render_all([chats[0], {"messages": [{"role": 1, "content": "long"}]}, chats[2]])
    assert (found[0], found[2]) == ("a2", "d4") and "needs more than 512 MB of memory" in str(found[1])
    assert template.render_all([]) == [] and template.render_all(chats[:1] * 100) == ["a2"] * 100


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
