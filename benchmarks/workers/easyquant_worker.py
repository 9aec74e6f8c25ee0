#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The EasyQuant side of peers_llama_cpp.py. Same requests as llama_cpp_worker.py, over `easyquant._runtime`:

    {"op": "load", "id": ID, "path": ARTIFACT, "threads": 2, "context": 1024, "sequences": 16, "isa": null or "avx2"}
    {"op": "measure", "id": ID, "prompts": [[ids] of each sequence], "steps": [[an id of each sequence] of each step]}
    {"op": "describe"}
"""

import easyquant
import numpy as np
from easyquant import _runtime
from serving import serve_models, timed


def load(path, threads, context, sequences, isa):
    model = _runtime.Model(path, isa=isa)
    return _runtime.Batch(model, context=context, sequences=sequences, threads=threads), {"isa": model.isa}


def measure(batch, prompts, steps):
    sequences = [batch.add() for _ in prompts]
    prompts = [np.asarray(prompt, np.int32) for prompt in prompts]
    steps = [np.asarray(tokens, np.int32)[:, np.newaxis] for tokens in steps]

    def append(tokens):
        for failed in batch.append(list(zip(sequences, tokens, strict=True))):
            if failed:
                raise failed

    try:
        return timed(lambda: append(prompts), append, steps, lambda: batch.logits(sequences[-1]))
    finally:
        for sequence in sequences:
            batch.remove(sequence)


if __name__ == "__main__":
    serve_models(load, measure, describe=lambda: {"version": easyquant.__version__})
