# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sequences of a batch beside each by itself, for models with a recurrent state."""

import numpy as np

from easyquant import _runtime
from helpers import random_tokens


def alone(subject, tokens):
    """Logits behind each token of a sequence by itself."""
    return np.array(_runtime.Session(subject).score(np.asarray(tokens, np.int32)))


def append(batch, items, **options):
    """The rows of items that all succeed."""
    results = batch.append([(sequence, np.asarray(tokens, np.int32)) for sequence, tokens in items], all_logits=True, **options)
    assert not any(isinstance(result, _runtime.Error) for result in results), results
    return [np.array(result) for result in results]


def check_bits_in_batches(subject, count, length, longest):
    """So many sequences, some of which go on in each step by a piece of fewer than `longest` tokens, have the bits that each has alone."""
    random = np.random.default_rng(2)
    batch = _runtime.Batch(subject, sequences=count + 1, threads=2)
    texts = {batch.add(): random_tokens(seed, length, 97) for seed in range(count)}
    expected = {sequence: alone(subject, tokens) for sequence, tokens in texts.items()}
    at = dict.fromkeys(texts, 0)
    while any(position < length for position in at.values()):
        going = [sequence for sequence in texts if at[sequence] < length and random.random() < 0.7]
        pieces = {sequence: texts[sequence][at[sequence]:at[sequence] + int(random.integers(1, longest))] for sequence in going}
        for (sequence, tokens), rows in zip(pieces.items(), append(batch, pieces.items()) if pieces else [], strict=True):
            assert np.array_equal(rows, expected[sequence][at[sequence]:at[sequence] + len(tokens)])
            at[sequence] += len(tokens)
