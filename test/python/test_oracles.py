# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The oracles themselves, against figures that others published and against closed forms."""

import numpy as np
import pytest

from helpers import random_gpt2, random_llama, random_tokens, test_data
from oracles import scoring
from oracles.checkpoint import read_folder
from oracles.gpt2 import GPT2
from oracles.llama import Llama
from oracles.llama2c_tokenizer import read_tokenizer
from oracles.schemes import FLOAT, Linear, QuantizedWeight


def test_stories_text(stories):
    text = test_data("stories260K.greedy257.txt").read_text().rstrip("\n")
    tokens = [1, *read_tokenizer(test_data("tok512.bin")).encode(text, add_special_tokens=False).ids]
    assert len(tokens) == 1 + 257
    # Greedy decoding gives this text if every token is the best one after those before it.
    best = Llama(*read_folder(stories)).logits(tokens).argmax(axis=-1)
    assert best[:-1].tolist() == tokens[1:]


def test_smollm2_logits(smollm2, goldens):
    model = Llama(*read_folder(smollm2))
    for case in goldens["greedy"][:2]:
        logits = model.logits(case["prompt_ids"] + case["continuation"])[len(case["prompt_ids"]) - 1:-1]
        assert logits.argmax(axis=-1).tolist() == case["continuation"]
        top = np.take_along_axis(logits, np.array(case["top5_ids"]), axis=1)
        assert np.abs(top - np.array(case["top5_logits"])).max() < 1e-3


@pytest.mark.slow
def test_smollm2_windows(smollm2, goldens, wikitext):
    model = Llama(*read_folder(smollm2))
    for window in goldens["llama_cpp_f32_windows"]:
        losses = scoring.window_losses(model, wikitext[window["window"]])
        assert len(losses) == window["scored"]
        assert losses.mean() == pytest.approx(window["nll"], abs=1e-5)


@pytest.mark.parametrize("kind, make", [(Llama, random_llama), (GPT2, random_gpt2)])
def test_double_precision_agrees_with_single(kind, make):
    config, tensors = make()
    tokens = random_tokens(1, 40, config["vocab_size"])
    single = kind(config, tensors, FLOAT, np.float32).logits(tokens)
    double = kind(config, tensors, FLOAT, np.float64).logits(tokens)
    assert double.dtype == np.float64
    assert np.abs(single - double).max() < 1e-4


@pytest.mark.parametrize("kind, make", [(Llama, random_llama), (GPT2, random_gpt2)])
def test_models_are_causal(kind, make):
    config, tensors = make()
    tokens = random_tokens(2, 20, config["vocab_size"])
    model = kind(config, tensors, dtype=np.float64)
    changed = tokens[:12] + [(token + 1) % config["vocab_size"] for token in tokens[12:]]
    whole, other = model.logits(tokens), model.logits(changed)
    assert np.abs(whole[:12] - other[:12]).max() < 1e-12
    assert np.abs(whole[12:] - other[12:]).max() > 1e-2


def test_quantized_linear_by_hand():
    weight = np.array([[127.0, -63.5, 0.5], [0.0, 0.0, 0.0]])  # scale 1: codes 127, -64 (half to even), 0
    linear = Linear(weight, np.float64, weight_bits=8)
    assert linear.weight.tolist() == [[127.0, -64.0, 0.0], [0.0, 0.0, 0.0]]
    both = Linear(weight, np.float64, weight_bits=8, input_bits=8)
    # x = [254, 1, 3] has scale 2: codes 127, 0 (0.5 to even), 2 (1.5 to even).
    assert both(np.array([[254.0, 1.0, 3.0]])).tolist() == [[2 * 127.0 * 127.0, 0.0]]


def test_short_last_group():
    weight = np.array([[7.0, 3.0, 70.0, -10.0, 0.7]])
    linear = Linear(weight, np.float64, weight_bits=4, group_size=2)
    assert linear.quantized.scales[0].tolist() == pytest.approx([1.0, 10.0, 0.1], rel=2**-11)
    assert linear.weight[0].tolist() == pytest.approx([7.0, 3.0, 70.0, -10.0, 0.7], rel=2**-11)


@pytest.mark.parametrize("bits, group_size", [(8, 0), (4, 48)])
def test_rounding_error_is_within_half_a_step(bits, group_size):
    weight = np.random.default_rng(3).normal(0, 1, (17, 100))
    quantized = QuantizedWeight(weight, bits, group_size, np.float64)
    step = np.repeat(quantized.scales, group_size or 100, axis=1)[:, :100]
    assert (np.abs(quantized.dequantized() - weight) <= step / 2 * (1 + 1e-6)).all()
