# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokenizer metadata: what small GGUFs turn into, damaged ones, and what a folder may hold."""

import json

import gguf
import numpy as np
import pytest

from easyquant.support.errors import UserError
from easyquant.text.gguf_tokenizer import PRE_TOKENIZERS
from easyquant.text.messages import Conversation
from easyquant.text.tokenizer import load_tokenizer, tokenizer_from_gguf, write_tokenizer_files

BYTE_LEVEL = {
    "model": "gpt2",
    "pre": "gpt-2",
    "tokens": ["<|end|>", *"abcĠ1,'s", "ab", "abc", "Ġa", "<|user|>", "11"],
    "token_type": [3, *[1] * 8, 1, 1, 1, 4, 1],
    "merges": ["a b", "ab c", "Ġ a", "1 1"],
    "bos_token_id": 0,
    "eos_token_id": 0,
}
SENTENCEPIECE = {
    "model": "llama",
    "tokens": ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], "▁", "a", "b", "ab", "▁ab"],
    "token_type": [2, 3, 3, *[6] * 256, 1, 1, 1, 1, 1],
    "scores": [0.0] * 259 + [-5.0, -4.0, -3.0, -1.0, -2.0],
}


def write_gguf(path, metadata, **changes):
    """A GGUF of these tokenizer.ggml fields; a change to None leaves a field out."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {**metadata, **changes}.items():
        name = f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string("tokenizer.chat_template" if key == "chat_template" else name, value)
        elif value is not None:
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def encode(tmp_path, metadata, text, **changes):
    return tokenizer_from_gguf(write_gguf(tmp_path / "small.gguf", metadata, **changes)).encode(text).tokens


def test_byte_level(tmp_path):
    assert encode(tmp_path, BYTE_LEVEL, "abc ab a<|user|>c") == ["abc", "Ġ", "ab", "Ġa", "<|user|>", "c"]
    assert encode(tmp_path, BYTE_LEVEL, "ab", add_bos_token=True) == ["<|end|>", "ab"]
    tricky = {"tokens": ["<$A:0>", *BYTE_LEVEL["tokens"][1:]], "add_bos_token": True}
    assert encode(tmp_path, BYTE_LEVEL, "ab", **tricky) == ["<$A:0>", "ab"]


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["11", "1", "a", "'s", "Ġ", "Ġ", "Ġa"]),
        ("smollm", ["1", "1", "1", "a", "'s", "Ġ", "Ġ", "Ġa"]),
        ("qwen2", ["1", "1", "1", "a", "'s", "Ġ", "Ġ", "Ġa"]),
        ("llama-bpe", ["<|end|>", "111", "a", "'s", "Ġ", "Ġ", "Ġa"]),
        ("default", ["11", "1", "a", "'", "s", "Ġ", "Ġ", "Ġa"]),
    ],
)
def test_pre_tokenizers_split_differently(tmp_path, pre, pieces):
    # "111" is a token that no merge makes: only ignore_merges finds it.
    tokens, types = [*BYTE_LEVEL["tokens"], "111", "'s"], [*BYTE_LEVEL["token_type"], 1, 1]
    merges = [*BYTE_LEVEL["merges"], "' s"]
    assert encode(tmp_path, BYTE_LEVEL, "111a's   a", pre=pre, tokens=tokens, token_type=types, merges=merges) == pieces


def test_every_known_pre_tokenizer_is_a_valid_pattern(tmp_path):
    for name in PRE_TOKENIZERS:
        pieces = encode(tmp_path, BYTE_LEVEL, "abc 1\n 'S", pre=name, add_bos_token=False)
        assert "abc" in pieces


def test_sentencepiece(tmp_path):
    assert encode(tmp_path, SENTENCEPIECE, "ab b") == ["<s>", "▁ab", "▁", "b"]
    assert encode(tmp_path, SENTENCEPIECE, "aab", add_space_prefix=False, add_bos_token=False) == ["a", "ab"]
    assert encode(tmp_path, SENTENCEPIECE, "é</s>b") == ["<s>", "▁", "<0xC3>", "<0xA9>", "</s>", "▁", "b"]
    # Without byte tokens a run of unknown text is one unknown token.
    few = {"tokens": ["<unk>", "<s>", "</s>", "▁", "a"], "token_type": [2, 3, 3, 1, 1], "scores": [0.0, 0.0, 0.0, -1.0, -2.0]}
    assert encode(tmp_path, SENTENCEPIECE, "aééa", **few)[1:] == ["▁", "a", "<unk>", "a"]


@pytest.mark.parametrize(
    ("metadata", "changes", "words"),
    [
        (BYTE_LEVEL, {"model": None}, "tokenizer.ggml.model is missing"),
        (BYTE_LEVEL, {"model": "bert"}, "'bert'; known are gpt2, llama"),
        (BYTE_LEVEL, {"model": 3}, "of type int, expected str"),
        (BYTE_LEVEL, {"pre": "new-words"}, "'new-words'; known are default, falcon, gpt-2,"),
        (BYTE_LEVEL, {"tokens": None}, "tokenizer.ggml.tokens is missing"),
        (BYTE_LEVEL, {"tokens": [1, 2]}, "of type ndarray, expected list"),
        (BYTE_LEVEL, {"tokens": ["a", "b", "a"]}, "has 'a' twice, as tokens 0 and 2"),
        (BYTE_LEVEL, {"token_type": [1, 1]}, "has 2 elements, expected one for each of the 14 tokens"),
        (BYTE_LEVEL, {"token_type": ["x"] * 14}, "no array of numbers"),
        (BYTE_LEVEL, {"merges": None}, "tokenizer.ggml.merges is missing"),
        (BYTE_LEVEL, {"merges": ["a b", "b z"]}, "has 'b z' at 1, which needs the token 'z'"),
        (BYTE_LEVEL, {"merges": ["b a"]}, "has 'b a' at 0, which needs the token 'ba'"),
        (BYTE_LEVEL, {"merges": ["ab"]}, "has 'ab' at 0, which needs the token ''"),
        (BYTE_LEVEL, {"bos_token_id": 14}, "is 14, expected a token from 0 to 13"),
        (BYTE_LEVEL, {"bos_token_id": None, "add_bos_token": True}, "bos_token_id is missing"),
        (BYTE_LEVEL, {"add_bos_token": "yes"}, "of type str, expected bool"),
        (SENTENCEPIECE, {"scores": None}, "tokenizer.ggml.scores is missing"),
        (SENTENCEPIECE, {"scores": [0.5]}, "has 1 elements"),
        (SENTENCEPIECE, {"scores": [0.0] * 263 + [float("nan")]}, "is not finite at token 263"),
    ],
)
def test_damaged_metadata(tmp_path, metadata, changes, words):
    file = write_gguf(tmp_path / "damaged.gguf", metadata, **changes)
    with pytest.raises(UserError, match="damaged.gguf") as error:
        write_tokenizer_files(file, tmp_path)
    assert words in str(error.value)
    assert list(tmp_path.iterdir()) == [file]


TEMPLATE = """{{ bos_token }}{% for message in messages %}
  {% if message.role not in ['user', 'assistant'] %}{{ raise_exception('no role ' + message.role) }}{% endif %}
