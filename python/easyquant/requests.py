# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is asked of a model: a prompt's tokens, how those that follow are chosen, and where they end."""

import reprlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from easyquant.artifact import Artifact
from easyquant.errors import UserError, expect, is_whole
from easyquant.sampling import Sampler
from easyquant.tokenizer import load_tokenizer

Message = Mapping[str, str]  # {"role": "user", "content": "Hi"}
Prompt = str | Sequence[int] | Sequence[Message]


@dataclass(frozen=True)
class Settings:
    """How a prompt is continued. The defaults are those of `Model.generate`, of `easyquant run`, and of a line of its --prompts."""

    max_tokens: int = 128  # new ones
    temperature: float = 0.0  # 0 takes the most likely token
    top_k: int = 0  # of how many of the most likely tokens; 0: of all
    top_p: float = 1.0  # of the most likely tokens of this total probability
    seed: int | None = None  # None: another one for each prompt
    stop: str | Sequence[str] = ()  # texts before which the answer ends
    chat: bool = False  # the prompt is a message, which the model's chat template is put around

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        expect("max_tokens", self.max_tokens, is_whole(self.max_tokens) and self.max_tokens > 0, "a whole number of at least 1")
        expect("seed", self.seed, self.seed is None or is_whole(self.seed) and self.seed >= 0, "a whole number of at least 0")
        are_texts = isinstance(stop, (list, tuple)) and all(isinstance(text, str) and text for text in stop)
        expect("stop", self.stop, are_texts, "a text or a list of texts, none of them empty")
        expect("chat", self.chat, isinstance(self.chat, bool), "true or false")
        self.sampler()
        object.__setattr__(self, "stop", tuple(stop))

    def sampler(self) -> Sampler:
        return Sampler(self.temperature, self.top_k, self.top_p, self.seed or 0)

    def with_seed(self) -> "Settings":
        """With one drawn, where tokens are and none is given."""
        return replace(self, seed=secrets.randbelow(2**32)) if self.temperature > 0 and self.seed is None else self


@dataclass(frozen=True)
class Request:
    """A prompt that a model can read."""

    tokens: np.ndarray  # int32, at least one
    max_tokens: int  # new ones: what was asked for, or what the context has room for
    settings: Settings
    begins_text: bool  # what follows is a text of its own: SentencePiece then drops its first space

    @property
    def positions(self) -> int:
        """Of the KV cache: the last new token is not read any more."""
        return len(self.tokens) + self.max_tokens - 1


def is_chat(prompt) -> bool:
    return isinstance(prompt, Sequence) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def is_one_prompt(prompt) -> bool:
    """Rather than several. A list of numbers is one of tokens, a list of messages one chat."""
    return isinstance(prompt, (str, np.ndarray)) or is_chat(prompt) or isinstance(prompt, Sequence) and len(prompt) > 0 and is_whole(prompt[0])


class PromptReader:
    """Makes requests of prompts for an artifact. `context`: tokens that prompt and answer may have; 0: as many as the model can."""

    def __init__(self, artifact: Artifact, context: int = 0):
        within = is_whole(context) and 0 <= context <= artifact.max_context
        expect("context", context, within, f"1 to {artifact.max_context}, for which {artifact.path} was made, or 0 for that")
        self.artifact, self.context = artifact, context or artifact.max_context
        self.vocabulary = int(artifact.model["vocab_size"])
        self.tokenizer = load_tokenizer(artifact.path, self.vocabulary)
        self.end_tokens = frozenset(int(token) for token in artifact.model.get("eos_token_ids", []))

    def tokens(self, prompt: Prompt, chat: bool = False) -> np.ndarray:
        """int32, at least one."""
        if isinstance(prompt, str):
            tokens = self._encode_chat([{"role": "user", "content": prompt}]) if chat else self._encode(prompt)
        elif is_chat(prompt):
            tokens = self._encode_chat(prompt)
        elif is_one_prompt(prompt):
            for number, token in enumerate(prompt):
                expect(f"prompt: token {number}", token, is_whole(token) and 0 <= token < self.vocabulary, f"an id from 0 to {self.vocabulary - 1}")
            tokens = prompt
        else:
            raise UserError(f"prompt: found {reprlib.repr(prompt)}, expected a text, a list of token ids, or a list of messages")
        if len(tokens) == 0:
            raise UserError("prompt: the text holds no token; give at least one")
        if len(tokens) > self.context:
            raise UserError(f"prompt: has {len(tokens)} tokens, but the context of {self.artifact.path} is {self.context}; shorten it")
        return np.asarray(tokens, dtype=np.int32)

    def _encode(self, text: str) -> list[int]:
        bos = self.artifact.model.get("bos_token_id")
        return self.tokenizer.encode(text) or ([] if bos is None else [int(bos)])

    def _encode_chat(self, messages: Sequence[Message]) -> list[int]:
        for number, message in enumerate(messages):
            are_texts = isinstance(message, Mapping) and all(isinstance(message.get(key), str) for key in ("role", "content"))
            expect(f"prompt: message {number}", message, are_texts, 'an object with the texts "role" and "content"')
        return self.tokenizer.encode_chat(messages)

    def request(self, prompt: Prompt, settings: Settings) -> Request:
        tokens = self.tokens(prompt, settings.chat)
        room = self.context - len(tokens) + 1
        begins_text = settings.chat or is_chat(prompt) or isinstance(prompt, str) and not prompt
        return Request(tokens, min(settings.max_tokens, room), settings.with_seed(), begins_text)
