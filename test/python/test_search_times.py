# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Searches whose choices keep limits of time. The oracle is the enumeration of all choices, by the times that were measured."""

import itertools
import json
import os
import platform

import pytest

from helpers import assert_refused
from page_structure import Structure
from searching import COMMON, TEXT, Searched, command


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    return Searched(tmp_path_factory.mktemp("search-times"))


@pytest.fixture(scope="module")
def report(searched):
    return searched.search("grid", "avg-bits=6,4.5")


TIMES = {"decode_ms": "max-decode-ms", "prefill_ms": "max-prefill-ms"}


def time_of(report, chosen, key):
    """What the groups take in their formats."""
    return sum(next(choice[key] for choice in group["choices"] if choice["format"] == form) for group, form in zip(report["groups"], chosen))


@pytest.fixture(scope="module")
def timed(searched):
    """The search with limits that any choice keeps. Times stay in the work folder: what follows there chooses by the same."""
    return searched.search("timed", "avg-bits=6,4.5", "max-decode-ms=1e6", "max-prefill-ms=1e6", "threads=1")


def limited(searched, *limits, **options):
    return searched.run("timed", "avg-bits=6,4.5", *limits, "threads=1", **options)


def test_times_are_those_of_the_choices(searched, report, timed):
    assert [point["formats"] for point in timed["points"]] == [point["formats"] for point in report["points"]]
    assert len([name for name in os.listdir(searched.folder / "timed" / "work") if "times" in name]) == 2
    fixed = {key: timed["points"][0][key] - time_of(timed, timed["points"][0]["formats"], key) for key in TIMES}
    for point in timed["points"]:
        for key in TIMES:
            assert point[key] == pytest.approx(fixed[key] + time_of(timed, point["formats"], key)) and fixed[key] > 0
        assert point["prefill_ms"] > 2 * point["decode_ms"]
    # Layers have equal shapes, whose kernels are timed once; gate and up are one linear.
    for first, second in zip(timed["groups"][:4], timed["groups"][4:]):
        assert [[choice[key] for key in TIMES] for choice in first["choices"]] == [[choice[key] for key in TIMES] for choice in second["choices"]]


@pytest.mark.parametrize("key, unit", [("decode_ms", "ms a token"), ("prefill_ms", "ms for 512 tokens")])
def test_speed_takes_part(searched, timed, key, unit):
    fixed = timed["points"][0][key] - time_of(timed, timed["points"][0]["formats"], key)
    least = fixed + sum(min(choice[key] for choice in group["choices"] if "loss" in choice) for group in timed["groups"])
    limit = (least + min(point[key] for point in timed["points"])) / 2
    done = limited(searched, f"{TIMES[key]}={limit}")
    if done.returncode == 0:
        bound = json.loads((searched.folder / "timed" / "report.json").read_text())
        for point, before in zip(bound["points"], timed["points"]):
            assert point[key] <= limit + 1e-9 and point["predicted"] >= before["predicted"] - 1e-12
            assert (TIMES.keys() - {key}).isdisjoint(point)  # nobody asked for it
    else:  # the fastest formats may be those of more bytes
        assert_refused(done, "the fastest formats")
    assert_refused(limited(searched, f"{TIMES[key]}={least / 1e3}"), f"{TIMES[key]} ", "cannot be met", "the fastest formats within the budget of bytes take", unit, "allow more time")
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[platform.machine()]
    for target in ("sm_80", other, f"{other},cpu"):
        assert_refused(searched.run("bad", "avg-bits=6", f"{TIMES[key]}=1", f"target={target}"), f"{TIMES[key]} is measured on this machine's CPU", f"first target, '{target.split(',')[0]}'")
    for wrong in ("-1", "nan", "inf"):
        assert_refused(searched.run("bad", "avg-bits=6", f"{TIMES[key]}={wrong}"), f"{TIMES[key]} must be a number above 0, or 0 for any time, found")


