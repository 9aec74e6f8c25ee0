# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The demo's page stands alone, says what was measured, and trusts no text."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from easyquant.commands.demo import VARIANTS, answers_table, results_table
from easyquant.evaluation.results import Answer, Result, WeightExample
from easyquant.reports import report
from page_structure import Structure


def result(label: str, perplexity: float, scale: float, compared: bool) -> Result:
    figures = {"perplexity": perplexity, "perplexity_stderr": 0.5, "tokens_scored": 100}
    if compared:
        figures |= {
            "loss_increase": 0.01, "loss_increase_stderr": None, "kl_mean": 0.0123, "kl_p99": 0.4, "top1_agreement": 0.91,
            "top1_agreement_interval95": [0.9, 0.92], "max_logit_difference": 1.0,
        }  # fmt: skip
    figures["protocol"] = {"artifact": f"small, {label} in groups of 32", "cpu": "A CPU", "isa": "avx2", "threads": 2, "windows": 4, "context": 8, "corpus_sha256": "abc123", "reference": None}
    speed = {
        "prefill_tokens_per_s": 100 * scale, "prefill_tokens_per_s_range": [90 * scale, 110 * scale],
        "decode_tokens_per_s": 10 * scale, "decode_tokens_per_s_range": [9 * scale, 11 * scale],
        "decode_share_of_roof": 0.5, "read_bandwidth_bytes_per_s": 1e10, "weights_bytes": int(4e8 / scale),
        "artifact_bytes": 5, "peak_rss_bytes": 7,
        "protocol": {"prefill": 8, "decode": 4, "batch": 1, "statistic": "median", "repeats": 3, "warm_up": 1},
    }  # fmt: skip
    return Result(label, label.lower(), f"how {label} is", not compared, figures, speed, 1.5, 1000)


RESULTS = [result("float", 20.0, 1.0, False), result("W8A8", 21.0, 4.0, True), result("W4A16", 19.0, 5.0, True)]
ANSWERS = [Answer(label, f"{label} says <script>alert(1)</script> & more", "fast") for label in ("float", "W8A8", "W4A16")]


@pytest.fixture(scope="module")
def page() -> str:
    random = np.random.default_rng(0)
    before = random.normal(0, 0.1, (16, 24)).astype(np.float32)
    weights = WeightExample("model.layers.0.mlp.down_proj", before, [("W8A8", before + 0.001, 0.0125), ("W4A16", before * 0.9, 0.1)])
    return report.render(
        RESULTS, weights, ANSWERS, prompt="What is <b>?", model="A <model>", stored="Q4_1", calib="five.txt", calibrated_on="4 windows of five.txt",
        text="sixth.txt", output=Path("out"), seconds=125.4,
    )  # fmt: skip


@pytest.fixture(scope="module")
def structure(page) -> Structure:
    return Structure(page)


def test_page_is_sound(structure):
    structure.check_elements_are_closed()
    structure.check_nothing_outside_is_referred_to()
    structure.check_ids()
    structure.check_colours()
    assert structure.tags.count("svg") == 7, "each can stand below the others"


def test_text_is_escaped(page):
    assert "<script>alert" not in page and page.count("&lt;script&gt;alert(1)") == 3
    assert "What is &lt;b&gt;?" in page and "A &lt;model&gt;" in page


def test_numbers_are_shown(page):
    for shown in ("20.000", "21.000", "± 0.50", "0.0123", "91.0 %", "90.0–92.0", "200.0 MB", "100.0 MB", "80.0 MB", "1.25 %", "abc123", "median", "2 min 5 s", "small, W4A16 in groups of 32"):
        assert shown in page, shown


def test_the_page_says_what_was_held_out(page):
    assert "Calibrated on 4 windows of five.txt, judged on 4 windows of 8 tokens of sixth.txt, of which calibration saw nothing" in page


def test_sizes_are_compared_with_bf16(page):
    """The float artifact computes in f32, 400 MB; nobody would deploy it so."""
    assert "200.0 MB <small>of weights as bf16" in page and "2.0 × smaller than the float model as bf16" in page and "2.5 × smaller than the float model" in page
    first, second = report.summarize(RESULTS)
    assert "2.0 times less memory for weights than bf16" in first and "5.0% higher" in first
    assert "2.5 times less memory for weights than bf16" in second and "5.0% lower" in second


def test_the_terminal_shows_answers_side_by_side():
    console = Console(width=90, record=True)
    console.print(results_table(RESULTS), answers_table("What is?", ANSWERS))
    lines = console.export_text().splitlines()
    assert any(line.split()[:3] == ["float", "200.0", "MB"] for line in lines)
    assert [line.split() for line in lines if "float" in line][-2] == ["float", "W8A8", "W4A16"]
    assert any("float says" in line and "W8A8 says" in line and "W4A16 says" in line for line in lines)


def test_the_demo_shows_defaults(tmp_path):
    made = [(variant.scheme, variant.method) for variant in VARIANTS]
    assert made == [("none", None), ("W8A8", None), ("Q4", None)]
    for variant in VARIANTS:
        calibration = variant.options(tmp_path / "five.txt", 2).calibration
        assert (calibration is None) == (variant.scheme != "Q4") and (calibration is None or calibration.text.name == "five.txt")
