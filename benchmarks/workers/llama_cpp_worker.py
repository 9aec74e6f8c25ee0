#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The llama.cpp side of peers_llama_cpp.py; runs in the peer's own environment (llama-cpp-python, gguf, numpy).

Its requests, as serving.py reads them:

    {"op": "make", "source": PATH, "out": PATH, "type": "Q4_0"}        quantize a model file or folder, without its tokenizer; with
                                                                       "itself": true a file with its tokenizer
    {"op": "load", "id": ID, "path": PATH, "threads": 2, "flash": true, "context": 1024,
     "sequences": 16}                                                  tokens of a sequence; sequences of a batch
    {"op": "measure", "id": ID, "prompts": [[ids] of each sequence],
     "steps": [[an id of each sequence] of each step]}                 seconds of prefill and of decode
    {"op": "describe"}                                                  version and CPU features of the build

Timings are of llama_decode through the C interface: no Python object per token, no sampling, no detokenizing.
"""

import os
from pathlib import Path

import llama_cpp
import numpy as np
from llama_cpp_models import load_model, open_context, quantize, start, write_f32
from serving import serve_models, timed


def make(source, out, type, itself=False):
    """Quantizes with llama.cpp's own quantizer: linears in `type`, embedding and head in int8 (Q8_0) in every variant."""
    if Path(out).exists():
        return {"bytes": Path(out).stat().st_size}
    if itself:
        return quantize(source, out, type, head_type=llama_cpp.GGML_TYPE_Q8_0)
    full = Path(f"{out}.f32.{os.getpid()}")
    try:
        write_f32(source, full)
        return quantize(full, out, type, head_type=llama_cpp.GGML_TYPE_Q8_0)
    finally:
        full.unlink(missing_ok=True)


class Model:
    ROWS = 512  # of a call

    def __init__(self, path, threads, flash, context, sequences):
        self.model, self.vocab = load_model(path)
        attention = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        # kv_unified: each sequence attends to its own cache alone, which is quicker where they share no beginning.
        self.context = open_context(
            self.model, path, n_ctx=context * sequences, n_seq_max=sequences, kv_unified=False, n_batch=self.ROWS, n_ubatch=self.ROWS,
            n_threads=threads, n_threads_batch=threads, flash_attn_type=attention,
        )
        self.batch = llama_cpp.llama_batch_init(self.ROWS, 0, 1)

    def step(self, rows):
        """One call for rows (sequence, position, token, whether its logits are wanted)."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for row, (sequence, position, token, wanted) in enumerate(rows):
            batch.token[row], batch.pos[row], batch.logits[row] = token, position, wanted
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = sequence
        status = llama_cpp.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        llama_cpp.llama_get_logits_ith(self.context, -1)  # waits for the result

    def measure(self, prompts, steps):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), False)
        read = [(sequence, position, token, position + 1 == len(prompt))
                for sequence, prompt in enumerate(prompts) for position, token in enumerate(prompt)]
        following = [[(sequence, len(prompts[sequence]) + index, token, True) for sequence, token in enumerate(tokens)]
                     for index, tokens in enumerate(steps)]

        def prefill():
            for at in range(0, len(read), self.ROWS):
                self.step(read[at:at + self.ROWS])

        return timed(prefill, self.step, following, self.logits)

    def logits(self):
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, -1), (self.vocab,))


def load(**options):
    model = Model(**options)
    return model, {"vocab_size": model.vocab}


def describe():
    return {"version": llama_cpp.__version__, "features": llama_cpp.llama_print_system_info().decode().strip()}


if __name__ == "__main__":
    start()
    serve_models(load, Model.measure, make=make, describe=describe)
