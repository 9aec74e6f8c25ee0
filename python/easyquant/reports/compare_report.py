# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of `easyquant compare`: one HTML file that refers to nothing outside itself."""

from itertools import groupby
from pathlib import Path

import numpy as np

from easyquant.evaluation.bounds import bound_rows, moved_bytes, smoothing_rows
from easyquant.evaluation.comparison import Finding, Variant, cache_remarks, one_cache, paired_difference, pareto, worst_rounding
from easyquant.evaluation.evaluate import CHUNK_ROWS
from easyquant.reports import compare_plots, pages
from easyquant.support.files import write_atomically

STRIPES = "Lines that run over one another are striped."


def summarize(findings: list[Finding]) -> list[str]:
    """What the numbers say: the closest variant of every scheme, and whether the next one is really worse."""
    sentences = []
    quantized = [f for f in one_cache(findings) if not f.is_float]
    for scheme in dict.fromkeys(f.variant.scheme for f in quantized):
        ranked = sorted((f for f in quantized if f.variant.scheme == scheme), key=lambda f: f.figures["kl_mean"])
        best = ranked[0]
        sentence = f"{scheme}: {best.variant.method} stays closest to the float model (mean KL divergence {best.figures['kl_mean']:.4f} nats, top-1 agreement {best.figures['top1_agreement']:.1%})"
        if len(ranked) > 1:
            difference, error = paired_difference(ranked[1], best, "kl")
            sentence += f"; {ranked[1].variant.method} follows with {ranked[1].figures['kl_mean']:.4f}"
            if error is not None:
                sentence += f", {difference:.4f} ± {error:.4f} more on the same windows"
        sentences.append(sentence + ".")
    return sentences


def _stamp(finding: Finding, comparison) -> dict[str, object]:
    stamp = dict(finding.figures["protocol"])
    for key in ("artifact", "scheme", "kv_cache", "kv_codes"):
        stamp.pop(key, None)
    p = comparison.protocol
    stamp["kv_protocol"] = f"windows in calls of {CHUNK_ROWS} tokens, over quantized caches of {p.kv_chunk}; tokens of a call attend to each other in float"
    stamp["calibration"] = f"{p.nsamples} samples of {p.seqlen} tokens, seed {p.seed}" if p.calib_sha256 else None
    stamp["group size"] = p.group_size if p.group_size is not None else "the scheme's default"
    return {key.replace("_", " "): value for key, value in stamp.items() if value is not None}


def write(
    path: Path, comparison, findings: list[Finding], skipped: list[tuple[Variant, str]], failures: list[tuple[Variant, str]],
    title: str, text: str, calib: str | None, outliers: dict[str, list[float]] | None = None,
    bounds: dict[str, dict] | None = None, bounds_failed: dict[str, str] | None = None,
) -> None:  # fmt: skip
    looks = compare_plots.Looks(findings)
    shown = [f for f in findings if f.variant.nsamples in (None, comparison.protocol.nsamples)]
    weights = one_cache(shown)
    front = {weights[i].variant for i in pareto([(f.speed["weights_bytes"], f.figures["perplexity"]) for f in weights])}
    html = pages.render(
        "compare.html.j2",
        model=title,
        text=text,
        calib=calib,
        summary=summarize(shown),
        groups=[list(group) for _, group in groupby(findings, lambda finding: finding.variant.scheme)],
        looks=looks,
        front=front,
        cache_remarks=cache_remarks(findings),
        nsamples=comparison.protocol.nsamples,
        stripes=STRIPES,
        skipped=skipped,
        failures=failures,
        roundings=[(f.variant.weights, worst) for f in weights if (worst := worst_rounding(f.sites))],
        bounds=bound_rows(bounds or {}),
        smoothings=smoothing_rows(bounds or {}),
        moved=moved_bytes(bounds or {}),
        bounds_failed=bounds_failed or {},
        bounds_left_out=list(dict.fromkeys(reason for report in (bounds or {}).values() for reason in report["left_out"])),
        site=comparison.site,
        stamp=_stamp(findings[-1], comparison),
        figures={
            "perplexity": compare_plots.perplexity(shown, looks),
            "size": compare_plots.against_bytes(shown, looks),
            "samples": compare_plots.against_samples(findings, looks),
            "layers": compare_plots.layer_errors(shown, looks),
            "weights": [] if comparison.edges is None else compare_plots.histograms(shown, comparison.edges, np.array(comparison.before), looks),
            "outliers": compare_plots.outliers(outliers) if outliers else [],
            "growth": compare_plots.growth_through_layers(bounds) if bounds else [],
            "sampling": compare_plots.sampled_scales(bounds) if bounds else [],
        },
    )
    write_atomically(path, html.encode())
