# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page to chat, in a real browser where there is one."""

import json
import re

import pytest

from browser import CHROMIUM, browsing
from serve_client import serving

KEY = "a-key"


@pytest.fixture(scope="module")
def client(letters):
    from easyquant.server.gate import Access

    with serving({"letters": letters("--scheme=W8A8"), "other": letters("--scheme=W8A8")}, Access(keys=[KEY])) as client:
        yield client


def test_nothing_comes_from_elsewhere(client):
    reply = client.get("/")
    page, rules = reply.body.decode(), reply.headers["content-security-policy"]
    assert reply.status == 200 and "default-src 'none'" in rules and "connect-src 'self'" in rules and "unsafe" not in rules
    assert not re.findall(r"(?:src|href)=\"(?!data:)|https?://|@import|url\(", page)
    # Each control has a label.
    for name in re.findall(r'<(?:input|select|textarea) id="(\w+)"', page):
        assert re.search(rf'<label[^>]*>[^<]*<\w+ id="{name}"', page) or f'<label class="hidden" for="{name}">' in page, name


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")
def test_a_chat_in_a_browser(client, tmp_path):
    with browsing(tmp_path, f"http://127.0.0.1:{client.port}/") as page:
        page.wait("document.getElementById('error').textContent.includes('API key')")
        page.evaluate(f"document.getElementById('key').value = '{KEY}'; document.getElementById('key').dispatchEvent(new Event('change'))")
        page.wait("document.getElementById('model').options.length === 2")
        assert page.evaluate("[...document.getElementById('model').options].map((option) => option.value).join()") == "letters,other"
        fill = "for (const [name, value] of Object.entries(%s)) document.getElementById(name).value = value; document.getElementById('send').click()"
        page.evaluate(fill % json.dumps({"temperature": 0, "max_tokens": 12, "text": "<b>Hi</b>", "system": "Be brief"}))
        page.wait("!document.getElementById('send').disabled")
        messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "<b>Hi</b>"}]
        body = {"model": "letters", "messages": messages, "temperature": 0, "max_tokens": 12}
        expected = client.post("/v1/chat/completions", body, Authorization=f"Bearer {KEY}").json["choices"][0]["message"]["content"]
        said = "[...document.querySelectorAll('article .said')].map((element) => element.textContent)"
        assert page.evaluate(said) == ["<b>Hi</b>", expected] and page.evaluate("document.querySelectorAll('article b').length") == 0
        figures = page.evaluate("document.querySelector('article.assistant .figures').textContent")
        assert re.fullmatch(r"first token after [\d.]+ s, 12 tokens, [\d.]+ tokens/s, prompt of \d+ \(\d+ cached\), ended by the limit of tokens", figures), figures
        page.wait("document.getElementById('queue').textContent.includes('0 running, 0 waiting')")
        # An answer is stopped.
        page.evaluate(fill % json.dumps({"max_tokens": 140, "text": "More", "temperature": 0}))
        page.evaluate("document.getElementById('stop').click()")
        page.wait("!document.getElementById('send').disabled")
        client.settle()
        # What the server refuses is told.
        page.evaluate(fill % json.dumps({"max_tokens": 100000, "text": "Too much"}))
        page.wait("document.getElementById('error').textContent.includes('the context of this model is 160 tokens')")
        page.evaluate("document.getElementById('new').click()")
        assert page.evaluate(said) == []
        assert {url.partition("/")[2].split("/")[1] for url in page.requests if not url.startswith("data:")} == {f"127.0.0.1:{client.port}"}
        mistakes = [entry for entry in page.logged if "exceptionDetails" in entry or "Content Security Policy" in json.dumps(entry)]
        assert mistakes == []
