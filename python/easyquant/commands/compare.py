# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant compare`: every method on a user's own model, on one protocol, side by side."""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from easyquant.commands.bench import measure_apart
from easyquant.compiler.calibration import CalibrationText
from easyquant.compiler.compile import compile_model
from easyquant.compiler.driver import find_model
from easyquant.compiler.options import METHODS, CompileOptions, check_table, choices_of
from easyquant.compiler.plans import plans_of, prediction
from easyquant.compiler.statistics import calibrate
from easyquant.evaluation.bounds import bounds_tables, measure_bounds
from easyquant.evaluation.comparison import Finding, Protocol, Variant, cache_remark, cache_remarks, model_stamp, outliers_by_layer, plan, store, stored
from easyquant.evaluation.evaluate import KVProtocol, evaluate
from easyquant.evaluation.protocol import check_context
from easyquant.evaluation.weights import example_site, read_site, rounding_bound, scaled_sites
from easyquant.formats.hub import model_name
from easyquant.runtime.artifact import Artifact
from easyquant.runtime.device import ThreadsOption
from easyquant.support.errors import UserError
from easyquant.support.files import sha256, write_json
from easyquant.terminal import console
from easyquant.terminal.usage import did_you_mean

DEFAULT_METHODS = "absmax,zeropoint,symmetric,zeroquant,zeroquant+lkd,smoothquant,awq,gptq"
HISTOGRAM_BINS = 161
# Outliers are the same channels for any text: a few samples find them.
OUTLIER_SAMPLES = 8
# Bounds compare means over so many samples at most; each costs a forward pass for every scheme.
BOUND_SAMPLES = 16
# Tokens a call of an evaluation past a quantized cache: each call attends to its own tokens in float.
KV_CHUNK = 16


def split_list(option: str, text: str) -> list[str]:
    values = [value.strip() for value in text.split(",")]
    if "" in values:
        raise UserError(f"{option} {text}: has an empty entry; give names with commas between them")
    return list(dict.fromkeys(values))


def split_names(option: str, text: str, known: Iterable[str], joined: bool = False) -> list[str]:
    """`joined`: a value may be several names with + between them."""
    known, values = list(known), split_list(option, text)
    for name in (name for value in values for name in (value.split("+") if joined else [value])):
        if name not in known:
            raise UserError(f"{option} {text}: {name!r} is none of {', '.join(known)}{did_you_mean(name, known)}")
    return values


def split_counts(option: str, text: str | None) -> list[int]:
    counts = []
    for value in split_list(option, text) if text else []:
        if not value.isdecimal() or int(value) < 1:
            raise UserError(f"{option} {text}: {value!r} is no number of samples; give whole numbers with commas between them, as in 8,16,32")
        counts.append(int(value))
    return counts


def compile_options(
    variant: Variant, *, calib: Path | None, seqlen: int, seed: int, group_size: int | None, ignore: list[str], threads: int
) -> CompileOptions:  # fmt: skip
    """How a variant is made."""
    options = CompileOptions(scheme=variant.scheme, ignore=ignore, threads=threads or None, force=True)
    if variant.scheme != "none":
        options.method = variant.method
        options.group_size = group_size
    if variant.is_calibrated:
        options.calibration = CalibrationText(calib, variant.nsamples, seqlen, seed)
    if variant.kv != "none":
        options.kv_scheme = variant.kv
    return options


