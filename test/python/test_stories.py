# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stories260K, a trained model of 260,000 parameters: the published text and perplexities, through a compiled artifact."""

import numpy as np
import pytest

from helpers import Runner, run_tool, test_data
from oracles.llama2c_tokenizer import read_tokenizer
from oracles.scoring import windows_of


@pytest.fixture(scope="module")
def tokenizer():
    return read_tokenizer(test_data("tok512.bin"))


@pytest.fixture(scope="module")
def golden():
    return test_data("stories260K.greedy257.txt").read_text().rstrip("\n")


def test_greedy_text_of_the_runner(artifact, stories, tokenizer, golden):
    """257 tokens, one decode step each, from the beginning-of-text token."""
    out = artifact(stories, "--scheme=none")
    result = run_tool("easyquant-run", out, "--tokens=1", "--max-new-tokens=257", "--ignore-eos", "--threads=2")
    assert result.returncode == 0, result.stderr
    tokens = [int(token) for token in result.stdout.strip().split(",")]
    assert len(tokens) == 257
    assert tokenizer.decode(tokens) == golden


def test_greedy_text_of_the_extension(runner, stories, tokenizer, golden):
    tokens = runner(stories, "--scheme=none", threads=1).greedy([1], 257)
    assert tokenizer.decode(tokens) == golden


@pytest.mark.parametrize("name, perplexity, scored", [
    ("wikitext2-raw-test.joined.txt", 131.5089, 31531), ("austen-6-novels.txt", 47.4523, 28050)])
def test_perplexity(runner, stories, tokenizer, name, perplexity, scored):
    """The first 50,000 bytes, BOS once, disjoint windows of 256 tokens with the tail."""
    text = test_data(name).read_bytes()[:50000].decode()
    tokens = [1, *tokenizer.encode(text, add_special_tokens=False).ids]
    float_model: Runner = runner(stories, "--scheme=none", context=256)
    losses = np.concatenate([float_model.losses(window) for window in windows_of(tokens, 256, keep_tail=True)])
    assert len(losses) == scored
    assert np.exp(losses.mean()) == pytest.approx(perplexity, rel=1e-3)
