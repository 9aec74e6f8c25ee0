# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hugging Face tokenizers as GGUF metadata: read back, the same tokens; what llama.cpp has nothing for is refused."""

import json

import gguf
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from easyquant.formats.gguf_header import read_gguf_header
from easyquant.support.errors import UserError
from easyquant.text.gguf_tokenizer import tokenizer_from_gguf, write_tokenizer_files
from easyquant.text.gguf_vocabulary import PROBE, write_vocabulary
from helpers import test_data, write_byte_level

# As transformers writes them into tokenizer.json.
HUGGING_FACE_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBER| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = "Some words to learn merges from, it's 2024 and we're 12345 strong. " * 20


def by_regex(number):
    split = pre_tokenizers.Split(Regex(HUGGING_FACE_WORDS.replace("NUMBER", number)), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRE = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
    "qwen2": by_regex(r"\p{N}"),
    "llama-bpe": by_regex(r"\p{N}{1,3}"),
}


def byte_level(folder, pre, **config):
    """A folder with a byte-level BPE and an added token that is not special."""
    folder.mkdir()
    write_byte_level(folder, pre_tokenizer=pre, **config)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    tokenizer.model.ignore_merges = pre is PRE["llama-bpe"]
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("name", PRE)
def test_pre_tokenizers_are_known_by_their_rules(tmp_path, name):
    folder = byte_level(tmp_path / "model", PRE[name], chat_template="{{ messages }}")
    write_vocabulary(folder, tmp_path / "out.gguf", 400)
    fields = read_gguf_header(tmp_path / "out.gguf").fields
    assert fields["tokenizer.ggml.pre"] == name and fields["tokenizer.chat_template"] == "{{ messages }}"
    assert fields["tokenizer.ggml.bos_token_id"] == 0 and fields["tokenizer.ggml.add_bos_token"] is False
    ours = Tokenizer.from_file(str(folder / "tokenizer.json"))
    size = ours.get_vocab_size()
    tokens, kinds = fields["tokenizer.ggml.tokens"], list(fields["tokenizer.ggml.token_type"])
    assert len(tokens) == len(kinds) == 400 and tokens[size] == f"[PAD{size}]" and kinds[size] == gguf.TokenType.UNUSED
    assert kinds[0] == gguf.TokenType.CONTROL and kinds[ours.token_to_id("<tool>")] == gguf.TokenType.USER_DEFINED
    text = PROBE + WORDS + "<tool>x<s>"
    assert tokenizer_from_gguf(tmp_path / "out.gguf").encode(text).ids == ours.encode(text).ids


def test_what_puts_bos_first_says_so(tmp_path):
    folder = byte_level(tmp_path / "model", PRE["gpt-2"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_vocabulary(folder, tmp_path / "out.gguf", 321)
    assert read_gguf_header(tmp_path / "out.gguf").fields["tokenizer.ggml.add_bos_token"] is True
    assert tokenizer_from_gguf(tmp_path / "out.gguf").encode("a").tokens[0] == "<s>"


def sentencepiece(folder):
    folder.mkdir()
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator([WORDS], trainers.BpeTrainer(vocab_size=330, show_progress=False, special_tokens=special))
    value = json.loads(tokenizer.to_str())
    value["added_tokens"] = value["added_tokens"][:3]  # the bytes are ordinary tokens
    (folder / "tokenizer.json").write_text(json.dumps(value))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}))
    return folder


def test_sentencepiece_becomes_scores(tmp_path):
    folder = sentencepiece(tmp_path / "model")
    write_vocabulary(folder, tmp_path / "out.gguf", 330)
    fields = read_gguf_header(tmp_path / "out.gguf").fields
    assert fields["tokenizer.ggml.model"] == "llama" and fields["tokenizer.ggml.token_type"][3] == gguf.TokenType.BYTE
    text = PROBE + WORDS
    assert tokenizer_from_gguf(tmp_path / "out.gguf").encode(text).ids == Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids


@pytest.mark.parametrize("pre, what", [
    (by_regex(r"\p{N}{1,7}"), "knows none that splits at"),
    (pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), PRE["gpt-2"]]), "knows no step"),
    (pre_tokenizers.ByteLevel(add_prefix_space=True), "adds a space"),
])  # fmt: skip
def test_other_rules_are_refused(tmp_path, pre, what):
    folder = byte_level(tmp_path / "model", pre)
    with pytest.raises(UserError, match=what) as error:
        write_vocabulary(folder, tmp_path / "out.gguf", 321)
    assert "tokenizer.json" in str(error.value) and "export to another format" in str(error.value)


def test_a_normalizer_that_llama_cpp_lacks_is_refused(tmp_path):
    folder = byte_level(tmp_path / "model", PRE["gpt-2"])
    value = json.loads((folder / "tokenizer.json").read_text())
    value["normalizer"] = {"type": "Lowercase"}
    (folder / "tokenizer.json").write_text(json.dumps(value))
    with pytest.raises(UserError, match="other tokens of a text"):
        write_vocabulary(folder, tmp_path / "out.gguf", 321)


@pytest.mark.parametrize("name, size", [("llama-spm", 32000), pytest.param("gpt-2", 50257, marks=pytest.mark.slow)])
def test_published_vocabularies(tmp_path, name, size):
    source = test_data(f"ggml-vocab-{name}.gguf")
    (tmp_path / "model").mkdir()
    write_tokenizer_files(source, tmp_path / "model")
    write_vocabulary(tmp_path / "model", tmp_path / "out.gguf", size)
    for text in test_data(f"ggml-vocab-{name}.gguf.inp").read_text().split("\n__ggml_vocab_test__\n"):
        assert tokenizer_from_gguf(tmp_path / "out.gguf").encode(text).ids == tokenizer_from_gguf(source).encode(text).ids
