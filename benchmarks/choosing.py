# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long choosing the next tokens of many sequences takes, on a model's own logits.

    benchmarks/choosing.py OUT TEXT [--sequences 16] [--threads 2] [--repeats 50]

Each sequence has read another piece of TEXT. Printed are medians of one call of eq_batch_choose, beside a step of one token for each
sequence: the time that passed, and that of the CPU in the calling thread, which has its share of the rows and is what is left where
others use the machine. `flat` divides by a temperature at which nearly all tokens matter, the worst case of top-p.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from easyquant.runtime.artifact import Artifact, BatchSize, load_model, open_batch
from easyquant.runtime.extension import runtime
from easyquant.text.tokenizer import load_tokenizer

PROMPT_TOKENS = 64
WAYS = {
    "greedy": {},
    "temperature 1": {"temperature": 1.0},
    "temperature 1, top-p 0.95": {"temperature": 1.0, "top_p": 0.95},
    "temperature 0.7, top-k 40, top-p 0.9": {"temperature": 0.7, "top_k": 40, "top_p": 0.9},
    "temperature 1, min-p 0.05": {"temperature": 1.0, "min_p": 0.05},
    "temperature 1, penalties": {"temperature": 1.0, "repetition_penalty": 1.1, "presence_penalty": 0.5, "prompt": list(range(1000))},
    "temperature 1, bits": {"temperature": 1.0, "allowed": True},
    "greedy, 5 log-probabilities": {"logprobs": 5},
    "flat, top-p 0.95": {"temperature": 20.0, "top_p": 0.95},
}


def measure(call, repeats: int) -> tuple[float, float]:
    times = []
    for _ in range(repeats):
        begin, begin_cpu = time.perf_counter(), time.thread_time()
        call()
        times.append((time.perf_counter() - begin, time.thread_time() - begin_cpu))
    passed, of_cpu = 1e3 * np.median(times, axis=0)
    return float(passed), float(of_cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=50)
    asked = parser.parse_args()
    artifact = Artifact.open(asked.artifact)
    count, vocabulary = asked.sequences, int(artifact.model["vocab_size"])
    tokens = np.array(load_tokenizer(artifact.path).encode(asked.text.read_text()[: 40 * count * PROMPT_TOKENS]), np.int32)
    size = BatchSize(PROMPT_TOKENS + asked.repeats + 64, count, count * (PROMPT_TOKENS + asked.repeats + 128))
    batch = open_batch(load_model(artifact), size, asked.threads)
    ids = [batch.add() for _ in range(count)]
    batch.append([(own, tokens[PROMPT_TOKENS * place :][:PROMPT_TOKENS]) for place, own in enumerate(ids)])
    print(f"{count} sequences, vocabulary of {vocabulary}, {batch.threads} threads: medians of the time and of the CPU's in ms")
    for name, options in WAYS.items():
        options = dict(options)
        bits = np.random.default_rng(0).integers(0, 2**32, -(-vocabulary // 32), np.uint32) if options.pop("allowed", False) else None
        samplers = [runtime().Sampler(seed=seed, **options) for seed in range(count)]
        for sampler in samplers:
            sampler.allow(bits)
        items = list(zip(ids, samplers, strict=True))
        batch.choose(items)
        print(f"{name:40} {{:6.2f}} {{:6.2f}}".format(*measure(lambda: batch.choose(items), asked.repeats)), flush=True)
    step = [(own, [1]) for own in ids]
    print(f"{'a step of the model':40} {{:6.2f}} {{:6.2f}}".format(*measure(lambda: batch.append(step), min(asked.repeats, 20))))


if __name__ == "__main__":
    main()
