# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The figures of `easyquant compare`, in the style of `easyquant.reports.plots`: each a list of panels, which the page lays out.

The page has the headings and says what is drawn; a panel's title tells it from its neighbours.
"""

import textwrap

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from easyquant.evaluation.comparison import Finding, errors_by_layer, one_cache, pareto
from easyquant.reports.drawing import Look, draw_line, draw_points, legend_below, place_labels, plain_log, settle, unhide_lines
from easyquant.reports.plots import INK, MUTED, SERIES, SMALL, figure_style, plt, to_svg

MARKERS = "osD^vP*X"
# Two panels side by side fill the page, as do four small ones.
WIDTH, SMALL_WIDTH = 5.0, 2.4
TITLE = {"loc": "left", "fontweight": "bold"}


class Looks:
    """One look a method, the same in every figure: float is grey."""

    def __init__(self, findings: list[Finding]):
        quantized = dict.fromkeys(finding.variant.method for finding in findings if not finding.is_float)
        colours = len(SERIES) - 1
        self.of = {finding.variant.method: Look(0) for finding in findings if finding.is_float}
        self.of |= {method: Look(1 + i % colours, i // colours) for i, method in enumerate(quantized)}
        self.markers = {}
        for finding in findings:
            self.markers.setdefault(finding.variant.scheme, MARKERS[len(self.markers) % len(MARKERS)])


def _by_scheme(findings: list[Finding]) -> dict[str, list[Finding]]:
    schemes: dict[str, list[Finding]] = {}
    for finding in findings:
        schemes.setdefault(finding.variant.scheme, []).append(finding)
    return schemes


def _panel(height: float, width: float = WIDTH):
    return plt.subplots(figsize=(width, height))


def _layer_axis(axes) -> None:
    axes.set_xlabel("layer")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))


def perplexity(findings: list[Finding], looks: Looks) -> list[str]:
    """A panel a scheme and cache, with the float weights on top and the float model as a line through all; a length means the same in all of them."""
    base = next(finding for finding in findings if finding.is_float)
    groups: dict[str, list[Finding]] = {}
    for finding in (f for f in findings if not f.is_float):
        above = [f for f in findings if f.is_float and f.variant.kv == finding.variant.kv]
        groups.setdefault(finding.variant.scheme + finding.variant.cache, above).append(finding)
    groups = groups or {"float": [f for f in findings if f.is_float]}
    values = np.array([finding.figures["perplexity"] for finding in findings])
    errors = np.array([finding.figures["perplexity_stderr"] or 0.0 for finding in findings])
    # Perplexities that explode would leave the others no room.
    limit = min(float((values + errors).max()), 3.0 * float(np.median(values)))
    panels = []
    for title, members in groups.items():
        with figure_style():
            figure, axes = _panel(0.44 * len(members) + 0.6)
            places = np.arange(len(members))[::-1]
            axes.set_xlim(0, 1.02 * limit)
            for place, finding in zip(places, members):
                value, error = finding.figures["perplexity"], finding.figures["perplexity_stderr"]
                axes.barh(place, min(value, limit), height=0.42, **looks.of[finding.variant.method].area)
                if error is not None and value + error <= limit:
                    axes.errorbar(value, place, xerr=error, color=INK, capsize=2.5, linewidth=1.0)
                note = f"{value:,.2f}" + (" (cut off)" if value + (error or 0.0) > limit else "")
                axes.text(0, place + 0.25, finding.variant.name if title == "float" else finding.variant.method, va="bottom", color=INK, fontsize=SMALL)
                axes.text(1.01, place, note, va="center", ha="left", color=INK, fontsize=SMALL, transform=axes.get_yaxis_transform())
            axes.axvline(base.figures["perplexity"], color=MUTED, linewidth=1.0, linestyle=(0, (3, 2)), zorder=0.5)
            axes.yaxis.set_major_locator(NullLocator())
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.set_ylim(-0.4, len(members) - 0.25)
            axes.set_title(title, **TITLE)
            panels.append(to_svg(figure, f"perplexity-{len(panels)}", f"Perplexity of every variant of {title} with its standard error"))
    return panels


def against_bytes(findings: list[Finding], looks: Looks) -> list[str]:
    """Perplexity against bytes of weights, with the Pareto front; caches have their bytes elsewhere."""
    shown = one_cache(findings)
    with figure_style():
        figure, axes = _panel(3.5)
        points = [(finding.speed["weights_bytes"] / 1e6, finding.figures["perplexity"]) for finding in shown]
        sizes, values = zip(*points)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        for axis, scale, numbers in ((axes.xaxis, axes.set_xscale, sizes), (axes.yaxis, axes.set_yscale, values)):
            # Most variants are much smaller than the float model, and a few much worse: on a plain axis they would be one spot.
            if max(numbers) > 2 * min(numbers):
                scale("log")
                plain_log(axis, min(numbers), max(numbers))
        axes.margins(0.08, 0.1)
        axes.update_datalim(points)
        axes.autoscale_view()
        front = pareto(points)
        (line,) = axes.step(*zip(*(points[i] for i in front)), where="post", color=MUTED, linewidth=1.0, zorder=1)
        axes.set_xlabel("weights in memory, MB")
        axes.set_ylabel("perplexity")
        schemes = _by_scheme(shown)
        methods = dict.fromkeys(finding.variant.method for finding in shown)
        handles = [Patch(label=method, **looks.of[method].area) for method in methods]
        handles += [Line2D([], [], linestyle="none", marker=looks.markers[scheme], color=MUTED, markersize=6.5, label=scheme) for scheme in schemes if scheme != "none"]
        handles += [Line2D([], [], color=MUTED, linewidth=1.0, label="Pareto front")]
        legend_below(figure, handles)
        settle(figure)
        diameters = draw_points(axes, points, [looks.of[f.variant.method] for f in shown], [looks.markers[f.variant.scheme] for f in shown])
        place_labels(axes, {i: shown[i].variant.weights for i in front}, points, diameters, line)
        return [to_svg(figure, "size", "Perplexity against megabytes of weights, with the Pareto front")]


def against_samples(findings: list[Finding], looks: Looks) -> list[str]:
    """KL divergence against calibration samples, a panel a scheme and a line a method; empty if nothing was swept."""
    swept: dict[str, dict[str, dict[int, float]]] = {}
    for finding in (f for f in findings if f.variant.nsamples is not None and f.variant.kv == "none"):
        of_method = swept.setdefault(finding.variant.scheme, {}).setdefault(finding.variant.method, {})
        of_method[finding.variant.nsamples] = finding.figures["kl_mean"]
    panels = []
    for scheme, methods in swept.items():
        methods = {method: sorted(points.items()) for method, points in methods.items() if len(points) > 1}
        if not methods:
            continue
        with figure_style():
            figure, axes = _panel(2.8)
            axes.set_xscale("log", base=2)
            lines = [draw_line(axes, *zip(*points), **looks.of[method].line) for method, points in methods.items()]
            axes.set_xticks(sorted({count for points in methods.values() for count, _ in points}))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.set_xlabel("calibration samples")
            axes.set_ylabel("mean KL divergence, nats")
            axes.set_title(scheme, **TITLE)
            legend_below(figure, [looks.of[method].key(method) for method in methods])
            settle(figure)
            unhide_lines(axes, lines)
            panels.append(to_svg(figure, f"samples-{len(panels)}", f"Mean KL divergence of {scheme} against the number of calibration samples"))
    return panels


def layer_errors(findings: list[Finding], looks: Looks) -> list[str]:
    """A panel a scheme: the relative error of each layer's weights, a line a method."""
    quantized = [f for f in one_cache(findings) if not f.is_float and errors_by_layer(f.sites)]
    panels = []
    for scheme, members in _by_scheme(quantized).items():
        with figure_style():
            figure, axes = _panel(2.8)
            errors = [errors_by_layer(finding.sites) for finding in members]
            lines = [draw_line(axes, range(len(e)), e, **looks.of[f.variant.method].line) for f, e in zip(members, errors)]
            axes.set_ylim(0, 1.06 * max(map(max, errors)) or 1.0)
            axes.set_ylabel("‖W − Ŵ‖ / ‖W‖")
            _layer_axis(axes)
            axes.set_title(scheme, **TITLE)
            legend_below(figure, [looks.of[f.variant.method].key(f.variant.method) for f in members])
            settle(figure)
            unhide_lines(axes, lines)
            panels.append(to_svg(figure, f"layers-{len(panels)}", f"Relative weight error of each layer for each method, {scheme}"))
    return panels


