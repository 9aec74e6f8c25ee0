# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How tokens are chosen and where answers end: the fields that endpoints have in common."""

from easyquant.runtime.requests import Settings
from easyquant.runtime.sampling import MOST_LOGPROBS
from easyquant.server.errors import ApiError, of_user_error
from easyquant.server.fields import Body, Field, Fields, refused, wrong
from easyquant.server.limits import LONGEST_STOP, MOST_CHOICES, MOST_STOPS
from easyquant.server.served import ServedModel
from easyquant.support.errors import UserError

MODEL: Fields = {"model": Field("a name of `/v1/models`; may be left out where one model is served")}
SAMPLING: Fields = {
    "temperature": Field("0 takes the most likely token; default: what the model's `generation_config.json` says, else 1"),
    "top_p": Field("draws from the most likely tokens of this total probability"),
}
PENALTIES: Fields = {
    "presence_penalty": Field("-2 to 2, is taken off the logits of tokens that the answer has"),
    "frequency_penalty": Field("-2 to 2, the same, once for each time that the answer has the token"),
    "logit_bias": Field("numbers by token ids, which are added to logits; -100 forbids a token in practice"),
    "seed": Field("equal seeds give equal answers; answer number k of `n` has seed + k"),
    "stop": Field(f"a text or up to {MOST_STOPS} texts before which the answer ends"),
}
EXTRAS: Fields = {
    "top_k": Field("an extra: draws from so many of the most likely tokens; 0: from all"),
    "min_p": Field("an extra: draws from tokens that are at least so likely beside the most likely one"),
    "repetition_penalty": Field("an extra: above 1, tokens of prompt and answer become less likely"),
    "priority": Field("an extra: -10 to 10, low ones come first; a unit is worth ten seconds of waiting"),
}
# What clients send about themselves; nothing depends on it.
LABELS: Fields = {"user": Field("taken and not used")}
CACHE_LABELS: Fields = {
    **LABELS,
    "safety_identifier": Field("taken and not used"),
    "prompt_cache_key": Field("taken and not used: beginnings that are equal are found without it"),
    "prompt_cache_retention": refused("beginnings are kept as long as there is room", "in_memory"),
    "prompt_cache_options": refused("beginnings are kept as long as there is room"),
}


def read_stop(body: Body) -> tuple[str, ...]:
    stop = body.get("stop")
    texts = [stop] if isinstance(stop, str) else stop if stop is not None else []
    if not isinstance(texts, list) or not all(isinstance(text, str) and 0 < len(text) <= LONGEST_STOP for text in texts):
        raise wrong("stop", stop, f"a text or a list of texts, none of them empty or longer than {LONGEST_STOP} characters")
    if len(texts) > MOST_STOPS:
        raise ApiError(400, f"stop: found {len(texts)} texts, expected at most {MOST_STOPS}", "stop", "too_many_stops")
    return tuple(texts)


def read_bias(body: Body, served: ServedModel) -> dict:
    bias = body.object("logit_bias")
    for token in bias:
        if not (token.isascii() and token.isdigit() and len(token) < 10 and int(token) < served.reader.vocabulary):
            raise wrong("logit_bias", token, f"token ids from 0 to {served.reader.vocabulary - 1}")
    return bias


def read_settings(body: Body, served: ServedModel, max_tokens: int, logprobs: int | None) -> Settings:
    """What the body has, and for the rest what the model's authors say."""
    for name in CACHE_LABELS:
        body.text(name)
    found = dict(served.defaults)
    for name, low, high in (("temperature", 0, 100), ("top_p", 0, 1), ("min_p", 0, 1), ("repetition_penalty", 0.01, 100)):
        if (value := body.number(name, low, high)) is not None:
            found[name] = value
    for name in ("presence_penalty", "frequency_penalty"):
        found[name] = body.number(name, -2, 2, 0.0)
    if (top_k := body.whole("top_k", -1, 2**31 - 1)) is not None:
        found["top_k"] = max(0, top_k)  # -1 is all tokens in vLLM
    if found.get("top_p") == 0:
        found["top_p"], found["top_k"] = 1.0, 1  # the most likely token alone, as OpenAI's API has it
    seed = body.whole("seed", -(2**63), 2**64 - 1)
    bias = read_bias(body, served)
    try:
        settings = Settings(
            **found, max_tokens=max_tokens, logit_bias=bias, seed=None if seed is None else seed % 2**64, stop=read_stop(body), logprobs=logprobs
        )
    except UserError as error:
        raise of_user_error(error) from None
    return settings.with_seed()


def read_copies(body: Body, prompts: int = 1) -> int:
    copies = body.whole("n", 1, MOST_CHOICES, 1)
    if copies * prompts > MOST_CHOICES:
        raise ApiError(400, f"n: found {copies} answers to each of {prompts} prompts, expected at most {MOST_CHOICES} in all", "n", "too_many_choices")
    return copies


def read_priority(body: Body) -> int:
    """The engine's, for which high ones come first."""
    return -body.whole("priority", -10, 10, 0)


def check_logprobs(name: str, count: int) -> int:
    if count > MOST_LOGPROBS:
        raise wrong(name, count, f"a whole number from 0 to {MOST_LOGPROBS}")
    return count


def room_for(served: ServedModel, prompt: int, asked: int | None, name: str, default: int | None = None) -> int:
    """New tokens that a prompt of so many tokens may have. ApiError where it is too long, or too many are asked for by the field `name`."""
    limits, context = served.limits, served.reader.context
    if limits.prompt_tokens and prompt > limits.prompt_tokens:
        raise too_long(f"the prompt has {prompt} tokens, but the server takes {limits.prompt_tokens}; shorten it")
    if limits.max_tokens and asked is not None and asked > limits.max_tokens:
        raise ApiError(400, f"{name}: found {asked}, but the server writes at most {limits.max_tokens} tokens", name, "invalid_value")
    room = context - prompt + 1  # the last new token is not read any more
    if room < (asked or 0) or room < 1:
        new = "" if asked is None else f", and {asked} are asked for"
        raise too_long(f"the context of this model is {context} tokens, but the prompt has {prompt}{new}; shorten the prompt, or ask for fewer")
    return min(filter(None, (asked or default, limits.max_tokens, room)))


def too_long(message: str) -> ApiError:
    return ApiError(400, message, "messages", "context_length_exceeded")
