# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant eval`: figures of an artifact on a text, on questions or on tasks of lm-eval, and how they were found."""

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from easyquant.evaluation.evaluate import CHUNK_ROWS, KVProtocol, evaluate, evaluate_choices, reference_artifact
from easyquant.evaluation.protocol import check_context
from easyquant.formats import hub
from easyquant.runtime.artifact import Artifact
from easyquant.runtime.device import Device, DeviceOption, Placement, SimtChipOption, ThreadsOption
from easyquant.runtime.ranks import ALONE, Comm, CommOption, CommTimeoutOption, Ranks
from easyquant.support.errors import UserError
from easyquant.support.files import check_writable, write_json
from easyquant.terminal import console


def with_error(value: float, error: float | None, digits: int = 4) -> str:
    return f"{value:.{digits}f}" if error is None else f"{value:.{digits}f} ± {error:.{digits}f}"


def share(value: float, interval: list[float]) -> str:
    return f"{value:.2%} (95 %: {interval[0]:.2%} to {interval[1]:.2%})"


def print_result(result: dict) -> None:
    table = console.pairs()
    if "accuracy" in result:
        table.add_row("accuracy", share(result["accuracy"], result["accuracy_interval95"]))
        table.add_row("accuracy, per byte", share(result["accuracy_normalized"], result["accuracy_normalized_interval95"]))
        table.add_row("questions", f"{result['questions']:,}")
    else:
        table.add_row("perplexity", with_error(result["perplexity"], result["perplexity_stderr"]))
    table.add_row("tokens scored", f"{result['tokens_scored']:,}")
    if "kl_mean" in result:
        table.add_row("reference perplexity", f"{result['reference_perplexity']:.4f}")
        table.add_row("loss increase", with_error(result["loss_increase"], result["loss_increase_stderr"], 5) + " nats a token")
        table.add_row("KL divergence, mean", f"{result['kl_mean']:.5f} nats")
        table.add_row("KL divergence, 99th percentile", f"{result['kl_p99']:.5f} nats")
        table.add_row("top-1 agreement", share(result["top1_agreement"], result["top1_agreement_interval95"]))
        table.add_row("largest logit difference", f"{result['max_logit_difference']:.3f}")
    console.out.print(table)
    console.out.print()
    console.out.print("Protocol", style="bold")
    stamp = console.pairs(style="dim")
    for key, value in result["protocol"].items():
        if value is not None:
            stamp.add_row(key.replace("_", " "), str(value))
    console.out.print(stamp)


