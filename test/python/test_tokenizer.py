# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A GGUF's tokenizer as tokenizer.json: golden encodings, and a direct SentencePiece beside it."""

import importlib.util
import json
import random

import pytest
from tokenizers import Tokenizer

from easyquant.formats.gguf_header import read_gguf_header
from easyquant.text.tokenizer import load_tokenizer, tokenizer_from_gguf, write_tokenizer_files
from helpers import DATA

SEPARATOR = "\n__ggml_vocab_test__\n"
VOCABULARIES = ("ggml-vocab-gpt-2.gguf", "ggml-vocab-llama-spm.gguf")
TEXTS = ("", " ", "Hello world", "  a \t\n\n b", "Ünïcödé, 你好 🦙👩‍👩‍👧 नमस्ते", "\x00\x7f�", "x = [1, 2, 3]\r\n")


@pytest.fixture(scope="module", params=VOCABULARIES)
def vocabulary(request, tmp_path_factory):
    """(GGUF, the tokenizer read back from the files that were made of it)."""
    file = DATA / request.param
    if not file.is_file():
        pytest.skip(f"needs the test data: no {file}")
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer_files(file, folder)
    return file, load_tokenizer(folder)


def test_goldens_of_llama_cpp(vocabulary):
    file, tokenizer = vocabulary
    texts = file.with_name(file.name + ".inp").read_bytes().decode().split(SEPARATOR)
    lines = file.with_name(file.name + ".out").read_text().splitlines()
    assert texts.pop() == ""  # The separator ends every text.
    assert len(texts) == len(lines) == 46
    for text, line in zip(texts, lines, strict=True):
        # The goldens do not look for special tokens in the text.
        assert tokenizer.encode(text, add_special_tokens=False, parse_special=False) == [int(word) for word in line.split()], text
        assert tokenizer.encode(text, add_special_tokens=False) == [int(word) for word in line.split()], text
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bos_where_the_file_asks_for_it(vocabulary):
    file, tokenizer = vocabulary
    ids = tokenizer.encode("Hello", add_special_tokens=False)
    with_bos = [1, *ids] if "llama" in file.name else ids
    assert tokenizer.encode("Hello") == with_bos
    assert tokenizer_from_gguf(file).encode("Hello").ids == with_bos
    assert tokenizer.bos_token_id == (1 if "llama" in file.name else 50256)
    assert tokenizer.eos_token_id == (2 if "llama" in file.name else 50256)
    assert tokenizer.vocab_size == (32000 if "llama" in file.name else 50257)


def test_every_token_keeps_its_id(vocabulary):
    file, _ = vocabulary
    tokens = read_gguf_header(file).fields["tokenizer.ggml.tokens"]
    tokenizer = tokenizer_from_gguf(file)
    assert [tokenizer.id_to_token(index) for index in range(len(tokens))] == tokens
    assert tokenizer.get_vocab_size() == len(tokens)


def test_special_tokens_in_a_text(vocabulary):
    file, tokenizer = vocabulary
    name, index = ("</s>", 2) if "llama" in file.name else ("<|endoftext|>", 50256)
    assert index in tokenizer.encode(f"a{name}b")
    assert index not in tokenizer.encode(f"a{name}b", parse_special=False)
    assert tokenizer.decode(tokenizer.encode(f"a{name}b", parse_special=False)) == f"a{name}b"


def test_decode_agrees_with_the_library(vocabulary):
    _, tokenizer = vocabulary
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == tokenizer._tokenizer.decode(ids) == text


def test_streams_never_split_a_character(vocabulary):
    _, tokenizer = vocabulary
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        stream = tokenizer.stream(at_start=True)
        pieces = [stream.push(index) for index in ids]
        assert "".join(pieces) == text and stream.finish() == ""
        assert all(piece.encode().decode() == piece for piece in pieces)
    # A character cut off by the end of the text is said to be missing, once.
    ids = tokenizer.encode("🦙", add_special_tokens=False)
    assert tokenizer.decode(ids[:-1]).endswith("\ufffd")
    # What continues a text keeps its space.
    stream = tokenizer.stream()
    assert "".join(stream.push(index) for index in tokenizer.encode(" time", add_special_tokens=False)).lstrip(" ") == "time"
    assert stream.push(10**9) == stream.push(-1) == ""


