# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all pages share, and the page of `easyquant search`: read on a telephone, in the light and in the dark."""

import re

import pytest

from easyquant.reports import pages, search_report
from helpers import REPO
from page_structure import Structure

TEMPLATES = REPO / "python/easyquant/reports/templates"
LAYERS = 12


def group(kind, layer):
    loss = 0.02 / (1 + (layer or 0))
    return {"kind": kind, "layer": layer, "weights": 1000, "choices": [{"format": 0, "bytes": 500, "loss": loss}, {"format": 1, "bytes": 1000, "loss": loss / 30}]}


GROUPS = [*(group(kind, layer) for kind in ("q_proj", "o_proj", "up_proj", "down_proj") for layer in range(LAYERS)), group("lm_head", None)]


def point(bits, megabytes, loss):
    formats = [int(index % 5 < bits - 4) for index in range(len(GROUPS))]
    return {"avg_bits": bits, "weights_bytes": megabytes * 1_000_000, "predicted": loss * 1.1, "verified": loss, "evaluations": 7, "formats": formats,
            "perplexity": 20 + loss, "float_perplexity": 20.0}


REPORT = {
    "strategy": "sensitivity", "objective": "kl", "groups": GROUPS, "layers": list(range(LAYERS)), "checks": [],
    "formats": [{"name": "W4A16", "scheme": "W4A16"}, {"name": "W8A16_ASYM", "scheme": "W8A16_ASYM"}],
    "points": [point(4.5, 80, 0.09), point(5.5, 95, 0.04)],
    "peers": [{"name": "small Q4_K_M", "bytes": 91_000_000, "loss": 0.05, "perplexity": 20.1}, {"name": "small IQ9", "bytes": 70_000_000, "unread": "an unknown type"}],
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "index.html"
    search_report.write(file, REPORT, "small", "novels.txt")
    return file.read_text()


def test_the_search_page_is_sound(page):
    structure = Structure(page)
    structure.check_elements_are_closed()
    structure.check_nothing_outside_is_referred_to()
    structure.check_ids()
    structure.check_colours()


def test_columns_hold_what_their_heads_say(page):
    table = page.partition("<h2>Budgets</h2>")[2].partition("</table>")[0]
    heads, *rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    heads = re.findall(r'<th scope="col">(.*?)</th>', heads)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in rows]
    assert all(len(row) == len(heads) for row in cells)
    by_head = {head: [row[place] for row in cells] for place, head in enumerate(heads)}
    assert by_head["recipe or file"] == ["searched", "searched", "small Q4_K_M", "small IQ9"]
    assert by_head["bits a weight"] == ["4.500", "5.500", "", ""] and by_head["weights"] == ["80.0 MB", "95.0 MB", "91.0 MB", "70.0 MB"]
    assert "smaller than" not in page, "than what?"


def variables(scheme):
    """The colours of the page by name: {'--ink': (r, g, b)}."""
    light, dark = re.findall(r":root \{(.*?)\}", (TEMPLATES / "base.html.j2").read_text(), re.DOTALL)
    found = re.findall(r"(--[\w-]+): #(\w{6})", dark if scheme == "dark" else light)
    return {name: tuple(int(colour[place : place + 2], 16) for place in (0, 2, 4)) for name, colour in found}


def luminance(colour):
    """WCAG 2's."""
    parts = [value / 255 / 12.92 if value <= 10 else ((value / 255 + 0.055) / 1.055) ** 2.4 for value in colour]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_on_a_heat_map_can_be_read(page, scheme):
    """4.5 : 1, which WCAG asks of text, in the fullest cell too."""
    opacities = {float(opacity) for opacity in re.findall(r"fill: var\(--series-1\); opacity: ([\d.]+)", page)}
    assert len(opacities) > 5
    colours = variables(scheme)
    for opacity in opacities:
        cell = tuple(opacity * series + (1 - opacity) * card for series, card in zip(colours["--series-1"], colours["--card"]))
        darker, lighter = sorted((luminance(cell), luminance(colours["--ink"])))
        assert (lighter + 0.05) / (darker + 0.05) > 4.5, opacity


def test_nothing_is_wider_than_a_telephone():
    """Columns of a grid are as narrow as the page may be, and figures stand where they shrink."""
    for template in TEMPLATES.glob("*.j2"):
        text = template.read_text()
        assert not re.findall(r"repeat\(auto-fi\w+, minmax\((?!min\()[^)]*\)", text), template
        assert "min-width" not in text.replace("(max-width", ""), template


def test_cells_of_narrow_pages_say_what_they_are(page):
    """There a row is a list, without the heads above it; a cell over several columns has none."""
    assert '<td data-head="weights">80.0 MB</td>' in page and page.count('data-head="verified KL divergence"') == 4
    table = "<table><thead><tr><th scope='col'>a</th></tr></thead></table>"
    assert pages._with_heads(table) == table
    heads = "".join(f'<th scope="col">{name}<br><small>x &amp; y</small></th>' for name in "abcd")
    row = '<tr><th scope="row">1</th><td colspan="2">2</td><td>4</td></tr>'
    found = pages._with_heads(f"<table><thead><tr>{heads}</tr></thead><tbody>{row}</tbody></table>")
    assert f"<thead><tr>{heads}</tr></thead>" in found
    assert '<th scope="row">1</th><td colspan="2">2</td><td data-head="d x &amp; y">4</td>' in found