class Comparison:
    """Makes, judges and stores one variant after the other."""

    def __init__(
        self, model: Path, text: Path, options: Callable[[Variant], CompileOptions], folder: Path, protocol: Protocol, threads: int,
        keep: bool, reference: Artifact, reference_cost: dict,
    ):  # fmt: skip
        self.model, self.text, self.options, self.folder = model, text, options, folder
        self.protocol, self.threads, self.keep = protocol, threads, keep
        self.reference, self.reference_cost = reference, reference_cost
        self.site: str | None = None
        self.edges: np.ndarray | None = None
        self.before: list[int] | None = None

    def result_file(self, variant: Variant) -> Path:
        return self.folder / "results" / f"{variant.slug}.json"

    def artifact_folder(self, variant: Variant) -> Path:
        return self.folder / "artifacts" / variant.slug

    def look_up(self, variant: Variant) -> Finding | None:
        return Finding.load(self.result_file(variant), self.protocol.stamp(variant))

    def take_example(self, sites: list[dict]) -> None:
        """The site whose weights are shown, and the bins that all variants count them in: those of the first variant with weights to show."""
        self.site = example_site(sites) if self.site is None else self.site
        if self.site is None or self.edges is not None:
            return
        weights = read_site(self.reference, self.site)
        edge = float(np.quantile(np.abs(weights), 0.9995)) or 1.0
        self.edges = np.linspace(-edge, edge, HISTOGRAM_BINS + 1)
        self.before = np.histogram(weights, self.edges)[0].tolist()

    def measure(self, variant: Variant) -> Finding:
        output = self.artifact_folder(variant)
        is_reference = variant.scheme == "none" and variant.kv == "none"
        cost = self.reference_cost if is_reference else asdict(compile_model(self.model, output, self.options(variant)))
        artifact = self.reference if is_reference else Artifact.open(output)
        p = self.protocol
        figures = evaluate(
            artifact, self.text, p.context, p.max_windows, None if is_reference else self.reference, threads=self.threads,
            title=f"evaluating {variant.label}", 
            kv_protocol=KVProtocol.decode if variant.kv != "none" else KVProtocol.prefill, kv_chunk=p.kv_chunk if variant.kv != "none" else 1,
        )  # fmt: skip
        speed = measure_apart(artifact, p.prefill, p.decode, self.threads, p.repeats)
        histogram = None
        if variant.scheme != "none":
            self.take_example(artifact.manifest["sites"])
            if self.site is not None and self.site not in scaled_sites(artifact):
                histogram = np.histogram(read_site(artifact, self.site), self.edges)[0].tolist()
        sites = [site | {"rounding_bound": rounding_bound(artifact, site)} if site["weight"] else site for site in artifact.manifest["sites"]]
        finding = Finding(variant, figures, speed, cost, sites, histogram)
        finding.save(self.result_file(variant), p.stamp(variant))
        if not is_reference and not self.keep:
            shutil.rmtree(output)
        return finding

    def run(self, variants: list[Variant]) -> tuple[list[Finding], list[tuple[Variant, str]]]:
        """What was found, in the order of `variants`, and the variants that could not be made."""
        findings, failures = [], []
        for number, variant in enumerate(variants, 1):
            where = f"{number} of {len(variants)}: {variant.label}" + (f", {variant.nsamples} calibration samples" if variant.nsamples else "")
            finding = self.look_up(variant)
            if finding is not None:
                console.note(f"{where}: found by an earlier run")
                if finding.histogram is not None:
                    self.take_example(finding.sites)
                findings.append(finding)
                continue
            console.note(where)
            try:
                findings.append(self.measure(variant))
                # Every cache comes with the float weights first: it is said before all the others take their time.
                if findings[-1].is_float and findings[-1].is_cache_unread:
                    console.warn(cache_remark(findings[-1]))
            except UserError as error:
                if number == 1:
                    raise
                console.warn(f"{variant.label}: {error}")
                failures.append((variant, str(error)))
        return findings, failures


def bounds_of(comparison: Comparison, calib: Path, schemes: list[str]) -> tuple[dict[str, dict], dict[str, str]]:
    """What `equant-measure-bounds` reports of each scheme, and why it does not of others; stored reports of the same protocol are not made again."""
    reports, failures = {}, {}
    p = comparison.protocol
    calibration = CalibrationText(calib, min(p.nsamples, BOUND_SAMPLES), p.seqlen, p.seed)
    for scheme in schemes:
        file = comparison.folder / "results" / f"bounds-{scheme.lower()}.json"
        stamp = p.stamp(Variant("bounds", scheme))
        found = stored(file, stamp)
        if found is None:
            console.note(f"bounds of {scheme}")
            try:
                found = measure_bounds(comparison.model, calibration, scheme, p.group_size, list(p.ignore), comparison.folder / "artifacts" / "bounds.json", comparison.threads)
            except UserError as error:
                console.warn(f"bounds of {scheme}: {error}")
                failures[scheme] = str(error)
                continue
            store(file, stamp, found)
        reports[scheme] = found
    return reports, failures


def outliers_of(model: Path, calibration: CalibrationText, folder: Path, threads: int) -> dict[str, list[float]]:
    """The outliers of the model's activations; statistics that are there with the right stamp are not gathered again."""
    statistics = folder / "statistics.safetensors"
    calibrate(model, calibration, statistics, ["absmax"], [], folder / "artifacts" / "calibration", threads)
    return outliers_by_layer(statistics)


