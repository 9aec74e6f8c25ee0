# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is asked of tokenizer files before the library `tokenizers` sees them.

The library believes them: it makes tables as large as the largest id, and ends the process where memory does not suffice.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from easyquant.support.errors import UserError

LARGEST_VOCABULARY = 2**24  # whatever a model says of itself; the largest known has 2**18
LARGEST_FILE = 256 * 2**20  # the largest tokenizer.json of known models has 35 MB
LARGEST_TEMPLATE = 2**20
# By how much a normalizer may lengthen a text; what trained ones do is below 100.
LARGEST_GROWTH = 1000
_GROWTH = {"NFD": 4, "NFC": 3, "NFKD": 18, "NFKC": 18, "Precompiled": 18, "Lowercase": 3, "ByteLevel": 2}


def _without_repetition(pairs: list[tuple[str, object]]) -> dict:
    """Two readers could take different ones of two values of one key."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"key {twice!r} is there twice")
    return result


def read_json(file: Path, limit: int = LARGEST_FILE) -> tuple[str, Mapping]:
    """Text and value of a JSON object."""
    try:
        if (size := file.stat().st_size) > limit:
            raise UserError(f"{file}: has {size} bytes, expected at most {limit}; take the file that belongs to the model")
        text = file.read_text(encoding="utf-8")
        value = json.loads(text, object_pairs_hook=_without_repetition)
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read as JSON ({error})") from None
    except RecursionError:
        raise UserError(f"{file}: cannot be read as JSON (it is nested too deeply)") from None
    if not isinstance(value, dict):
        raise UserError(f"{file}: is a JSON {type(value).__name__}, expected an object")
    return text, value


def read_text(file: Path, limit: int) -> str:
    try:
        with open(file, "rb") as stream:
            data = stream.read(limit + 1)
        if len(data) > limit:
            raise UserError(f"{file}: has more than {limit} bytes, expected at most that; take the file that belongs to the model")
        return data.decode("utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({error})") from None


def _parts(step, key: str) -> Iterator[Mapping]:
    """The steps of a normalizer, or of a post-processor, in order; `key` is what a sequence calls its own."""
    pending = [step]
    while pending:
        step = pending.pop()
        if not isinstance(step, Mapping):
            continue  # the library says what it expected
        inner = step.get(key)
        if step.get("type") == "Sequence" and isinstance(inner, list):
            pending.extend(reversed(inner))
        else:
            yield step


def _ids(value: Mapping) -> Iterator[tuple[str, object]]:
    """(where, id) of every id in a tokenizer.json."""
    model = value.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocabulary, Mapping):
        for token, index in vocabulary.items():
            yield f"model.vocab: token {token[:80]!r}", index
    elif isinstance(vocabulary, list) and vocabulary:  # pieces and scores: the place is the id
        yield "model.vocab: the last token", len(vocabulary) - 1
    added = value.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        if isinstance(token, Mapping):
            yield f"added_tokens: token {str(token.get('content'))[:80]!r}", token.get("id")
    for step in _parts(value.get("post_processor"), "processors"):
        special = step.get("special_tokens")
        for name, token in special.items() if isinstance(special, Mapping) else ():
            ids = token.get("ids") if isinstance(token, Mapping) else None
            for index in ids if isinstance(ids, list) else ():
                yield f"post_processor: token {name[:80]!r}", index
        for role in ("sep", "cls"):
            pair = step.get(role)
            if isinstance(pair, list) and len(pair) == 2:
                yield f"post_processor: {role}", pair[1]


def _growth(step: Mapping) -> float:
    """How many times longer a text may become by one step of a normalizer."""
    content, pattern = step.get("content"), step.get("pattern")
    if step.get("type") != "Replace" or not isinstance(content, str) or not isinstance(pattern, Mapping):
        return _GROWTH.get(step.get("type"), 1)
    literal = pattern.get("String")
    if isinstance(literal, str) and literal:
        return max(1, math.ceil(len(content) / len(literal)))
    return 1 + len(content)  # a regular expression may match between any two characters


def _check_id(source: str, where: str, index, vocabulary: int) -> None:
    vocabulary = min(vocabulary, LARGEST_VOCABULARY)
    if type(index) is not int or not 0 <= index < vocabulary:
        raise UserError(
            f"{source}: {where} has id {index!r}, expected one from 0 to {vocabulary - 1}, the model's vocabulary; "
            "take the tokenizer that belongs to the model"
        )


def check_tokenizer(value: Mapping, source: str, vocabulary: int) -> None:
    """Refuses a tokenizer.json whose ids the model has not, or that lengthens texts without measure."""
    for where, index in _ids(value):
        _check_id(source, where, index, vocabulary)
    growth = 1.0
    for step in _parts(value.get("normalizer"), "normalizers"):
        growth *= _growth(step)
        if growth > LARGEST_GROWTH:
            raise UserError(f"{source}: its normalizer makes texts more than {LARGEST_GROWTH} times longer; take the tokenizer that belongs to the model")


def check_config(value: Mapping, source: str, vocabulary: int) -> None:
    """The same of a tokenizer_config.json: the ids that it gives to added tokens."""
    added = value.get("added_tokens_decoder")
    for key in added if isinstance(added, Mapping) else ():
        _check_id(source, "added_tokens_decoder: a token", int(key) if key.isdecimal() and len(key) < 20 else key, vocabulary)


def check_files(files: list[Path], vocabulary: int, source: Path | None = None) -> None:
    """Checks the tokenizer files of a model before they become part of an artifact; `source` is what they were made from, if anything."""
    for file in files:
        if file.name == "tokenizer.json":
            check_tokenizer(read_json(file)[1], str(source or file), vocabulary)
        elif file.name == "tokenizer_config.json":
            check_config(read_json(file)[1], str(source or file), vocabulary)
