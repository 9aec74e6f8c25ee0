# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant compare` from one end to the other on stories260K."""

import json
import os
import subprocess
import sys

import pytest

TEXT = "Once upon a time there was a little girl named Lily. She loved to play in the park with her friends. " * 12


def compare(stories, folder, *options):
    command = [
        sys.executable, "-m", "easyquant", "compare", stories, "--methods", "absmax,gptq", "--schemes", "W4A16", "--group-size", "32",
        "--calib", folder / "text.txt", "--text", folder / "text.txt", "--nsamples", "2", "--seqlen", "64", "--context", "128",
        "--max-windows", "2", "--repeats", "1", "-o", folder / "report", *options,
    ]  # fmt: skip
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    (folder / "text.txt").write_text(TEXT)
    return folder


def test_a_second_run_finds_all_and_writes_the_same_report(stories, folder):
    assert "bounds of W4A16" in compare(stories, folder, "--bounds")
    report, figures = folder / "report" / "report.html", folder / "report" / "comparison.json"
    first_page, first_figures = report.read_text(), figures.read_bytes()
    found = json.loads(first_figures)
    findings = {finding["variant"]["method"]: finding for finding in found["findings"]}
    assert findings.keys() == {"float", "absmax", "gptq"}
    assert all(site["largest_error"] <= 1.01 * site["rounding_bound"] for site in findings["absmax"]["sites"] if site["weight"])
    assert sum(findings["gptq"]["histogram"]) > 0
    bounds = found["bounds"]["W4A16"]
    assert found["bounds_failed"] == {} and len(bounds["weights"]) == len(findings["absmax"]["sites"])
    assert all(pair["measured"] <= pair["bound"] * (1 + 1e-4) for kind in ("weights", "outputs", "layers", "keys_values") for pair in bounds[kind])
    assert "Bounds beside measured errors" in first_page and "values of an int2 cache" in first_page

    again = compare(stories, folder, "--bounds")
    assert again.count("found by an earlier run") == 3 and "bounds of W4A16" not in again
    assert figures.read_bytes() == first_figures
    assert report.read_text().count("<svg") == first_page.count("<svg")
    assert not (folder / "report" / "artifacts").exists()

    compare(stories, folder)
    assert json.loads(figures.read_text())["bounds"] == {} and "Bounds beside" not in report.read_text(), "nobody asked for them"


def test_a_dry_run_predicts_and_writes_nothing(stories, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    command = [sys.executable, "-m", "easyquant", "compare", stories, "--methods", "awq", "--schemes", "W4A16", "--calib", tmp_path / "text.txt", "--text",
               tmp_path / "text.txt", "-o", tmp_path / "report", "--dry-run"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    for shown in ("36 of 36", "about ", "beside the model's own pages"):
        assert shown in done.stdout, done.stdout
    assert not (tmp_path / "report").exists()


def test_names_are_checked_before_any_work(stories, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    for options, message in (
        (("--methods", "absmax,awq+gtpq"), "--methods absmax,awq+gtpq: 'gtpq' is none of absmax"),
        (("--schemes", "w4a16"), "did you mean W4A16?"),
        (("--kv-schemes", "none,int3"), "--kv-schemes none,int3: 'int3' is none of none, int8, int4, int2"),
    ):
        command = [sys.executable, "-m", "easyquant", "compare", stories, "--text", tmp_path / "text.txt", "-o", tmp_path / "report", *options]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
        assert done.returncode == 1 and message in done.stderr, done.stderr
        assert not (tmp_path / "report").exists()
