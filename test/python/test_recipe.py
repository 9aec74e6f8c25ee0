# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recipes: YAML to the compiler, and back out of the artifact."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from easyquant.compiler.recipe import read_recipe, recipe_as_json
from easyquant.support.errors import UserError
from command_line import run_command_line as easyquant
from helpers import REPO, compile_model, run_tool, sites_of


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipe") / "model"
    script = REPO / "test/Inputs/make_checkpoint.py"
    subprocess.run([sys.executable, script, folder, "--arch", "llama"], check=True)
    return folder


def test_yaml_reaches_the_compiler_and_the_artifact_repeats_it(model, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "scheme: W8A16\nhead: float\nsites:\n"
        '  - {match: "re:down_proj$", scheme: W4A8, group_size: 8}\n'
        "  - {match: model.layers.1.mlp.up_proj, scheme: none}\n"
    )
    first, second = tmp_path / "first", tmp_path / "second"
    assert easyquant("compile", model, "-o", first, "--recipe", recipe).returncode == 0
    sites = sites_of(first)
    assert sites["model.layers.0.self_attn.q_proj"]["weight"]["bits"] == 8
    assert sites["model.layers.0.mlp.down_proj"]["weight"] == {
        "bits": 4, "codes": "integer", "granularity": "group", "group_size": 8, "scale_type": "f16", "symmetric": True}
    assert sites["model.layers.0.mlp.down_proj"]["input"]["bits"] == 8
    assert sites["model.layers.1.mlp.up_proj"]["weight"] is None and sites["lm_head"]["weight"] is None
    assert json.loads((first / "manifest.json").read_text())["quantization"]["fallbacks"] == []

    compile_model(model, second, f"--recipe={first / 'recipe.json'}")
    for name in ("weights.safetensors", "recipe.json", "model.so", "manifest.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name

    shown = easyquant("recipe", "show", first)
    assert shown.returncode == 0, shown.stderr
    assert yaml.safe_load(shown.stdout) == json.loads((first / "recipe.json").read_text())
    again = tmp_path / "shown.yaml"
    again.write_text(shown.stdout)
    checked = easyquant("recipe", "check", again, model)
    assert checked.returncode == 0 and "shown.yaml: quantizes 13 of 15 sites of model" in checked.stdout, checked.stderr


def test_a_recipe_leaves_no_room_for_the_options(model, tmp_path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text('{"scheme": "W8A16"}')
    for option in ("--scheme=W8A8", "--method=absmax", "--group-size=8", "--head=float", "--ignore=lm_head"):
        result = run_tool("easyquant-compile", model, "-o", tmp_path / "out", f"--recipe={recipe}", option)
        assert result.returncode == 1 and "excludes" in result.stderr and "--recipe" in result.stderr, result.stderr


def test_what_the_compiler_refuses_comes_through(model, tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("sites: [{match: q_porj}]\n")
    done = easyquant("compile", model, "-o", tmp_path / "out", "--recipe", recipe)
    assert done.returncode == 1 and "sites[0] pattern 'q_porj' matches no site" in done.stderr
    recipe.write_text("shceme: W8A8\n")
    done = easyquant("compile", model, "-o", tmp_path / "out", "--recipe", recipe)
    assert done.returncode == 1 and f"error: {recipe}: unknown key 'shceme'" in done.stderr and "did you mean 'scheme'?" in done.stderr


def test_check_says_what_a_recipe_would_do(model, tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("method: smoothquant+gptq\nscheme: W4A16\nsites: [{match: 're:down_proj$', method: absmax, scheme: W8A16}]\n")
    done = easyquant("recipe", "check", recipe, model)
    assert done.returncode == 0 and "mine.yaml: quantizes 15 of 15 sites of model" in done.stdout, done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "int4/group 128" in rows["model.layers.*.mlp.up_proj"] and "smoothquant+gptq" in rows["model.layers.*.mlp.up_proj"]
    assert "int8/channel" in rows["model.layers.*.mlp.down_proj"] and "gptq" not in rows["model.layers.*.mlp.down_proj"]


def test_check_names_what_is_wrong(model, tmp_path):
    recipe = tmp_path / "mine.yaml"
    for text, message in (
        ("sites: [{match: q_porj}]\n", "sites[0] pattern 'q_porj' matches no site"),
        ("sites: [{match: 're:mlp'}, {match: 're:up_proj$'}]\n", "has two rules: sites[0], 're:mlp', and sites[1], 're:up_proj$'"),
        ("shceme: W8A8\n", "mine.yaml: unknown key 'shceme'"),
    ):
        recipe.write_text(text)
        done = easyquant("recipe", "check", recipe, model)
        assert done.returncode == 1 and message in done.stderr, done.stderr
    done = easyquant("recipe", "check", tmp_path / "none.yaml", model)
    assert done.returncode == 1 and "none.yaml: cannot be read" in done.stderr
    done = easyquant("recipe", "show", tmp_path / "none.yaml")
    assert done.returncode == 1 and "none.yaml: cannot be read" in done.stderr


@pytest.mark.parametrize(
    "text, message",
    [
        ("scheme: W4A16\nscheme: W8A8\n", "key 'scheme' is there twice"),
        ("scheme: [W4A16\n", "recipe.yaml, line 2, column 1: is no YAML: expected ',' or ']'"),
        ("scheme: \x01\n", "is no YAML: character"),
        ("- W4A16\n", "found list"),
        ("", "found NoneType"),
        ("scheme: 2026-01-01\n", "a value that JSON has not"),
        ("group_size: .nan\n", "a value that JSON has not"),
        ("a: &a [*a]\n", ""),
    ],
)
def test_bad_yaml_is_refused(tmp_path, text, message):
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        with recipe_as_json(file):
            pass
    assert str(file) in str(error.value) and message in str(error.value)


def test_numbers_as_json_writes_them(tmp_path):
    """PyYAML by itself takes 1e-05 for a text."""
    file = tmp_path / "recipe.json"
    file.write_text('{"damping": 1e-05, "alpha": 5E-1, "observer_percentile": 99.9, "group_size": 64, "scheme": "W8A8"}')
    assert read_recipe(file) == {"damping": 1e-05, "alpha": 0.5, "observer_percentile": 99.9, "group_size": 64, "scheme": "W8A8"}


def test_a_printed_pipeline_names_a_recipe_that_stays(model, tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("scheme: W8A16\n")
    done = easyquant("compile", model, "-o", tmp_path / "out", "--recipe", recipe, "--dump-pipeline")
    kept = re.search(r"easyquant-recipe-\S+", done.stderr)
    assert done.returncode == 0 and kept, done
    with open(Path(tempfile.gettempdir()) / kept[0]) as file:
        assert json.load(file) == {"scheme": "W8A16"}
    shutil.rmtree((Path(tempfile.gettempdir()) / kept[0]).parent)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match="none.yaml: cannot be read: No such file"):
        read_recipe(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"scheme: \xe9\n")
    with pytest.raises(UserError, match="latin.yaml: is not UTF-8"):
        read_recipe(tmp_path / "latin.yaml")
