# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How tokens are chosen from logits. The runtime does it (`_runtime.Batch.choose`); eq_choice of easyquant.h has the definition."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from easyquant.runtime.extension import runtime
from easyquant.support.errors import expect, is_number, is_whole

MOST_LOGPROBS = 100  # of one token, so that an answer stays readable
_LARGEST_SHIFT = 1e6  # of a logit, as the runtime has it


@dataclass(frozen=True)
class TokenLogprob:
    """The log-probability of a token (natural logarithm, of the model's own logits), and the most likely tokens in its place."""

    token: int
    logprob: float
    best: list[tuple[int, float]]


def check_sampling(settings) -> None:
    """`settings`: a Settings of requests.py, or what has its fields."""
    number = settings.temperature
    expect("temperature", number, is_number(number) and 0.0 <= number < math.inf, "a number of at least 0 (0 is greedy)")
    expect("top_k", settings.top_k, is_whole(settings.top_k) and settings.top_k >= 0, "a whole number of at least 0 (0 is all tokens)")
    expect("top_p", settings.top_p, is_number(settings.top_p) and 0.0 < settings.top_p <= 1.0, "a number above 0 and at most 1")
    expect("min_p", settings.min_p, is_number(settings.min_p) and 0.0 <= settings.min_p <= 1.0, "a number from 0 to 1")
    number = settings.repetition_penalty
    expect("repetition_penalty", number, is_number(number) and 0.01 <= number <= 100, "a number from 0.01 to 100 (1 is none)")
    for name in ("presence_penalty", "frequency_penalty"):
        number = getattr(settings, name)
        expect(name, number, _is_shift(number), "a number from -1e6 to 1e6 (0 is none)")
    seed, count = settings.seed, settings.logprobs
    expect("seed", seed, seed is None or is_whole(seed) and 0 <= seed < 2**64, "a whole number of at least 0, below 2^64")
    expect("logprobs", count, count is None or is_whole(count) and 0 <= count <= MOST_LOGPROBS, f"a whole number from 0 to {MOST_LOGPROBS}")
    bias = settings.logit_bias
    is_bias = isinstance(bias, Mapping) and all(_token(token) is not None and _is_shift(shift) for token, shift in bias.items())
    expect("logit_bias", bias, is_bias, "numbers from -1e6 to 1e6 by token ids")


def _is_shift(number) -> bool:
    return is_number(number) and abs(number) <= _LARGEST_SHIFT


def _token(name) -> int | None:
    """A token id, as a number or, in JSON, as a text."""
    if isinstance(name, str) and name.isascii() and name.isdigit():
        name = int(name)
    return int(name) if is_whole(name) and 0 <= name < 2**31 else None


def make_sampler(settings, prompt):
    """A `_runtime.Sampler` for the answer to a prompt of these tokens. `settings`: as of check_sampling."""
    has_penalty = settings.repetition_penalty != 1 or settings.presence_penalty or settings.frequency_penalty
    return runtime().Sampler(
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
        repetition_penalty=settings.repetition_penalty,
        presence_penalty=settings.presence_penalty,
        frequency_penalty=settings.frequency_penalty,
        bias={_token(token): float(shift) for token, shift in settings.logit_bias.items()},
        seed=settings.seed or 0,
        prompt=list(map(int, prompt)) if has_penalty else [],
        logprobs=settings.logprobs,
    )
