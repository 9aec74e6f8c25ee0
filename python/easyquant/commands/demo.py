# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant demo`: a real model from its package to a report, in minutes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from easyquant.commands.bench import measure_in_turn, with_range
from easyquant.compiler.calibration import CalibrationText
from easyquant.compiler.compile import compile_model
from easyquant.compiler.driver import find_model
from easyquant.compiler.options import CompileOptions
from easyquant.demo.corpus import PACKAGE, fetch_novels
from easyquant.demo.model import fetch_model
from easyquant.evaluation.evaluate import evaluate
from easyquant.evaluation.results import Answer, Result
from easyquant.evaluation.weights import example_weights
from easyquant.formats.hub import model_name
from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.device import ThreadsOption
from easyquant.runtime.engine import Engine, EngineOptions
from easyquant.runtime.generation import Completion
from easyquant.runtime.requests import PromptReader, Settings
from easyquant.support.errors import UserError
from easyquant.support.files import cache_folder, sha256
from easyquant.support.memory import age_seconds
from easyquant.terminal import console

MODEL_TITLE = "SmolLM2-135M-Instruct"

PROMPT = "What is the capital of France, and what is it known for?"
ANSWER_TOKENS = 96
CALIBRATION_SAMPLES, CALIBRATION_LENGTH = 32, 256
ROUNDS = 5  # of speeds
WIDE = 0.15  # a range that is shown, as a share of its median


@dataclass(frozen=True)
class Variant:
    label: str
    folder: str
    how: str
    scheme: str
    method: str | None = None
    calibrated: bool = True

    def options(self, calib: Path, threads: int) -> CompileOptions:
        calibration = CalibrationText(calib, CALIBRATION_SAMPLES, CALIBRATION_LENGTH) if self.calibrated else None
        return CompileOptions(scheme=self.scheme, method=self.method, calibration=calibration, threads=threads or None, force=True)


VARIANTS = (
    Variant("float", "float", "as the model is", "none", calibrated=False),
    Variant("W8A8", "w8a8", "8-bit weights and activations", "W8A8", calibrated=False),
    Variant("Q4", "q4", "weights of 4 to 6 bits, int8 activations", "Q4"),
)


def answer_prompt(artifact: Artifact, label: str, prompt: str, threads: int) -> Answer:
    """The artifact's greedy answer."""
    reader = PromptReader(artifact)
    request = reader.request(prompt, Settings(max_tokens=ANSWER_TOKENS, chat=reader.tokenizer.has_chat_template))
    model = load_model(artifact)
    size, completion = BatchSize.of(artifact, model.device, [request.positions], 1), Completion()
    with Engine(model, artifact, reader, size, EngineOptions(threads, kept_tokens=0)) as engine, console.progress() as bar:
        task = bar.add_task(f"{label} answers", total=request.max_tokens)
        for _, _, completion in engine.complete([request]):
            bar.update(task, completed=len(completion.tokens))
    return Answer(label, completion.text.strip(), str(engine.speed))


def answers_table(prompt: str, answers: list[Answer]) -> Table:
    """Side by side."""
    table = console.table(prompt, expand=True)
    for answer in answers:
        table.add_column(answer.label, ratio=1)
    table.add_row(*(answer.text for answer in answers))
    return table


def with_wide_range(speed: dict, key: str, digits: int) -> str:
    """A median, with the range where that is wide."""
    low, high = speed[f"{key}_range"]
    return with_range(speed, key, digits) if high - low > WIDE * speed[key] else f"{speed[key]:.{digits}f}"


def results_table(results: list[Result]) -> Table:
    table = console.table("Results")
    table.add_column("artifact", style="bold")
    for heading in ("weights", "KL mean", "top-1", "perplexity", "prefill\ntokens/s", "decode\ntokens/s", "made in"):
        table.add_column(heading, justify="right")
    for result in results:
        figures, speed = result.figures, result.speed
        compared = ("", "")
        if "kl_mean" in figures:
            compared = (f"{figures['kl_mean']:.4f}", f"{figures['top1_agreement']:.1%}")
        table.add_row(
            result.label,
            console.human_bytes(result.deployed_bytes) + (" bf16" if result.is_float else ""),
            *compared,
            f"{figures['perplexity']:.2f}",
            with_wide_range(speed, "prefill_tokens_per_s", 0),
            with_wide_range(speed, "decode_tokens_per_s", 1),
            f"{result.compile_seconds:.0f} s",
        )
    return table


