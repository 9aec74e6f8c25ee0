# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SmolLM2-135M, from GGUF and from safetensors: tokens, logits and perplexity of the compiled artifacts.

The recorded losses of quantized models are what oracles.llama gives in fp32 (test_recorded_losses computes them anew with
--slow): mean losses of the first two windows of 2048 tokens of the WikiText-2 test text.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from helpers import Runner, kl
from oracles import scoring
from oracles.checkpoint import read_folder
from oracles.llama import Llama
from oracles.schemes import FLOAT, Scheme, W8A8, W8A16, w4a16

FLOAT_LOSSES = (2.717788, 3.153923)  # also those of --degrid 1, the same function
W8A8_LOSSES = (2.748733, 3.191283, 3.539787, 3.414014, 3.126276, 2.781386, 2.266945, 2.862797)
W8A16_LOSSES = (2.720578, 3.156854)
DEGRID_W4A16_LOSSES = {32: (2.975168, 3.447338), 64: (3.140231, 3.494897), 128: (3.191232, 3.617416)}


@pytest.fixture(scope="module")
def float_artifacts(smollm2, smollm2_gguf, workspace):
    """{"safetensors" or "gguf": float artifact}, compiled through the command line that users have."""
    made = {}
    for kind, model in (("safetensors", smollm2), ("gguf", smollm2_gguf)):
        made[kind] = workspace / f"smollm2-float-from-{kind}"
        command = [sys.executable, "-m", "easyquant", "compile", model, "-o", made[kind], "--scheme", "none"]
        result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
    return made


@pytest.fixture(scope="module", params=["safetensors", "gguf"])
def float_artifact(request, float_artifacts):
    return float_artifacts[request.param]


def mean_losses(runner, windows):
    return [runner.losses(window).mean() for window in windows]


# ---------------------------------------------------------------------------------------------------- the float model


def test_tokenization(float_artifact, goldens):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(float_artifact / "tokenizer.json"))
    cases = [(case["text"], case["ids"]) for case in goldens["tokenization"]]
    cases += [(case["prompt"], case["prompt_ids"]) for case in goldens["greedy"]]
    assert len(cases) > 20
    for text, ids in cases:
        assert tokenizer.encode(text, add_special_tokens=False).ids == ids, text
    for case in goldens["greedy"]:
        assert tokenizer.decode(case["continuation"], skip_special_tokens=False) == case["text"]


def test_greedy_tokens_and_top_logits(float_artifact, goldens):
    runner = Runner(float_artifact, context=128, threads=1)
    for case in goldens["greedy"]:
        runner.session.reset()
        runner.session.prefill(np.asarray(case["prompt_ids"], np.int32))
        for token, ids, expected in zip(case["continuation"], case["top5_ids"], case["top5_logits"]):
            logits = np.array(runner.session.logits)
            assert int(logits.argmax()) == token
            assert np.abs(logits[ids] - expected).max() < 2e-3
            assert set(np.argpartition(-logits, 5)[:5].tolist()) == set(ids) or np.diff(expected).max() > -4e-3
            runner.session.decode(token)


def test_float_perplexity(float_artifacts, goldens, wikitext):
    golden = goldens["llama_cpp_f32_windows"][0]
    losses = Runner(float_artifacts["safetensors"], context=2048).losses(wikitext[golden["window"]])
    assert len(losses) == golden["scored"]
    assert losses.mean() == pytest.approx(golden["nll"], abs=1e-4)


def test_both_ways_in_give_one_model(float_artifacts):
    weights = [(folder / "weights.safetensors").read_bytes() for folder in float_artifacts.values()]
    assert weights[0] == weights[1]
    models = [json.loads((folder / "manifest.json").read_text())["model"] for folder in float_artifacts.values()]
    assert models[0] == models[1]


def test_prefill_in_chunks(artifact, smollm2, wikitext):
    """700 tokens are more than one call of the program takes; however they are cut, the logits are the same bits."""
    tokens = np.asarray(wikitext[0][:700], np.int32)
    runner = Runner(artifact(smollm2, "--scheme=W8A8"), context=704)
    runner.session.prefill(tokens)
    whole = np.array(runner.session.logits)
    runner.session.reset()
    for start, stop in ((0, 300), (300, 699), (699, 700)):
        runner.session.prefill(tokens[start:stop])
    assert np.array_equal(runner.session.logits, whole)


# ------------------------------------------------------------------------------------------------------ quantized models


def test_w8a16_perplexity(artifact, smollm2, wikitext):
    losses = mean_losses(Runner(artifact(smollm2, "--scheme=W8A16"), context=2048), wikitext[:2])
    assert np.mean(losses) == pytest.approx(np.mean(W8A16_LOSSES), abs=1e-3)
    assert np.exp(np.mean(losses) - np.mean(FLOAT_LOSSES)) == pytest.approx(1, abs=0.005)


@pytest.mark.slow
def test_w8a8_perplexity(artifact, smollm2, wikitext):
    """Within 0.01 nats of the simulation, and visibly worse than float: this model has outliers.

    A rounding difference in the last bit of an activation can move an int8 code by one step, and such steps add up to some
    0.01 nats in the mean of one window, either way: two correct programs agree in the mean of many windows, not in each.
    The mean of these eight has a standard error of 0.0035.
    """
    losses = mean_losses(Runner(artifact(smollm2, "--scheme=W8A8", "--activation-basis=plain"), context=2048), wikitext[: len(W8A8_LOSSES)])
    assert np.mean(losses) == pytest.approx(np.mean(W8A8_LOSSES), abs=0.01)
    assert losses == pytest.approx(W8A8_LOSSES, abs=0.03)
    assert np.exp(np.mean(losses[:2]) - np.mean(FLOAT_LOSSES)) > 1.02


