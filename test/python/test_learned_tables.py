# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schemes of learned tables, T4A16, T3A16 and T2A16, through a whole model. The oracles round by the tables that an artifact names,
by themselves, and run a float64 model with the weights that they get. Beside int8 activations, T4A8 and others, tables are int8."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibrating import write_tokens
from easyquant.evaluation.weights import read_site, read_tensor
from easyquant.formats.packed import scale_values
from easyquant.runtime.artifact import Artifact
from helpers import ISA, Runner, compile_model, random_llama, random_tokens, run_tool, test_data, with_slow, write_model
from oracles.checkpoint import read_folder
from oracles.formats import IQ4_NL, NF4, scales_of, to_table
from oracles.llama import Llama
from oracles.llama2c_tokenizer import read_tokenizer
from oracles.schemes import FLOAT, Linear, Scheme
from test_llama import relative_error

GROUP = 32


@pytest.fixture(scope="module")
def tokens():
    text = test_data("austen-6-novels.txt").read_bytes()[:900].decode()
    return [1, *read_tokenizer(test_data("tok512.bin")).encode(text, add_special_tokens=False).ids][:200]


@pytest.fixture(scope="module")
def file(tokens, tmp_path_factory):
    return write_tokens(tmp_path_factory.mktemp("tables") / "tokens.safetensors", [tokens[:100], tokens[100:]])


def tables_of(out):
    sites = json.loads((out / "manifest.json").read_text())["sites"]
    return {site["name"]: np.array(site["weight"]["table"], np.float32) for site in sites if site["weight"] and site["weight"]["codes"] == "table"}


def rounded(weight, table):
    """To the nearest value of the table, in groups whose largest magnitude is its outermost value; scales of f16."""
    _, nearest = to_table(table)
    out = np.empty_like(weight)
    for start in range(0, weight.shape[1], GROUP):
        part = weight[:, start : start + GROUP]
        scales = scales_of(part, 1.0, "f16")
        out[:, start : start + GROUP] = scales * nearest(part / scales)
    return out


@pytest.mark.parametrize("bits", [4, 3, 2])
def test_whole_model(artifact, stories, tokens, bits):
    out = artifact(stories, f"--scheme=T{bits}A16", f"--group-size={GROUP}", "--kv-cache=f32")
    config, tensors = read_folder(stories)
    tables, made = tables_of(out), Artifact.open(out)
    assert len(tables) == 7 * config["num_hidden_layers"]
    weights = {}
    for name, table in tables.items():
        assert len(table) == 2**bits and np.all(np.diff(table) > 0) and np.abs(table).max() == 1
        weights[f"{name}.weight"] = rounded(tensors[f"{name}.weight"], table)
        np.testing.assert_array_equal(read_site(made, name), weights[f"{name}.weight"])
    head = {"model.embed_tokens.weight": read_site(made, "lm_head")}
    expected = Llama(config, {**tensors, **weights, **head}, dtype=np.float64).logits(tokens)
    found = Runner(out, context=256).score(tokens)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


class LearnedTables(Scheme):
    """The table of each weight, which is known by its bytes, beside int8 activations."""

    def __init__(self, bits, tables, hadamard):
        super().__init__(bits, 8, GROUP, 8, hadamard=hadamard)
        self.tables = tables

    def linear(self, weight, dtype, **basis):
        return Linear(weight, dtype, self.weight_bits, GROUP, 8, self.tables[weight.tobytes()], **{"hadamard": self.hadamard} | basis)


@pytest.mark.parametrize("bits, basis", [(4, "hadamard"), (3, "plain"), (2, "hadamard")])
def test_whole_model_of_int8(artifact, stories, tokens, bits, basis):
    out = artifact(stories, f"--scheme=T{bits}A8", f"--group-size={GROUP}", f"--activation-basis={basis}", "--kv-cache=f32")
    config, tensors = read_folder(stories)
    tables = tables_of(out)
    assert len(tables) == 7 * config["num_hidden_layers"]
    for table in tables.values():
        integers = table * 128
        assert len(table) == 2**bits and np.all(np.diff(integers) >= 1) and np.all(integers == np.rint(integers)) and np.abs(integers).max() == 127
    scheme = LearnedTables(bits, {tensors[f"{name}.weight"].tobytes(): table for name, table in tables.items()}, 512 if basis == "hadamard" else 0)
    check_int8(out, config, tensors, tokens, scheme)
    if basis == "plain":
        for name, table in tables.items():
            weight = Linear(tensors[f"{name}.weight"], np.float32, bits, GROUP, 8, table).quantized.dequantized()
            np.testing.assert_array_equal(read_site(Artifact.open(out), name), weight)


