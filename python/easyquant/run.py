# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant run`: an artifact continues a prompt."""

import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from easyquant import console
from easyquant.artifact import Artifact, load_model, open_session
from easyquant.device import Device, DeviceOption, Placement, SimtChipOption, ThreadsOption
from easyquant.errors import UserError
from easyquant.extension import runtime
from easyquant.sampling import Sampler
from easyquant.tokenizer import load_tokenizer


@dataclass
class Speed:
    """Of one generation, filled in while it runs."""

    prompt_tokens: int = 0
    prefill_seconds: float = 0.0
    new_tokens: int = 0
    decode_steps: int = 0
    decode_seconds: float = 0.0

    def __str__(self) -> str:
        text = f"{self.prompt_tokens} prompt tokens"
        if self.prefill_seconds > 0:
            text += f" at {self.prompt_tokens / self.prefill_seconds:.0f} tokens/s"
        text += f", {self.new_tokens} new"
        if self.decode_steps and self.decode_seconds > 0:
            text += f" at {self.decode_steps / self.decode_seconds:.1f} tokens/s"
        return text


def generate(session, prompt: list[int], limit: int, sampler: Sampler, stop: set[int], speed: Speed | None = None) -> Iterator[int]:
    """Yields up to `limit` new tokens; ends before a token of `stop`. The session starts empty."""
    speed = speed if speed is not None else Speed()
    speed.prompt_tokens = len(prompt)
    begin = time.perf_counter()
    with console.late_progress("reading the prompt") as progress:
        session.prefill(np.asarray(prompt, dtype=np.int32), progress=progress)
    speed.prefill_seconds = time.perf_counter() - begin
    for index in range(limit):
        token = sampler(session.logits)
        if token in stop:
            return
        speed.new_tokens += 1
        yield token
        if index + 1 == limit:
            return
        begin = time.perf_counter()
        session.decode(token)
        speed.decode_seconds += time.perf_counter() - begin
        speed.decode_steps += 1


def stop_tokens(artifact: Artifact) -> set[int]:
    return {int(token) for token in artifact.model.get("eos_token_ids", [])}


@console.command
def run_command(
    artifact_path: Annotated[Path, typer.Argument(metavar="OUT", help="An artifact folder.")],
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="What to continue; - reads it from standard input.")],
    max_new_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Stop after so many tokens.")] = 128,
    temperature: Annotated[float, typer.Option(metavar="T", help="0 takes the most likely token.")] = 0.0,
    top_p: Annotated[float, typer.Option(metavar="P", help="Sample from the most likely tokens of this total probability.")] = 1.0,
    seed: Annotated[int | None, typer.Option(min=0, metavar="S", help="Equal seeds give equal texts. (default: random)")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a message; use the model's chat template.")] = False,
    threads: ThreadsOption = 0,
    device: DeviceOption = Device.auto,
    simt_chip: SimtChipOption = None,
) -> None:
    """Let an artifact continue a prompt, token by token.

    Example: [bold]easyquant run smol-w8a8 --prompt "Once upon a time" --max-new-tokens 64[/bold]
    """
    artifact = Artifact.open(artifact_path)
    if prompt == "-":
        prompt = sys.stdin.read()
    if temperature > 0 and seed is None:
        seed = secrets.randbelow(2**32)
        console.note(f"seed {seed}")
    sampler = Sampler(temperature, top_p, seed or 0)
    tokenizer = load_tokenizer(artifact.path, artifact.model["vocab_size"])
    tokens = tokenizer.encode_chat([{"role": "user", "content": prompt}]) if chat else tokenizer.encode(prompt)
    bos = artifact.model.get("bos_token_id")
    if not tokens and bos is not None:
        tokens = [int(bos)]
    if not tokens:
        raise UserError("--prompt: the text holds no token; give at least one")
    room = artifact.max_context - len(tokens) + 1
    if room < 1:
        raise UserError(f"--prompt: {len(tokens)} tokens, but the context of {artifact_path} is {artifact.max_context}; shorten the prompt")
    model = load_model(artifact, place=Placement.of(device, simt_chip))
    limit = min(max_new_tokens, room)
    session = open_session(model, context=min(artifact.max_context, len(tokens) + limit), threads=threads)
    speed = Speed()
    stream = tokenizer.stream(at_start=chat or not prompt)
    write = sys.stdout.write
    shown = chat  # a prompt that is continued is written with the first token: its progress has the line until then
    try:
        for token in generate(session, tokens, limit, sampler, stop_tokens(artifact), speed):
            write(stream.push(token) if shown else prompt + stream.push(token))
            shown = True
            sys.stdout.flush()
    except runtime().Error as error:
        raise UserError(str(error)) from None
    write(("" if shown else prompt) + stream.finish() + "\n")
    if speed.new_tokens == limit < max_new_tokens:
        console.warn(f"stopped after {limit} tokens: the context of {artifact.max_context} tokens is full")
    console.note(str(speed))
