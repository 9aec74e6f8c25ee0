#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The EasyQuant side of peers_llama_cpp.py. Same requests as llama_cpp_worker.py, over `easyquant._runtime`:

    {"op": "load", "id": ID, "path": ARTIFACT, "threads": 2, "context": 1024}
    {"op": "measure", "id": ID, "prompt": [ids], "next": [ids]}
    {"op": "describe"}
"""

import contextlib
import json
import os
import sys
import time

import easyquant
import numpy as np
from easyquant import _runtime


class Model:
    def __init__(self, path, threads, context):
        self.model = _runtime.Model(path)
        self.session = _runtime.Session(self.model, context=context, threads=threads)

    def measure(self, prompt, following):
        prompt = np.asarray(prompt, np.int32)
        self.session.reset()
        start = time.perf_counter()
        self.session.prefill(prompt)
        prefilled = time.perf_counter()
        for token in following:
            self.session.decode(token)
        done = time.perf_counter()
        last = np.asarray(self.session.logits)
        if not np.isfinite(last).all():
            raise RuntimeError("EasyQuant gave non-finite logits")
        return {"prefill_s": prefilled - start, "decode_s": done - prefilled, "top1": int(last.argmax())}


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    models = {}
    for line in sys.stdin:
        request = json.loads(line)
        op = request.pop("op")
        try:
            if op == "load":
                name = request.pop("id")
                models[name] = Model(**request)
                answer = {"isa": models[name].model.isa}
            elif op == "measure":
                answer = models[request["id"]].measure(request["prompt"], request["next"])
            elif op == "describe":
                answer = {"version": easyquant.__version__}
            else:
                raise ValueError(f"unknown request {op!r}")
        except Exception as error:  # the caller reports it
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        main()