def results_table(findings: list[Finding]) -> Table:
    table = console.table("Comparison")
    table.add_column("variant", style="bold")
    headings = ("samples", "perplexity", "loss\nincrease", "KL mean", "top-1", "weights", "KV bytes\na token", "prefill\ntokens/s", "decode\ntokens/s", "quantized\nin", "peak\nmemory")
    for heading in headings:
        table.add_column(heading, justify="right")
    for finding in findings:
        f, speed = finding.figures, finding.speed
        error = f["perplexity_stderr"]
        compared = ("", "", "")
        if "kl_mean" in f:
            spread = f["loss_increase_stderr"]
            compared = (f"{f['loss_increase']:+.4f}" + (f" ± {spread:.4f}" if spread is not None else ""), f"{f['kl_mean']:.4f}", f"{f['top1_agreement']:.1%}")
        table.add_row(
            finding.label + (" *" if "kv_codes_share" in f else ""),
            str(finding.variant.nsamples or ""),
            f"{f['perplexity']:.3f}" + ("" if error is None else f" ± {error:.2f}"),
            *compared,
            console.human_bytes(speed["weights_bytes"]),
            f"{speed['cache_bytes_per_token']:,}",
            f"{speed['prefill_tokens_per_s']:.0f}",
            f"{speed['decode_tokens_per_s']:.1f}",
            f"{finding.cost['wall_seconds']:.1f} s",
            console.human_bytes(finding.cost["peak_rss_bytes"]),
        )
    return table


def print_plan(model: Path, variants: list[Variant], options: Callable[[Variant], CompileOptions], skipped: list[tuple[Variant, str]]) -> None:
    table = console.table(f"{len(variants)} variants")
    for heading in ("method", "scheme", "KV cache", "calibration samples", "quantized sites", "weights", "peak memory*", "time to make"):
        table.add_column(heading)
    for variant in variants:
        wanted = options(variant)
        plans = plans_of(model, wanted)
        predicted = prediction(plans, wanted)
        sites = f"{sum(site['weight'] is not None for site in plans.sites)} of {len(plans.sites)}"
        table.add_row(variant.method, variant.scheme, variant.kv, str(variant.nsamples or "none needed"), sites,
                      console.human_bytes(predicted.weight_bytes), console.human_bytes(predicted.memory_bytes), predicted.time)  # fmt: skip
    console.out.print(table)
    console.out.print("* beside the model's own pages; all predictions are rough, and judging is not in the time", markup=False, soft_wrap=True)
    for variant, reason in skipped:
        console.out.print(f"left out: {variant.label}: {reason}", markup=False, soft_wrap=True)