[{{ message.role }}] {{ message.content | tojson }}
{% endfor %}
{% if add_generation_prompt %}[assistant]{% endif %}"""


def test_chat(tmp_path):
    write_tokenizer_files(write_gguf(tmp_path / "small.gguf", BYTE_LEVEL, chat_template=TEMPLATE), tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    messages = [{"role": "user", "content": 'é "a"'}]
    assert tokenizer.render_chat(messages) == '<|end|>[user] "é \\"a\\""\n[assistant]'
    assert tokenizer.render_chat(Conversation(messages, add_generation_prompt=False)) == '<|end|>[user] "é \\"a\\""\n'
    assert tokenizer.encode_chat(messages)[0] == 0
    with pytest.raises(UserError, match="no role system"):
        tokenizer.render_chat([{"role": "system", "content": ""}])
    config = {"bos_token": {"content": "<|end|>"}, "chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "{{ bos_token }}d"}]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_tokenizer(tmp_path).render_chat(messages) == "<|end|>d"
    (tmp_path / "tokenizer_config.json").unlink()
    assert not load_tokenizer(tmp_path).has_chat_template
    with pytest.raises(UserError, match="has no chat template"):
        load_tokenizer(tmp_path).encode_chat(messages)


def test_folders_that_hold_no_tokenizer(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        load_tokenizer(tmp_path)
    for content in ("", "{", "{}", "[]", '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}'):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(UserError, match="tokenizer.json"):
            load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="tokenizer.json"):
        load_tokenizer(tmp_path)
    write_tokenizer_files(write_gguf(tmp_path / "small.gguf", BYTE_LEVEL), tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[1]")
    with pytest.raises(UserError, match="tokenizer_config.json: is a JSON list"):
        load_tokenizer(tmp_path)


def test_text_that_no_encoding_allows(tmp_path):
    write_tokenizer_files(write_gguf(tmp_path / "small.gguf", BYTE_LEVEL), tmp_path)
    with pytest.raises(UserError, match="surrogates"):
        load_tokenizer(tmp_path).encode("a\ud800b")


def test_tokens_without_text_keep_their_place(tmp_path):
    tokens = [*BYTE_LEVEL["tokens"][:-1], ""]
    tokenizer = tokenizer_from_gguf(write_gguf(tmp_path / "small.gguf", BYTE_LEVEL, tokens=tokens, merges=BYTE_LEVEL["merges"][:-1]))
    assert tokenizer.id_to_token(13) == "[EMPTY_13]"
    assert np.array_equal(tokenizer.encode("ab").ids, [9])
