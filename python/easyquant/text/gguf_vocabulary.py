# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A Hugging Face tokenizer as the metadata of a GGUF file: the way back from gguf_tokenizer.

llama.cpp knows byte-level BPE by the name of its pre-tokenizer, and SentencePiece's BPE by scores. A pre-tokenizer gets the name of the one
in PRE_TOKENIZERS that has its rules, whatever model it comes with; a score is the place of the first merge that makes the token. What is written
is read back and compared on a text of every kind (PROBE), so that a tokenizer that llama.cpp would take for another is an error.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import gguf

from easyquant.support.errors import UserError
from easyquant.text.chat import chat_template
from easyquant.text.gguf_tokenizer import CONTRACTIONS, CONTROL, GPT2_WORDS, PRE_TOKENIZERS, USER_DEFINED, tokenizer_from_gguf
from easyquant.text.tokenizer import load_tokenizer
from easyquant.text.tokenizer_checks import read_json

NORMAL, UNUSED, BYTE = 1, 5, 6
_REMEDY = "export to another format, whose folder has tokenizer.json as it is"
# Words, numbers of one to five digits, contractions in both cases, punctuation, spaces, tabs and line ends alone and in rows, other scripts, emoji.
PROBE = """Hello, world! It's we'LL they've I'M 1 23 456 7890 12345 3.14e-10
  two  spaces\tand\ttabs \t\n\n\nthree lines\r\n(brackets) [x] {y} <z> "quotes" 'single' a_b-c/d\\e@f#g$h%i^j&k*l+m=n~o`p|q
naïve café Größe ŠĆ Привет мир Γειά σου 你好，世界 こんにちは 안녕하세요 مرحبا שלום नमस्ते ½ ² ٣٤٥ 👍🏽 👨‍👩‍👧 …—“”\u00a0\u200b end"""
# The contractions of tokenizer.json files, of which CONTRACTIONS is the form that llama.cpp has.
_ANY_CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"


def _fail(file: Path, what: str) -> UserError:
    return UserError(f"{file}: {what}; {_REMEDY}")


def _steps(step: Mapping | None, parts: str) -> Iterator[Mapping]:
    """The steps of a pre-tokenizer or normalizer, sequences in sequences opened."""
    if step and step.get("type") == "Sequence":
        for part in step[parts]:
            yield from _steps(part, parts)
    elif step:
        yield step


def _pattern_of(step: Mapping) -> str | None:
    """What a step of a pre-tokenizer splits at; None for one that no pattern says."""
    kind = step.get("type")
    if kind == "Digits":
        return r"\p{N}" if step.get("individual_digits") else r"\p{N}+"
    if kind == "Split" and step.get("behavior") == "Isolated" and not step.get("invert") and "Regex" in step.get("pattern", {}):
        return step["pattern"]["Regex"].replace(_ANY_CASE, f"(?:{CONTRACTIONS})")
    return None


def _pre_tokenizer_name(file: Path, spec: Mapping) -> str:
    """llama.cpp's name for the rules of byte-level BPE."""
    patterns = []
    for step in _steps(spec.get("pre_tokenizer"), "pretokenizers"):
        if step.get("type") == "ByteLevel":
            if step.get("add_prefix_space"):
                raise _fail(file, "pre_tokenizer: ByteLevel adds a space before texts, which llama.cpp does not")
            patterns += [GPT2_WORDS] if step.get("use_regex", True) else []
            continue
        pattern = _pattern_of(step)
        if pattern is None:
            raise _fail(file, f"pre_tokenizer: llama.cpp knows no step {json.dumps(step)[:200]}")
        patterns.append(pattern)
    ignore_merges = bool(spec["model"].get("ignore_merges"))
    for name, known in PRE_TOKENIZERS.items():
        if known.patterns == tuple(patterns) and known.ignore_merges == ignore_merges:
            return name
    raise _fail(file, f"pre_tokenizer: llama.cpp knows none that splits at {patterns}{', words that are tokens kept whole' if ignore_merges else ''}")


def _is_sentencepiece(spec: Mapping) -> bool:
    return any(step == {"type": "Replace", "pattern": {"String": " "}, "content": "▁"} for step in _steps(spec.get("normalizer"), "normalizers"))