def histograms(findings: list[Finding], edges: np.ndarray, before: np.ndarray, looks: Looks) -> list[str]:
    """A small panel a variant, those whose weights are the same in one, with equal axes: its weights over the float ones."""
    same: dict[tuple, list[Finding]] = {}
    for finding in one_cache(findings):
        if finding.histogram is not None and not finding.is_float:
            same.setdefault((finding.variant.scheme, *finding.histogram), []).append(finding)
    top = 1.6 * max([before.max(), *(max(members[0].histogram) for members in same.values())], default=1)
    panels = []
    for (scheme, *counts), members in same.items():
        with figure_style():
            names = textwrap.wrap(", ".join(member.variant.method for member in members), 28) + [scheme]
            figure, axes = _panel(1.35 + 0.16 * len(names), SMALL_WIDTH)
            for part, member in enumerate(members):
                # Equal ones share the area: from left to right.
                cuts = np.linspace(0, len(counts), len(members) + 1).round().astype(int)[part : part + 2]
                axes.stairs(counts[slice(*cuts)], edges[cuts[0] : cuts[1] + 1], fill=True, color=looks.of[member.variant.method].colour, alpha=0.85)
            axes.stairs(before, edges, color=INK, linewidth=0.8)
            axes.set_yscale("symlog", linthresh=100)
            axes.set_ylim(0, top)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.grid(axis="x", visible=False)
            figure.suptitle("\n".join(names), x=0.03, ha="left", fontsize=SMALL)
            panels.append(to_svg(figure, f"weights-{len(panels)}", f"Histogram of one layer's weights, {scheme}, over the float weights"))
    return panels


