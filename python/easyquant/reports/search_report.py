# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of `easyquant search`: sensitivities, formats by layer, and what is lost at which size."""

import math
from pathlib import Path

from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from easyquant.reports import pages
from easyquant.reports.drawing import legend_below, plain_log
from easyquant.reports.plots import INK, MUTED, PANEL_WIDTH, SERIES, SMALL, figure_style, plt, to_svg
from easyquant.support.files import write_atomically

PLOT_WIDTH = 5.6  # inches: a telephone shows it small, and still readable
# How much of the colour the fullest cell has: the ink of a light and of a dark page is read on it.
FULLEST = 0.5
LOSSES = {"kl": "mean KL divergence, nats", "loss": "loss increase, nats"}
FITTED = Line2D([], [], color=SERIES[0], marker="s", markersize=5, label="compiled and fitted")


def bits_of(group: dict, chosen: int) -> float:
    choice = next(choice for choice in group["choices"] if choice["format"] == chosen)
    return 8 * choice["bytes"] / group["weights"]


def _cells(report: dict, value_of, name: str, description: str) -> str:
    """A row a layer, a column a kind of site; `value_of(index, group)` gives how full a cell is, from 0 to 1, and its text."""
    kinds = list(dict.fromkeys(group["kind"] for group in report["groups"]))
    layers = len(report["layers"]) or 1 + max(group["layer"] or 0 for group in report["groups"])
    has_head = any(group["layer"] is None for group in report["groups"])
    rows = layers + has_head
    with figure_style():
        figure, axes = plt.subplots(figsize=(PANEL_WIDTH, (0.24 if rows <= 41 else 0.1) * rows + 0.9))
        axes.grid(False)
        axes.set_xlim(-0.5, len(kinds) - 0.5)
        axes.set_ylim(rows - 0.5, -0.5)
        for index, group in enumerate(report["groups"]):
            fullness, text = value_of(index, group)
            place = (kinds.index(group["kind"]), layers if group["layer"] is None else group["layer"])
            axes.add_patch(Rectangle((place[0] - 0.46, place[1] - 0.44), 0.92, 0.88, facecolor=SERIES[1], alpha=FULLEST * fullness, linewidth=0))
            if rows <= 41:
                axes.text(*place, text, ha="center", va="center", fontsize=SMALL, color=INK)
        axes.set_xticks(range(len(kinds)), [kind.replace("_proj", "") for kind in kinds], rotation=35, ha="left", rotation_mode="anchor")
        axes.xaxis.tick_top()
        axes.yaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
        axes.set_ylabel("layer; below the last the output head" if has_head else "layer")
        return to_svg(figure, name, description)


def sensitivities(report: dict) -> str:
    """What each group loses in the same format: the one, of those that most groups know, nearest to 4 bits."""
    counts: dict[int, list[float]] = {}
    for group in report["groups"]:
        for choice in group["choices"]:
            if choice.get("loss") is not None:
                counts.setdefault(choice["format"], []).append(8 * choice["bytes"] / group["weights"])
    most = max(map(len, counts.values()))
    shown = min((f for f, bits in counts.items() if len(bits) == most), key=lambda f: abs(sum(counts[f]) / len(counts[f]) - 4))
    losses = [next((c["loss"] for c in group["choices"] if c["format"] == shown and c.get("loss") is not None), None) for group in report["groups"]]
    logs = [math.log10(loss) for loss in losses if loss is not None and loss > 0]
    low, high = (min(logs), max(logs)) if logs else (0.0, 1.0)

    def value_of(index: int, group: dict) -> tuple[float, str]:
        loss = losses[index]
        if loss is None or loss <= 0:
            return 0.0, ""
        return 0.08 + 0.82 * (math.log10(loss) - low) / ((high - low) or 1), f"{1000 * loss:.1f}"

    return _cells(report, value_of, "sensitivity", f"Predicted loss of each group of sites in {report['formats'][shown]['name']}, thousandths of a nat")


def formats_by_layer(report: dict, point: dict, number: int) -> str:
    bits = [bits_of(group, chosen) for group, chosen in zip(report["groups"], point["formats"])]
    low, high = min(bits), max(bits)
    names = [form["scheme"].split("A")[0] + ("a" if form["scheme"].endswith("_ASYM") else "") for form in report["formats"]]

    def value_of(index: int, group: dict) -> tuple[float, str]:
        return 0.1 + 0.8 * (bits[index] - low) / ((high - low) or 1), names[point["formats"][index]]

    return _cells(report, value_of, f"formats-{number}", f"Formats of each group of sites at {point['avg_bits']:.2f} bits a weight")


def _peers(axes, report: dict, key: str) -> list[Line2D]:
    """Marks peers at their loss or perplexity, those that have none as a line, and gives the entries of a legend."""
    lines, handles = [], []
    for number, peer in enumerate(report.get("peers", [])):
        colour = SERIES[3 + number % 8]
        if key in peer:
            axes.plot(peer["bytes"] / 1e6, peer[key], color=colour, marker="D", markersize=6, linestyle="")
            handles.append(Line2D([], [], color=colour, marker="D", markersize=6, linestyle="", label=peer["name"]))
        else:
            lines.append((peer["name"], peer["bytes"], colour))
    for label, size, colour in lines:
        axes.axvline(size / 1e6, color=colour, linewidth=1.2)
    return [Line2D([], [], color=colour, linewidth=1.2, label=label) for label, _, colour in lines] + handles


