# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What workers do alike. Runs in the environment of either library."""

import contextlib
import json
import os
import sys
import time

import numpy as np


def serve(**operations):
    """Reads one JSON request per line from standard input and answers each with one JSON line on standard output.

    {"op": NAME, ...} calls the function of that name with the rest; what it returns is the answer.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the library prints goes to standard error

    def answer(op, request):
        if op not in operations:
            raise ValueError(f"unknown request {op!r}")
        return operations[op](**request)

    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        for line in sys.stdin:
            request = json.loads(line)
            try:
                result = answer(request.pop("op"), request)
            except Exception as error:  # the caller reports it; a worker that dies would only hide the reason
                result = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(result) + "\n")


def serve_models(load, measure, **others):
    """serve, with models: `load(**rest)` makes one, which is kept as `id`, and an answer; `measure(model, prompts, steps)` an answer."""
    models = {}

    def load_named(id, **rest):
        models[id], result = load(**rest)
        return result

    serve(load=load_named, measure=lambda id, **rest: measure(models[id], **rest), **others)


def timed(prefill, decode, steps, logits):
    """Seconds of prefill() and of decode(tokens) for each of `steps`; then the token that logits() likes best."""
    start = time.perf_counter()
    prefill()
    prefilled = time.perf_counter()
    for tokens in steps:
        decode(tokens)
    done = time.perf_counter()
    last = np.asarray(logits())
    if not np.isfinite(last).all():
        raise RuntimeError("non-finite logits")
    return {"prefill_s": prefilled - start, "decode_s": done - prefilled, "top1": int(last.argmax())}
