# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant run`: a model continues a prompt, or a file of prompts."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from easyquant.commands import forms, models
from easyquant.commands.prompts import Way, answer_prompts
from easyquant.runtime.artifact import BatchSize, load_model
from easyquant.runtime.device import Device, DeviceOption, Placement, SimtChipOption, ThreadsOption
from easyquant.runtime.engine import KEPT_STATES, STEP_MS, Engine, EngineOptions
from easyquant.runtime.generation import Completion
from easyquant.runtime.requests import PromptReader, Settings
from easyquant.support.errors import UserError
from easyquant.terminal import console
from easyquant.terminal.usage import Command


def continue_prompt(reader: PromptReader, prompt: str, settings: Settings, place: Placement, options: EngineOptions) -> None:
    """Writes it and what comes after it to standard output, as it comes; an answer within a grammar alone."""
    artifact, request = reader.artifact, reader.request(prompt, settings)
    if settings.temperature > 0 and settings.seed is None:
        console.note(f"seed {request.settings.seed}")
    model = load_model(artifact, place=place)
    size, completion = BatchSize.of(artifact, model.device, [request.positions], 1), Completion()
    # A prompt that is continued is written with the first token: its progress has the line until then.
    unwritten = "" if settings.chat or request.grammar else prompt
    with Engine(model, artifact, reader, size, options) as engine, contextlib.ExitStack() as reading:
        progress = reading.enter_context(console.late_progress("reading the prompt"))
        for event, _ in engine.follow([request]):
            completion = event.completion
            if not (completion.tokens or completion.finish_reason):
                progress(event.read, len(request.tokens))
                continue
            reading.close()
            sys.stdout.write(unwritten + event.piece)
            sys.stdout.flush()
            unwritten = ""
    if completion.error:
        raise UserError(completion.error)
    sys.stdout.write("\n")
    if len(completion.tokens) == request.max_tokens < settings.max_tokens:
        console.warn(f"stopped after {request.max_tokens} tokens: the context of {reader.context} tokens is full")
    elif request.grammar and completion.finish_reason == "length":
        console.warn(f"the answer is not whole: it was cut after {request.max_tokens} tokens; --max-new-tokens allows more")
    if reader.is_unanswered(request, completion.text):
        console.warn(f"the prompt got no answer: {artifact.path} is a chat model, and saw it without its template; --chat puts it around the prompt")
    console.note(str(engine.speed))


def _read_bias(entries: list[str]) -> dict[str, float]:
    bias = {}
    for entry in entries:
        token, equals, shift = entry.partition("=")
        try:
            bias[token] = float(shift)
        except ValueError:
            equals = ""
        if not equals:
            raise UserError(f"--logit-bias {entry}: expected a token id, = and a number, such as 42=-5")
    return bias


class RunCommand(Command):
    groups = models.groups({
        "Prompts": ("--prompt", "--prompts", "--output", "--batch", "--chat"),
        "Answers": ("--max-new-tokens", "--stop", "--temperature", "--top-k", "--top-p", "--min-p", "--seed", "--logprobs"),
        "Form of answers": ("--json-schema", "--regex"),
        "Penalties": ("--repetition-penalty", "--presence-penalty", "--frequency-penalty", "--logit-bias"),
        "Where it runs": ("--speculate", "--draft-tokens", "--kept-states", "--threads", "--step-ms", "--device", "--simt-chip"),
    })  # fmt: skip


