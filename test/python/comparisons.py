# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Findings and bounds as `easyquant compare` stores them, and its page made of them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from easyquant.evaluation.comparison import Finding, Protocol, Variant
from easyquant.reports import compare_report

PROTOCOL = Protocol(
    model="m", text_sha256="t", calib_sha256="c", context=64, max_windows=2, nsamples=8, seqlen=32, seed=0, group_size=None,
    ignore=(), kv_chunk=16, prefill=16, decode=4, repeats=1,
)  # fmt: skip


def finding(variant: Variant, perplexity: float, megabytes: float, kl: float | None, layers: int = 2) -> Finding:
    figures = {"perplexity": perplexity, "perplexity_stderr": 0.5, "tokens_scored": 100, "windows": {"loss": [3.0, 3.1, 3.2]}}
    if kl is not None:
        figures |= {
            "loss_increase": 0.01, "loss_increase_stderr": 0.002, "kl_mean": kl, "kl_p99": 0.4, "top1_agreement": 0.91,
            "top1_agreement_interval95": [0.9, 0.92], "max_logit_difference": 1.0,
        }  # fmt: skip
        figures["windows"] |= {"kl": [kl * 0.9, kl, kl * 1.1], "top1": [0.9, 0.91, 0.92]}
    if variant.kv != "none":
        figures["kv_codes_share"] = 0.0 if variant.kv == "int8" else 0.5
    figures["protocol"] = {"cpu": "A CPU", "isa": "avx2", "threads": 2, "windows": 4, "context": 8, "artifact": "x", "reference": None}
    if variant.kv != "none":
        figures["protocol"]["kv_codes"] = "nothing was quantized: <short>" if variant.kv == "int8" else "50% of the tokens attended to codes"
    speed = {"weights_bytes": int(megabytes * 1e6), "cache_bytes_per_token": 128, "prefill_tokens_per_s": 100.0, "decode_tokens_per_s": 10.0}
    sites = [
        {"name": f"model.layers.{layer}.mlp.down_proj", "out_features": 4, "in_features": 8, "weight": {"bits": 4},
         "weight_error": 0.1 + layer, "largest_error": 0.2, "rounding_bound": 0.25 + layer}
        for layer in range(layers)
    ]
    histogram = None if kl is None else list(range(161))
    return Finding(variant, figures, speed, {"wall_seconds": 1.5, "cpu_seconds": 2.0, "peak_rss_bytes": 1000}, sites if kl else [], histogram)


def pair(measured: float, bound: float, **where) -> dict:
    return {"measured": measured, "bound": bound, "share": measured / bound if bound else None if measured else 0.0} | where


def bounds_report(scale: float, smooths: bool) -> dict:
    """As easyquant-measure-bounds writes it."""
    cache = [pair(0.4 * layer + 0.1 / bits, 1.0, layer=layer, bits=bits, tensor=tensor) for layer in (0, 1) for bits in (8, 4, 2) for tensor in ("keys", "values")]
    smoothing = {"sites": ["a", "b"], "best_mean": 0.4, "best_least": 0.2, "best_greatest": 0.7, "searched": 0.55, "error_best": 2.0, "error_searched": 3.0, "error_plain": 40.0}
    return {
        "samples": 2, "all_samples": 4, "rows": 32, "risk": 0.05,
        "weights": [pair(0.25 * scale, 0.5, site="up"), pair(0.2 * scale, 0.25, site="down")],
        "outputs": [pair(0.1, 4.0, site="up"), pair(3.0, 2.0, site="gate")],
        "layers": [pair(1.0, 1.0, layer=0), pair(1.5, 3.0, layer=1), pair(2.0, 8.0, layer=2)],
        "keys_values": cache,
        "sampling": [pair(0.1 / n, 1.0 / n, samples=n, sites=["up", "gate"]) for n in (1, 2)],
        "smoothing": [smoothing, smoothing | {"sites": ["c"], "error_searched": 2.1}] if smooths else [],
        "bytes_per_token": [{"site": "up", "fused": 1000, "separate": 3000}, {"site": "down", "fused": 500, "separate": 600}],
        "left_out": ["keys and values: a <reason>"],
    }


BOUNDS = {"W8A8": bounds_report(1.0, True), "W4A16": bounds_report(1.3, False)}


def page_of(folder, findings: list[Finding], skipped=(), failures=(), bounds=BOUNDS, outliers=None, **failed) -> str:
    """The text of the page; 64 calibration samples are the usual number."""
    comparison = SimpleNamespace(protocol=replace(PROTOCOL, nsamples=64), site="model.layers.0.mlp.down_proj", edges=np.linspace(-1, 1, 162), before=[1] * 161)
    compare_report.write(
        folder / "report.html", comparison, findings, list(skipped), list(failures), title="A <model>", text="wiki", calib="novels",
        outliers=outliers or {"up_proj": [2.0, 9.0]}, bounds=bounds, bounds_failed=failed,
    )  # fmt: skip
    return (folder / "report.html").read_text()
