# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant.Model`: a compiled model in Python."""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack, overload

import numpy as np

from easyquant.api import asynchronous
from easyquant.api.calls import Call
from easyquant.api.conversation import Chat
from easyquant.compiler.cache import artifact_of
from easyquant.compiler.keywords import KEPT, ModelKeywords, compile_options
from easyquant.runtime.artifact import BatchSize, load_model, open_batch
from easyquant.runtime.device import Placement
from easyquant.runtime.drafts import Speculation
from easyquant.runtime.engine import KEPT_STATES, Engine, EngineOptions
from easyquant.runtime.events import Event
from easyquant.runtime.extension import runtime
from easyquant.runtime.generation import Completion
from easyquant.runtime.requests import CallOptions, Message, Prompt, PromptReader, Request, Settings, is_one_prompt
from easyquant.support.errors import UserError, expect, is_number, is_whole
from easyquant.terminal.usage import did_you_mean

LEAST_ROOM = 4096  # positions, for a conversation


@dataclass(frozen=True)
class Score:
    """How likely a model finds a text."""

    tokens: list[int]
    log_probabilities: np.ndarray
    """Natural logarithms, float64, for tokens[1], tokens[2], …, each after all tokens before it."""

    @property
    def total(self) -> float:
        """Log-probability of the text after its first token."""
        return float(self.log_probabilities.sum())

    @property
    def perplexity(self) -> float:
        return float(np.exp(-self.log_probabilities.mean()))


