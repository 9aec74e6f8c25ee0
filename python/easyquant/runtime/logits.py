# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What logits say of tokens.

Logits are fp32 matrices (rows are positions, columns the vocabulary). Exponentials are taken in fp32, and every sum over the
vocabulary is accumulated in fp64.
"""

import numpy as np

# Rows per step: the temporaries of a 49,152-word vocabulary stay within a few megabytes of cache.
BLOCK_ROWS = 32


def exponentials(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """exp(logits − top) in fp32, its row sums in fp64, and log Σ_v exp(logits) in fp64."""
    top = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - top)
    total = weights.sum(axis=1, dtype=np.float64)
    return weights, total, top[:, 0].astype(np.float64) + np.log(total)


def log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """log Σ_v exp(logits[r, v]) of every row, fp64."""
    return exponentials(logits)[2]


def token_losses(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """−log softmax(logits[r])[targets[r]] in nats, fp64."""
    losses = np.empty(len(targets))
    for begin in range(0, len(targets), BLOCK_ROWS):
        block = logits[begin : begin + BLOCK_ROWS]
        chosen = block[np.arange(len(block)), targets[begin : begin + BLOCK_ROWS]]
        losses[begin : begin + BLOCK_ROWS] = log_sum_exp(block) - chosen
    return losses
