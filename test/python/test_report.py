# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The demo's page stands alone, says what was measured, and trusts no text."""

import numpy as np
import pytest

from easyquant import report
from easyquant.results import Answer, Result, WeightExample
from page_structure import Structure


def result(label: str, perplexity: float, scale: float, compared: bool) -> Result:
    figures = {"perplexity": perplexity, "perplexity_stderr": 0.5, "tokens_scored": 100}
    if compared:
        figures |= {
            "loss_increase": 0.01, "loss_increase_stderr": None, "kl_mean": 0.0123, "kl_p99": 0.4, "top1_agreement": 0.91,
            "top1_agreement_interval95": [0.9, 0.92], "max_logit_difference": 1.0,
        }  # fmt: skip
    figures["protocol"] = {"cpu": "A CPU", "isa": "avx2", "threads": 2, "windows": 4, "context": 8, "corpus_sha256": "abc123", "reference": None}
    speed = {
        "prefill_tokens_per_s": 100 * scale, "prefill_tokens_per_s_range": [90 * scale, 110 * scale],
        "decode_tokens_per_s": 10 * scale, "decode_tokens_per_s_range": [9 * scale, 11 * scale],
        "decode_share_of_roof": 0.5, "read_bandwidth_bytes_per_s": 1e10, "weights_bytes": int(4e8 / scale),
        "artifact_bytes": 5, "peak_rss_bytes": 7,
        "protocol": {"prefill": 8, "decode": 4, "batch": 1, "statistic": "median", "repeats": 3, "warm_up": 1},
    }  # fmt: skip
    return Result(label, label.lower(), figures, speed, 1.5, 1000)


@pytest.fixture(scope="module")
def page() -> str:
    random = np.random.default_rng(0)
    before = random.normal(0, 0.1, (16, 24)).astype(np.float32)
    weights = WeightExample("model.layers.0.mlp.down_proj", before, [("W8A8", before + 0.001, 0.0125), ("W4A8", before * 0.9, 0.1)])
    results = [result("float", 20.0, 1.0, False), result("W8A8", 21.0, 4.0, True), result("W4A8", 19.0, 5.0, True)]
    answer = Answer("W8A8", "What is <b>?", "It's <script>alert(1)</script> & more", "fast")
    return report.render(results, weights, answer, model="A <model>", text="read text", command="easyquant run x")


@pytest.fixture(scope="module")
def structure(page) -> Structure:
    return Structure(page)


def test_page_is_sound(structure):
    structure.check_elements_are_closed()
    structure.check_nothing_outside_is_referred_to()
    structure.check_ids()
    structure.check_colours()
    assert structure.tags.count("svg") == 4


def test_text_is_escaped(page):
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
    assert "What is &lt;b&gt;?" in page and "A &lt;model&gt;" in page


def test_numbers_are_shown(page):
    for shown in ("20.000", "21.000", "± 0.50", "0.0123", "91.0 %", "90.0–92.0", "400.0 MB", "100.0 MB", "1.25 %", "abc123", "median"):
        assert shown in page, shown


def test_summary_compares_with_the_float_artifact():
    results = [result("float", 20.0, 1.0, False), result("W8A8", 21.0, 4.0, True), result("W4A8", 19.0, 5.0, True)]
    first, second = report.summarize(results)
    assert "4.0 times less memory" in first and "5.0% higher" in first
    assert "5.0 times less memory" in second and "5.0% lower" in second
