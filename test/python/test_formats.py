# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every number format through a whole model: stories260K compiled with it against an independent transcription in numpy."""

import json

import numpy as np
import pytest

from calibrating import write_tokens
from easyquant.evaluation.weights import read_site, read_tensor
from easyquant.runtime.artifact import Artifact
from helpers import Runner, random_llama, run_tool, test_data, with_slow, write_model
from oracles.checkpoint import read_folder
from oracles.formats import Formats, Peaks, rounded
from oracles.llama import Llama
from oracles.llama2c_tokenizer import read_tokenizer

SCHEMES = {
    "W4A16": (["--scheme=W4A16", "--group-size=32"], Formats("i4", "f16", 32, "i8")),
    "W4A16 with f32 scales": (["--scheme=W4A16", "--group-size=32", "--scale-type=f32"], Formats("i4", "f32", 32, "i8")),
    "W6A16": (["--scheme=W6A16", "--group-size=32"], Formats("i6", "f16", 32, "i8")),
    "W5A16": (["--scheme=W5A16", "--group-size=16"], Formats("i5", "f16", 16, "i8")),
    "W4A16, two-level": (["--scheme=W4A16", "--group-size=8", "--scale-type=two-level"], Formats("i4", "ui6", 8, "i8")),
    "W3A16": (["--scheme=W3A16", "--group-size=16"], Formats("i3", "f16", 16, "i8")),
    "FP8_DYNAMIC": (["--scheme=FP8_DYNAMIC"], Formats("f8E4M3FN", "f32", 0, "f8E4M3FN", inputs="f8E4M3FN")),
    "MXFP4A16": (["--scheme=MXFP4A16"], Formats("f4E2M1FN", "f8E8M0FNU", 32, "i8")),
    "NVFP4A16": (["--scheme=NVFP4A16"], Formats("f4E2M1FN", "f8E4M3FN", 16, "i8", outer=True)),
    "IQ4NLA16": (["--scheme=IQ4NLA16", "--group-size=32"], Formats("iq4_nl", "f16", 32, "i8")),
    "NF4A16": (["--scheme=NF4A16", "--group-size=64"], Formats("nf4", "f16", 64, "i8")),
}
# These vary what the others test.
SLOW = ("W4A16", "W6A16", "W3A16", "MXFP4A16", "NF4A16")


@pytest.fixture(scope="module")
def tokens():
    text = test_data("austen-6-novels.txt").read_bytes()[:900].decode()
    return [1, *read_tokenizer(test_data("tok512.bin")).encode(text, add_special_tokens=False).ids][:200]


def divergences(expected, logits):
    """KL(expected || logits) of each token, in nats."""
    p, q = (x - np.logaddexp.reduce(x, axis=-1, keepdims=True) for x in (expected.astype(np.float64), logits.astype(np.float64)))
    return np.sum(np.exp(p) * (p - q), axis=-1)


@pytest.mark.parametrize("name", with_slow(SCHEMES, *SLOW))
def test_whole_model(runner, stories, tokens, name):
    arguments, formats = SCHEMES[name]
    config, tensors = read_folder(stories)
    # A sum that f32 rounds otherwise may tip over a code of activations, which all later tokens of a sequence see: so eight short ones.
    sequences = np.split(np.array(tokens), 8)

    def all_logits(logits_of):
        return np.concatenate([logits_of(sequence) for sequence in sequences])

    logits = all_logits(runner(stories, *arguments, "--kv-cache=f32", context=256).score)
    oracle = all_logits(Llama(config, tensors, formats, np.float64).logits)
    exact = all_logits(Llama(config, tensors, dtype=np.float64).logits)
    lost = divergences(exact, oracle).mean()
    typical, total = (np.median, 0.1) if formats.inputs else (np.mean, 0.002)
    assert typical(divergences(oracle, logits)) < 1e-3 * lost
    assert divergences(exact, logits).mean() == pytest.approx(lost, rel=total)


@pytest.mark.parametrize("scheme, formats", [
    ("FP8", lambda tops: Formats("f8E4M3FN", "f32", 0, "f8E4M3FN", inputs="f8E4M3FN", tops=tops)),
    ("NVFP4", lambda tops: Formats("f4E2M1FN", "f8E4M3FN", 16, "f8E4M3FN", inputs="f4E2M1FN", head_inputs="f8E4M3FN", outer=True, tops=tops)),
])  # fmt: skip
def test_whole_model_of_static_scales(runner, stories, tokens, tmp_path_factory, scheme, formats):
    """The scale of all activations is that of the largest that the calibration text gave; here it is the text that is scored."""
    config, tensors = read_folder(stories)
    peaks = Peaks()
    exact = Llama(config, tensors, peaks, np.float64).logits(tokens)
    file = write_tokens(tmp_path_factory.mktemp("static") / "tokens.safetensors", [tokens])
    logits = runner(stories, f"--scheme={scheme}", f"--tokens={file}", "--kv-cache=f32", context=256).score(tokens)
    oracle = Llama(config, tensors, formats(peaks.tops), np.float64).logits(tokens)
    lost = divergences(exact, oracle).mean()
    assert np.median(divergences(oracle, logits)) < 1e-3 * lost
    assert divergences(exact, logits).mean() == pytest.approx(lost, rel=0.1)


