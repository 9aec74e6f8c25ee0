# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The output head and the embedding as sites: schemes of their own, by options and by rules, against the numpy oracle."""

import json

import numpy as np
import pytest

from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from calibrating import write_tokens
from helpers import random_tokens, run_tool, sites_of
from oracles.checkpoint import read_folder
from oracles.formats import Formats
from oracles.llama import Llama

HEAD, EMBEDDING = "lm_head", "model.embed_tokens"
LINEARS = ("--scheme=W6A16", "--group-size=16")


def relative_error(found, expected):
    return np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2))


def recipe_of(folder, *rules, **top):
    path = folder / "recipe.json"
    path.write_text(json.dumps({"scheme": "W6A16", "group_size": 16, **top, "sites": list(rules)}))
    return f"--recipe={path}"


@pytest.mark.parametrize("model", ["tiny_llama", "untied"])
@pytest.mark.parametrize("options, head, group", [
    (["--head=W4A16", "--head-group-size=32"], "i4", 32),
    (["--head=W5A16", "--head-group-size=8"], "i5", 8),
    (["--head=W6A16", "--head-group-size=0"], "i6", 0),
    (["--head=NF4A16", "--head-group-size=16"], "nf4", 16),
    (["--head=W8A16"], "i8", 0),
])  # fmt: skip
def test_head_of_a_scheme(runner, request, model, options, head, group):
    folder = request.getfixturevalue(model)
    tokens = random_tokens(9, 60, 97)
    expected = Llama(*read_folder(folder), Formats("i6", "f16", 16, head, head_group=group), np.float64).logits(tokens)
    found = runner(folder, *LINEARS, *options, "--kv-cache=f32").score(tokens)
    assert relative_error(found, expected) < 1e-5


def test_rules_name_head_and_embedding(runner, artifact, untied, tmp_path):
    rules = [{"match": HEAD, "scheme": "W5A16", "group_size": 16}, {"match": EMBEDDING, "scheme": "W3A16", "group_size": 8}]
    option, tokens = recipe_of(tmp_path, *rules), random_tokens(10, 60, 97)
    formats = Formats("i6", "f16", 16, "i5", head_group=16, table="i3", table_group=8)
    expected = Llama(*read_folder(untied), formats, np.float64).logits(tokens)
    assert relative_error(runner(untied, option, "--kv-cache=f32").score(tokens), expected) < 1e-5

    out = artifact(untied, option, "--kv-cache=f32")
    sites = sites_of(out)
    assert [(sites[name]["weight"]["bits"], sites[name]["weight"]["group_size"]) for name in (HEAD, EMBEDDING)] == [(5, 16), (3, 8)]
    table = read_site(Artifact.open(out), EMBEDDING)
    np.testing.assert_array_equal(table, formats.rows(read_folder(untied)[1][f"{EMBEDDING}.weight"], "i3", 8))
    predicted = {site["name"]: site["bytes"] for site in json.loads(run_tool("easyquant-compile", untied, option, "--dry-run").stdout)["sites"]}
    assert predicted[EMBEDDING] == -(-97 // 32) * 32 * (40 * 3 // 8 + 40 // 8 * 2)
    again = artifact(untied, f"--recipe={out / 'recipe.json'}", "--kv-cache=f32")
    assert (out / "weights.safetensors").read_bytes() == (again / "weights.safetensors").read_bytes()


def test_an_embedding_without_a_rule_is_float(artifact, untied):
    out = artifact(untied, *LINEARS, "--head=W4A16")
    assert EMBEDDING not in sites_of(out)
    plans = json.loads(run_tool("easyquant-compile", untied, *LINEARS, "--head=W4A16", "--dry-run").stdout)
    assert plans["other_bytes"] >= 97 * 40 * 4 and HEAD in {site["name"] for site in plans["sites"]}


def test_methods_of_all_sites_leave_the_head(artifact, tiny_llama, tmp_path):
    """A rule of the head takes what it does not say from the top, where methods are meant for linears in layers."""
    tokens = write_tokens(tmp_path / "tokens.safetensors", np.array(random_tokens(4, 64, 97)).reshape(2, 32).tolist())
    option = recipe_of(tmp_path, {"match": HEAD, "scheme": "W4A16", "group_size": 16}, method="absmax+gptq")
    out = artifact(tiny_llama, option, f"--tokens={tokens}")
    weight = read_folder(tiny_llama)[1][f"{EMBEDDING}.weight"]
    np.testing.assert_array_equal(read_site(Artifact.open(out), HEAD), Formats.rows(weight, "i4", 16))


@pytest.mark.parametrize("rule, top, words", [
    ({"match": HEAD, "scheme": "W4A16", "method": "gptq"}, {}, ["site 'lm_head' is in none of the model's layers", "take gptq out of its rule"]),
    ({"match": EMBEDDING, "scheme": "W4A16", "method": "gptq"}, {}, [f"site '{EMBEDDING}' is an embedding", "take it out of the site's rule"]),
    ({"match": EMBEDDING, "scheme": "W4A16_ASYM", "method": "absmax"}, {}, [f"site '{EMBEDDING}'", "take method zeropoint"]),
    ({"match": HEAD, "scheme": "W4A16"}, {"head_group_size": 8}, ["head-group-size 8 needs a head with a scheme of its own", "head is int8"]),
    ({"match": HEAD, "scheme": "W4A16"}, {"head": "FP8"}, ["unknown head 'FP8'", "W4A16"]),
])  # fmt: skip
def test_what_cannot_be(untied, tmp_path, rule, top, words):
    tokens = write_tokens(tmp_path / "tokens.safetensors", [random_tokens(4, 32, 97)])
    result = run_tool("easyquant-compile", untied, "-o", tmp_path / "out", recipe_of(tmp_path, rule, **top), f"--tokens={tokens}")
    assert result.returncode == 1
    assert all(word in result.stderr for word in words), result.stderr
    assert not (tmp_path / "out").exists()


def test_a_tied_embedding_is_the_head(tiny_llama, tmp_path):
    result = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", recipe_of(tmp_path, {"match": EMBEDDING, "scheme": "W4A16"}))
    assert result.returncode == 1 and "matches no site" in result.stderr