def _scale(axes, losses: list[float]) -> None:
    if min(losses) > 0 and max(losses) > 2 * min(losses):
        axes.set_yscale("log")
        plain_log(axes.yaxis, min(losses), max(losses))


def _losses(report: dict, key: str, unit: float, label: str, name: str, description: str) -> str:
    """What points lose against what they have of something, which peers have only of bytes."""
    peers = report.get("peers", []) if key == "weights_bytes" else []
    points = sorted(report["points"], key=lambda point: point[key])
    places = [point[key] / unit for point in points]
    with figure_style():
        figure, axes = plt.subplots(figsize=(PLOT_WIDTH, 3.4))
        predicted, verified = [point["predicted"] for point in points], [point["verified"] for point in points]
        handles = [Line2D([], [], color=SERIES[1], marker="o", markersize=5, label="verified"), Line2D([], [], color=MUTED, linestyle=(0, (3, 2)), label="predicted")]
        axes.plot(places, predicted, color=MUTED, linewidth=1.0, linestyle=(0, (3, 2)))
        known = [(place, loss) for place, loss in zip(places, verified) if loss is not None]
        if known:
            axes.plot(*zip(*known), color=SERIES[1], marker="o", markersize=5, linewidth=1.6)
        fitted = [point["fitted"] for point in points if "fitted" in point] if key == "weights_bytes" else []
        if fitted:
            axes.plot([fit[key] / unit for fit in fitted], [fit["loss"] for fit in fitted], color=SERIES[0], marker="s", markersize=5, linewidth=1.6)
            handles.append(FITTED)
        _scale(axes, [loss for loss in predicted + verified + [one.get("loss") for one in peers + fitted] if loss is not None])
        if peers:
            handles += _peers(axes, report, "loss")
        axes.set_xlabel(label)
        axes.set_ylabel(LOSSES[report["objective"]])
        legend_below(figure, handles)
        return to_svg(figure, name, description)


def front(report: dict) -> str:
    return _losses(report, "weights_bytes", 1e6, "weights, MB", "front", "What is lost against megabytes of weights")


def times(report: dict) -> list[tuple[str, str]]:
    """A heading and a plot for each of the times that were measured."""
    kinds = (("decode_ms", "decode", "linears, ms a token"), ("prefill_ms", "prefill", "linears, ms for 512 tokens"))
    return [
        (f"Loss against time of {stage}", _losses(report, key, 1, label, f"front-{stage}", f"What is lost against the time of {stage}"))
        for key, stage, label in kinds if key in report["points"][0]
    ]  # fmt: skip


def speeds(report: dict) -> list[tuple[str, str]]:
    """A heading and a plot for prefill and for decode, where artifacts were made and measured; peers where they were, too."""
    fitted = [point["fitted"] for point in report["points"] if "fitted" in point]
    plots = []
    for stage in ("prefill", "decode") if fitted else ():
        key = f"{stage}_tokens_per_s"
        peers = [peer for peer in report.get("peers", []) if key in peer and "loss" in peer]
        with figure_style():
            figure, axes = plt.subplots(figsize=(PLOT_WIDTH, 3.4))
            axes.plot([fit[key] for fit in fitted], [fit["loss"] for fit in fitted], color=SERIES[0], marker="s", markersize=5, linestyle="")
            handles = [FITTED]
            for number, peer in enumerate(peers):
                colour = SERIES[3 + number % 8]
                axes.plot(peer[key], peer["loss"], color=colour, marker="D", markersize=6, linestyle="")
                handles.append(Line2D([], [], color=colour, marker="D", markersize=6, linestyle="", label=peer["name"]))
            _scale(axes, [one["loss"] for one in fitted + peers])
            axes.set_xlim(left=0)
            axes.set_xlabel(f"{stage} of {fitted[0][stage]} tokens, tokens/s")
            axes.set_ylabel(LOSSES[report["objective"]])
            legend_below(figure, handles)
            plots.append((f"Loss against speed of {stage}", to_svg(figure, f"speed-{stage}", f"What is lost against tokens a second of {stage}")))
    return plots


def perplexities(report: dict) -> str:
    """A plot of the points that were run on text with next tokens; empty where there are none."""
    points = sorted((point for point in report["points"] if "perplexity" in point), key=lambda point: point["weights_bytes"])
    if not points:
        return ""
    with figure_style():
        figure, axes = plt.subplots(figsize=(PLOT_WIDTH, 3.4))
        axes.plot([point["weights_bytes"] / 1e6 for point in points], [point["perplexity"] for point in points], color=SERIES[1], marker="o", markersize=5, linewidth=1.6)
        axes.axhline(points[0]["float_perplexity"], color=MUTED, linewidth=1.0, linestyle=(0, (3, 2)))
        handles = [Line2D([], [], color=SERIES[1], marker="o", markersize=5, label="verified"), Line2D([], [], color=MUTED, linestyle=(0, (3, 2)), label="float model")]
        handles += _peers(axes, report, "perplexity")
        axes.set_xlabel("weights, MB")
        axes.set_ylabel("perplexity")
        legend_below(figure, handles)
        return to_svg(figure, "perplexity", "Perplexity against megabytes of weights")


def write(path: Path, report: dict, model: str, calib: str | None) -> None:
    html = pages.render(
        "search.html.j2",
        model=model,
        calib=calib,
        report=report,
        sensitivity=sensitivities(report),
        layers=[(point, formats_by_layer(report, point, number)) for number, point in enumerate(report["points"])],
        front=front(report),
        times=times(report),
        speeds=speeds(report),
        perplexities=perplexities(report),
    )
    write_atomically(path, html.encode())
