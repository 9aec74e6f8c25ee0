# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `easyquant compare` plans, keeps between runs, and shows."""

from types import SimpleNamespace

import numpy as np
import pytest

from easyquant import compare_report
from easyquant.bounds import BoundRow, bound_rows, bounds_tables, moved_bytes, smoothing_rows
from easyquant.compare import split_counts, split_list
from easyquant.comparison import (
    Finding,
    Protocol,
    Variant,
    WorstRounding,
    errors_by_layer,
    layer_of,
    outliers_by_layer,
    paired_difference,
    pareto,
    plan,
    store,
    stored,
    worst_rounding,
)
from easyquant.errors import UserError
from page_structure import Structure

PROTOCOL = Protocol(
    model="m", text_sha256="t", calib_sha256="c", context=64, max_windows=2, nsamples=8, seqlen=32, seed=0, group_size=None,
    ignore=(), prefill=16, decode=4, repeats=1,
)  # fmt: skip


def finding(variant: Variant, perplexity: float, megabytes: float, kl: float | None) -> Finding:
    figures = {"perplexity": perplexity, "perplexity_stderr": 0.5, "tokens_scored": 100, "windows": {"loss": [3.0, 3.1, 3.2]}}
    if kl is not None:
        figures |= {
            "loss_increase": 0.01, "loss_increase_stderr": 0.002, "kl_mean": kl, "kl_p99": 0.4, "top1_agreement": 0.91,
            "top1_agreement_interval95": [0.9, 0.92], "max_logit_difference": 1.0,
        }  # fmt: skip
        figures["windows"] |= {"kl": [kl * 0.9, kl, kl * 1.1], "top1": [0.9, 0.91, 0.92]}
    figures["protocol"] = {"cpu": "A CPU", "isa": "avx2", "threads": 2, "windows": 4, "context": 8, "artifact": "x", "reference": None}
    speed = {"weights_bytes": int(megabytes * 1e6), "cache_bytes_per_token": 128, "prefill_tokens_per_s": 100.0, "decode_tokens_per_s": 10.0}
    sites = [
        {"name": f"model.layers.{layer}.mlp.down_proj", "out_features": 4, "in_features": 8, "weight": {"bits": 4},
         "weight_error": 0.1 + layer, "largest_error": 0.2, "rounding_bound": 0.25 + layer}
        for layer in range(2)
    ]
    histogram = None if kl is None else list(range(161))
    return Finding(variant, figures, speed, {"wall_seconds": 1.5, "cpu_seconds": 2.0, "peak_rss_bytes": 1000}, sites if kl else [], histogram)


def test_plan_puts_the_float_model_first_and_leaves_out_what_makes_no_sense():
    variants, skipped = plan(["absmax", "smoothquant", "gptq"], ["W8A8", "W4A16"], ["none", "int8"], 64, [8, 64])
    assert variants[:2] == [Variant("float", "none"), Variant("float", "none", "int8")]
    assert Variant("smoothquant", "W8A8", "int8", 64) in variants and Variant("absmax", "W4A16") in variants
    assert [variant.label for variant, _ in skipped] == ["smoothquant W4A16"]
    sweep = [variant for variant in variants if variant.nsamples == 8]
    assert sweep == [Variant("smoothquant", "W8A8", "none", 8), Variant("gptq", "W8A8", "none", 8)]
    assert len(variants) == len(set(variants))


def test_reference_is_float_even_if_only_quantized_caches_are_asked_for():
    variants, _ = plan(["absmax"], ["W8A8"], ["int4"], 8, [])
    assert variants == [Variant("float", "none"), Variant("float", "none", "int4"), Variant("absmax", "W8A8", "int4")]


def test_file_names_tell_variants_apart():
    names = {Variant(*v).slug for v in [("awq+gptq", "W4A16"), ("awq", "W4A16"), ("awq", "W4A16", "int4"), ("awq", "W4A16", "none", 8), ("awq", "W4A16_ASYM")]}
    assert len(names) == 5 and all(name.replace("-", "").isalnum() for name in names)


def test_finding_survives_the_disk_and_goes_stale_with_the_protocol(tmp_path):
    variant = Variant("awq", "W4A16", "none", 8)
    found, file = finding(variant, 20.0, 80, 0.1), tmp_path / "awq.json"
    found.save(file, PROTOCOL.stamp(variant))
    assert Finding.load(file, PROTOCOL.stamp(variant)) == found
    other = Protocol(**{**PROTOCOL.__dict__, "seed": 1})
    assert Finding.load(file, other.stamp(variant)) is None
    assert Finding.load(tmp_path / "missing.json", PROTOCOL.stamp(variant)) is None
    file.write_text(file.read_text()[:-40])
    assert Finding.load(file, PROTOCOL.stamp(variant)) is None