def outliers(ratios: dict[str, list[float]]) -> list[str]:
    """A line a kind of site; kinds that read the same activation have one."""
    same: dict[tuple, list[str]] = {}
    for kind, values in sorted(ratios.items(), key=lambda item: -max(item[1])):
        same.setdefault(tuple(values), []).append(kind)
    colours = len(SERIES) - 1
    looks = [Look(1 + i % colours, i // colours) for i in range(len(same))]
    with figure_style():
        figure, axes = _panel(3.1)
        lines = [draw_line(axes, range(len(values)), values, **look.line) for values, look in zip(same, looks)]
        axes.set_yscale("log")
        plain_log(axes.yaxis, min(map(min, same)), max(map(max, same)))
        axes.set_ylabel("largest |x| over median")
        _layer_axis(axes)
        legend_below(figure, [look.key(", ".join(kinds)) for kinds, look in zip(same.values(), looks)])
        settle(figure)
        unhide_lines(axes, lines)
        return [to_svg(figure, "outliers", "Activation outliers by layer and kind of site")]


BOUND = {"color": MUTED, "linewidth": 1.6, "linestyle": (0, (4, 2))}


def growth_through_layers(reports: dict[str, dict]) -> list[str]:
    """For each scheme the error of the hidden states behind each layer, all layers up to it quantized, and its bound."""
    panels = []
    for scheme, report in reports.items():
        layers = report["layers"]
        places = [layer["layer"] for layer in layers]
        bounds, measured = ([layer[name] for layer in layers] for name in ("bound", "measured"))
        with figure_style():
            figure, axes = _panel(2.6)
            lines = [draw_line(axes, places, bounds, **BOUND, label="bound"), draw_line(axes, places, measured, **Look(1).line, label="measured")]
            # Where nothing is quantized there is no error, which has no logarithm.
            if all(bounds) and all(measured):
                axes.set_yscale("log")
                plain_log(axes.yaxis, min(bounds + measured), max(bounds + measured))
            _layer_axis(axes)
            axes.set_ylabel("largest error")
            axes.set_title(scheme, **TITLE)
            legend_below(figure, lines)
            settle(figure)
            unhide_lines(axes, lines)
            panels.append(to_svg(figure, f"growth-{len(panels)}", f"Growth of the error through the layers of {scheme}, measured and bound"))
    return panels


def sampled_scales(reports: dict[str, dict]) -> list[str]:
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
        return []
    counts = sorted(errors)
    with figure_style():
        figure, axes = _panel(2.8)
        axes.set_xscale("log", base=2)
        lines = [
            draw_line(axes, counts, [bounds[n] for n in counts], **BOUND, label=f"Hoeffding, risk {report['risk']:.0%}"),
            draw_line(axes, counts, [max(errors[n]) for n in counts], **Look(1).line, label="worst activation"),
            draw_line(axes, counts, [float(np.median(errors[n])) for n in counts], **Look(2).line, label="median activation"),
        ]
        axes.set_xticks(counts)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("calibration samples n")
        axes.set_ylabel("error, in bounds for n = 1")
        legend_below(figure, lines)
        settle(figure)
        unhide_lines(axes, lines)
        return [to_svg(figure, "sampling", "Error of mean scales over n calibration samples, measured and bound")]
