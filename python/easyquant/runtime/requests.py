# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is asked of a model: a prompt's tokens, how those that follow are chosen, and where they end."""

import reprlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

import numpy as np

from easyquant.runtime.artifact import Artifact
from easyquant.runtime.grammar import Form, Grammar, GrammarCompiler, check_response_format
from easyquant.runtime.sampling import check_sampling
from easyquant.support.errors import UserError, expect, is_whole
from easyquant.text.messages import Conversation
from easyquant.text.tokenizer import load_tokenizer

Message = Mapping  # {"role": "user", "content": "Hi"}
Prompt = str | Sequence[int] | Sequence[Message] | Conversation


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a prompt is continued. The defaults are those of `Model.generate`, of `easyquant run`, and of a line of its --prompts."""

    max_tokens: int = 128  # new ones
    temperature: float = 0.0  # 0 takes the most likely token
    top_k: int = 0  # draws from so many of the most likely tokens; 0: from all
    top_p: float = 1.0  # draws from the most likely tokens of this total probability
    min_p: float = 0.0  # draws from tokens that are at least so likely beside the most likely one
    repetition_penalty: float = 1.0  # divides logits above 0, and multiplies those below, of tokens in the prompt and the answer
    presence_penalty: float = 0.0  # is taken off the logits of tokens in the answer
    frequency_penalty: float = 0.0  # the same, once for each time that the answer has the token
    logit_bias: Mapping[int | str, float] = field(default_factory=dict)  # added to logits, by token id
    seed: int | None = None  # None: another one for each prompt
    logprobs: int | None = None  # log-probabilities of tokens, with so many of the most likely ones in the place of each; None: none
    stop: str | Sequence[str] = ()  # texts before which the answer ends
    response_format: Mapping | None = None  # what answers look like: an object of OpenAI's API, of type regex and grammar, too (grammar.py)
    chat: bool = False  # the prompt is a message, which the model's chat template is put around

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        expect("max_tokens", self.max_tokens, is_whole(self.max_tokens) and self.max_tokens > 0, "a whole number of at least 1")
        are_texts = isinstance(stop, (list, tuple)) and all(isinstance(text, str) and text for text in stop)
        expect("stop", self.stop, are_texts, "a text or a list of texts, none of them empty")
        expect("chat", self.chat, isinstance(self.chat, bool), "true or false")
        check_sampling(self)
        check_response_format(self.response_format)
        object.__setattr__(self, "stop", tuple(stop))

    def with_seed(self) -> "Settings":
        """With one drawn, where tokens are and none is given."""
        return replace(self, seed=secrets.randbelow(2**32)) if self.temperature > 0 and self.seed is None else self


class Options(TypedDict, total=False):
    """The fields of Settings as options of a call."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int | str, float]
    seed: int | None
    stop: str | Sequence[str]
    logprobs: int | None
    response_format: Mapping | None
    chat: bool


class CallOptions(Options, total=False):
    """And what a call says of all of its prompts."""

    priority: int
    timeout: float | None


@dataclass(frozen=True)
class Request:
    """A prompt that a model can read."""

    tokens: np.ndarray  # int32, at least one
    max_tokens: int  # new ones: what was asked for, or what the context has room for; 0: the prompt is scored, and that is all
    settings: Settings
    begins_text: bool  # what follows is a text of its own: SentencePiece then drops its first space
    is_text: bool  # the prompt is a text that is continued as it stands
    score: int | None = None  # the prompt's tokens get log-probabilities, with so many of the most likely ones in the place of each
    score_from: int = 0  # the first token whose log-probability is wanted; what is before it may be known already, and is 0 then
    owner: bytes = b""  # beginnings are shared with requests of the same owner only
    grammar: Grammar | None = None  # that the answer follows
    keeps_answer: bool = False  # for a request that begins with this one and its answer
    shown: frozenset[int] = frozenset()  # special tokens that are text of the answer

    @property
    def positions(self) -> int:
        """Positions of the KV cache that it takes; the last new token is not read any more."""
        return len(self.tokens) + max(0, self.max_tokens - 1)