def join_by_score(text: str, scores: dict[str, float]) -> list[str]:
    """SentencePiece's BPE as it is defined: join the adjacent pair of highest score, the leftmost of equals."""
    pieces = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        pairs = [(scores[pieces[i] + pieces[i + 1]], -i) for i in range(len(pieces) - 1) if pieces[i] + pieces[i + 1] in scores]
        if not pairs:
            return pieces
        at = -max(pairs)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


def test_merges_from_scores_are_sentencepiece(data):
    file = data / VOCABULARIES[1]
    fields = read_gguf_header(file).fields
    tokens = fields["tokenizer.ggml.tokens"]
    scores = dict(zip(tokens, fields["tokenizer.ggml.scores"].tolist(), strict=True))
    tokenizer = tokenizer_from_gguf(file)
    generator = random.Random(3)
    alphabets = ("  a", "ab ", "aeinorst ", "=-#*_.", "01 ,.", "\n\t a", "абв ", "'’\"s t", "日本語 a")
    for _ in range(3000):
        text = "".join(generator.choice(generator.choice(alphabets)) for _ in range(generator.randrange(24)))
        if generator.random() < 0.5:
            alphabet = generator.choice(alphabets)
            text = "".join(generator.choice(alphabet) for _ in range(generator.randrange(40)))
        expected = []
        for piece in join_by_score(text, scores):
            expected += [piece] if piece in scores else [f"<0x{byte:02X}>" for byte in piece.encode()]
        assert tokenizer.encode(text, add_special_tokens=False).tokens == expected, text


def test_smollm2_goldens(smollm2_gguf, goldens, tmp_path):
    write_tokenizer_files(smollm2_gguf, tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    for golden in goldens["tokenization"]:
        assert tokenizer.encode(golden["text"]) == golden["ids"]
        assert tokenizer.decode(golden["ids"], skip_special_tokens=False) == golden["text"]
    for golden in goldens["greedy"]:
        assert tokenizer.encode(golden["prompt"]) == golden["prompt_ids"]
        stream = tokenizer.stream(skip_special_tokens=False)
        assert "".join(map(stream.push, golden["continuation"])) + stream.finish() == golden["text"]
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (config["bos_token"], config["eos_token"], config["add_bos_token"]) == ("<|im_start|>", "<|im_end|>", False)
    assert config["model_max_length"] == 8192
    chat = tokenizer.render_chat([{"role": "user", "content": "Hi"}])
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.encode_chat([{"role": "user", "content": "Hi"}]) == tokenizer.encode(chat)


def test_smollm2_as_a_hugging_face_folder(smollm2_gguf, goldens, data, tmp_path):
    """The tokenizer.json that make_smollm2.py writes, without the weights."""
    script = data.parent / "tools" / "make_smollm2.py"
    if not script.is_file():
        pytest.skip(f"needs make_smollm2.py: not in {script.parent}")
    spec = importlib.util.spec_from_file_location("make_smollm2", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fields = read_gguf_header(smollm2_gguf).fields
    tokenizer, special = module.make_tokenizer(fields)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(module.make_tokenizer_config(fields, special)[0]))
    loaded, ours = load_tokenizer(tmp_path), tokenizer_from_gguf(smollm2_gguf)
    for golden in goldens["tokenization"]:
        assert loaded.encode(golden["text"]) == golden["ids"] == ours.encode(golden["text"]).ids
        assert loaded.decode(golden["ids"], skip_special_tokens=False) == golden["text"]
    assert (loaded.bos_token_id, loaded.eos_token_id, loaded.has_chat_template) == (1, 2, True)
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab() == ours.get_vocab()
