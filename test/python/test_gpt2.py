# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small random GPT-2 against the numpy oracle."""

import numpy as np

from helpers import folder_contents, random_gpt2, random_tokens, write_model
from oracles.checkpoint import read_folder
from oracles.gpt2 import GPT2
from oracles.schemes import Scheme


def relative_error(found, expected):
    return np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2))


def test_float_logits(runner, tiny_gpt2):
    tokens = random_tokens(5, 64, 101)  # the whole context
    expected = GPT2(*read_folder(tiny_gpt2), dtype=np.float64).logits(tokens)
    assert np.abs(expected).max() > 1
    found = runner(tiny_gpt2, "--scheme=none").score(tokens)
    assert found.shape == (64, 101)
    assert np.abs(found - expected).max() < 1e-4


def test_float_decode(runner, tiny_gpt2):
    """One token at a time, which takes the kernels' other path."""
    tokens = random_tokens(6, 20, 101)
    expected = GPT2(*read_folder(tiny_gpt2), dtype=np.float64).logits(tokens)
    session = runner(tiny_gpt2, "--scheme=none").session
    for token, row in zip(tokens, expected):
        session.decode(token)
        assert np.abs(session.logits - row).max() < 1e-4


def test_names_with_the_prefix_are_the_same_model(artifact, tiny_gpt2, workspace):
    prefixed = write_model(workspace / "gpt2-prefixed", *random_gpt2(prefix="transformer."))
    ours = folder_contents(artifact(tiny_gpt2, "--scheme=none"))
    theirs = folder_contents(artifact(prefixed, "--scheme=none"))
    assert ours["weights.safetensors"] == theirs["weights.safetensors"]
    assert ours["model.so"] == theirs["model.so"]


def test_w8a8(runner, tiny_gpt2):
    """int8 linears with their biases; the head as well."""
    tokens = random_tokens(7, 64, 101)
    config, tensors = read_folder(tiny_gpt2)
    expected = GPT2(config, tensors, Scheme(8, 8, 0, 8), np.float64).logits(tokens)
    found = runner(tiny_gpt2, "--scheme=W8A8", "--head=int8", "--kv-cache=f32").score(tokens)
    # A value that lies on the border of two codes may fall to either side: one such flip is 1/254 of a row's largest entry.
    assert relative_error(found, expected) < 5e-3
    plain = GPT2(config, tensors, dtype=np.float64).logits(tokens)
    assert relative_error(expected, plain) > 4 * relative_error(found, expected), "the scheme itself must be visible"