def is_chat(prompt) -> bool:
    return isinstance(prompt, Conversation) or isinstance(prompt, Sequence) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def is_one_prompt(prompt) -> bool:
    """Rather than several. A list of numbers is one of tokens, a list of messages one chat."""
    return isinstance(prompt, (str, np.ndarray)) or is_chat(prompt) or isinstance(prompt, Sequence) and len(prompt) > 0 and is_whole(prompt[0])


class TooLong(UserError):
    """A prompt has more tokens than the context."""

    def __init__(self, message: str, tokens: int):
        super().__init__(message)
        self.tokens = tokens


class PromptReader:
    """Makes requests of prompts for an artifact. `context`: tokens that prompt and answer may have; 0: as many as the model can."""

    def __init__(self, artifact: Artifact, context: int = 0):
        within = is_whole(context) and 0 <= context <= artifact.max_context
        expect("context", context, within, f"1 to {artifact.max_context}, for which {artifact.path} was made, or 0 for that")
        self.artifact, self.context = artifact, context or artifact.max_context
        self.vocabulary = int(artifact.model["vocab_size"])
        self.tokenizer = load_tokenizer(artifact.path, self.vocabulary)
        self.end_tokens = frozenset(int(token) for token in artifact.model.get("eos_token_ids", []))
        self.grammars = GrammarCompiler(self.tokenizer, self.vocabulary, self.end_tokens)

    def chat_tokens(self, text: str) -> np.ndarray:
        """The tokens of a chat that its template has made a text of."""
        return self._checked(self.tokenizer.encode(text, add_special_tokens=False))

    def tokens(self, prompt: Prompt, chat: bool = False) -> np.ndarray:
        """int32, at least one. `chat`: a text is a message of the user's."""
        messages = _chat(prompt, chat)
        return self._checked(self._encode(prompt) if messages is None else self.tokenizer.encode_chat(messages))

    def requests(self, prompts: Sequence[tuple[Prompt, Settings]]) -> list[Request | UserError]:
        """The requests of several prompts. An error is in the place of its prompt."""
        return [_or_error(lambda: self.request(prompt, settings)) for prompt, settings in prompts]

    def request(self, prompt: Prompt, settings: Settings) -> Request:
        chat = _chat(prompt, settings.chat)
        tokens = self._checked(self._encode(prompt) if chat is None else self.tokenizer.encode_chat(chat))
        room = self.context - len(tokens) + 1
        begins_text = chat is not None or isinstance(prompt, str) and not prompt
        grammar = self.grammars.compile(Form(settings.response_format))
        return Request(tokens, min(settings.max_tokens, room), settings.with_seed(), begins_text, chat is None and isinstance(prompt, str), grammar=grammar)

    def is_unanswered(self, request: Request, text: str) -> bool:
        """Did a chat model end at once, since it saw a text without its template?"""
        return request.is_text and self.tokenizer.has_chat_template and not request.settings.stop and not text.strip()

    def _encode(self, prompt: Prompt) -> Sequence[int]:
        """The tokens of a prompt that is no chat."""
        if isinstance(prompt, str):
            bos = self.artifact.model.get("bos_token_id")
            return self.tokenizer.encode(prompt) or ([] if bos is None else [int(bos)])
        if not is_one_prompt(prompt):
            raise UserError(f"prompt: found {reprlib.repr(prompt)}, expected a text, a list of token ids, or a list of messages")
        for number, token in enumerate(prompt):
            expect(f"prompt: token {number}", token, is_whole(token) and 0 <= token < self.vocabulary, f"an id from 0 to {self.vocabulary - 1}")
        return prompt

    def _checked(self, tokens: Sequence[int]) -> np.ndarray:
        if len(tokens) == 0:
            raise UserError("prompt: the text holds no token; give at least one")
        if len(tokens) > self.context:
            raise TooLong(f"prompt: has {len(tokens)} tokens, but the context of {self.artifact.path} is {self.context}; shorten it", len(tokens))
        return np.asarray(tokens, dtype=np.int32)


def _chat(prompt: Prompt, chat: bool) -> Conversation | None:
    """Where it is a chat, or to become one."""
    if chat and isinstance(prompt, str):
        return Conversation([{"role": "user", "content": prompt}])
    return prompt if isinstance(prompt, Conversation) else Conversation(prompt) if is_chat(prompt) else None


def _or_error(make: Callable):
    try:
        return make()
    except UserError as error:
        return error
