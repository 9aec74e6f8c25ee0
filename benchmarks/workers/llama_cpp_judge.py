#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The llama.cpp side of quality_per_byte.py; runs in the peer's own environment.

Its requests, as serving.py reads them:

    {"op": "full", "source": PATH, "out": PATH}                          the f32 GGUF of a folder or a GGUF
    {"op": "quantize", "full": PATH, "out": PATH, "file_type": "Q4_K_M",
     "statistics": PATH or null}                                         a file of the quantizer, with an importance matrix or without
    {"op": "judge", "paths": [PATH, ...], "reference": PATH,
     "windows": PATH, "threads": 2}                                      figures of files against their f32 on int32 [windows, tokens] (.npy)
    {"op": "logits", "path": PATH, "windows": PATH, "out": PATH,
     "threads": 2}                                                       f32 [windows, tokens, vocabulary] (.npy) of all tokens of each window
    {"op": "continue", "path": PATH, "tokens": [IDS], "count": 64,
     "threads": 2}                                                       so many tokens behind these, each the likeliest one
    {"op": "describe"}                                                   version and CPU features of the build

Figures are those of `easyquant eval --reference`, by the code that makes them there (easyquant.evaluation.metrics).
"""

from pathlib import Path

import llama_cpp
import numpy as np
from easyquant.evaluation.metrics import Scores, compare
from easyquant.runtime.logits import token_losses
from llama_cpp_models import load_model, open_context, quantize, start, write_f32
from serving import serve

ROWS = 256  # of a call


class Judged:
    """A model file that gives the logits of all tokens, on a cache of f32, without flash attention."""

    def __init__(self, path, context, threads):
        self.model, self.vocab = load_model(path)
        self.context = open_context(
            self.model, path, n_ctx=context, n_batch=ROWS, n_ubatch=ROWS, n_threads=threads, n_threads_batch=threads,
            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, flash_attn_type=llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        )
        self.batch = llama_cpp.llama_batch_init(ROWS, 0, 1)

    def reset(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), False)

    def logits(self, tokens, position):
        """f32 [tokens, vocabulary] of tokens that follow what the context holds; valid until the next call."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for row, token in enumerate(tokens):
            batch.token[row], batch.pos[row], batch.logits[row], batch.n_seq_id[row] = int(token), position + row, True, 1
            batch.seq_id[row][0] = 0
        status = llama_cpp.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        found = np.ctypeslib.as_array(llama_cpp.llama_get_logits(self.context), (len(tokens), self.vocab))
        if not np.isfinite(found).all():
            raise RuntimeError("non-finite logits")
        return found

    def close(self):
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)


def judge(paths, reference, windows, threads):
    """Figures of every file, on one computation of the reference's logits."""
    windows = np.load(windows)
    full, *files = [Judged(path, windows.shape[1], threads) for path in (reference, *paths)]
    scores = [Scores() for _ in files]
    for window in windows:
        inputs, targets = window[:-1], window[1:]
        losses = [[] for _ in (full, *files)]
        for side in (full, *files):
            side.reset()
        for begin in range(0, len(inputs), ROWS):
            tokens, wanted = inputs[begin : begin + ROWS], targets[begin : begin + ROWS]
            expected = full.logits(tokens, begin)
            losses[0].append(token_losses(expected, wanted))
            for side, collected, score in zip(files, losses[1:], scores):
                logits = side.logits(tokens, begin)
                collected.append(token_losses(logits, wanted))
                score.add_comparison(compare(logits, expected))
        means = [np.concatenate(collected) for collected in losses]
        for score, own in zip(scores, means[1:]):
            score.add_window(own, means[0])
    for side in (full, *files):
        side.close()
    return {"figures": [score.figures() for score in scores]}


def all_logits(path, windows, out, threads):
    windows = np.load(windows)
    model = Judged(path, windows.shape[1], threads)
    found = np.lib.format.open_memmap(out, "w+", np.float32, (*windows.shape, model.vocab))
    for number, window in enumerate(windows):
        model.reset()
        for begin in range(0, len(window), ROWS):
            found[number, begin : begin + ROWS] = model.logits(window[begin : begin + ROWS], begin)
    found.flush()
    model.close()
    return {}


def go_on(path, tokens, count, threads):
    model = Judged(path, len(tokens) + count, threads)
    model.reset()
    found = []
    for begin in range(0, len(tokens), ROWS):
        logits = model.logits(tokens[begin : begin + ROWS], begin)
    while len(found) < count:
        found.append(int(logits[-1].argmax()))
        logits = model.logits(found[-1:], len(tokens) + len(found) - 1)
    model.close()
    return {"tokens": found}


def full(source, out):
    part = Path(f"{out}.part")
    write_f32(source, part)
    part.rename(out)
    return {}


def describe():
    return {"version": llama_cpp.__version__, "features": llama_cpp.llama_print_system_info().decode().strip()}


if __name__ == "__main__":
    start()
    serve(full=full, quantize=quantize, judge=judge, describe=describe, logits=all_logits, **{"continue": go_on})
