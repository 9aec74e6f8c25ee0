# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The figures of `easyquant compare`: nothing cut off, over something else, hidden, too small or large, or without a key."""

import io
import re
from itertools import combinations

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.image import imread
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from comparisons import BOUNDS, finding, page_of
from easyquant.evaluation.comparison import Variant, plan
from easyquant.reports import compare_plots
from easyquant.reports.plots import LARGE, SERIES, SMALL

METHODS = ["absmax", "zeropoint", "symmetric", "zeroquant", "zeroquant+lkd", "smoothquant", "awq", "gptq"]
LONG = ["smoothquant+zeroquant+gptq+lkd", "smoothquant+awq+gptq", "awq+gptq", "smoothquant+gptq", "smoothquant+zeroquant+lkd"]
# The widest letter-box that a page has for a figure, and the narrowest, of a telephone of 360 pixels.
PAGE, TELEPHONE = 980, 300


def variants(methods, schemes, kv_schemes=("none",), sweep=()):
    return plan(methods, schemes, list(kv_schemes), 64, list(sweep))[0]


CASES = {
    "one": variants(["absmax"], ["W4A16"]),
    "two": variants(["absmax", "gptq"], ["W4A16"]),
    "many": variants(METHODS, ["W8A8", "W3A16"], ["none", "int4"], [4, 16]),
    "long": variants(METHODS + LONG, ["W4A8_ASYM"], ["int8", "int2"]),
    "float": [Variant("float", "none"), Variant("float", "none", "int8")],
}


def findings_of(case):
    """Figures that are equal in some, nearly equal in others, and explode once; a single layer where there are two variants."""
    found = []
    for i, variant in enumerate(CASES[case]):
        perplexity = 4e3 if (variant.method, variant.scheme) == ("symmetric", "W3A16") else 20.0 + i // 4 / 7
        megabytes, kl = (540.0, None if i == 0 else 1e-4) if variant.scheme == "none" else (80.0 + i // 4, 0.1 + i // 2 / 9)
        found.append(finding(variant, perplexity, megabytes, kl, 1 if case == "two" else 3))
    return found


def texts_of(figure) -> list[Text]:
    """All that are drawn: ticks are kept for later where the axis does not reach."""
    idle = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        idle |= {label for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high for label in (tick.label1, tick.label2)}
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip() and text not in idle]


def check(figure):
    figure.draw_without_rendering()
    canvas = figure.bbox.padded(1)
    boxes = {text: text.get_window_extent() for text in texts_of(figure)}
    for text, box in boxes.items():
        assert SMALL <= text.get_fontsize() <= LARGE, text
        assert canvas.x0 <= box.x0 and box.x1 <= canvas.x1 and canvas.y0 <= box.y0 and box.y1 <= canvas.y1, text
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        assert min(a.x1, b.x1) - max(a.x0, b.x0) < 1 or min(a.y1, b.y1) - max(a.y0, b.y0) < 1, (one, other)
    for axes in figure.axes:
        check_nothing_is_cut_off(axes)
    check_key(figure)


def check_nothing_is_cut_off(axes):
    room = axes.get_window_extent().padded(1)
    for artist in axes.get_children():
        if isinstance(artist, Line2D):
            places = artist.get_transform().transform(artist.get_xydata())
        elif isinstance(artist, LineCollection):
            places = artist.get_transform().transform(np.concatenate(artist.get_segments()))
        elif isinstance(artist, Rectangle) and artist is not axes.patch:
            places = artist.get_window_extent().get_points()
        else:
            continue
        places = places[np.isfinite(places).all(axis=1)]
        assert len(places) == 0 or (places.min(axis=0) >= room.p0).all() and (places.max(axis=0) <= room.p1).all(), artist


def colours_of(artists) -> set[str]:
    """The series' colours that artists are drawn with."""
    found = set()
    for artist in artists:
        for get in ("get_color", "get_edgecolor"):
            value = getattr(artist, get, lambda: [])()
            found |= {to_hex(colour) for colour in (value if isinstance(value, np.ndarray) and value.ndim == 2 else [value]) if len(colour)}
    return found & set(SERIES)


def check_key(figure):
    """Lines and points have a key, which names each colour once, and each is to be seen. Bars and areas carry their names themselves."""
    drawn = colours_of(artist for axes in figure.axes for artist in axes.get_children() if isinstance(artist, (Line2D, PathCollection)))
    if not drawn:
        return
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert len(names) == len(set(names)) and drawn == colours_of(legend.legend_handles)
    shapes = {handle.get_marker() for handle in legend.legend_handles if isinstance(handle, Line2D)} - {"None"}
    points = [artist for axes in figure.axes for artist in axes.get_children() if isinstance(artist, PathCollection)]
    assert len({str(point.get_paths()[0].vertices.tolist()) for point in points}) <= len(shapes) + 1  # the float model needs none

    # The colours differ by one step: blended edges would look like their neighbours.
    for artist in figure.findobj(lambda artist: hasattr(artist, "set_antialiased")):
        artist.set_antialiased(False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120, facecolor="white")
    pixels = (imread(io.BytesIO(picture.getvalue()))[..., :3] * 255).round().astype(int)
    (x0, y0), (x1, y1) = (figure.axes[0].get_window_extent().transformed(figure.transFigure.inverted()).get_points() * pixels.shape[1::-1]).astype(int)
    inside = pixels[pixels.shape[0] - y1 : pixels.shape[0] - y0, x0:x1].reshape(-1, 3)
    assert drawn <= {f"#{r:02x}{g:02x}{b:02x}" for r, g, b in np.unique(inside, axis=0)}


@pytest.mark.parametrize("case", CASES)
def test_figures_can_be_read(case, monkeypatch, tmp_path):
    titles, draw = {}, compare_plots.to_svg

    def checked(figure, name, description):
        check(figure)
        titles.setdefault(name.partition("-")[0], []).append(figure.get_suptitle() or figure.axes[0].get_title("left"))
        return draw(figure, name, description)

    monkeypatch.setattr(compare_plots, "to_svg", checked)
    bounds = {scheme: BOUNDS["W8A8"] for scheme in dict.fromkeys(v.scheme for v in CASES[case]) if scheme != "none"}
    outliers = {kind: [2.0, 9.0, 3.0 + (kind == "o_proj") / 100] for kind in ("q_proj", "k_proj", "o_proj")}
    page = page_of(tmp_path, findings_of(case), bounds=bounds, outliers=outliers)

    headings = re.findall(r"<h[123]>(.*?)</h[123]>", page)
    for panels in titles.values():
        assert len(panels) == len(set(panels)) and not set(panels) & set(headings)
    figures = re.findall(r'<svg role="img" aria-label="[^"]+" style="max-width: (\d+)px"\s+viewBox="0 0 ([\d.]+) ', page)
    assert len(figures) == page.count("<svg") == sum(map(len, titles.values()))
    for most, width in ((float(most), float(width)) for most, width in figures):
        # The size in pixels of a letter of so many points.
        assert LARGE * min(most, PAGE) / width <= 16 and SMALL * min(most, TELEPHONE) / width >= 7.4