def test_two_levels_hold_rows_of_small_weights(artifact, tmp_path):
    """As q_proj of Gemma 3 270M has them: scales below the least normal f16."""
    config, tensors = random_llama(3)
    weight = tensors["model.layers.0.self_attn.q_proj.weight"]
    weight[:3] *= np.float32([[1e-3], [1e-5], [1e-9]])
    made = Artifact.open(artifact(write_model(tmp_path / "model", config, tensors), "--scheme=W4A16", "--group-size=8", "--scale-type=two-level"))
    np.testing.assert_array_equal(read_site(made, "model.layers.0.self_attn.q_proj"), rounded(weight, "i4", "ui6", 8))


@pytest.mark.parametrize("method", ["gptq", "awq", "lkd", "smoothquant"])
@pytest.mark.parametrize("options", [["--scheme=NVFP4A16"], ["--scheme=W4A16", "--group-size=8", "--scale-type=two-level"]], ids=["outer", "two-level"])
def test_methods_leave_levels_of_scales(artifact, stories, tokens, tmp_path_factory, method, options):
    """The weights that the front desk reads of an artifact, in a float model, give its logits."""
    file = write_tokens(tmp_path_factory.mktemp("levels") / "tokens.safetensors", [tokens[:100], tokens[100:]])
    out = artifact(stories, *options, f"--method={method}", f"--tokens={file}", "--head=float", "--kv-cache=f32")
    made = Artifact.open(out)
    config, tensors = read_folder(stories)
    norms = {name: read_tensor(made, name) for name in tensors if "norm" in name}
    weights = {f"{site['name']}.weight": read_site(made, site["name"]) for site in made.manifest["sites"] if site["weight"]}
    logits = Runner(out, context=256).score(tokens)
    oracle = Llama(config, {**tensors, **norms, **weights}, dtype=np.float64).logits(tokens)
    assert divergences(oracle, logits).max() < 1e-6


def test_a_rule_of_a_recipe_has_its_own_scales_of_activations(artifact, stories, tokens, tmp_path_factory):
    """The name of its scheme fixes them, whatever the other sites have; and recipe.json does the same again."""
    folder = tmp_path_factory.mktemp("recipe")
    file, recipe = write_tokens(folder / "tokens.safetensors", [tokens]), folder / "recipe.json"
    recipe.write_text(json.dumps({"scheme": "W8A8", "activations": "dynamic", "sites": [{"match": "re:.*down_proj", "scheme": "NVFP4"}]}))
    out = artifact(stories, f"--recipe={recipe}", f"--tokens={file}")
    inputs = {site["name"].rpartition(".")[2]: site["input"] for site in json.loads((out / "manifest.json").read_text())["sites"]}
    assert inputs["up_proj"] == {"bits": 8, "codes": "integer", "dynamic": True, "granularity": "token", "hadamard": 64, "symmetric": True}
    assert inputs["down_proj"] == {"bits": 4, "codes": "f4E2M1FN", "dynamic": True, "granularity": "group", "group_size": 16, "outer": "tensor",
                                   "symmetric": True}  # fmt: skip
    again = artifact(stories, f"--recipe={out / 'recipe.json'}", f"--tokens={file}")
    assert (out / "weights.safetensors").read_bytes() == (again / "weights.safetensors").read_bytes()


def test_manifest_says_the_format(artifact, stories):
    sites = json.loads((artifact(stories, "--scheme=MXFP4A16") / "manifest.json").read_text())["sites"]
    weight = next(site for site in sites if site["name"].endswith("q_proj"))["weight"]
    assert (weight["codes"], weight["scale_type"], weight["group_size"]) == ("f4E2M1FN", "f8E8M0FNU", 32)


@pytest.mark.parametrize("arguments, words", [
    (["--scheme=MXFP4A16", "--scale-type=f16"], "scheme MXFP4A16 has scales of f8E8M0FNU, found scale type f16"),
    (["--scheme=MXFP4A16", "--group-size=64"], "scheme MXFP4A16 has groups of 32, found group size 64"),
    (["--scheme=FP8_DYNAMIC", "--activations=static"], "scheme FP8_DYNAMIC has dynamic activations, found static"),
    (["--scheme=NF4A16", "--method=zeropoint"], "scheme NF4A16 has no integers"),
    (["--scheme=NVFP4"], "static and online activations need calibration text"),
    (["--scheme=NVFP4A16", "--group-size=32"], "scheme NVFP4A16 has groups of 16, found group size 32"),
    (["--scheme=W8A16", "--scale-type=two-level"], "scale type two-level needs groups, but scheme W8A16 has a scale for each row"),
    (["--scheme=FP8"], "static and online activations need calibration text"),
    (["--scheme=W4A8", "--group-size=16", "--target=sm_90a"], "the GPU kernels on int8 activations take group sizes that are multiples of 32 (such as 32)"),
])  # fmt: skip
def test_what_there_is_not(stories, tmp_path, arguments, words):
    result = run_tool("easyquant-compile", stories, "-o", tmp_path / "out", *arguments)
    assert result.returncode == 1
    assert words in result.stderr
    assert not (tmp_path / "out").exists()