@pytest.mark.parametrize("scheme, name, table", [("NF4A8", "nf4_int8", np.rint(NF4 * 127) / 128), ("IQ4NLA8", "iq4_nl", IQ4_NL)])
def test_whole_model_of_fixed_tables_of_int8(artifact, stories, tokens, scheme, name, table):
    out = artifact(stories, f"--scheme={scheme}", f"--group-size={GROUP}", "--kv-cache=f32")
    config, tensors = read_folder(stories)
    sites = [site for site in Artifact.open(out).manifest["sites"] if site["weight"] and site["weight"]["codes"] == name]
    assert len(sites) == 7 * config["num_hidden_layers"]
    assert all(site["weight"]["table"] == table.tolist() and site["input"]["bits"] == 8 for site in sites)
    check_int8(out, config, tensors, tokens, Scheme(4, 8, GROUP, 8, table.astype(np.float32)))


def check_int8(out, config, tensors, tokens, scheme):
    expected = Llama(config, tensors, scheme, np.float64).logits(tokens)
    found = Runner(out, context=256).score(tokens)
    plain = Llama(config, tensors, FLOAT, np.float64).logits(tokens)
    assert relative_error(found, expected) < 8e-3
    assert relative_error(expected, plain) > 3 * relative_error(found, expected), "the scheme itself must be visible"


def test_sites_of_one_input_share_a_table_and_learn_from_all_of_them(artifact, stories):
    tables = tables_of(artifact(stories, "--scheme=T3A16", f"--group-size={GROUP}"))
    of = lambda part: tables[f"model.layers.1.{part}"]  # noqa: E731
    np.testing.assert_array_equal(of("self_attn.q_proj"), of("self_attn.k_proj"))
    np.testing.assert_array_equal(of("self_attn.q_proj"), of("self_attn.v_proj"))
    np.testing.assert_array_equal(of("mlp.gate_proj"), of("mlp.up_proj"))
    assert len({table.tobytes() for table in tables.values()}) == 4 * 5
    launches = run_tool("easyquant-compile", stories, "--scheme=T3A16", f"--group-size={GROUP}", "--emit-ir-after=kernels")
    assert launches.returncode == 0, launches.stderr
    assert launches.stdout.count("func.func private @linear_") == 5  # qkv, o, gate and up, down, head: whatever their tables


def test_text_weighs_errors(artifact, stories, file, tmp_path):
    """Each column counts by E[x^2] of what it is multiplied by: what is learned with text has less of that error, and more of the other."""
    options = ["--scheme=T2A16", f"--group-size={GROUP}", "--weight-observer=absmax"]
    plain, weighed = artifact(stories, *options), artifact(stories, *options, f"--tokens={file}")
    statistics = tmp_path / "statistics.safetensors"
    pipeline = f'equant-insert-observers{{statistics=moments}},equant-calibrate{{tokens="{file}" work="{tmp_path}" statistics="{statistics}"}}'
    result = run_tool("easyquant-compile", stories, f"--pipeline={pipeline}")
    assert result.returncode == 0, result.stderr
    moments = {name.removesuffix("/moments"): tensor for name, tensor in load_file(statistics).items() if name.endswith("/moments")}
    squares = {name: mean**2 + variance for name, (mean, variance) in moments.items()}
    _, tensors = read_folder(stories)

    def error(out, counts):
        made = Artifact.open(out)
        return sum(float((counts(name) * (read_site(made, name).astype(np.float64) - tensors[f"{name}.weight"]) ** 2).sum()) for name in squares if name in tables_of(out))

    assert error(weighed, squares.get) < error(plain, squares.get)
    assert error(plain, lambda name: 1.0) < error(weighed, lambda name: 1.0)


