# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How a text becomes windows."""

from pathlib import Path

import numpy as np
import pytest

from easyquant.evaluation import protocol
from easyquant.evaluation.protocol import Corpus, check_context, default_context, windows
from easyquant.runtime.artifact import Artifact
from easyquant.support.errors import UserError
from easyquant.support.files import read_text


class Letters:
    """A tokenizer of one token a character."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(character) for character in text]


def artifact(architecture="llama", max_context=8192) -> Artifact:
    return Artifact(Path("artifact"), {"model": {"architecture": architecture, "max_context": max_context}})


@pytest.mark.parametrize("count, context, limit, expected", [(10, 3, None, 3), (9, 3, None, 3), (8, 3, 2, 2), (2, 3, None, 0), (9, 3, 50, 3)])
def test_windows_are_disjoint_and_the_tail_is_dropped(count, context, limit, expected):
    result = windows(np.arange(count, dtype=np.int32), context, limit)
    assert result.shape == (expected, context)
    np.testing.assert_array_equal(result.ravel(), np.arange(expected * context))


def test_default_contexts():
    assert default_context(artifact("gpt2", 1024)) == 1024
    assert default_context(artifact("gpt2", 4096)) == 1024
    assert default_context(artifact("llama", 8192)) == 2048
    assert default_context(artifact("llama", 512)) == 512


@pytest.mark.parametrize("context", [0, 1, 8193, -5])
def test_impossible_contexts(context):
    with pytest.raises(UserError, match="expected 2 to 8192"):
        check_context(artifact(), context)


def test_corpus(tmp_path):
    (tmp_path / "text").write_text("abcdé")
    corpus = Corpus.read(tmp_path / "text", Letters(), None)
    np.testing.assert_array_equal(corpus.tokens, [ord(character) for character in "abcdé"])
    assert corpus.tokens.dtype == np.int32 and not corpus.bos
    with_bos = Corpus.read(tmp_path / "text", Letters(), 1)
    np.testing.assert_array_equal(with_bos.tokens, [1, *corpus.tokens])
    assert with_bos.bos


def test_a_text_shorter_than_one_window(tmp_path):
    (tmp_path / "text").write_text("abc")
    with pytest.raises(UserError, match="3 tokens do not fill one window of 4"):
        Corpus.read(tmp_path / "text", Letters(), None).windows(4, None)


def test_a_text_that_is_not_utf8(tmp_path):
    (tmp_path / "text").write_bytes(b"abc\xff")
    with pytest.raises(UserError, match=r"is not UTF-8 \(byte 3\)"):
        read_text(tmp_path / "text")


def test_line_ends_are_part_of_the_text(tmp_path):
    (tmp_path / "text").write_bytes(b"a\r\nb\n")
    assert read_text(tmp_path / "text") == "a\r\nb\n"


def test_the_version_names_the_commit():
    assert protocol.version().startswith(protocol.__version__)
