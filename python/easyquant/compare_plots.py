# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The figures of `easyquant compare`, in the style of `easyquant.plots`."""

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from easyquant.comparison import Finding, errors_by_layer, pareto
from easyquant.plots import INK, MUTED, SERIES, figure_style, plt, to_svg

MARKERS = "osD^vP*X"


class Colours:
    """One colour a method, the same in every figure: float is grey."""

    def __init__(self, findings: list[Finding]):
        methods = dict.fromkeys(finding.variant.method for finding in findings)
        self.order = list(methods)

    def index(self, method: str) -> int:
        return self.order.index(method) % len(SERIES)

    def of(self, method: str) -> str:
        return SERIES[self.index(method)]


def perplexity_by_method(findings: list[Finding], colours: Colours) -> str:
    with figure_style():
        figure, axes = plt.subplots(figsize=(10.6, 0.32 * len(findings) + 1.1))
        places = np.arange(len(findings))[::-1]
        # Perplexities that explode would leave the others no room.
        values = np.array([finding.figures["perplexity"] for finding in findings])
        limit = min(float(values.max()), 3.0 * float(np.median(values)))
        for place, finding, value in zip(places, findings, values):
            axes.barh(place, min(value, limit), height=0.62, color=colours.of(finding.variant.method))
            error = finding.figures["perplexity_stderr"]
            if error is not None and value <= limit:
                axes.errorbar(value, place, xerr=error, color=INK, capsize=2.5, linewidth=1.0)
            end = min(value, limit) + (error or 0.0) * (value <= limit)
            note = f"{value:,.2f}" + (" (cut off)" if value > limit else "")
            axes.text(end + 0.008 * limit, place, note, va="center", color=INK, fontsize=8.5)
        axes.set_yticks(places, [finding.label for finding in findings])
        axes.tick_params(axis="y", colors=INK)
        axes.set_xlim(0, 1.14 * limit)
        axes.set_ylim(-0.7, len(findings) - 0.3)
        axes.grid(axis="y", visible=False)
        axes.set_title("Perplexity (lower is better), with one standard error", loc="left", fontsize=10.5)
        return to_svg(figure, "perplexity", "Perplexity of every variant with its standard error")


