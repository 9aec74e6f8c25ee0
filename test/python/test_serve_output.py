# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the server makes of texts: thought and said, and tokens that are no whole characters."""

import random

import pytest

from easyquant.runtime.sampling import TokenLogprob
from easyquant.server.app import ENDPOINTS
from easyquant.server.pages import fields_page
from easyquant.server.tokens import chat_logprobs, text_logprobs
from easyquant.text.output import PlainText, Thinking, merge_calls, parse_whole
from easyquant.text.tokenizer import load_tokenizer
from helpers import REPO, write_byte_level


@pytest.mark.parametrize("begun, text, thought, said", [
    (False, "<think>\nHm, 1 < 2.\n</think>\n\nYes.", "Hm, 1 < 2.\n", "Yes."),
    (True, "Hm.</think>Yes.</think>", "Hm.", "Yes.</think>"),
    (False, "Yes, <think>no</think>", None, "Yes, <think>no</think>"),
    (False, " <think></think> a", None, "a"),
    (False, "<thin", None, "<thin"),
    (True, "never ends </thin", "never ends </thin", None),
    (False, "", None, None),
    (False, "  a", None, "  a"),
])  # fmt: skip
def test_thinking_is_told_apart(begun, text, thought, said):
    """However it is cut in pieces."""
    choice = random.Random(text)
    for _ in range(50):
        parser, message = Thinking(begun, PlainText()), {}
        cuts = sorted(choice.choices(range(len(text) + 1), k=choice.randrange(8)))
        pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        for name, piece in [delta for piece in pieces for delta in parser.push(piece)] + parser.finish():
            assert piece
            message[name] = message.get(name, "") + piece
        assert message == {name: value for name, value in (("reasoning_content", thought), ("content", said)) if value is not None}
    assert parse_whole(Thinking(begun, PlainText()), text) == message


def test_calls_are_put_together():
    calls = []
    merge_calls(calls, [{"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": ""}}])
    merge_calls(calls, [{"index": 0, "function": {"arguments": '{"a"'}}, {"index": 1, "id": "2", "function": {"name": "g", "arguments": "{}"}}, {"index": 0, "function": {"arguments": ": 1}"}}])
    assert [(call["id"], call["function"]) for call in calls] == [("1", {"name": "f", "arguments": '{"a": 1}'}), ("2", {"name": "g", "arguments": "{}"})]


def test_tokens_that_are_no_characters(tmp_path):
    tokenizer = load_tokenizer(write_byte_level(tmp_path))
    tokens = tokenizer.encode("a€b")
    assert len(tokens) == 5
    found = text_logprobs(tokenizer, [(token, -1.0, [(token, -1.0)]) for token in tokens], 10, begins=True)
    assert found["tokens"] == ["a", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "b"] and found["text_offset"] == [10, 11, 11, 11, 12]
    assert found["token_logprobs"][:2] == [None, -1.0] and found["top_logprobs"][1] == {"bytes:\\xe2": -1.0}
    entries = chat_logprobs(tokenizer, [TokenLogprob(token, -1.0, []) for token in tokens])
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == "a€b" and entries[1]["token"] == "\ufffd"


def test_the_guide_has_every_field():
    page = REPO / "docs" / "guide" / "serve-fields.md"
    remedy = "python -c 'from easyquant.server import app, pages; print(pages.fields_page(app.ENDPOINTS), end=str())' > docs/guide/serve-fields.md"
    assert page.read_text() == fields_page(ENDPOINTS), f"write it again: {remedy}"