def test_layers_are_read_from_site_names():
    assert layer_of("model.layers.12.self_attn.q_proj") == 12 and layer_of("h.3.mlp.c_fc") == 3 and layer_of("lm_head") is None


def test_differences_are_of_the_same_windows():
    one, other = finding(Variant("gptq", "W4A16"), 20, 80, 0.3), finding(Variant("awq", "W4A16"), 20, 80, 0.2)
    difference, error = paired_difference(one, other, "kl")
    assert difference == pytest.approx(0.1)
    assert error == pytest.approx(0.01 / 3**0.5)


def test_the_worst_rounding_is_the_one_nearest_to_its_bound():
    worst = worst_rounding(finding(Variant("absmax", "W4A16"), 20, 80, 0.3).sites)
    assert worst == WorstRounding("model.layers.0.mlp.down_proj", 0.2, 0.25) and worst.share == pytest.approx(0.8)
    assert worst_rounding([]) is None


def test_error_of_a_layer_weighs_its_sites_by_size():
    sites = [
        {"name": "h.0.a", "out_features": 1, "in_features": 1, "weight": {}, "weight_error": 0.0},
        {"name": "h.0.b", "out_features": 3, "in_features": 1, "weight": {}, "weight_error": 0.2},
        {"name": "h.1.a", "out_features": 5, "in_features": 2, "weight": None},
    ]
    assert errors_by_layer(sites) == pytest.approx([(0.75 * 0.04) ** 0.5])


def test_outliers_are_the_largest_channel_over_the_median_one(tmp_path):
    from safetensors.numpy import save_file

    tensors = {f"model.layers.{i}.mlp.up_proj/absmax": np.array([1, 2, 4.0 * (i + 1)], np.float32) for i in range(2)}
    save_file(tensors | {"lm_head/absmax": np.ones(3, np.float32), "model.layers.0.mlp.up_proj/min": np.ones(3, np.float32)}, tmp_path / "s.safetensors")
    assert outliers_by_layer(tmp_path / "s.safetensors") == {"up_proj": [2.0, 4.0]}
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(UserError, match="bad.safetensors"):
        outliers_by_layer(tmp_path / "bad.safetensors")


def test_pareto_front():
    assert pareto([(3, 1), (1, 5), (2, 5), (2, 3), (4, 2)]) == [1, 3, 0]


@pytest.mark.parametrize("text", ["8,,16", "8,x", "0", "-4"])
def test_bad_lists_are_refused(text):
    with pytest.raises(UserError, match="--nsamples-sweep"):
        split_counts("--nsamples-sweep", text)
    assert split_list("--methods", "awq, gptq,awq") == ["awq", "gptq"]


def pair(measured: float, bound: float, **where) -> dict:
    return {"measured": measured, "bound": bound, "share": measured / bound if bound else None if measured else 0.0} | where


def bounds_report(scale: float, smooths: bool) -> dict:
    """As easyquant-measure-bounds writes it."""
    cache = [pair(0.4 * layer + 0.1 / bits, 1.0, layer=layer, bits=bits, tensor=tensor) for layer in (0, 1) for bits in (8, 4, 2) for tensor in ("keys", "values")]
    smoothing = {"sites": ["a", "b"], "best_mean": 0.4, "best_least": 0.2, "best_greatest": 0.7, "searched": 0.55, "error_best": 2.0, "error_searched": 3.0, "error_plain": 40.0}
    return {
        "samples": 2, "all_samples": 4, "rows": 32, "risk": 0.05,
        "weights": [pair(0.25 * scale, 0.5, site="up"), pair(0.2 * scale, 0.25, site="down")],
        "outputs": [pair(0.1, 4.0, site="up"), pair(3.0, 2.0, site="gate")],
        "layers": [pair(1.0, 1.0, layer=0), pair(1.5, 3.0, layer=1), pair(2.0, 8.0, layer=2)],
        "keys_values": cache,
        "sampling": [pair(0.1 / n, 1.0 / n, samples=n, sites=["up", "gate"]) for n in (1, 2)],
        "smoothing": [smoothing, smoothing | {"sites": ["c"], "error_searched": 2.1}] if smooths else [],
        "bytes_per_token": [{"site": "up", "fused": 1000, "separate": 3000}, {"site": "down", "fused": 500, "separate": 600}],
        "left_out": ["keys and values: a <reason>"],
    }


BOUNDS = {"W8A8": bounds_report(1.0, True), "W4A16": bounds_report(1.3, False)}


