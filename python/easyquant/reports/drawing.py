# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Drawing so that all can be told apart: curves that run over one another, points at one place, labels, keys."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from easyquant.reports.plots import INK, SERIES, SMALL

LINE_WIDTH = 1.6
# Points (1/72 inch) within which two lines, or two places, look like one.
NEAR = 1.5
STRIPE = 4  # length of a stripe, in widths of a line
STYLES = ("-", (0, (4, 1.5)), (0, (1, 1)))


@dataclass(frozen=True)
class Look:
    """How a series is drawn wherever it appears. Series beyond the colours repeat them with broken lines and hollow shapes."""

    index: int  # of a colour
    turn: int = 0  # how often the colours have been gone through

    @property
    def colour(self) -> str:
        return SERIES[self.index]

    @property
    def line(self) -> dict:
        return {"color": self.colour, "linewidth": LINE_WIDTH, "linestyle": STYLES[self.turn % len(STYLES)]}

    @property
    def area(self) -> dict:
        fill = {"facecolor": "none"} if self.turn else {"facecolor": self.colour}
        return fill | {"edgecolor": self.colour, "linewidth": 1.2}

    def key(self, label: str) -> Line2D:
        return Line2D([], [], label=label, **self.line)


def legend_below(figure, handles: Sequence) -> None:
    """A key below the axes in as many columns as fit; the figure becomes higher by it, so that the axes keep their size."""
    rows = 0
    for columns in range(min(4, len(handles)), 0, -1):
        legend = figure.legend(handles=handles, loc="outside lower left", ncols=columns, borderpad=0, handlelength=1.8, handleheight=0.8, columnspacing=1.4, labelspacing=0.35)
        rows = -(-len(handles) // columns)
        if columns == 1 or legend.get_window_extent().width < 0.98 * figure.bbox.width:
            break
        legend.remove()
    figure.set_figheight(figure.get_figheight() + rows * 1.45 * SMALL / 72)


def settle(figure) -> None:
    """Lays a figure out for good: what is drawn from here on knows where everything is."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def plain_log(axis, low: float, high: float) -> None:
    """A logarithmic axis whose ticks are plain numbers, a few of them."""
    ratio = high / low
    if ratio > 1e3:
        axis.set_major_locator(LogLocator(numticks=6))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12) if ratio > 4 else MaxNLocator(5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:g}"))


def _runs(marks: list) -> list[tuple[int, int]]:
    """[a, a, b] → (0, 2), (2, 3): stretches of equal marks."""
    ends = [i for i in range(1, len(marks)) if marks[i] != marks[i - 1]] + [len(marks)]
    return list(zip([0, *ends[:-1]], ends))


def _together(axes, lines: list[Line2D]) -> dict[Line2D, list[tuple[Line2D, ...]]]:
    """For each segment of each line the lines that run over one another there."""
    segments = defaultdict(list)
    for line in lines:
        places = axes.transData.transform(line.get_xydata()) * 72 / axes.figure.dpi
        for i, (begin, end) in enumerate(zip(places, places[1:])):
            segments[round(begin[0], 2), round(end[0], 2)].append((line, i, np.array([begin[1], end[1]])))
    found = {line: [()] * (len(line.get_xydata()) - 1) for line in lines}
    for members in segments.values():
        groups: list[list] = []
        for member in members:
            group = next((g for g in groups if np.abs(g[0][2] - member[2]).max() < NEAR), None)
            if group is None:
                groups.append([member])
            else:
                group.append(member)
        for group in groups:
            for line, i, _ in group:
                found[line][i] = tuple(member[0] for member in group)
    return found


def unhide_lines(axes, lines: list[Line2D]) -> None:
    """Where lines run over one another they become stripes of all their colours, so that none hides another. The figure is settled."""
    for line, groups in _together(axes, lines).items():
        data, alone = line.get_xydata(), []
        for begin, end in _runs(groups):
            run, group = data[begin : end + 1], groups[begin]
            if len(group) == 1:
                alone += [*run, (np.nan, np.nan)]
                continue
            stripes = (STRIPE, STRIPE * (len(group) - 1))
            style = (STRIPE * (len(group) - group.index(line)), stripes)
            axes.plot(*run.T, color=line.get_color(), linewidth=line.get_linewidth(), linestyle=style)
        line.set_data(*np.array(alone or [(np.nan, np.nan)]).T)


def draw_line(axes, xs: Sequence[float], ys: Sequence[float], **style) -> Line2D:
    """A line; one of a single point is a short stroke."""
    if len(xs) == 1:
        xs, ys = [xs[0] - 0.3, xs[0] + 0.3], [ys[0], ys[0]]
    return axes.plot(xs, ys, **style)[0]


def draw_points(axes, places: list[tuple[float, float]], looks: list[Look], markers: list[str]) -> list[float]:
    """Points; those at one place are rings around one another. Gives their diameters, in points of type. The figure is settled."""
    groups: list[list[int]] = []
    at = axes.transData.transform(places) * 72 / axes.figure.dpi
    for i in range(len(places)):
        group = next((g for g in groups if np.hypot(*(at[g[0]] - at[i])) < 2 * NEAR), None)
        groups.append([i]) if group is None else group.append(i)
    sizes = [0.0] * len(places)
    for group in groups:
        ring = min(4.0, 15.0 / len(group))
        for depth, i in enumerate(reversed(group)):
            sizes[i] = 6.5 + ring * depth
            axes.scatter(*places[i], s=sizes[i] ** 2, marker=markers[i], zorder=4 - depth / len(places), **looks[i].area)
    return sizes


def _places_along(axes, line: Line2D) -> np.ndarray:
    """Places along a line, every few pixels."""
    places = line.get_transform().transform_path(line.get_path()).vertices
    parts = [np.linspace(a, b, 2 + int(np.hypot(*(b - a)) / 4)) for a, b in zip(places, places[1:])]
    return np.concatenate(parts) if parts else places


def place_labels(axes, labels: dict[int, str], points: list[tuple[float, float]], sizes: list[float], line: Line2D) -> None:
    """Each label beside its point, at a side where it covers no point, no other label and not the line; where there is none, it is left out."""
    room = axes.get_window_extent()
    dpi = axes.figure.dpi / 72
    radii = [0.5 * size + 1 for size in sizes]
    taken = [(place - radius * dpi, place + radius * dpi) for place, radius in zip(axes.transData.transform(points), radii)]
    taken += [(place - dpi, place + dpi) for place in _places_along(axes, line)]
    sides = [(1, 0, "left", "center"), (-1, 0, "right", "center"), (0, 1, "center", "bottom"), (0, -1, "center", "top"),
             (1, 1, "left", "bottom"), (1, -1, "left", "top"), (-1, 1, "right", "bottom"), (-1, -1, "right", "top")]  # fmt: skip
    for i, label in labels.items():
        for x, y, across, along in sides:
            away = radii[i] + 3
            text = axes.annotate(label, points[i], xytext=(x * away, y * away), textcoords="offset points", ha=across, va=along, fontsize=SMALL, color=INK)
            text.set_in_layout(False)
            (x0, y0), (x1, y1) = box = text.get_window_extent().get_points()
            inside = room.x0 <= x0 and x1 <= room.x1 and room.y0 <= y0 and y1 <= room.y1
            if inside and not any(x0 < b[0] and a[0] < x1 and y0 < b[1] and a[1] < y1 for a, b in taken):
                taken.append(box)
                break
            text.remove()