def against_bytes(findings: list[Finding], colours: Colours) -> str:
    """Perplexity against bytes of weights, with the Pareto front."""
    with figure_style():
        figure, axes = plt.subplots(figsize=(5.2, 3.6))
        schemes = list(dict.fromkeys(finding.variant.scheme for finding in findings))
        points = [(finding.speed["weights_bytes"] / 1e6, finding.figures["perplexity"]) for finding in findings]
        front = pareto(points)
        axes.step([points[i][0] for i in front], [points[i][1] for i in front], where="post", color=MUTED, linewidth=1.0, label="Pareto front")
        for finding, (size, value) in zip(findings, points):
            marker = MARKERS[schemes.index(finding.variant.scheme) % len(MARKERS)]
            axes.scatter(size, value, s=42, marker=marker, color=colours.of(finding.variant.method), zorder=3)
        for index in front:
            axes.annotate(findings[index].label, points[index], xytext=(4, -11), textcoords="offset points", fontsize=7.5, color=INK)
        values = sorted(value for _, value in points)
        if values[-1] > 3 * values[len(values) // 2]:
            axes.set_yscale("log")
        axes.set_xlabel("weights in memory, MB")
        axes.set_title("Perplexity against size", loc="left", fontsize=10.5)
        axes.legend(loc="upper right", fontsize=8)
        return to_svg(figure, "size", "Perplexity against megabytes of weights, with the Pareto front")


def against_samples(findings: list[Finding], colours: Colours) -> str | None:
    """KL divergence against calibration samples, a line a method; None if nothing was swept."""
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for finding in findings:
        variant = finding.variant
        if variant.nsamples is not None and variant.kv == "none":
            lines.setdefault((variant.method, variant.scheme), []).append((variant.nsamples, finding.figures["kl_mean"]))
    lines = {key: sorted(points) for key, points in lines.items() if len(points) > 1}
    if not lines:
        return None
    with figure_style():
        figure, axes = plt.subplots(figsize=(5.2, 3.6))
        for (method, scheme), points in lines.items():
            axes.plot(*zip(*points), marker="o", markersize=4, linewidth=1.4, color=colours.of(method), label=f"{method} {scheme}")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("calibration samples")
        axes.set_ylabel("mean KL divergence, nats")
        axes.set_title("Accuracy against calibration", loc="left", fontsize=10.5)
        axes.legend(fontsize=8)
        return to_svg(figure, "samples", "Mean KL divergence against the number of calibration samples")


def layer_errors(findings: list[Finding], colours: Colours) -> str | None:
    quantized = [f for f in findings if not f.is_float and f.variant.kv == "none"]
    quantized = list({f.label: f for f in quantized if errors_by_layer(f.sites)}.values())
    schemes = list(dict.fromkeys(f.variant.scheme for f in quantized))
    if not schemes:
        return None
    with figure_style():
        figure, panels = plt.subplots(1, len(schemes), figsize=(10.6, 3.0), squeeze=False, gridspec_kw={"wspace": 0.22})
        for axes, scheme in zip(panels[0], schemes):
            for finding in quantized:
                if finding.variant.scheme == scheme:
                    errors = errors_by_layer(finding.sites)
                    axes.plot(range(len(errors)), errors, linewidth=1.4, color=colours.of(finding.variant.method), label=finding.variant.method)
            axes.set_title(f"{scheme}: ‖W − Ŵ‖ / ‖W‖", loc="left", fontsize=10.5)
            axes.set_xlabel("layer")
            axes.set_ylim(bottom=0)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.legend(fontsize=7.5)
        return to_svg(figure, "layers", "Relative weight error of each layer for each method")


def histograms(findings: list[Finding], edges: np.ndarray, before: np.ndarray, colours: Colours) -> str | None:
    shown = list({f.label: f for f in findings if f.histogram is not None and not f.is_float and f.variant.kv == "none"}.values())[:8]
    if not shown:
        return None
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    with figure_style():
        figure, panels = plt.subplots(rows, columns, figsize=(10.6, 2.2 * rows), squeeze=False, sharex=True, sharey=True, gridspec_kw={"wspace": 0.08, "hspace": 0.3})
        for axes in panels.flat[len(shown) :]:
            axes.set_visible(False)
        for axes, finding in zip(panels.flat, shown):
            axes.stairs(finding.histogram, edges, fill=True, color=colours.of(finding.variant.method), alpha=0.85)
            axes.stairs(before, edges, color=INK, linewidth=0.8)
            axes.set_yscale("symlog", linthresh=100)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axes.grid(axis="x", visible=False)
            axes.set_title(finding.label, loc="left", fontsize=9)
        return to_svg(figure, "weights", "Histograms of one layer's weights, quantized by each method, over the float weights")


def outliers(ratios: dict[str, list[float]]) -> str:
    with figure_style():
        figure, axes = plt.subplots(figsize=(10.6, 3.0))
        for i, (kind, values) in enumerate(sorted(ratios.items(), key=lambda item: -max(item[1]))):
            axes.plot(range(len(values)), values, linewidth=1.4, color=SERIES[(i + 1) % len(SERIES)], label=kind)
        axes.set_yscale("log")
        axes.set_xlabel("layer")
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.set_title("Activation outliers: the largest channel's |x| over the median channel's", loc="left", fontsize=10.5)
        axes.legend(fontsize=8, ncols=4)
        return to_svg(figure, "outliers", "Activation outliers by layer and kind of site")


def growth_through_layers(reports: dict[str, dict]) -> str:
    """Of each scheme: the error of the hidden states behind each layer, all layers up to it quantized, and its bound."""
    with figure_style():
        figure, panels = plt.subplots(1, len(reports), figsize=(10.6, 3.0), squeeze=False, gridspec_kw={"wspace": 0.22})
        for axes, (scheme, report) in zip(panels[0], reports.items()):
            layers = report["layers"]
            for name, colour, style in (("bound", MUTED, "--"), ("measured", SERIES[1], "-")):
                axes.plot([layer["layer"] for layer in layers], [layer[name] for layer in layers], style, linewidth=1.4, color=colour, label=name)
            # Where nothing is quantized there is no error, which has no logarithm.
            if all(layer[name] for layer in layers for name in ("bound", "measured")):
                axes.set_yscale("log")
            axes.set_xlabel("layer")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.set_title(f"{scheme}: largest error of the hidden states", loc="left", fontsize=10.5)
            axes.legend(fontsize=7.5)
        return to_svg(figure, "growth", "Growth of the error through the layers, measured and bound")


def sampled_scales(reports: dict[str, dict]) -> str | None:
    """How far the mean scale of n samples is from that of all, in units of each activation's own bound for one sample."""
    errors: dict[int, list[float]] = {}
    bounds: dict[int, float] = {}
    report = next(iter(reports.values()))
    entries = report["sampling"]
    of_one = {tuple(entry["sites"]): entry["bound"] for entry in entries if entry["samples"] == 1}
    for entry in entries:
        if unit := of_one[tuple(entry["sites"])]:
            errors.setdefault(entry["samples"], []).append(entry["measured"] / unit)
            bounds[entry["samples"]] = entry["bound"] / unit
    if not errors:
        return None
    counts = sorted(errors)
    with figure_style():
        figure, axes = plt.subplots(figsize=(5.2, 3.6))
        axes.plot(counts, [bounds[n] for n in counts], "--", linewidth=1.4, color=MUTED, label=f"Hoeffding, risk {report['risk']:.0%}")
        axes.plot(counts, [max(errors[n]) for n in counts], marker="o", markersize=4, linewidth=1.4, color=SERIES[1], label="worst activation")
        axes.plot(counts, [float(np.median(errors[n])) for n in counts], marker="s", markersize=4, linewidth=1.4, color=SERIES[2], label="median activation")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("calibration samples n")
        axes.set_title("Error of a mean scale, in bounds for one sample", loc="left", fontsize=10.5)
        axes.legend(fontsize=8)
        return to_svg(figure, "sampling", "Error of mean scales over n calibration samples, measured and bound")
