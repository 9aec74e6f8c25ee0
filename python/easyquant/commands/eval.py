# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant eval`: figures of an artifact on a text or on questions, and how they were found."""

import contextlib
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


@console.command
def eval_command(
    artifact_path: Annotated[Path, typer.Argument(metavar="OUT", help="An artifact folder.")],
    text: Annotated[Path | None, typer.Option(metavar="FILE", help="The text to be scored, UTF-8.")] = None,
    choices: Annotated[Path | None, typer.Option(metavar="FILE.jsonl", help="Multiple-choice questions instead: context, choices, answer a line.")] = None,
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
    """Measure perplexity, and how far quantization moved the model from its reference.

    Example: [bold]easyquant eval smol-w8a8 --text novels.txt --reference SmolLM2-135M --json w8a8.json[/bold]
    """
    ranks = Ranks(comm, comm_timeout)
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
            raise UserError("give either --text FILE or --choices FILE.jsonl")
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