@console.command
@models.takes_models
def run_command(
    model: models.ModelArgument,
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="What to continue; - reads it from standard input.")] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Continue many prompts at a time: each line of FILE is a JSON text, or an object with "prompt" and, as it likes, "id" and options of its own, '
            "such as max_tokens, temperature, seed, stop, chat. The results are lines of JSON in the same order; - reads standard input.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o",
            metavar="FILE",
            help="Where the results of --prompts go, once all are there; the same command goes on with what was interrupted. (default: standard output)",
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, metavar="N", help="Prompts of --prompts at a time. (default: 16)")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Stop after so many tokens.")] = Settings.max_tokens,
    temperature: Annotated[float, typer.Option(min=0.0, metavar="T", help="0 takes the most likely token.")] = Settings.temperature,
    top_k: Annotated[int, typer.Option(min=0, metavar="K", help="Sample from so many of the most likely tokens; 0: from all.")] = Settings.top_k,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, metavar="P", help="Sample from the most likely tokens of this total probability.")] = Settings.top_p,
    min_p: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="P", help="Sample from tokens that are at least so likely beside the most likely one.")
    ] = Settings.min_p,
    repetition_penalty: Annotated[
        float, typer.Option(metavar="F", help="Above 1: tokens of the prompt and the answer become less likely (logits above 0 are divided by it).")
    ] = Settings.repetition_penalty,
    presence_penalty: Annotated[float, typer.Option(metavar="X", help="Taken off the logits of tokens that the answer has.")] = Settings.presence_penalty,
    frequency_penalty: Annotated[
        float, typer.Option(metavar="X", help="Taken off the logits of tokens once for each time that the answer has them.")
    ] = Settings.frequency_penalty,
    logit_bias: Annotated[
        list[str] | None, typer.Option(metavar="ID=X", help="Add X to the logit of the token of this id (-1e6 forbids it); may be given several times.")
    ] = None,
    logprobs: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="With --prompts: log-probabilities of tokens, with the N most likely ones in the place of each."),
    ] = Settings.logprobs,
    seed: Annotated[int | None, typer.Option(min=0, metavar="S", help="Equal seeds give equal texts. (default: random, each prompt another one)")] = Settings.seed,
    stop: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="End before this text; may be given several times.")] = None,
    json_schema: forms.JsonSchemaOption = None,
    regex: forms.RegexOption = None,
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a message; use the model's chat template.")] = Settings.chat,
    step_ms: Annotated[
        float | None, typer.Option(min=0.0, metavar="MS", help=f"With --prompts: read prompts in pieces that let a step take so long. (default: {STEP_MS})")
    ] = None,
    speculate: models.SpeculateOption = None,
    draft_tokens: models.DraftTokensOption = None,
    kept_states: models.KeptStatesOption = KEPT_STATES,
    threads: ThreadsOption = 0,
    device: DeviceOption = Device.auto,
    simt_chip: SimtChipOption = None,
    calib: models.CalibOption = None,
    **given,
) -> None:
    """Let a model continue a prompt, token by token, or many at once.

    Example: [bold]easyquant run smol-w8a8 --prompt "Once upon a time" --max-new-tokens 64[/bold]

    Example: [bold]easyquant run smol-w8a8 --prompts questions.jsonl --chat -o answers.jsonl[/bold]

    Example: [bold]easyquant run smol-w8a8 --chat --prompt "Invent a person." --json-schema person.json[/bold]
    """
    if (prompt is None) == (prompts is None):
        raise UserError("give either --prompt TEXT or --prompts FILE.jsonl")
    for option, value in (("--output", output), ("--batch", batch), ("--logprobs", logprobs), ("--step-ms", step_ms)):
        if prompts is None and value is not None:
            raise UserError(f"{option}: goes with --prompts")
    form = forms.response_format(json_schema, regex)
    try:
        settings = Settings(
            max_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            logit_bias=_read_bias(logit_bias or []),
            seed=seed,
            stop=tuple(stop or ()),
            logprobs=logprobs,
            response_format=form,
            chat=chat,
        )
    except UserError as error:
        field, _, rest = str(error).partition(":")
        raise UserError(f"--{field.replace('_', '-')}:{rest}") from None
    reader, place = PromptReader(models.artifact_of(model, calib, given)), Placement.of(device, simt_chip)
    forms.check_form(reader, form)
    speculation = models.speculation(speculate, draft_tokens)
    if prompts is not None:
        options = EngineOptions(threads, STEP_MS if step_ms is None else step_ms, kept_states=kept_states, speculation=speculation)
        answer_prompts(reader, prompts, output, settings, Way(batch or 16, place, options))
    else:
        continue_prompt(reader, sys.stdin.read() if prompt == "-" else prompt, settings, place, EngineOptions(threads, kept_tokens=0, speculation=speculation))