class Model:
    """An artifact that `easyquant compile` wrote, ready to write text.

        import easyquant

        with easyquant.Model("smol-w8a8") as model:
            print(model.generate("The capital of France is", max_tokens=16))
            for completion in model.generate(["One, two,", "Red, green,"], temperature=0.7, seed=1):
                print(completion.text, completion.finish_reason)

    A prompt is a text, a list of token ids, or a chat: a list of messages {"role": "user", "content": "Hi"}, which goes through
    the model's chat template. Mistakes raise `easyquant.UserError`, which says what was found, what was expected and what to do.
    Calls keep nothing of each other, and several threads may make them at a time.
    """

    def __init__(
        self,
        path: str | Path,
        device: str = "auto",
        threads: int = 0,
        context: int = 0,
        sequences: int = 16,
        simt_chip: str | None = None,
        speculate: str | Path | None = None,
        draft_tokens: int | None = None,
        kept_states: int = KEPT_STATES,
        **options: Unpack[ModelKeywords],
    ):
        """Loads the artifact at `path`; or compiles the model there, once, and keeps the artifact in ~/.cache/easyquant.

        path: an artifact, a Hugging Face folder, a GGUF file, or a name in the Hub's cache.
        device: "cpu"; "cuda": an NVIDIA GPU; "simt": a simulated one, of `simt_chip`; "auto": a GPU if the artifact has code for
            one that is there, else the CPU.
        threads: the number of threads of a CPU; 0: one for each CPU.
        context: tokens that a prompt and its answer may have together; 0: as many as the model was made for. Memory for them is
            taken when a call needs it.
        sequences: prompts that one call works on at a time.
        speculate: what guesses tokens, which are verified many in a step; answers are the same as without, on GPUs where
            activations are int8. "head": the head for drafts that the model has; "ngram": the text itself; or a smaller artifact of the same tokenizer; "none". None: on CPUs the head,
            where there is one.
        draft_tokens: so many are guessed in a step at most; None: 8.
        kept_states: where layers have a recurrent state, how many of them each sequence keeps at page ends. Texts that begin in
            the same way, and turns of a conversation, share what was read up to there.
        options: how a model is quantized, those of `easyquant.quantize`: Model("SmolLM2-135M", scheme="W4A8", calib="novels.txt").
        """
        expect("sequences", sequences, is_whole(sequences) and sequences >= 1, "a whole number of at least 1")
        expect("threads", threads, is_whole(threads) and threads >= 0, "a whole number of at least 0 (0 is one a CPU)")
        expect("kept_states", kept_states, is_whole(kept_states) and kept_states >= 0, "a whole number of at least 0 (0 keeps none)")
        self._reader = PromptReader(artifact_of(Path(path), compile_options(options, KEPT)), context)
        speculation = Speculation.of(speculate, draft_tokens)
        if speculation is not None:
            speculation.check(self._reader)
        self._loaded = load_model(self._reader.artifact, place=Placement(device, simt_chip))
        self._sequences, self._options = sequences, EngineOptions(threads, kept_states=kept_states, speculation=speculation)
        self._engine: Engine | None = None  # of the calls from now on
        self._lock = threading.Lock()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "closed" if self._loaded is None else self._loaded.device_name
        return f"<easyquant.Model {self._reader.artifact.path}: {self._reader.artifact.describe()}, {where}>"

    def close(self) -> None:
        """Gives the memory back; the object is of no use after it."""
        with self._lock:
            self._loaded = self._engine = None  # streams that have begun go on

    @property
    def context(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return self._reader.context

    @property
    def vocabulary(self) -> int:
        """How many tokens the model knows."""
        return self._reader.vocabulary

    @property
    def has_chat_template(self) -> bool:
        return self._reader.tokenizer.has_chat_template

    @property
    def device(self) -> str:
        """"cpu", "NVIDIA H200 (sm_90)", "simulated sm_80"."""
        return self._open().device_name

    def encode(self, prompt: Prompt, chat: bool = False) -> list[int]:
        """The tokens of a prompt as the model reads them, with what its tokenizer puts before a text."""
        return self._reader.tokens(prompt, chat).tolist()

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return self._reader.tokenizer.decode(tokens)

    @overload  # a text is a sequence of texts, too, and one prompt
    def generate(self, prompt: Prompt, **options: Unpack[CallOptions]) -> Completion: ...  # type: ignore[overload-overlap]

    @overload
    def generate(self, prompt: Sequence[Prompt], **options: Unpack[CallOptions]) -> list[Completion]: ...

    def generate(self, prompt: Prompt | Sequence[Prompt], **options: Unpack[CallOptions]) -> Completion | list[Completion]:
        """Continues a prompt, or several at once; their completions come in their order.

        max_tokens: new tokens of a prompt at most.
        temperature: 0 takes the most likely token. Above 0, tokens are drawn from softmax(logits / temperature).
        top_k: draws from so many of the most likely tokens; 0: from all.
        top_p: draws from the most likely tokens whose probabilities add up to this.
        min_p: draws from tokens whose probability is at least so much of that of the most likely one.
        repetition_penalty: above 1, tokens of the prompt and the answer become less likely (logits above 0 are divided by it).
        presence_penalty, frequency_penalty: taken off the logits of the answer's tokens, once each or once for each time.
        logit_bias: numbers that are added to logits, by token id.
        seed: seeds the random numbers, which then depend on the place of a token alone. None: another seed each time, which the
            completion says.
        stop: texts before which an answer ends.
        logprobs: the completion has the log-probability of each token, and so many of the most likely tokens in its place.
        response_format: what the answer looks like, as in OpenAI's API: {"type": "json_object"}, {"type": "json_schema", "json_schema":
            {"schema": {…}}}; also {"type": "regex", "regex": "…"} and {"type": "grammar", "grammar": "…"} (Lark, as llguidance has it).
            Only tokens that lead there are chosen. The answer is whole unless `max_tokens` ends it.
        chat: a prompt that is a text is a user's message, which the model's chat template is put around.

        priority: a unit is worth ten seconds of waiting, where more prompts are there than run at a time.
        timeout: seconds after which a prompt that is not done ends as an error.

        An error of one of several prompts is its completion's `error`, and the others go on. An error of a single prompt is raised.
        """
        call = self._call(prompt, options)
        for event, number in self._follow(call):
            call.take(event, number)
        return call.result()

    async def agenerate(self, prompt: Prompt | Sequence[Prompt], **options: Unpack[CallOptions]) -> Completion | list[Completion]:
        """`generate` in an event loop, which goes on meanwhile. Where the task is cancelled, what it asked for ends before the next step."""
        call = await asyncio.to_thread(self._call, prompt, options)
        async for event, number in self._afollow(call):
            call.take(event, number)
        return call.result()

    def stream(self, prompt: Prompt, **options: Unpack[CallOptions]) -> Iterator[str]:
        """The text that `generate` gives a prompt, in pieces, as they come."""
        return self._pieces(self._call(prompt, options, single=True))

    async def astream(self, prompt: Prompt, **options: Unpack[CallOptions]) -> AsyncIterator[str]:
        """`stream` in an event loop: `async for piece in model.astream(prompt)`."""
        async for piece in self._apieces(await asyncio.to_thread(self._call, prompt, options, single=True)):
            yield piece

    def chat(self, system: str | None = None, messages: Sequence[Message] = (), **options: Unpack[CallOptions]) -> Chat:
        """A conversation, whose turns read only what is new in them.

            chat = model.chat(system="Answer briefly.", temperature=0.7)
            print(chat.send("What is the capital of France?"))
            for piece in chat.stream("And of Spain?"):
                print(piece, end="", flush=True)

        system: a message of the role system, which comes first. messages: those of a conversation that goes on.
        options: those of `generate`, for each answer unless it has others; max_tokens is 1024 by default.
        """
        return Chat(self, system, messages, options)

    def logits(self, prompt: Prompt, chat: bool = False) -> np.ndarray:
        """The logits of the token after each of the prompt's tokens: float32 of (tokens, vocabulary)."""
        tokens = self._reader.tokens(prompt, chat)
        model = self._open()
        batch = open_batch(model, BatchSize.of(self._reader.artifact, model.device, [len(tokens)], 1), self._options.threads)
        try:
            (result,) = batch.append([(batch.add(), tokens)], all_logits=True)
        except runtime().Error as error:
            raise UserError(str(error)) from None
        if isinstance(result, Exception):
            raise UserError(str(result))
        return result

    def score(self, prompt: Prompt, chat: bool = False) -> Score:
        """How likely the model finds a text of at least two tokens (a tokenizer may put the first one there)."""
        call = self._scoring(prompt, chat)
        for event, number in self._follow(call):
            call.take(event, number)
        return _score(call)

    async def ascore(self, prompt: Prompt, chat: bool = False) -> Score:
        """`score` in an event loop."""
        call = await asyncio.to_thread(self._scoring, prompt, chat)
        async for event, number in self._afollow(call):
            call.take(event, number)
        return _score(call)

    def _open(self):
        if self._loaded is None:
            raise UserError(f"{self._reader.artifact.path}: the model was closed; make another one")
        return self._loaded

    def _call(self, prompt: Prompt | Sequence[Prompt], options: CallOptions, single: bool = False) -> Call:
        """What is asked of the engine; an error is raised where there is one prompt, or has to be (`single`)."""
        self._open()
        settings, priority, deadline = _settings(options)
        if single or is_one_prompt(prompt):
            request = self._reader.request(prompt, settings)
            return Call([request], [Completion()], [0], True, priority, deadline)
        expect("prompt", prompt, isinstance(prompt, Sequence), "a text, a list of token ids, a list of messages, or a list of these")
        requests = self._reader.requests([(one, settings) for one in prompt])
        completions = [Completion(finish_reason="error", error=str(request)) for request in requests]
        places = [place for place, request in enumerate(requests) if isinstance(request, Request)]
        return Call([requests[place] for place in places], completions, places, False, priority, deadline)

    def _scoring(self, prompt: Prompt, chat: bool) -> Call:
        self._open()
        tokens = self._reader.tokens(prompt, chat)
        expect("prompt", tokens.tolist(), len(tokens) > 1, "at least two tokens, since the first one has nothing before it")
        return Call([Request(tokens, 0, Settings(), begins_text=False, is_text=False, score=0)], [Completion()], [0], True)

    def _engine_for(self, requests: Sequence[Request]) -> Engine:
        model, artifact = self._open(), self._reader.artifact
        positions = [min(self.context, _roomy(request.positions)) if request.keeps_answer else request.positions for request in requests]
        size = replace(BatchSize.of(artifact, model.device, positions, self._sequences), sequences=self._sequences)
        with self._lock:
            engine = self._engine
            if engine is None or not engine.size.holds(size):
                # What the one before it still has to do it does: it ends with the last call that uses it.
                size = size if engine is None else size.union(engine.size)
                engine = self._engine = Engine(model, artifact, self._reader, size, self._options)
        return engine

    def _follow(self, call: Call) -> Iterator[tuple[Event, int]]:
        if call.requests:
            yield from self._engine_for(call.requests).follow(call.requests, call.priority, call.deadline)

    async def _afollow(self, call: Call) -> AsyncIterator[tuple[Event, int]]:
        if call.requests:
            engine = await asyncio.to_thread(self._engine_for, call.requests)
            async with contextlib.aclosing(asynchronous.follow(engine, call.requests, call.priority, call.deadline)) as events:
                async for found in events:
                    yield found

    def _pieces(self, call: Call) -> Iterator[str]:
        for event, number in self._follow(call):
            call.take(event, number)
            if event.piece:
                yield event.piece
        call.result()

    async def _apieces(self, call: Call) -> AsyncIterator[str]:
        async with contextlib.aclosing(self._afollow(call)) as events:
            async for event, number in events:
                call.take(event, number)
                if event.piece:
                    yield event.piece
        call.result()


def _settings(options: CallOptions) -> tuple[Settings, int, float | None]:
    """And priority and deadline."""
    for name in options:
        if name not in CallOptions.__annotations__:
            raise UserError(f"found the option {name!r}, expected {', '.join(CallOptions.__annotations__)}{did_you_mean(name, CallOptions.__annotations__)}")
    options = dict(options)
    priority, timeout = options.pop("priority", 0), options.pop("timeout", None)
    expect("priority", priority, is_whole(priority), "a whole number")
    expect("timeout", timeout, timeout is None or is_number(timeout) and 0 < timeout < math.inf, "a number of seconds above 0, or None")
    return Settings(**options), int(priority), None if timeout is None else time.monotonic() + timeout


def _roomy(positions: int) -> int:
    """So many and more, so that a conversation that grows seldom needs another batch, which knows nothing of it."""
    return max(LEAST_ROOM, 1 << (positions - 1).bit_length())


def _score(call: Call) -> Score:
    return Score(call.requests[0].tokens.tolist(), call.result().prompt_logprobs[1:])
