# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What quality_per_byte.py makes of its points: fronts, ours against each of the peer's files, the plot."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from easyquant.evaluation.comparison import pareto
from easyquant.evaluation.metrics import standard_error

# By what makes files, the first word of a peer's names: the most that ours may have of its mean KL divergence at no more bytes, and a colour.
GOALS = {"llama.cpp": 0.8, "auto-round": 1.0}
COLOURS = {"llama.cpp": "#b3540c", "auto-round": "#3d7a3a", "EasyQuant": "#1f5fae"}


@dataclass(frozen=True)
class Point:
    """One file or artifact, and what was found of it on each text."""

    name: str
    is_peer: bool
    bytes: int
    figures: dict[str, dict]  # of `easyquant eval`, by the text's name

    @classmethod
    def of(cls, name: str, is_peer: bool, found: dict[str, dict]) -> "Point":
        """`found`: bytes and figures, by the text's name."""
        sizes = {entry["bytes"] for entry in found.values()}
        if len(sizes) != 1:
            raise ValueError(f"{name}: has {sorted(sizes)} bytes on different texts; delete what was kept of it and measure again")
        return cls(name, is_peer, sizes.pop(), {text: entry["figures"] for text, entry in found.items()})

    @property
    def maker(self) -> str:
        return self.name.split()[0] if self.is_peer else "EasyQuant"

    @property
    def label(self) -> str:
        """The name in a plot: a peer's type without its maker and what its quantizer was given."""
        return self.name.split()[1].rstrip(",") if self.is_peer else self.name

    def kl(self, text: str) -> float:
        return self.figures[text]["kl_mean"]

    def kl_error(self, text: str) -> float:
        return standard_error(np.array(self.figures[text]["windows"]["kl"]))

    def top1(self, text: str) -> float:
        return self.figures[text]["top1_agreement"]


def front(points: list[Point], text: str) -> list[Point]:
    """The points that no other beats in both bytes and KL, the smallest first."""
    return [points[index] for index in pareto([(point.bytes, point.kl(text)) for point in points])]


def ratio(ours: Point, theirs: Point, text: str) -> tuple[float, float]:
    """Mean KL of ours over theirs, and its standard error from the windows that both saw: that of mean(a − r b) / mean(b) (delta method)."""
    a, b = (np.array(point.figures[text]["windows"]["kl"]) for point in (ours, theirs))
    value = a.mean() / b.mean()
    return float(value), standard_error(a - value * b) / float(b.mean())


def rivals(points: list[Point], text: str) -> list[tuple[Point, Point | None]]:
    """For each of the peer's files, the smallest first, our point of least KL that has no more bytes; None where all have more."""
    ours = [point for point in points if not point.is_peer]
    pairs = []
    for theirs in sorted((point for point in points if point.is_peer), key=lambda point: point.bytes):
        small = [point for point in ours if point.bytes <= theirs.bytes]
        pairs.append((theirs, min(small, key=lambda point: point.kl(text), default=None)))
    return pairs


def misses(points: list[Point], text: str) -> list[str]:
    """Where the goal is missed."""
    found = []
    for theirs, ours in rivals(points, text):
        if ours is None:
            found.append(f"{text}: nothing of ours has at most the {theirs.bytes / 1e6:.1f} MB of {theirs.name}")
            continue
        value, error = ratio(ours, theirs, text)
        if value > (goal := GOALS[theirs.maker]):
            found.append(f"{text}: {ours.name} has {value:.2f} ± {error:.2f} of the KL of {theirs.name}, goal {goal}")
        if ours.top1(text) < theirs.top1(text):
            found.append(f"{text}: {ours.name} has {ours.top1(text):.1%} of first choices in common with float, {theirs.name} {theirs.top1(text):.1%}")
    return found


def columns(title: str, *headings: str) -> Table:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="left" if not heading or heading in ("file", "ours") else "right")
    return table


def with_error(value: float, error: float, digits: int) -> str:
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def points_table(points: list[Point], text: str) -> Table:
    """All points by their bytes; those of a front are marked."""
    marked = {id(point) for maker in COLOURS for point in front([p for p in points if p.maker == maker], text)}
    table = columns(f"{text}: mean KL divergence from float; * on its front", "", "file", "MB", "KL, nats", "top-1")
    for point in sorted(points, key=lambda point: (point.bytes, point.name)):
        kl = with_error(point.kl(text), point.kl_error(text), 4)
        table.add_row("*" if id(point) in marked else "", point.name, f"{point.bytes / 1e6:.1f}", kl, f"{point.top1(text):.1%}", style=None if point.is_peer else "bold")
    return table


def rivals_table(points: list[Point], text: str) -> Table:
    table = columns(f"{text}: the best of ours with no more bytes", "file", "MB", "ours", "MB", "KL over theirs", "top-1", "theirs")
    for theirs, ours in rivals(points, text):
        if ours is None:
            table.add_row(theirs.name, f"{theirs.bytes / 1e6:.1f}", "none")
            continue
        sizes = [f"{point.bytes / 1e6:.1f}" for point in (theirs, ours)]
        cells = (with_error(*ratio(ours, theirs, text), 2), f"{ours.top1(text):.1%}", f"{theirs.top1(text):.1%}")
        table.add_row(theirs.name, sizes[0], ours.name, sizes[1], *cells)
    return table


def show(points: list[Point], texts: list[str]) -> list[str]:
    """Prints everything, and returns where the goal is missed."""
    console = Console(width=140)
    problems = [problem for text in texts for problem in misses(points, text)]
    for text in texts:
        console.print(points_table(points, text))
        console.print(rivals_table(points, text))
    print("\n".join([*problems, f"{len(problems)} misses"]))
    return problems


def draw(points: list[Point], texts: list[str], file: Path) -> None:
    """KL against megabytes, a panel a text: fronts as lines, every point, the peers' files by name."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"svg.hashsalt": "easyquant", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, panels = plt.subplots(1, len(texts), figsize=(5.2 * len(texts), 4), sharey=True, squeeze=False, layout="constrained")
        for axes, text in zip(panels[0], texts):
            for maker, colour in COLOURS.items():
                side = [point for point in points if point.maker == maker]
                if not side:
                    continue
                axes.errorbar([p.bytes / 1e6 for p in side], [p.kl(text) for p in side], [p.kl_error(text) for p in side],
                              fmt="o", markersize=3.5, linewidth=1, color=colour, alpha=0.6)  # fmt: skip
                best = front(side, text)
                axes.step([p.bytes / 1e6 for p in best], [p.kl(text) for p in best], where="post", color=colour, label=maker)
                for point in side:
                    axes.annotate(point.label if point.is_peer else "", (point.bytes / 1e6, point.kl(text)), (4, 4), textcoords="offset points", fontsize=7.5, color=colour)
            axes.set_yscale("log")
            axes.set_xlabel("weights, MB")
            axes.set_title(text, loc="left")
            axes.grid(alpha=0.3)
            axes.legend(frameon=False)
        panels[0][0].set_ylabel("mean KL divergence from float, nats")
        figure.savefig(file, metadata={"Date": None})
        plt.close(figure)