def test_bounds_are_shown_where_they_are_nearest_or_exceeded():
    rows = {(row.scheme, row.quantity): row for row in bound_rows(BOUNDS)}
    assert rows["W8A8", "weight, |W − Ŵ|"] == BoundRow("W8A8", "weight, |W − Ŵ|", "down", 0.2, 0.25, 0.8)
    above = rows["W4A16", "weight, |W − Ŵ|"]
    assert above.is_above and above.measured == pytest.approx(0.26) and above.share_text == "104.0%, above"
    assert rows["W8A8", "output of a linear"].share_text == "150.0%, above"
    assert rows["W8A8", "hidden states, all layers up to one quantized"].where == "layer 1"
    assert rows["W8A8", "hidden states, all layers quantized"].share == 0.25
    assert rows["any", "keys of an int2 cache"].measured == pytest.approx(0.45) and rows["any", "values of an int8 cache"].where == "layer 1"
    assert rows["any", "mean scale of n samples against all 4"].where == "up, n = 1"
    assert len(rows) == 2 * 4 + 6 + 1


def test_a_bound_is_never_rounded_to_kept():
    assert BoundRow("any", "q", "w", 1.0, 0.0, None).share_text == "above a bound of 0"
    assert BoundRow("any", "q", "w", 1.000004, 1.0, 1.000004).share_text == "100.00040%, above"
    assert BoundRow("any", "q", "w", 1.0, 1.0, 1.0).share_text == "100.0%"


def test_smoothing_and_bytes_of_all_schemes():
    (row,) = smoothing_rows(BOUNDS)
    assert (row.scheme, row.where, row.best, row.searched, row.error_searched) == ("W8A8", "a, b", "0.40 (0.20 to 0.70)", 0.55, 3.0)
    assert moved_bytes(BOUNDS) == [("W8A8", 1500, 3600), ("W4A16", 1500, 3600)]
    assert [table.row_count for table in bounds_tables(BOUNDS)] == [15, 1, 2]


def test_bounds_are_stored_under_their_protocol(tmp_path):
    stamp, file = PROTOCOL.stamp(Variant("bounds", "W8A8")), tmp_path / "bounds-w8a8.json"
    store(file, stamp, BOUNDS["W8A8"])
    assert stored(file, stamp) == BOUNDS["W8A8"]
    assert stored(file, PROTOCOL.stamp(Variant("bounds", "W4A16"))) is None
    for text in ("", "[1]", '{"samples": 2}'):
        file.write_text(text)
        assert stored(file, stamp) is None


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    findings = [
        finding(Variant("float", "none"), 20.0, 540, None),
        finding(Variant("absmax", "W4A16"), 25.0, 80, 0.4),
        finding(Variant("awq", "W4A16", "none", 8), 21.0, 80, 0.2),
        finding(Variant("awq", "W4A16", "none", 64), 20.5, 80, 0.15),
        finding(Variant("absmax", "W4A16", "int4"), 500.0, 80, 0.5),
    ]
    comparison = SimpleNamespace(protocol=Protocol(**{**PROTOCOL.__dict__, "nsamples": 64}), site="model.layers.0.mlp.down_proj", edges=np.linspace(-1, 1, 162), before=[1] * 161)
    file = tmp_path_factory.mktemp("page") / "report.html"
    skipped, failures = [(Variant("smoothquant", "W4A16"), "a <reason>")], [(Variant("gptq", "W4A16"), "no memory")]
    compare_report.write(file, comparison, findings, skipped, failures, title="A <model>", text="wiki", calib="novels", outliers={"up_proj": [2.0, 9.0]}, bounds=BOUNDS, bounds_failed={"W3A16": "out of <memory>"})
    return file.read_text()


def test_page_is_sound(page):
    structure = Structure(page)
    structure.check_elements_are_closed()
    structure.check_nothing_outside_is_referred_to()
    structure.check_ids()
    structure.check_colours()
    assert structure.tags.count("svg") == 8


def test_page_says_what_was_found(page):
    for shown in ("A &lt;model&gt;", "a &lt;reason&gt;", "no memory", "20.500", "0.1500", "Pareto", "64 samples of 32 tokens", "W4A16: awq stays closest"):
        assert shown in page, shown


def test_page_shows_bounds_beside_measured_errors(page):
    assert "Bounds beside measured errors" in page and "mean scale of n samples" in page
    for shown in ("<strong>104.0%, above</strong>", "<td>0.26</td><td>0.25</td>", "0.40 (0.20 to 0.70)", "3,600", "keys and values: a &lt;reason&gt;", "out of &lt;memory&gt;"):
        assert shown in page, shown