def evaluate_tasks(artifact: Path, tasks: str, include: list[Path], shots: int | None, limit: int | None, chat: bool, context: int, threads: int, place: Placement) -> dict:
    """What lm-eval says of an artifact, with nothing fetched."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):  # before the libraries look for them
        os.environ.setdefault(name, "1")
    try:
        from easyquant.evaluation.lm_eval_model import run_tasks
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("lm_eval", "datasets"):
            raise
        raise UserError("--tasks: needs lm-eval; install the extra lm-eval (pip install '.[lm-eval]' in a checkout of EasyQuant)") from None
    names = [name for name in tasks.split(",") if name]
    for name in names:
        if name.endswith((".yaml", ".yml")) and not Path(name).is_file():
            raise UserError(f"--tasks {name}: there is no such file")
    return run_tasks(artifact, names, include, shots, limit, chat, context=context, threads=threads, device=place.device)


def print_tasks(found: dict) -> None:
    table = console.table("")
    for heading in ("task", "metric", "value"):
        table.add_column(heading)
    for task, figures in found["results"].items():
        for name, value in figures.items():
            metric, _, kind = name.partition(",")
            if kind and not metric.endswith("_stderr") and isinstance(value, (int, float)):
                error = figures.get(f"{metric}_stderr,{kind}")
                table.add_row(task, metric if kind == "none" else f"{metric} ({kind})", with_error(value, error if isinstance(error, (int, float)) else None))
    console.out.print(table)


@console.command
def eval_command(
    artifact_path: Annotated[Path, typer.Argument(metavar="OUT", help="An artifact folder.")],
    text: Annotated[Path | None, typer.Option(metavar="FILE", help="The text to be scored, UTF-8.")] = None,
    choices: Annotated[Path | None, typer.Option(metavar="FILE.jsonl", help="Multiple-choice questions instead: context, choices, answer a line.")] = None,
    tasks: Annotated[str | None, typer.Option(metavar="TASKS", help="Tasks of lm-eval instead, with commas between: names, or YAML files of your own.")] = None,
    include_path: Annotated[list[Path] | None, typer.Option(metavar="DIR", help="With --tasks: a folder of tasks' YAML files; may be given several times.")] = None,
    num_fewshot: Annotated[int | None, typer.Option(min=0, metavar="N", help="With --tasks: examples in the prompt. (default: the task's)")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="With --tasks: only the first N questions of each.")] = None,
    apply_chat_template: Annotated[bool, typer.Option("--apply-chat-template", help="With --tasks: put the model's chat template around prompts.")] = False,
    context: Annotated[int | None, typer.Option(metavar="N", help="Tokens a window. (default: 1024 for GPT-2, else 2048, or what the model supports)")] = None,
    max_windows: Annotated[int | None, typer.Option(min=1, metavar="N", help="Score only the first N windows.")] = None,
    reference: Annotated[Path | None, typer.Option(metavar="MODEL_OR_ARTIFACT", help="Compare with an artifact, or with the float form of a model.")] = None,
    bos: Annotated[bool, typer.Option("--bos", help="Put the beginning-of-text token once before the text.")] = False,
    split: Annotated[str, typer.Option(metavar="NAME", help="Name of the corpus' split, for the protocol stamp.")] = "whole file",
    threads: ThreadsOption = 0,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write figures and protocol here as well.")] = None,
    kv_protocol: Annotated[KVProtocol, typer.Option(help="Feed windows in large chunks, or token by token, so that a quantized KV cache is attended to.")] = KVProtocol.prefill,
    kv_chunk: Annotated[int, typer.Option(min=1, max=CHUNK_ROWS, metavar="N", help="Tokens a call with --kv-protocol decode.")] = 1,
    device: DeviceOption = Device.auto,
    simt_chip: SimtChipOption = None,
    comm: CommOption = Comm.auto,
    comm_timeout: CommTimeoutOption = None,
) -> None:
    """Measure perplexity, accuracy, and how far quantization moved the model from its reference.

    Example: [bold]easyquant eval smol-w8a8 --text novels.txt --reference SmolLM2-135M --json w8a8.json[/bold]
    """
    ranks = Ranks(comm, comm_timeout)
    given = {"--include-path": include_path, "--num-fewshot": num_fewshot, "--limit": limit, "--apply-chat-template": apply_chat_template or None}
    if tasks is not None:
        others = {"--text": text, "--choices": choices, "--max-windows": max_windows, "--reference": reference, "--bos": bos or None}
        for option, value in others.items():
            if value is not None:
                raise UserError(f"{option}: does not go with --tasks")
        if not ranks.rank:
            check_writable(json_file)
            found = evaluate_tasks(artifact_path, tasks, include_path or [], num_fewshot, limit, apply_chat_template, context or 0, threads, Placement.of(device, simt_chip))
            if json_file:
                write_json(json_file, found)
            print_tasks(found)
        return
    for option, value in given.items():
        if value is not None:
            raise UserError(f"{option}: goes with --tasks")
    if choices is not None:  # they are few: rank 0 answers them
        if ranks.rank:
            return
        ranks = ALONE
    with ranks.joined() as joined, contextlib.ExitStack() as stack:
        artifact = Artifact.open(artifact_path)
        place = Placement.of(device, simt_chip)
        if joined.rank == 0:
            check_writable(json_file)
        check_context(artifact, context)
        if (text is None) == (choices is None):
            raise UserError("give one of --text FILE, --choices FILE.jsonl and --tasks NAMES")
        if kv_chunk != 1 and kv_protocol != KVProtocol.decode:
            raise UserError("--kv-chunk: goes with --kv-protocol decode")
        if choices is not None and kv_protocol != KVProtocol.prefill:
            raise UserError("--kv-protocol: goes with --text; choices are read in one chunk")
        if choices is not None and reference is not None:
            raise UserError("--reference: goes with --text; evaluate the reference itself with --choices")
        for option, file in (("--text", text), ("--choices", choices)):
            if file is not None and not file.is_file():
                raise UserError(f"{option} {file}: there is no such file; expected a text in UTF-8")
        if reference is not None and not hub.locate(reference).exists():
            raise UserError(
                f"--reference {reference}: there is no such artifact or model; expected an artifact, a Hugging Face folder or a GGUF file{hub.download_hint(reference)}"
            )
        other = stack.enter_context(reference_artifact(reference)) if reference is not None else None
        if choices is not None:
            result = evaluate_choices(artifact, choices, context, split, threads, place)
        else:
            result = evaluate(
                artifact, text, context, max_windows, other, bos, split, threads, kv_protocol=kv_protocol, kv_chunk=kv_chunk, place=place, joined=joined
            )
    if ranks.rank:
        return
    if json_file:
        write_json(json_file, result)
    print_result(result)
    if result.get("kv_codes_share") == 0:
        console.warn(f"KV cache: {result['protocol']['kv_codes']}; give a longer --context, or --kv-protocol decode")
