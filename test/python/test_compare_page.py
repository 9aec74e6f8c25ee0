# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of `easyquant compare`, and its table on the terminal."""

import re

import pytest
from rich.console import Console

from comparisons import finding, page_of
from easyquant.commands.compare import results_table
from easyquant.evaluation.comparison import Variant, cache_remarks
from page_structure import Structure

FINDINGS = [
    finding(Variant("float", "none"), 20.0, 540, None),
    finding(Variant("absmax", "W4A16"), 25.0, 80, 0.4),
    finding(Variant("awq", "W4A16", "none", 64), 20.5, 80, 0.15),
    finding(Variant("absmax", "W4A16", "int8"), 25.0, 80, 0.4),
    finding(Variant("absmax", "W4A16", "int4"), 500.0, 80, 0.5),
    finding(Variant("awq", "W4A16", "none", 8), 21.0, 80, 0.2),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    skipped, failures = [(Variant("smoothquant", "W4A16"), "a <reason>")], [(Variant("gptq", "W4A16"), "no memory")]
    return page_of(tmp_path_factory.mktemp("page"), FINDINGS, skipped, failures, W3A16="out of <memory>")


def test_page_is_sound(page):
    structure = Structure(page)
    structure.check_elements_are_closed()
    structure.check_nothing_outside_is_referred_to()
    structure.check_ids()
    structure.check_colours()


def test_page_says_what_was_found(page):
    for shown in ("A &lt;model&gt;", "a &lt;reason&gt;", "no memory", "20.500", "0.1500", "64 samples of 32 tokens", "W4A16: awq stays closest"):
        assert shown in page, shown


def rows_of(page: str) -> dict[str, str]:
    """The rows of the first table by their headings, without markup."""
    rows = re.findall(r"<tr>\s*<th scope=\"row\">(.*?)</th>(.*?)</tr>", page[: page.index("<h2>Perplexity")], re.DOTALL)
    return {" ".join(re.sub(r"<[^>]*>", " ", heading).split()): row for heading, row in rows}


def test_rows_tell_variants_of_one_method_apart(page):
    """The front is of weights: neither another cache nor fewer samples of the same method are on it."""
    assert list(rows_of(page)) == [
        "float Pareto", "absmax W4A16", "awq W4A16 Pareto", "absmax W4A16, KV int8 cache not quantized, see below", "absmax W4A16, KV int4", "awq W4A16 8 samples",
    ]  # fmt: skip


def test_a_cache_that_was_not_quantized_is_said_to_be(page):
    remark = "KV int8: nothing was quantized: <short>; the figures are those of a float cache. Give a longer --context."
    assert cache_remarks(FINDINGS) == [remark, "KV int4: 50% of the tokens attended to codes."]
    assert remark.replace("<", "&lt;").replace(">", "&gt;") in page and "50% of the tokens attended to codes" in page
    console = Console(width=200, record=True)
    console.print(results_table(FINDINGS))
    assert "absmax W4A16, KV int8 *" in console.export_text()


def test_headings_differ_and_say_what_figures_do_not(page):
    headings = re.findall(r"<h[123]>(.*?)</h[123]>", page)
    assert len(headings) == len(set(headings))
    assert {"Perplexity", "Perplexity against size", "Accuracy against calibration", "Activation outliers", "Error of a mean scale"} <= set(headings)


def test_what_rounding_moves_is_told_in_half_steps(page):
    """Only round to nearest is bound by half a step; other methods pass it on purpose."""
    table = page.partition("<h2>Error per layer</h2>")[2].partition("</table>")[0]
    assert "half a step, s / 2" in table and "in half steps" in table and ">0.80</td>" in table and "bound" not in table and "%" not in table


def test_page_shows_bounds_beside_measured_errors(page):
    assert "Bounds beside measured errors" in page and "mean scale of n samples" in page
    for shown in ("<strong>104.0%, above</strong>", ">0.26</td>", ">0.25</td>", "0.40 (0.20 to 0.70)", "3,600", "keys and values: a &lt;reason&gt;", "out of &lt;memory&gt;"):
        assert shown in page, shown