@pytest.mark.parametrize("method", with_slow(["gptq", "awq", "lkd", "signround"], "awq", "signround"))
def test_methods_round_to_learned_tables(artifact, stories, tokens, file, method):
    """The weights that the front desk reads of an artifact, in a float model, give its logits."""
    out = artifact(stories, "--scheme=T3A16", f"--group-size={GROUP}", f"--method={method}", f"--tokens={file}", "--head=float", "--kv-cache=f32")
    made = Artifact.open(out)
    config, tensors = read_folder(stories)
    norms = {name: read_tensor(made, name) for name in tensors if "norm" in name}
    weights = {f"{name}.weight": read_site(made, name) for name in tables_of(out)}
    expected = Llama(config, {**tensors, **norms, **weights}, dtype=np.float64).logits(tokens)
    found = Runner(out, context=256).score(tokens)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def scales_of_columns(made, entry):
    """The scale of each weight of a site, of f16 in panels of rows."""
    scales = scale_values(read_tensor(made, f"{entry['tensor']}_scale"), entry["weight"]["scale_type"])
    rows = entry["first_row"] + np.arange(entry["out_features"])
    return np.repeat(scales[rows // scales.shape[2], :, rows % scales.shape[2]], GROUP, axis=1)[:, : entry["in_features"]]


@pytest.mark.parametrize("scheme", ["T4A16", "T2A8", "IQ4NLA16"])
def test_learned_rounding_stays_between_neighbours_of_a_table(artifact, stories, file, scheme):
    """What is chosen is one of the two around a weight in its last range, and not always the nearest."""
    options = [f"--scheme={scheme}", f"--group-size={GROUP}", f"--tokens={file}", "--head=float", "--kv-cache=f32", "--activation-basis=plain"]
    learned = artifact(stories, *options, "--method=signround", "--steps=40")
    _, tensors = read_folder(stories)
    made, others = Artifact.open(learned), 0
    for entry in (entry for entry in made.manifest["sites"] if entry["weight"]):
        name, table, scales = entry["name"], np.array(entry["weight"]["table"], np.float32), scales_of_columns(made, entry)
        found, steps = read_site(made, name), np.clip(tensors[f"{name}.weight"] / scales, table[0], table[-1])
        below, above = (scales * table[np.searchsorted(table, steps, side) - shift] for side, shift in (("right", 1), ("left", 0)))
        assert np.all((found == below) | (found == above)), name
        others += np.count_nonzero(np.abs(found / scales - steps) > 1.01 * np.minimum(np.abs(below / scales - steps), np.abs(above / scales - steps)))
    assert others > 0, "some are not rounded to the nearest"


@pytest.mark.parametrize("model", ["tiny_llama", "untied"])
def test_head_and_embedding(artifact, request, tmp_path, model):
    """Also of an embedding that reads tokens, no activations."""
    folder = request.getfixturevalue(model)
    recipe = {"scheme": "W8A16", "head": "T4A16", "head_group_size": 16}
    if model == "untied":
        recipe["sites"] = [{"match": "model.embed_tokens", "scheme": "T3A16", "group_size": 8}]
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    out = artifact(folder, f"--recipe={tmp_path / 'recipe.json'}", "--kv-cache=f32")
    assert {name: len(table) for name, table in tables_of(out).items()} == {"lm_head": 16} | ({"model.embed_tokens": 8} if model == "untied" else {})
    made, (config, tensors) = Artifact.open(out), read_folder(folder)
    weights = {f"{site['name']}.weight": read_site(made, site["name"]) for site in made.manifest["sites"] if site["weight"]}
    if model == "tiny_llama":
        weights["model.embed_tokens.weight"] = weights.pop("lm_head.weight")
    text = random_tokens(9, 60, 97)
    expected = Llama(config, {**tensors, **weights}, dtype=np.float64).logits(text)
    found = Runner(out).score(text)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_the_same_for_any_number_of_threads_and_from_the_recipe(artifact, stories, file):
    options = ["--scheme=T4A16", f"--group-size={GROUP}", f"--tokens={file}"]
    one, three = (artifact(stories, *options, f"--threads={threads}") for threads in (1, 3))
    again = artifact(stories, f"--recipe={one / 'recipe.json'}", f"--tokens={file}")
    for other in (three, again):
        assert (one / "weights.safetensors").read_bytes() == (other / "weights.safetensors").read_bytes()


@pytest.mark.parametrize("arguments, words", [
    (["--scheme=T4A16", "--method=zeropoint"], "scheme T4A16 has no integers"),
    (["--scheme=T5A16"], "unknown scheme 'T5A16'"),
    (["--scheme=T3A8", "--method=zeropoint"], "scheme T3A8 has no integers"),
    (["--scheme=FP8_DYNAMIC", "--method=signround"], "it learns which of two integers, or of two values of a table, a weight becomes; take gptq or lkd"),
])  # fmt: skip
def test_what_there_is_not(stories, file, tmp_path, arguments, words):
    result = run_tool("easyquant-compile", stories, "-o", tmp_path / "out", f"--tokens={file}", *arguments)
    assert result.returncode != 0
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("scheme", ["T4A16", "T3A16", "T2A16", "IQ4NLA16", "T4A8", "T2A8", "IQ4NLA8"])
def test_a_weight_of_zeros(tmp_path, scheme):
    """Tables without a zero come close to it."""
    config, weights = random_llama(seed=2)
    site = "model.layers.0.mlp.up_proj"
    weights[f"{site}.weight"] *= 0
    out = compile_model(write_model(tmp_path / "zeros", config, weights), tmp_path / "out", f"--scheme={scheme}", ISA)
    (found,) = (entry for entry in json.loads((out / "manifest.json").read_text())["sites"] if entry["name"] == site)
    assert found["weight_error"] == 0 and 0 <= found["largest_error"] < 1e-4
    assert np.all(np.isfinite(Runner(out).score(random_tokens(1, 8, config["vocab_size"]))))
