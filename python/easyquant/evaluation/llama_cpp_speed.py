# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How fast llama.cpp runs a GGUF file, where llama-cpp-python is installed. A program of its own, so that its logs and its threads stay its own:

    python -m easyquant.evaluation.llama_cpp_speed FILE PREFILL DECODE THREADS ROUNDS
"""

import importlib.util
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from easyquant.support.children import ends_with_me
from easyquant.support.errors import UserError


def is_installed() -> bool:
    return importlib.util.find_spec("llama_cpp") is not None


def measure(path: Path, prefill: int, decode: int, threads: int, rounds: int) -> dict:
    """Tokens/s: medians over rounds, behind one that warms up, of the better setting of flash attention."""
    import llama_cpp
    import numpy as np

    found = {"prefill": [], "decode": []}
    for flash in (True, False):
        model = llama_cpp.Llama(str(path), n_ctx=prefill + decode, n_batch=prefill, n_ubatch=prefill, n_threads=threads or None, n_threads_batch=threads or None, flash_attn=flash, verbose=False)
        tokens = np.random.default_rng(0).integers(0, model.n_vocab(), prefill + decode).tolist()
        seconds = []
        for _ in range(rounds + 1):
            model.reset()
            begin = time.perf_counter()
            model.eval(tokens[:prefill])
            middle = time.perf_counter()
            for token in tokens[prefill:]:
                model.eval([token])
            seconds.append((middle - begin, time.perf_counter() - middle))
        for part, (name, count) in enumerate((("prefill", prefill), ("decode", decode))):
            found[name].append(statistics.median(count / times[part] for times in seconds[1:]))
    return {f"{name}_tokens_per_s": max(rates) for name, rates in found.items()} | {"version": llama_cpp.__version__}


def measure_apart(path: Path, prefill: int, decode: int, threads: int, rounds: int) -> dict:
    command = [sys.executable, "-m", __name__, path, prefill, decode, threads, rounds]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, preexec_fn=ends_with_me())
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UserError(f"{path}: llama.cpp cannot run it: {reason}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    file, *numbers = sys.argv[1:]
    print(json.dumps(measure(Path(file), *map(int, numbers))))
