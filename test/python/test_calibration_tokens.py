# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tokens of a calibration: windows of a text, chosen by a seed."""

import numpy as np
import pytest
from safetensors import safe_open

from easyquant.compiler.calibration import CalibrationText, choose_windows, read_windows, windows_of_text, write_tokens
from easyquant.support.errors import UserError
from easyquant.support.files import sha256

TEXT = np.arange(1000, dtype=np.int32)


def test_windows_are_disjoint_pieces_of_the_text():
    windows = choose_windows(TEXT, 7, 64, seed=3)
    assert windows.shape == (7, 64)
    assert len(np.unique(windows)) == windows.size  # no token twice
    assert (np.diff(windows, axis=1) == 1).all()  # consecutive


def test_the_seed_chooses():
    first = choose_windows(TEXT, 4, 32, seed=0)
    np.testing.assert_array_equal(first, choose_windows(TEXT, 4, 32, seed=0))
    assert any((first != choose_windows(TEXT, 4, 32, seed=seed)).any() for seed in (1, 2))


class Words:
    """A tokenizer for which word N of a text is token N; counts what it is given."""

    def __init__(self, count):
        self.text, self.characters = " ".join(str(number) for number in range(count)), 0

    def encode(self, text):
        self.characters += len(text)
        return [int(word) for word in text.split()]


def test_only_what_is_taken_is_tokenized():
    words = Words(100_000)
    windows = windows_of_text(words.text, words.encode, 6, 50, seed=4)
    assert windows.shape == (6, 50) and windows.dtype == np.int32
    assert len(np.unique(windows)) == windows.size and (np.diff(windows, axis=1) == 1).all() and (np.diff(windows[:, 0]) > 0).all()
    assert words.characters < len(words.text) / 10
    np.testing.assert_array_equal(windows, windows_of_text(words.text, words.encode, 6, 50, seed=4))
    assert any((windows != windows_of_text(words.text, words.encode, 6, 50, seed=seed)).any() for seed in (1, 2))


def test_a_text_unlike_its_beginning_is_tokenized_whole():
    words = Words(2000)
    words.text += " " * 200_000 + Words(30_000).text
    assert read_windows(words.text, words.encode, 20, 100, 0, lambda: None) is None
    assert windows_of_text(words.text, words.encode, 20, 100, seed=0).shape == (20, 100)


def test_bos_takes_the_first_place_of_every_window():
    words = Words(1000)
    windows = windows_of_text(words.text, words.encode, 5, 64, seed=1, bos_token=-7)
    assert windows.shape == (5, 64)
    assert (windows[:, 0] == -7).all() and (np.diff(windows[:, 1:], axis=1) == 1).all()


def test_all_of_a_text_can_be_taken():
    np.testing.assert_array_equal(choose_windows(TEXT, 10, 100, seed=9).ravel(), TEXT)


@pytest.mark.parametrize("samples, length", [(11, 100), (1, 1001), (0, 8), (4, 0)])
def test_too_short_a_text_is_an_error(samples, length):
    with pytest.raises(UserError, match=f"--nsamples {samples}"):
        choose_windows(TEXT, samples, length, seed=0)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Once upon a time there was a little girl. " * 200)
    return path


def test_the_file_says_where_its_tokens_are_from(stories, text, tmp_path):
    path = tmp_path / "tokens.safetensors"
    windows = write_tokens(path, CalibrationText(text, samples=3, length=50, seed=5), stories)
    with safe_open(path, "numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("tokens"), windows)
        metadata = file.metadata()
    assert metadata == {
        "text": "text.txt", "text_hash": sha256(text), "tokenizer_hash": sha256(stories / "tokenizer.json"),
        "samples": "3", "length": "50", "seed": "5", "bos": "0"}  # fmt: skip


def test_bad_texts(stories, text, tmp_path):
    with pytest.raises(UserError, match="text.txt: the calibration text has .* tokens"):
        write_tokens(tmp_path / "t", CalibrationText(text, samples=1000), stories)
    text.write_bytes("Emma était là".encode("latin-1"))
    with pytest.raises(UserError, match="text.txt: is not UTF-8"):
        write_tokens(tmp_path / "t", CalibrationText(text, samples=1, length=4), stories)
    with pytest.raises(UserError, match="no beginning-of-text token"):
        write_tokens(tmp_path / "t", CalibrationText(text, samples=1, length=4, bos=True), stories)
    assert not (tmp_path / "t").exists()
