# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gate for accuracy: benchmarks/quality.py on SmolLM2 off its grid, with few and short samples and windows."""

import json
import subprocess
import sys

import pytest

from helpers import REPO, test_data
from quality import GOLDENS, judge

SCRIPT = REPO / "benchmarks" / "quality.py"
# Without AWQ and GPTQ, which take long here. On a real layer test_awq.py compares factors and ranges with a search of its own, test_gptq.py codes with a plain solver.
VARIANTS = "W8A8/absmax,W8A8/smoothquant,W4A16/absmax,W4A8/zeroquant,T4A16/absmax,Q4/zeropoint"
# The others vary what these judge.
FEW = "W8A8/absmax,W8A8/smoothquant"
# Golden figures are recorded for these.
SIZES = ("--nsamples=16", "--seqlen=256", "--context=256", "--windows=6")


def quality(model, folder, *options):
    texts = [f"--calib={test_data('austen-6-novels.txt')}", f"--text={test_data('wikitext2-raw-test.joined.txt')}"]
    command = [sys.executable, SCRIPT, model, *texts, f"--work={folder}", *SIZES, *options]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=3600)


@pytest.mark.parametrize("variants", [FEW, pytest.param(VARIANTS, marks=pytest.mark.slow)], ids=["few", "all"])
def test_every_method_is_as_good_as_it_was(smollm2_degrid, tmp_path, variants):
    done = quality(smollm2_degrid, tmp_path, f"--variants={variants}")
    count = variants.count(",") + 1
    assert done.returncode == 0 and f"0 problems in {count} variants" in done.stdout, done.stdout + done.stderr
    assert "none" not in done.stdout, "a variant without a golden figure"

    # It goes on from what it found, and ends with status 1 where that has a problem.
    file = tmp_path / "W8A8-smoothquant.json"
    found = json.loads(file.read_text())
    file.write_text(json.dumps(found | {"kl_mean": found["kl_mean"] * 1.15}))
    done = quality(smollm2_degrid, tmp_path, f"--variants={variants}")
    assert done.returncode == 1 and "W8A8 smoothquant: KL" in done.stdout and "1 problems" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("isa", ["avx2", "avx512vnni"])
@pytest.mark.parametrize("name, factor, problem", [
    ("Q4 zeropoint", 1.15, "Q4 zeropoint: KL"), ("Q4 zeropoint", 0.85, "Q4 zeropoint: KL"), ("W8A8 smoothquant", 1.15, "W8A8 smoothquant: KL"),
    ("T4A16 absmax", 0.7, "T4A16 absmax: KL"), ("T4A16 absmax", 1.3, "T4A16 absmax: KL"), ("W8A8 smoothquant", 9, "is not ahead of"),
])  # fmt: skip
def test_worse_better_and_broken_orders_are_seen(isa, name, factor, problem):
    """On a machine of each instruction set that finds what is golden there."""
    goldens = next(entry["kl"] for entry in json.loads(GOLDENS.read_text()) if entry["setting"]["nsamples"] == 16)
    assert sorted(goldens) == sorted(VARIANTS.replace("/", " ").split(","))
    found = {variant: {"kl_mean": kl[isa], "protocol": {"isa": isa}} for variant, kl in goldens.items()}
    assert judge(found, goldens) == []
    found[name]["kl_mean"] *= factor
    problems = judge(found, goldens)
    assert problems and any(problem in line for line in problems)


@pytest.mark.parametrize("options, message", [(("--variants=W8A8/gtpq",), "W8A8/gtpq is none of")])
def test_bad_arguments(smollm2_degrid, tmp_path, options, message):
    done = quality(smollm2_degrid, tmp_path, *options)
    assert done.returncode == 1 and message in done.stderr