@console.command
def compare_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A Hugging Face folder (safetensors, config.json) or a GGUF file.")],
    text: Annotated[Path, typer.Option(metavar="FILE", help="The text to judge on, UTF-8.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="REPORT", help="The folder for the report and what it is made of.")],
    methods: Annotated[str, typer.Option(metavar="LIST", help="Methods, with commas between them; + composes.")] = DEFAULT_METHODS,
    schemes: Annotated[str, typer.Option(metavar="LIST", help="Schemes, with commas between them.")] = "W8A8,W4A16,W3A16",
    kv_schemes: Annotated[str, typer.Option(metavar="LIST", help=f"KV caches: {', '.join(choices_of('kv-scheme'))}.")] = "none",
    calib: Annotated[Path | None, typer.Option(metavar="FILE", help="Calibration text, UTF-8: not the one to judge on.")] = None,
    nsamples: Annotated[int, typer.Option(min=1, metavar="N", help="Calibration samples.")] = 64,
    seqlen: Annotated[int, typer.Option(min=2, metavar="N", help="Tokens of a calibration sample.")] = 1024,
    seed: Annotated[int, typer.Option(metavar="S", help="Which samples of the calibration text.")] = 0,
    nsamples_sweep: Annotated[str | None, typer.Option(metavar="LIST", help="Calibrate also with these numbers of samples, as 8,16,32.")] = None,
    group_size: Annotated[int | None, typer.Option(min=0, metavar="N", help="Weights that share a scale. (default: the scheme's)")] = None,
    ignore: Annotated[list[str], typer.Option(metavar="P", help="Sites to leave float: a name or re:PATTERN. Repeatable.")] = [],
    context: Annotated[int | None, typer.Option(metavar="N", help="Tokens a window. (default: as `eval`)")] = None,
    max_windows: Annotated[int | None, typer.Option(min=1, metavar="N", help="Score only the first N windows.")] = None,
    threads: ThreadsOption = 0,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Speed measurements to take the median of.")] = 3,
    keep_artifacts: Annotated[bool, typer.Option("--keep-artifacts", help="Keep every artifact in REPORT/artifacts.")] = False,
    with_bounds: Annotated[bool, typer.Option("--bounds", help="Measure errors of round to nearest beside their bounds, too, on the text of --calib.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the variants with predicted bytes, memory and time, and stop.")] = False,
) -> None:
    """Try quantization methods on a model, judge them on one protocol, and write a report.

    A run that was stopped goes on where it was: give the same command again.

    Example: [bold]easyquant compare SmolLM2-135M --methods absmax,awq,gptq --schemes W4A16 --calib novels.txt --text wiki.txt -o report[/bold]
    """
    from easyquant.reports import compare_report  # matplotlib is slow to load

    check_table()
    model = find_model(model)
    for option, file in (("--text", text), ("--calib", calib)):
        if file is not None and not file.is_file():
            raise UserError(f"{option} {file}: there is no such file; expected a text in UTF-8")
    sweep = split_counts("--nsamples-sweep", nsamples_sweep)
    variants, skipped = plan(
        split_names("--methods", methods, METHODS, joined=True), split_names("--schemes", schemes, choices_of("scheme")),
        split_names("--kv-schemes", kv_schemes, choices_of("kv-scheme")), nsamples, sweep,
    )  # fmt: skip
    if with_bounds and calib is None:
        raise UserError("--bounds: errors are measured on text; give --calib FILE")
    if calib is None and (needs := next((v for v in variants if v.is_calibrated), None)):
        raise UserError(f"--calib FILE is missing: {needs.method} reads calibration text")
    options = partial(compile_options, calib=calib, seqlen=seqlen, seed=seed, group_size=group_size, ignore=ignore, threads=threads)
    if dry_run:
        return print_plan(model, variants, options, skipped)

    console.note_new_folder(output.parent)
    for folder in (output, output / "results", output / "artifacts"):
        folder.mkdir(parents=True, exist_ok=True)
    # Anew in every run: what an earlier one left may be of another model, and all others are compared with it.
    folder = output / "artifacts" / variants[0].slug
    reference_cost = asdict(compile_model(model, folder, CompileOptions(scheme="none", threads=threads or None, force=True)))
    reference = Artifact.open(folder)
    context = check_context(reference, context)
    protocol = Protocol(
        model=model_stamp(reference), text_sha256=sha256(text), calib_sha256=sha256(calib) if calib else None, context=context,
        max_windows=max_windows, nsamples=nsamples, seqlen=seqlen, seed=seed, group_size=group_size, ignore=tuple(ignore),
        kv_chunk=KV_CHUNK, prefill=min(512, reference.max_context // 2), decode=min(64, reference.max_context // 2), repeats=repeats,
    )  # fmt: skip
    comparison = Comparison(model, text, options, output, protocol, threads, keep_artifacts, reference, reference_cost)
    findings, failures = comparison.run(variants)

    console.out.print(results_table(findings))
    for remark in cache_remarks(findings):
        console.out.print(f"* {remark}", markup=False, soft_wrap=True)
    for variant, reason in skipped:
        console.out.print(f"left out: {variant.label}: {reason}", markup=False, soft_wrap=True)
    bounds, bounds_failed = {}, {}
    if with_bounds:
        bounds, bounds_failed = bounds_of(comparison, calib, list(dict.fromkeys(v.scheme for v in variants if v.scheme != "none")))
    for table in bounds_tables(bounds) if bounds else []:
        console.out.print(table)
    write_json(
        output / "comparison.json",
        {
            "protocol": asdict(protocol),
            "findings": [asdict(finding) for finding in findings],
            "left_out": [asdict(variant) | {"reason": reason} for variant, reason in skipped],
            "failed": [asdict(variant) | {"reason": reason} for variant, reason in failures],
            "bounds": bounds,
            "bounds_failed": bounds_failed,
        },
    )
    outliers = outliers_of(model, CalibrationText(calib, min(nsamples, OUTLIER_SAMPLES), seqlen, seed), output, threads) if calib else None
    compare_report.write(output / "report.html", comparison, findings, skipped, failures, title=model_name(model), text=text.name, calib=calib.name if calib else None, outliers=outliers, bounds=bounds, bounds_failed=bounds_failed)
    if not keep_artifacts:
        shutil.rmtree(output / "artifacts")
    console.out.print(f"\n[bold]Report:[/bold] {output / 'report.html'}")
    if failures:
        raise UserError(f"{len(failures)} of {len(variants)} variants could not be made: " + "; ".join(f"{variant.label}: {reason}" for variant, reason in failures))
