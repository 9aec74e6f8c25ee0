# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Token losses and what is made of them. A model has `hidden(tokens)`, `head(hidden)` and `logits(tokens)`."""

import numpy as np


def losses_of_logits(logits, targets):
    """-log softmax(logits)[target] of each row, in float64."""
    logits = np.asarray(logits, np.float64)
    top = logits.max(axis=-1)
    total = np.log(np.exp(logits - top[:, None]).sum(axis=-1)) + top
    return total - logits[np.arange(len(logits)), np.asarray(targets)]


def window_losses(model, tokens, rows=256):
    """Losses of tokens[1:] given what stands before them in the window; the head runs on blocks of rows to bound memory."""
    hidden = model.hidden(tokens)
    parts = []
    for start in range(0, len(tokens) - 1, rows):
        stop = min(start + rows, len(tokens) - 1)
        parts.append(losses_of_logits(model.head(hidden[start:stop]), tokens[start + 1:stop + 1]))
    return np.concatenate(parts)


def windows_of(tokens, context, count=None, keep_tail=False):
    """Disjoint windows of `context` tokens; the tail window only if asked for."""
    starts = range(0, len(tokens), context)
    windows = [tokens[start:start + context] for start in starts]
    windows = [w for w in windows if len(w) == context or (keep_tail and len(w) > 1)]
    return windows[:count]


def perplexity(model, windows):
    """(perplexity, mean loss, scored tokens)."""
    losses = np.concatenate([window_losses(model, window) for window in windows])
    return float(np.exp(losses.mean())), float(losses.mean()), len(losses)


def greedy(model, tokens, count):
    """`count` tokens appended by taking the largest logit; recomputes the whole sequence each step."""
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(int(model.head(model.hidden(tokens)[-1:])[0].argmax()))
    return tokens
