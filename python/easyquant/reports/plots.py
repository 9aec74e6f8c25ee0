# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The report's figures, as SVG that takes its colours from the page around it.

matplotlib draws with stand-in colours; `to_svg` replaces each by a CSS variable, so that one drawing
serves light and dark pages. Glyphs are paths: a figure looks the same everywhere and refers to nothing.
An inch is 96 pixels of the page, so that letters have the size of those around the figure; a narrow page
makes a figure smaller, a wide one never makes it larger.
"""

import html
import io
import re
from dataclasses import dataclass

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (after the backend is chosen)
import numpy as np  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: E402

INK, MUTED, GRID = "#010101", "#010102", "#010103"
SERIES = tuple(f"#0101{number:02x}" for number in range(4, 16))
VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--rule"} | {colour: f"--series-{i}" for i, colour in enumerate(SERIES)}
# Points: the least that is still read on a telephone, and the largest that stands beside the page's own headings.
SMALL, NORMAL, LARGE = 9, 10, 11
PIXELS_PER_INCH = 96
PANEL_WIDTH = 4.4  # inches: what a telephone shows, and two or three stand side by side on a desk

_STYLE = {
    "svg.fonttype": "path",
    "svg.hashsalt": "easyquant",
    "font.family": "DejaVu Sans",
    "font.size": NORMAL,
    "axes.titlesize": LARGE,
    "legend.fontsize": SMALL,
    "figure.constrained_layout.use": True,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "text.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def figure_style():
    """The style of every figure, for a `with` block."""
    return plt.rc_context(_STYLE)


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    low: float | None = None  # ends of the error bar
    high: float | None = None


def to_svg(figure, name: str, description: str) -> str:
    """An <svg> element for an HTML page: no prolog, no outside names, ids that begin with `name`."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    width = round(figure.get_figwidth() * PIXELS_PER_INCH)
    plt.close(figure)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    # The page sets the width; the viewBox keeps the proportions.
    svg = re.sub(r'(<svg[^>]*?)\s(?:width|height)="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?)\s(?:width|height)="[^"]*"', r"\1", svg, count=1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(description)}" style="max-width: {width}px"', 1)


def _draw_bars(axes, bars: list[Bar], title: str, digits: int) -> None:
    places = np.arange(len(bars))[::-1]
    ends = [max(bar.value, bar.high or bar.value) for bar in bars]
    axes.barh(places, [bar.value for bar in bars], height=0.58, color=[SERIES[i % len(SERIES)] for i in range(len(bars))])
    for place, bar, end in zip(places, bars, ends):
        if bar.low is not None and bar.high is not None:
            axes.errorbar(
                bar.value, place, xerr=[[bar.value - bar.low], [bar.high - bar.value]], color=INK, capsize=3, linewidth=1.1
            )
        axes.text(end + 0.03 * max(ends), place, f"{bar.value:,.{digits}f}", va="center", color=INK)
    axes.set_yticks(places, [bar.label for bar in bars])
    axes.tick_params(axis="y", colors=INK)
    axes.set_xlim(0, 1.25 * (max(ends) or 1))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_title(title, loc="left")


def bar_panels(name: str, panels: list[tuple[str, list[Bar], int]]) -> list[str]:
    """A figure each of bars of the same things, which the page lays out. `panels`: title, bars, digits of the numbers."""
    figures = []
    for number, (title, bars, digits) in enumerate(panels):
        with figure_style():
            figure, axes = plt.subplots(figsize=(PANEL_WIDTH, 0.42 * len(bars) + 0.9))
            _draw_bars(axes, bars, title, digits)
            figures.append(to_svg(figure, f"{name}-{number}", f"{title}, of every artifact"))
    return figures


def weight_histograms(before: np.ndarray, after: list[tuple[str, np.ndarray]]) -> list[str]:
    """A figure each of the float weights as a line behind an artifact's weights, in the same bins."""
    edge = float(np.quantile(np.abs(before), 0.9995)) or 1.0
    bins = np.linspace(-edge, edge, 162)
    float_counts, _ = np.histogram(before, bins)
    every = [(label, np.histogram(weights, bins)[0]) for label, weights in after]
    top = 1.6 * max([float_counts.max(), *(counts.max() for _, counts in every)])
    figures = []
    for i, (label, counts) in enumerate(every):
        with figure_style():
            figure, axes = plt.subplots(figsize=(PANEL_WIDTH, 2.7))
            axes.stairs(counts, bins, fill=True, color=SERIES[(i + 1) % len(SERIES)], alpha=0.85, label=f"after: {label}")
            axes.stairs(float_counts, bins, color=INK, linewidth=0.9, label="before: float")
            axes.set_yscale("symlog", linthresh=100)
            axes.set_ylim(0, top)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axes.grid(axis="x", visible=False)
            axes.set_xlabel("weight")
            axes.legend(loc="upper left", fontsize=8.5, bbox_to_anchor=(0, 1.2), ncols=2, borderpad=0)
            axes.set_ylabel("weights in a bin")
            figures.append(to_svg(figure, f"weights-{i}", f"Histogram of one layer's weights before and after quantization: {label}"))
    return figures
