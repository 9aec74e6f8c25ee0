#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The EasyQuant side of peers_llama_cpp.py. Same requests as llama_cpp_worker.py, over `easyquant._runtime`:

    {"op": "load", "id": ID, "path": ARTIFACT, "threads": 2, "context": 1024}
    {"op": "measure", "id": ID, "prompt": [ids], "next": [ids]}
    {"op": "describe"}
"""

import easyquant
import numpy as np
from easyquant import _runtime
from serving import serve, timed


def load(path, threads, context):
    model = _runtime.Model(path)
    return (model, _runtime.Session(model, context=context, threads=threads)), {"isa": model.isa}


def measure(loaded, prompt, following):
    _, session = loaded
    prompt = np.asarray(prompt, np.int32)
    session.reset()
    return timed(lambda: session.prefill(prompt), session.decode, following, lambda: session.logits)


if __name__ == "__main__":
    serve(load, measure, describe=lambda: {"version": easyquant.__version__})