@console.command
def demo_command(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where artifacts and report go.")] = Path("demo-output"),
    model: Annotated[Path | None, typer.Option(metavar="MODEL", help=f"A model of your own. (default: {MODEL_TITLE} from PyPI)")] = None,
    text: Annotated[Path | None, typer.Option(metavar="FILE", help=f"The text to judge on. (default: Sense and Sensibility, from Debian's {PACKAGE})")] = None,
    calib: Annotated[Path | None, typer.Option(metavar="FILE", help="The text to calibrate on, another one. (default: Jane Austen's other five novels)")] = None,
    windows: Annotated[int, typer.Option(min=1, metavar="N", help="Windows to evaluate on.")] = 8,
    context: Annotated[int, typer.Option(min=2, metavar="N", help="Tokens a window.")] = 512,
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="What every artifact is asked.")] = PROMPT,
    threads: ThreadsOption = 0,
    cache: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where downloads are kept. (default: ~/.cache/easyquant)")] = None,
) -> None:
    """Compile SmolLM2 as float, W8A8 and Q4, judge each on real text, and write a report.

    Example: [bold]easyquant demo --output demo-output[/bold]
    """
    from easyquant.reports import report  # matplotlib is slow to load, and no other command needs it

    cache = cache or cache_folder()
    title = MODEL_TITLE if model is None else model_name(model)
    with console.err.status("fetching the model and the texts"):
        model = find_model(model or fetch_model(cache))
        if text is None or calib is None:
            novels = fetch_novels(cache)
            text, calib = text or novels.judged, calib or novels.others
    if sha256(text) == sha256(calib):
        raise UserError(f"--text {text}: is the calibration text, which is no text to judge methods on; give another one")
    console.note_new_folder(output.parent)
    output.mkdir(parents=True, exist_ok=True)

    artifacts, judged, costs = [], [], []
    for number, variant in enumerate(VARIANTS, 1):
        at = f"{number} of {len(VARIANTS)}: {variant.label}"
        console.note(f"{at}: compiling" + (f", calibrated on {calib.name}" if variant.calibrated else ""))
        cost = compile_model(model, output / variant.folder, variant.options(calib, threads))
        artifacts.append(Artifact.open(output / variant.folder))
        console.note(f"{at}: judging on {text.name}")
        reference = artifacts[0] if len(artifacts) > 1 else None
        judged.append(evaluate(artifacts[-1], text, context, windows, reference, threads=threads, title=f"judging {variant.label}"))
        costs.append(cost)
    console.note(f"measuring speed, {ROUNDS} rounds")
    prefill = min(512, artifacts[0].max_context // 2)
    decode = min(64, artifacts[0].max_context - prefill)
    speeds = measure_in_turn(artifacts, prefill, decode, threads, ROUNDS)
    results = [
        Result(variant.label, variant.folder, variant.how, variant.scheme == "none", figures, speed, cost.wall_seconds, cost.peak_rss_bytes)
        for variant, figures, speed, cost in zip(VARIANTS, judged, speeds, costs, strict=True)
    ]
    answers = [answer_prompt(artifact, variant.label, prompt, threads) for artifact, variant in zip(artifacts, VARIANTS)]

    console.out.print(results_table(results))
    console.out.print(answers_table(prompt, answers))
    page = output / "report.html"
    report.write(
        page,
        report.render(
            results,
            example_weights(artifacts, [variant.label for variant in VARIANTS]),
            answers,
            prompt=prompt,
            model=title,
            stored=", ".join(artifacts[0].manifest["source"].get("stored_types", {})),
            calib=calib.name,
            calibrated_on=f"{CALIBRATION_SAMPLES} windows of {CALIBRATION_LENGTH} tokens of {calib.name}",
            text=text.name,
            output=output,
            seconds=age_seconds(),
        ),
    )
    console.out.print(f"\n[bold]Report:[/bold] {page}   [bold]Ask on:[/bold] easyquant run {output / VARIANTS[-1].folder} --chat --prompt \"…\"")
