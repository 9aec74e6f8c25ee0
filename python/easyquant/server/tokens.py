# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens in replies: their texts and log-probabilities, and how many there were."""

from collections.abc import Sequence

from easyquant.runtime.generation import Completion
from easyquant.runtime.sampling import TokenLogprob
from easyquant.text.tokenizer import Tokenizer


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """Where its bytes are no text, as in OpenAI's API: bytes:\\xe2\\x82"""
    piece = tokenizer.token_bytes(token, False)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _entry(tokenizer: Tokenizer, token: int, logprob: float) -> dict:
    piece = tokenizer.token_bytes(token, False)
    return {"token": piece.decode(errors="replace"), "logprob": logprob, "bytes": list(piece)}


def chat_logprobs(tokenizer: Tokenizer, logprobs: Sequence[TokenLogprob]) -> list[dict]:
    return [
        _entry(tokenizer, one.token, one.logprob) | {"top_logprobs": [_entry(tokenizer, token, logprob) for token, logprob in one.best]} for one in logprobs
    ]


def text_logprobs(tokenizer: Tokenizer, entries: Sequence[tuple[int, float | None, Sequence[tuple[int, float]]]], offset: int, begins: bool) -> dict:
    """As /v1/completions has them. entries: tokens, theirs, and the most likely ones in the place of each. begins: the first has nothing before it.

    offset: where in the text of the choice the first one is. Texts of tokens that end within a character count none of it.
    """
    found: dict = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    pieces = b""
    for number, (token, logprob, best) in enumerate(entries):
        first = begins and number == 0
        found["text_offset"].append(offset + len(pieces.decode(errors="ignore")))
        found["tokens"].append(token_text(tokenizer, token))
        found["token_logprobs"].append(None if first else logprob)
        found["top_logprobs"].append(None if first else {token_text(tokenizer, other): value for other, value in best})
        pieces += tokenizer.token_bytes(token)
    return found


def prompt_entries(tokens: Sequence[int], completion: Completion) -> list:
    """What `text_logprobs` is told of a prompt that was scored."""
    likely, values = completion.prompt_best
    best = (list(zip(row.tolist(), logprobs.tolist(), strict=True)) for row, logprobs in zip(likely, values, strict=True))
    return list(zip(map(int, tokens), completion.prompt_logprobs.tolist(), best, strict=True))


def usage(prompts: Sequence[Completion], completions: Sequence[Completion]) -> dict:
    """prompts: the first answer to each."""
    read, new = sum(one.prompt_tokens for one in prompts), sum(len(one.tokens) for one in completions)
    cached = sum(one.cached_tokens for one in prompts)
    return {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new, "prompt_tokens_details": {"cached_tokens": cached}}