def _merges(spec: Mapping) -> list[tuple[str, str]]:
    return [tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge) for merge in spec["model"]["merges"]]


def _scores(spec: Mapping, tokens: list[str]) -> list[float]:
    """A token that no merge makes has -1000, as from llama.cpp's converters; it does not count."""
    first = {}
    for rank, (left, right) in enumerate(_merges(spec)):
        first.setdefault(left + right, -float(rank))
    return [first.get(token, -1000.0) for token in tokens]


def _add_tokens(writer: gguf.GGUFWriter, spec: Mapping, vocabulary: Mapping[str, int], vocab_size: int, sentencepiece: bool) -> list[str]:
    tokens = {index: token for token, index in vocabulary.items()}
    kinds = dict.fromkeys(tokens, NORMAL)
    if sentencepiece:
        kinds |= {index: BYTE for token, index in vocabulary.items() if len(token) == 6 and token.startswith("<0x") and token.endswith(">")}
    for added in spec.get("added_tokens") or []:
        kinds[added["id"]] = CONTROL if added.get("special") else USER_DEFINED
    listed = [tokens.get(index, f"[PAD{index}]") for index in range(vocab_size)]
    writer.add_token_list(listed)
    writer.add_token_types([kinds.get(index, UNUSED) for index in range(vocab_size)])
    return listed


def write_vocabulary(folder: Path, path: Path, vocab_size: int) -> None:
    """Writes a GGUF file without tensors that has the tokenizer of a model folder; `vocab_size` are the rows of the model's embedding.

    UserError where llama.cpp has nothing for the tokenizer, or would make other tokens of PROBE.
    """
    folder = Path(folder)
    file = folder / "tokenizer.json"
    tokenizer = load_tokenizer(folder, vocab_size)
    spec = read_json(file)[1]
    if spec["model"].get("type", "BPE") != "BPE":
        raise _fail(file, f"model: is {spec['model']['type']}, of which GGUF has none; expected BPE")
    if not spec["model"].get("merges"):
        raise _fail(file, "model: has no merges, without which llama.cpp reads no BPE")
    configuration = folder / "tokenizer_config.json"
    config = read_json(configuration)[1] if configuration.is_file() else {}
    sentencepiece = _is_sentencepiece(spec)
    writer = gguf.GGUFWriter(path, "llama")  # a name that the library asks for; the vocabulary of any architecture
    writer.add_tokenizer_model("llama" if sentencepiece else "gpt2")
    if not sentencepiece:
        writer.add_tokenizer_pre(_pre_tokenizer_name(file, spec))
    tokens = _add_tokens(writer, spec, tokenizer.vocabulary(), vocab_size, sentencepiece)
    if sentencepiece:
        writer.add_token_scores(_scores(spec, tokens))
        writer.add_add_space_prefix(any(step.get("type") == "Prepend" for step in _steps(spec.get("normalizer"), "normalizers")))
    else:
        writer.add_token_merges([f"{left} {right}" for left, right in _merges(spec)])
    vocabulary = tokenizer.vocabulary()
    for role, add in (("bos", writer.add_bos_token_id), ("eos", writer.add_eos_token_id), ("unk", writer.add_unk_token_id), ("pad", writer.add_pad_token_id)):
        token = tokenizer.special_tokens.get(f"{role}_token")
        if token in vocabulary:
            add(vocabulary[token])
    begin = tokenizer.encode("")[:1]
    writer.add_add_bos_token(bool(begin) and begin[0] == tokenizer.bos_token_id)
    template = chat_template(folder, config)
    if template is not None:
        writer.add_chat_template(template.text)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    expected, found = tokenizer.encode(PROBE), tokenizer_from_gguf(path).encode(PROBE).ids
    if expected != found:
        place = next((index for index, pair in enumerate(zip(expected, found)) if pair[0] != pair[1]), min(len(expected), len(found)))
        raise _fail(file, f"llama.cpp would make other tokens of a text: after {tokenizer.decode(expected[max(0, place - 4) : place])!r} "
                          f"token {found[place : place + 1]} where this tokenizer has {expected[place : place + 1]}")  # fmt: skip