def test_both_speeds_take_part(searched, timed):
    """Where limits are those of a choice, it keeps both."""
    tables = [[choice for choice in group["choices"] if "loss" in choice] for group in timed["groups"]]
    for point in timed["points"]:
        fixed = {key: point[key] - time_of(timed, point["formats"], key) for key in TIMES}
        within = [choice for choice in itertools.product(*tables) if sum(c["bytes"] for c in choice) <= point["budget"]["value"] * timed["weights"] / 8]
        limits = {key: (min(sum(c[key] for c in choice) for choice in within) + time_of(timed, point["formats"], key)) / 2 + fixed[key] for key in TIMES}
        met = [choice for choice in within if all(sum(c[key] for c in choice) <= limits[key] - fixed[key] for key in TIMES)]
        done = searched.run("timed", f"avg-bits={point['budget']['value']}", *(f"{TIMES[key]}={limits[key]}" for key in TIMES), "threads=1")
        if done.returncode:
            assert_refused(done, "max-decode-ms", "and max-prefill-ms", "cannot be met together", "ms a token", "ms for 512 tokens")
            continue
        found = json.loads((searched.folder / "timed" / "report.json").read_text())["points"][0]
        assert all(found[key] <= limits[key] + 1e-9 for key in TIMES)
        assert found["predicted"] >= min(sum(c["loss"] for c in choice) for choice in met) * (1 - 1e-9)


def test_what_is_faster_is_measured(searched):
    """Where decode is limited, a format is dropped only if another one beats it in time, too."""
    options = dict(formats="W4A16,W4A16_ASYM,T4A16,W5A16,W8A16", group_sizes="16,32")
    found = searched.search("faster", "avg-bits=9", "max-decode-ms=1e6", **options)
    for group in found["groups"]:
        kept = []
        for choice in sorted(group["choices"], key=lambda c: (c["bytes"], c["weight_error"])):
            if not any(k["weight_error"] <= choice["weight_error"] and choice["decode_ms"] >= 0.97 * k["decode_ms"] for k in kept):
                kept.append(choice)
        assert [c["format"] for c in group["choices"] if "loss" in c] == sorted(k["format"] for k in kept)


def test_both_times_are_shown(stories, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    limits = ("--max-decode-ms", "1e5", "--max-prefill-ms", "1e6")
    done = command(stories, "--avg-bits", "5,6", *limits, "--calib", tmp_path / "text.txt", *COMMON, "--front", tmp_path / "timed", "--report", tmp_path / "timed-report")
    assert done.returncode == 0, done.stderr
    assert "linears, ms a token" in " ".join(done.stdout.split()) and "linears, ms for 512 tokens" in " ".join(done.stdout.split())
    points = json.loads((tmp_path / "timed" / "search.json").read_text())["points"]
    page = (tmp_path / "timed-report" / "index.html").read_text()
    for point in points:
        assert point["prefill_ms"] > point["decode_ms"] > 0
        assert all(f">{point[key]:.3f}</td>" in page for key in TIMES)
    for stage in ("decode", "prefill"):
        assert f"Loss against time of {stage}" in page
    structure = Structure(page)
    structure.check_elements_are_closed()
    structure.check_nothing_outside_is_referred_to()
    structure.check_ids()
    structure.check_colours()


@pytest.mark.parametrize("option, value", [("--max-decode-ms", "0"), ("--max-prefill-ms", "nan"), ("--max-prefill-ms", "-3")])
def test_limits_that_are_none(stories, tmp_path, option, value):
    (tmp_path / "text.txt").write_text(TEXT)
    done = command(stories, "--avg-bits", "4", "--calib", tmp_path / "text.txt", "-o", tmp_path / "r.yaml", option, value)
    assert_refused(done, f"{option} {value}: expected milliseconds above 0")
    assert not (tmp_path / "r.yaml").exists()


def test_limits_of_another_processor(stories, tmp_path):
    """The error comes before the notes of what ran until then."""
    (tmp_path / "text.txt").write_text(TEXT)
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[platform.machine()]
    limits = ("--max-decode-ms", "5", "--target", other)
    done = command(stories, "--avg-bits", "5", "--calib", tmp_path / "text.txt", "--nsamples", "2", "--seqlen", "64", "-o", tmp_path / "r.yaml", *limits)
    assert_refused(done, f"first target, '{other}'", "note: site")
    assert done.stderr.startswith("error: max-decode-ms is measured on this machine's CPU")
