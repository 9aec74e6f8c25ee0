# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokenizer files that would harm the library which reads them, or the model that gets their tokens."""

import json

import pytest

from command_line import run_command_line
from easyquant.support.errors import UserError
from easyquant.text.tokenizer import load_tokenizer, tokenizer_from_gguf
from helpers import BUILD, random_llama, write_model
from test_tokenizer_metadata import SENTENCEPIECE, write_gguf

VOCABULARY = 97
SPECIAL = {"id": 3, "content": "<x>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def tokenizer_json(**changes) -> dict:
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
             "byte_fallback": False, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]} | changes.pop("model", {})  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": level,
            "post_processor": None, "decoder": level, "model": model} | changes  # fmt: skip


def template(index) -> dict:
    single = [{"SpecialToken": {"id": "<x>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<x>": {"id": "<x>", "ids": [index], "tokens": ["<x>"]}}}  # fmt: skip


def replace(content, pattern="a", times=1) -> dict:
    return {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": pattern}, "content": content}] * times}


def nested(depth) -> dict:
    step = {"type": "NFC"}
    for _ in range(depth):
        step = {"type": "Sequence", "normalizers": [step]}
    return step


HOSTILE = {
    "an id that takes 8 GB": (tokenizer_json(model={"vocab": {"a": 0, "b": 1, "ab": 2147483647}}), "token 'ab' has id 2147483647, expected one from 0 to 96"),
    "an id beyond the vocabulary": (tokenizer_json(model={"vocab": {"a": 0, "b": 97, "ab": 2}}), "token 'b' has id 97"),
    "a negative id": (tokenizer_json(model={"vocab": {"a": -1, "b": 1, "ab": 2}}), "token 'a' has id -1"),
    "an id of another type": (tokenizer_json(model={"vocab": {"a": 1e3, "b": True, "ab": 2}}), "token 'a' has id 1000.0"),
    "an added token": (tokenizer_json(added_tokens=[SPECIAL | {"id": 10**8}]), "added_tokens: token '<x>' has id 100000000"),
    "a post-processor": (tokenizer_json(post_processor=template(4 * 10**9)), "post_processor: token '<x>' has id 4000000000"),
    "one in a sequence": (tokenizer_json(post_processor={"type": "Sequence", "processors": [template(97)]}), "post_processor: token '<x>' has id 97"),
    "BERT's": (tokenizer_json(post_processor={"type": "BertProcessing", "sep": ["b", 98], "cls": ["a", 0]}), "post_processor: sep has id 98"),
    "many pieces": (tokenizer_json(model={"type": "Unigram", "vocab": [["a", 0.0]] * 98}), "the last token has id 97"),
    "a text that explodes": (tokenizer_json(normalizer=replace("a" * 10, times=6)), "its normalizer makes texts more than 1000 times longer"),
    "an empty pattern": (tokenizer_json(normalizer={"type": "Replace", "pattern": {"Regex": ""}, "content": "b" * 2000}), "1000 times longer"),
    "steps in steps": (tokenizer_json(normalizer=nested(300)), "is no tokenizer of the library tokenizers"),
}


def write(folder, value):
    (folder / "tokenizer.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


@pytest.mark.parametrize("name", HOSTILE)
def test_refused_before_the_library_sees_it(tmp_path, name):
    value, words = HOSTILE[name]
    with pytest.raises(UserError) as error:
        load_tokenizer(write(tmp_path, value), VOCABULARY)
    assert str(error.value).startswith(f"{tmp_path / 'tokenizer.json'}: ") and words in str(error.value)


@pytest.mark.parametrize("text, words", [
    ("[" * 10**6, "nested too deeply"),
    ('{"model": {}, "model": {}}', "key 'model' is there twice"),
    ('{"id": ' + "9" * 5000 + "}", "cannot be read as JSON"),
])  # fmt: skip
def test_json_that_is_none(tmp_path, text, words):
    with pytest.raises(UserError, match=words):
        load_tokenizer(write(tmp_path, text), VOCABULARY)


def test_sizes(tmp_path, monkeypatch):
    with open(write(tmp_path, "{}") / "tokenizer.json", "r+b") as file:
        file.truncate(2**29)  # takes no room on the disk
    with pytest.raises(UserError, match="has 536870912 bytes, expected at most 268435456"):
        load_tokenizer(tmp_path, VOCABULARY)


def test_ids_that_the_library_chooses(tmp_path):
    """An added token that the vocabulary does not have gets the next id, whatever the file says."""
    tokens = [SPECIAL | {"content": f"<{index}>"} for index in range(5)]
    assert load_tokenizer(write(tmp_path, tokenizer_json(added_tokens=tokens)), 8).vocab_size == 8
    with pytest.raises(UserError, match="a token has id 7, expected one from 0 to 6"):
        load_tokenizer(tmp_path, 7)


def test_ids_of_the_configuration(tmp_path):
    write(tmp_path, tokenizer_json())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"100000000": {"content": "<x>"}}}))
    with pytest.raises(UserError, match="tokenizer_config.json: added_tokens_decoder: a token has id 100000000"):
        load_tokenizer(tmp_path, VOCABULARY)


@pytest.mark.parametrize("changes, text", [
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": False}}, "a" * 60 + "!"),
    ({"model": {"continuing_subword_prefix": "a" * 10}}, "ab" * 10),
])  # fmt: skip
def test_what_the_library_panics_at(tmp_path, changes, text):
    """A regular expression that is given up after so many steps; a prefix longer than its tokens."""
    with pytest.raises(UserError, match="tokenizer.json: .*library tokenizers"):
        load_tokenizer(write(tmp_path, tokenizer_json(**changes)), VOCABULARY).encode(text)


def test_gguf_tokens_without_end(tmp_path):
    tokens, scores = [*SENTENCEPIECE["tokens"], "a" * 50000], [*SENTENCEPIECE["scores"], -9.0]
    file = write_gguf(tmp_path / "long.gguf", SENTENCEPIECE, tokens=tokens, scores=scores, token_type=[*SENTENCEPIECE["token_type"], 1])
    with pytest.raises(UserError, match="long.gguf: tokenizer.ggml.tokens has tokens so long"):
        tokenizer_from_gguf(file)


@pytest.mark.parametrize("name, words", [
    ("tokenizer.json", "token 'ab' has id 100000000, expected one from 0 to 96"),
    ("tokenizer_config.json", "added_tokens_decoder: a token has id 100000000"),
    (None, "has no tokenizer.json, so the artifact knows no text"),
])  # fmt: skip
def test_compile_says_so(tmp_path, name, words):
    """A tokenizer that is not the model's, or is missing, is an error or a warning."""
    folder = write_model(tmp_path / "model", *random_llama())
    if name == "tokenizer.json":
        write(folder, tokenizer_json(model={"vocab": {"a": 0, "b": 1, "ab": 10**8}}))
    elif name:
        (folder / name).write_text(json.dumps({"added_tokens_decoder": {"100000000": {}}}))
    done = run_command_line("compile", folder, "-o", tmp_path / "out", "--scheme", "none", EASYQUANT_TOOLS=str(BUILD / "bin"))
    assert words in done.stderr and str(folder) in done.stderr
    assert (done.returncode, (tmp_path / "out").exists()) == ((1, False) if name else (0, True))
    if name is None:
        assert done.stderr.startswith("warning: ") and "`easyquant run` and `eval` will refuse it" in done.stderr
        done = run_command_line("run", tmp_path / "out", "--prompt", "x")
        assert done.returncode == 1 and "tokenizer.json: there is no such file" in done.stderr
