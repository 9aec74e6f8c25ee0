# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `easyquant compare` plans and keeps between runs."""

import numpy as np
import pytest

from comparisons import BOUNDS, PROTOCOL, finding
from easyquant.commands.compare import split_counts, split_list
from easyquant.evaluation.bounds import BoundRow, bound_rows, bounds_tables, moved_bytes, smoothing_rows
from easyquant.evaluation.comparison import (
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
from easyquant.support.errors import UserError

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
