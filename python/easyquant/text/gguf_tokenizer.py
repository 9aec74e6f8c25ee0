# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tokenizer that a GGUF file carries, as a Hugging Face `tokenizers` tokenizer.

llama.cpp decides what the metadata mean. Two families are converted:

- `gpt2`: byte-level BPE. The pre-tokenizer is a name (`tokenizer.ggml.pre`) behind which stand regular
  expressions; each splits the pieces that the one before it left.
- `llama`: SentencePiece's BPE. The file has scores instead of merges: the pair whose union has the highest score
  is joined first, the leftmost where scores are equal. As merges: every way to cut a token into two other tokens,
  ordered by the score of the whole. (`tokenizers`' Unigram model is something else: it maximises a sum.) Merges
  have distinct ranks, so only equal scores of *different* tokens, which no trained vocabulary has among tokens
  that text can reach, are decided by token id here instead of by position.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from easyquant.formats.gguf_header import read_gguf_header
from easyquant.support.errors import UserError
from easyquant.support.files import write_atomically, write_json
from easyquant.text.tokenizer_checks import LARGEST_TEMPLATE

# Token types of GGUF.
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
# Characters looked at where every cut of every token is tried; trained vocabularies have a hundredth of it.
LARGEST_WORK = 2 * 10**9
# What SentencePiece files that do not say have.
_SENTENCEPIECE_TOKENS = {"unknown": 0, "bos": 1, "eos": 2}

GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Contractions are spelled out: (?i:'s) would also take the long s, which llama.cpp does not.
CONTRACTIONS = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"


def _words_with_numbers(number: str) -> str:
    return (
        rf"(?:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


@dataclass(frozen=True)
class PreTokenizer:
    patterns: tuple[str, ...]
    ignore_merges: bool = False  # A word that is a token stays whole, whatever the merges would make of it.
    add_bos: bool = False  # unless the file says otherwise


_GPT2 = PreTokenizer((GPT2_WORDS,))
_DIGITS = PreTokenizer((r"\p{N}", GPT2_WORDS))
_LLAMA3 = PreTokenizer((_words_with_numbers(r"\p{N}{1,3}"),), ignore_merges=True, add_bos=True)
_LLAMA3_WITH_MERGES = PreTokenizer(_LLAMA3.patterns)
_QWEN2 = PreTokenizer((_words_with_numbers(r"\p{N}"),))

PRE_TOKENIZERS = {
    "default": PreTokenizer((r"[\p{P}$+<=>^~|]+", GPT2_WORDS, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "falcon": PreTokenizer((r"[\p{P}$+<=>^~|`]+", GPT2_WORDS, r"[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "mellum", "modern-bert", "trillion"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _LLAMA3_WITH_MERGES),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"), _QWEN2),
}


class _Vocabulary:
    """The checked metadata of a GGUF's tokenizer."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.fields = read_gguf_header(path).fields
        self.model = self.field("model", str)
        self.tokens = self.strings("tokens")
        if not self.tokens:
            self.fail("tokens", "is empty, expected at least one token")
        # llama.cpp's name for a token without text, so that it can be told from others.
        self.tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(self.tokens)]
        self.ids = {token: index for index, token in enumerate(self.tokens)}
        if len(self.ids) != len(self.tokens):
            index = next(index for index, token in enumerate(self.tokens) if self.ids[token] != index)
            self.fail("tokens", f"has {self.tokens[index]!r} twice, as tokens {index} and {self.ids[self.tokens[index]]}")
        self.types = self.numbers("token_type", "iu", default=1)

    def fail(self, key: str, what: str):
        raise UserError(f"{self.path}: tokenizer.ggml.{key} {what}; the file was converted badly, convert it again from its checkpoint")

    def field(self, key: str, kind: type, default=None):
        value = self.fields.get(f"tokenizer.ggml.{key}", default)
        if value is None:
            self.fail(key, "is missing")
        if type(value) is not kind:
            self.fail(key, f"is of type {type(value).__name__}, expected {kind.__name__}")
        return value

    def strings(self, key: str) -> list[str]:
        value = self.field(key, list)
        bad = next((item for item in value if not isinstance(item, str)), None)
        if bad is not None:
            self.fail(key, f"has an element of type {type(bad).__name__}, expected strings")
        return value

    def numbers(self, key: str, kinds: str, default=None) -> np.ndarray:
        """One number a token; `kinds` are the numpy kinds that may be."""
        value = self.fields.get(f"tokenizer.ggml.{key}")
        if value is None and default is not None:
            return np.full(len(self.tokens), default)
        if value is None:
            self.fail(key, "is missing")
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            self.fail(key, "is no array of numbers of the expected type")
        if len(value) != len(self.tokens):
            self.fail(key, f"has {len(value)} elements, expected one for each of the {len(self.tokens)} tokens")
        return value

    def token_id(self, role: str) -> int | None:
        """bos, eos, unknown or padding; None where the file has none."""
        key = f"{role}_token_id"
        if f"tokenizer.ggml.{key}" not in self.fields:
            index = _SENTENCEPIECE_TOKENS.get(role) if self.model == "llama" else None
            return index if index is not None and index < len(self.tokens) else None
        index = self.field(key, int)
        # llama.cpp's -1, which converters also write unsigned, is "none".
        if index in (-1, 0xFFFFFFFF):
            return None
        if not 0 <= index < len(self.tokens):
            self.fail(key, f"is {index}, expected a token from 0 to {len(self.tokens) - 1}")
        return index

    def token(self, role: str) -> str | None:
        index = self.token_id(role)
        return None if index is None else self.tokens[index]

    def add_bos(self, default: bool) -> bool:
        add = self.field("add_bos_token", bool, default)
        if add and self.token_id("bos") is None:
            if "tokenizer.ggml.add_bos_token" not in self.fields:
                return False
            self.fail("add_bos_token", "is true, but tokenizer.ggml.bos_token_id is missing")
        return add

    def pre_tokenizer(self) -> PreTokenizer:
        # Files from before the key existed have none.
        name = self.field("pre", str, "default")
        if name not in PRE_TOKENIZERS:
            raise UserError(
                f"{self.path}: tokenizer.ggml.pre names the pre-tokenizer {name!r}; known are "
                f"{', '.join(PRE_TOKENIZERS)}. Compile the model's Hugging Face folder instead, which has a tokenizer.json"
            )
        return PRE_TOKENIZERS[name]

    def merges(self) -> list[tuple[str, str]]:
        merges = []
        for rank, text in enumerate(self.strings("merges")):
            # A token may begin with a space, so the separator is the first one after the first character.
            cut = text.find(" ", 1)
            left, right = (text[:cut], text[cut + 1 :]) if cut > 0 else (text, "")
            for part in (left, right, left + right):
                if part not in self.ids:
                    self.fail("merges", f"has {text!r} at {rank}, which needs the token {part!r}, but tokenizer.ggml.tokens has none")
            merges.append((left, right))
        return merges

    def merges_from_scores(self) -> list[tuple[str, str]]:
        scores = self.numbers("scores", "fi")
        if not np.all(np.isfinite(scores)):
            self.fail("scores", f"is not finite at token {int(np.argmin(np.isfinite(scores)))}")
        if (work := sum(len(token) ** 2 for token in self.tokens)) > LARGEST_WORK:
            self.fail("tokens", f"has tokens so long that their merges take {work} steps, expected at most {LARGEST_WORK}")
        ids = self.ids
        merges = []
        for index in np.argsort(-scores.astype(np.float64), kind="stable").tolist():
            token = self.tokens[index]
            merges += [(token[:cut], token[cut:]) for cut in range(1, len(token)) if token[:cut] in ids and token[cut:] in ids]
        return merges


def _byte_level(vocabulary: _Vocabulary) -> tuple[Tokenizer, bool]:
    pre = vocabulary.pre_tokenizer()
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary.ids, merges=vocabulary.merges(), ignore_merges=pre.ignore_merges))
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in pre.patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, vocabulary.add_bos(pre.add_bos)


def _sentencepiece(vocabulary: _Vocabulary) -> tuple[Tokenizer, bool]:
    missing = next((byte for byte in range(256) if f"<0x{byte:02X}>" not in vocabulary.ids), None)
    unknown = vocabulary.token("unknown")
    if missing is not None and unknown is None:
        vocabulary.fail("tokens", f"lacks the byte token '<0x{missing:02X}>', and there is no unknown token to stand for other text")
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary.ids,
            merges=vocabulary.merges_from_scores(),
            unk_token=unknown,
            byte_fallback=missing is None,
            fuse_unk=True,
        )
    )
    prefix = vocabulary.field("add_space_prefix", bool, True)
    escape = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), escape]) if prefix else escape
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return tokenizer, vocabulary.add_bos(True)


_MODELS = {"gpt2": _byte_level, "llama": _sentencepiece}


def _build(vocabulary: _Vocabulary) -> tuple[Tokenizer, bool]:
    if vocabulary.model not in _MODELS:
        raise UserError(
            f"{vocabulary.path}: tokenizer.ggml.model is {vocabulary.model!r}; known are {', '.join(_MODELS)}. "
            "Compile the model's Hugging Face folder instead, which has a tokenizer.json"
        )
    tokenizer, add_bos = _MODELS[vocabulary.model](vocabulary)
    added = [
        AddedToken(token, special=kind != USER_DEFINED, normalized=False)
        for token, kind in zip(vocabulary.tokens, vocabulary.types.tolist(), strict=True)
        if kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    if add_bos:
        index = vocabulary.token_id("bos")
        bos = vocabulary.tokens[index]
        # In a template ":" and "$" have meanings; a token with either goes by another name there.
        name = "bos" if ":" in bos or "$" in bos else bos
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[name, "$A"], pair=[name, "$A", name, "$B:1"], special_tokens=[{"id": name, "ids": [index], "tokens": [bos]}]
        )
    return tokenizer, add_bos


def tokenizer_from_gguf(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file: every token keeps its id, text becomes the tokens that llama.cpp makes of it.

    Encoding with special tokens puts the BOS token first where the file asks for it. UserError when the file is
    no GGUF, its tokenizer's metadata are damaged, or its kind is none of those above.
    """
    return _build(_Vocabulary(path))[0]


def write_tokenizer_files(path: Path, out_dir: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json for the tokenizer of the GGUF file `path`."""
    vocabulary = _Vocabulary(path)
    tokenizer, add_bos = _build(vocabulary)
    config = {
        "add_bos_token": add_bos,
        "add_eos_token": vocabulary.field("add_eos_token", bool, False),
        "bos_token": vocabulary.token("bos"),
        "eos_token": vocabulary.token("eos"),
        "unk_token": vocabulary.token("unknown"),
        "pad_token": vocabulary.token("padding"),
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    architecture = vocabulary.fields.get("general.architecture")
    context = vocabulary.fields.get(f"{architecture}.context_length")
    if isinstance(context, int):
        config["model_max_length"] = context
    template = vocabulary.fields.get("tokenizer.chat_template")
    if isinstance(template, str) and len(template) > LARGEST_TEMPLATE:
        raise UserError(f"{path}: tokenizer.chat_template has {len(template)} characters, expected at most {LARGEST_TEMPLATE}; convert the model again")
    if isinstance(template, str) and template:
        config["chat_template"] = template
    out_dir = Path(out_dir)
    write_atomically(out_dir / "tokenizer.json", (tokenizer.to_str(pretty=False) + "\n").encode())
    write_json(out_dir / "tokenizer_config.json", {key: value for key, value in config.items() if value is not None})
