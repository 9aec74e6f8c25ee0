# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of options: what the compiler prints of it, what the front desk makes of it, and what recipes take of it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import easyquant
from easyquant.compiler.options import CALIBRATED_METHODS, FILE, OPTIONS, CompileOptions
from helpers import assert_refused, run_tool

TABLE = json.loads(run_tool("easyquant-compile", "--describe-options").stdout)
ROWS = {row["name"]: row for row in TABLE["options"]}
KEYS = {f"{row.get('section', '')}.{row['key']}": row for row in TABLE["options"] if "key" in row}
# What else a recipe must say for the key to be legal.
NEEDS = {"weight_percentile": {"weight_observer": "percentile"}, "observer_percentile": {"observer": "percentile"}, "mixed": {"method": "zeroquant"}, "head_group_size": {"head": "W4A16"},
         "scale_type": {"group_size": 64}, "activation_zero_points": {"activation_group_size": 32}, "sinks": {"activations": "static"}, "activations": {"scheme": "Q4"}}  # fmt: skip
# A value of each kind, and one of another.
VALUES = {
    "switch": (True, 1), "integer": (64, 0.5), "number": (99.5, "much"), "text": ("absmax", 1), "text or number": (0.5, True), "list": (["lm_head"], "lm_head"),
}  # fmt: skip


def test_the_package_has_the_compilers_table():
    assert json.loads(FILE.read_text()) == TABLE
    assert OPTIONS.keys() == {name for name, row in ROWS.items() if not row.get("internal")}


def test_rows_make_sense():
    methods = {method["name"] for method in TABLE["methods"]}
    assert {method["stage"] for method in TABLE["methods"]} == {"base", "transform", "rounding"}
    for name, row in ROWS.items():
        assert row["help"] and not row["help"].endswith(".") and row["group"], name
        assert row.get("owner", "static") in methods | {"static", "online"}, name
        if row["kind"] == "choice":
            assert row.get("default", row["choices"][0]).split()[0].rstrip(";") in row["choices"], name


def test_methods_that_keep_more_are_methods_for_schemes():
    """The compiler states them once; its advice reads them from the table."""
    assert TABLE["calibrated_methods"] == CALIBRATED_METHODS
    stages = {method["name"]: method["stage"] for method in TABLE["methods"]}
    for scheme, method in CALIBRATED_METHODS.items():
        assert scheme in ROWS["scheme"]["choices"] and {stages[part] for part in method.split("+")} <= {"transform", "rounding"}


def test_no_pass_has_an_option_of_its_own_under_the_name_of_a_row():
    """Passes are filled by the names of their members, so one would take the row's value."""
    include = Path(__file__).parents[2] / "include" / "easyquant"
    rows = set(re.findall(r'Table(?:List)?Option<"(\w+)"', (include / "Recipe" / "Options.td").read_text()))
    own = {(name, file) for file in include.rglob("Passes.td") for name in re.findall(r'(?<!Table)(?:List|Number|)Option<"(\w+)"', file.read_text())}
    assert len(rows) > 30 and len(own) > 20
    assert {(name, file) for name, file in own if name in rows} == set()


def test_arguments_are_those_of_what_was_given():
    options = CompileOptions(act_order=False, clip=True, damping=0.5, ignore=["a", "re:b"], dry_run=True, force=False, kv_keys="pre-rope")
    assert options.arguments() == ["--ignore=a", "--ignore=re:b", "--clip", "--no-act-order", "--damping=0.5", "--kv-keys=pre-rope", "--dry-run"]
    with pytest.raises(TypeError, match="act_ordre"):
        CompileOptions(act_ordre=True)


def recipe_of(key, value):
    section, _, name = key.rpartition(".")
    inner = {name: value}
    if section:
        return {section: {"scheme": "int8"} | inner}
    return inner


@pytest.mark.parametrize("key", KEYS)
def test_recipes_take_every_key_and_only_values_of_its_kind(tiny_llama, tmp_path, key):
    row = KEYS[key]
    right, wrong = (row["choices"][-1], 1) if row["kind"] == "choice" else VALUES[row["kind"]]
    file = tmp_path / "recipe.json"
    if row["key"] == "online_decay":  # less than 1
        right = 0.5
    if key == "kv.keys":  # hadamard takes heads of 16 dimensions at least, which the model lacks
        right = "pre-rope"
    needs = NEEDS.get(row["key"], {})
    file.write_text(json.dumps(needs | recipe_of(key, right)))
    assert run_tool("easyquant-compile", tiny_llama, f"--recipe={file}", "--dry-run").returncode == 0, row
    file.write_text(json.dumps(recipe_of(key, wrong)))
    assert_refused(run_tool("easyquant-compile", tiny_llama, f"--recipe={file}", "--dry-run"), f"{key.removeprefix('.')}: found", "expected", "recipe.json")


@pytest.mark.parametrize("arguments, message", [
    (("--group-size=-8",), "group size -8: expected an integer of at least 0"),
    (("--method=gptq", "--damping=0"), "damping 0: expected a positive number"),
    (("--method=awq", "--search-samples=0"), "search samples 0: expected an integer of at least 1"),
    (("--method=smoothquant", "--alpha=1.5"), "alpha '1.5': expected a number from 0 to 1, or search"),
    (("--method=gptq", "--mixed"), "--mixed goes with method zeroquant, found method gptq"),
    (("--method=awq", "--act-order=false"), "--act-order goes with method gptq, found method awq"),
    (("--method=smoothquant+gptq", "--steps=8"), "--steps goes with method signround, found method smoothquant+gptq"),
    (("--kv-cache=f64",), "unknown type of the KV cache 'f64'; legal are auto, f32 and f16"),
    (("--targets=cpu",), "targets 'cpu': expected names of sites to quantize; did you mean --target cpu?"),
    (("--weight-percentile=99",), "--weight-percentile goes with --weight-observer percentile, found absmax"),
    (("--observer-percentile=99", "--weight-observer=percentile"), "--observer-percentile goes with --observer percentile, found minmax"),
    (("--scheme=w8a8",), "unknown scheme 'w8a8'; legal are none"),
    (("--isa=avx3",), "unknown instruction set 'avx3'; expected avx2 or avx512vnni or neon-dot or neon-i8mm"),
])  # fmt: skip
def test_wrong_values_are_told_before_the_model_is_read(arguments, message):
    done = run_tool("easyquant-compile", "nowhere", "-o", "out", *arguments)
    assert done.returncode == 1 and done.stderr.startswith(f"error: {message}"), done.stderr


def test_without_the_table_only_its_commands_end(tmp_path):
    """As in a build without the compiler."""
    package = Path(easyquant.__file__).parent
    shutil.copytree(package, tmp_path / "easyquant", ignore=shutil.ignore_patterns("options.json", "__pycache__"))
    # Before the finder of the editable install, which comes before every path.
    start = f"import runpy, sys; sys.meta_path = [f for f in sys.meta_path if 'ScikitBuild' not in type(f).__name__]; sys.path.insert(0, {str(tmp_path)!r}); "
    start += "runpy.run_module('easyquant', run_name='__main__', alter_sys=True)"

    def run(*arguments):
        return subprocess.run([sys.executable, "-c", start, *arguments], capture_output=True, text=True, cwd=tmp_path)

    assert run("inspect", "--help").returncode == 0
    done = run("compile", "model", "-o", "out", "--scheme", "W8A8")
    missing = f"{tmp_path}/easyquant/compiler/options.json: the table of the compiler's options is missing; build it with scripts/setup.sh"
    assert done.returncode == 1 and done.stderr == f"error: {missing}\n"