def test_the_rotated_basis_keeps_more(artifact, smollm2, wikitext):
    """By default W8A8 is within half a hundredth of a nat of the float model."""
    losses = mean_losses(Runner(artifact(smollm2, "--scheme=W8A8"), context=2048), wikitext[: len(FLOAT_LOSSES)])
    assert np.mean(losses) == pytest.approx(np.mean(FLOAT_LOSSES), abs=0.005)


@pytest.fixture(scope="module")
def first_layer(smollm2, workspace):
    """SmolLM2 cut down to its first layer."""
    folder = workspace / "smollm2-first-layer"
    folder.mkdir()
    config = json.loads((smollm2 / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    with safe_open(smollm2 / "model.safetensors", framework="numpy") as file:
        names = [name for name in file.keys() if ".layers." not in name or ".layers.0." in name]
        save_file({name: file.get_tensor(name) for name in names}, folder / "model.safetensors")
    return folder


def test_w8a8_follows_the_oracle(artifact, first_layer, wikitext):
    """One layer deep, where codes that differ by a step have not yet multiplied, token by token.

    The cache is fp32, like the simulation's: rounding keys and values to fp16 moves codes of o_proj's input.
    """
    window = wikitext[0][:512]
    found = Runner(artifact(first_layer, "--scheme=W8A8", "--kv-cache=f32"), context=512).losses(window)
    simulated = scoring.window_losses(Llama(*read_folder(first_layer), W8A8), window)
    floats = scoring.window_losses(Llama(*read_folder(first_layer), FLOAT), window)
    assert np.abs(found - simulated).mean() < 0.05 * np.abs(simulated - floats).mean()
    assert abs(found.mean() - simulated.mean()) < 1e-3


@pytest.mark.slow
def test_w4a16_group_sizes(artifact, smollm2_degrid, wikitext):
    """Smaller groups are better, each as good as the simulation says."""
    losses = {}
    for size, expected in DEGRID_W4A16_LOSSES.items():
        model = artifact(smollm2_degrid, "--scheme=W4A16", f"--group-size={size}")
        losses[size] = Runner(model, context=2048).losses(wikitext[0]).mean()
        assert losses[size] == pytest.approx(expected[0], abs=0.005)
    assert losses[32] < losses[64] < losses[128]


# ----------------------------------------------------------------------------------------------------------------- slow


@pytest.mark.slow
def test_recorded_losses(smollm2, smollm2_degrid, wikitext):
    cases = [(smollm2, FLOAT, FLOAT_LOSSES), (smollm2_degrid, FLOAT, FLOAT_LOSSES), (smollm2, Scheme(8, 8, 0, 8, hadamard=0), W8A8_LOSSES),
             (smollm2, W8A16, W8A16_LOSSES)]
    cases += [(smollm2_degrid, w4a16(size), losses) for size, losses in DEGRID_W4A16_LOSSES.items()]
    for folder, scheme, expected in cases:
        model = Llama(*read_folder(folder), scheme)
        for window, loss in zip(wikitext, expected):
            assert scoring.window_losses(model, window).mean() == pytest.approx(loss, abs=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("scheme, options", [
    (Scheme(8, 8, 0, 8, hadamard=0), ("--activation-basis=plain",)),
    (W8A8, ()),
    (Scheme(8, 8, 0, 8, hadamard=0, input_group=32), ("--activation-basis=plain", "--activation-group-size=32")),
    (Scheme(8, 8, 0, 8, input_group=32), ("--activation-group-size=32",)),
], ids=["plain", "rotated", "groups of 32", "rotated, groups of 32"])  # fmt: skip
def test_divergence_is_that_of_the_oracle(artifact, smollm2_degrid, wikitext, scheme, options):
    """Each from its own float model, on four windows of 256 tokens."""
    windows = [window[:256] for window in wikitext[:4]]
    config, tensors = read_folder(smollm2_degrid)
    simulated, exact = Llama(config, tensors, scheme), Llama(config, tensors, FLOAT)
    expected = np.mean([kl(exact.logits(window), simulated.logits(window)) for window in windows])
    found, floats = (Runner(artifact(smollm2_degrid, *which), context=256) for which in (("--scheme=W8A8", *options), ("--scheme=none",)))
    measured = np.mean([kl(floats.score(window), found.score(window)) for window in windows])
    print(f"{measured:.5f}, the oracle's {expected:.5f}")
    assert measured == pytest.approx(expected, rel=0.07)


@pytest.mark.slow
def test_sixteen_windows(float_artifacts, artifact, smollm2, goldens, wikitext):
    golden = next(entry for entry in goldens["perplexity"] if entry["model"] == goldens["model"])
    windows = wikitext[:golden["windows"]]

    def loss(folder):
        runner = Runner(folder, context=golden["context"])
        losses = np.concatenate([runner.losses(window) for window in windows])
        assert len(losses) == golden["scored"]
        return losses.mean()

    assert loss(float_artifacts["gguf"]) == pytest.approx(golden["nll"], abs=1e-4)
    assert np.exp(loss(artifact(smollm2, "--scheme=W8A16")) - golden["nll"]) == pytest.approx(1, abs=0.005)
    assert 1.02 < np.exp(loss(artifact(smollm2, "--scheme=W8A8")) - golden["nll"]) < 1.08
