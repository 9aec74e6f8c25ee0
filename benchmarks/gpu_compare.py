#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what two devices made of one artifact, from the JSON files that the tools wrote. Exit status 1: they differ.

    gpu_compare.py tokens CPU.json CUDA.json        # of easyquant-run --json
    gpu_compare.py perplexity CPU.json CUDA.json    # of easyquant eval --json

The integers of the devices are the same. What differs are floats (exponentials, roots and sums in another order), and where such a
difference stands right before a quantization, a code may move by one.
"""

import json
import sys
from pathlib import Path

LOGIT_BOUND = 0.02  # of the largest logit, as in test/python/test_gpu.py
PERPLEXITY_BOUND = 0.005  # of the perplexity


def compare_tokens(cpu, cuda):
    difference = max(abs(a - b) for a, b in zip(cpu["logits"], cuda["logits"], strict=True)) / max(map(abs, cpu["logits"]))
    same = cpu["generated"] == cuda["generated"]
    print(f"{len(cpu['generated'])} greedy tokens on {cuda['device']} ({cuda['isa']}) and {cpu['device']} ({cpu['isa']}): {'the same' if same else 'DIFFERENT'}; "
          f"last logits differ by {difference:.2%} of the largest, bound {LOGIT_BOUND:.0%}")
    return same and difference <= LOGIT_BOUND


def compare_perplexity(cpu, cuda):
    difference = cuda["perplexity"] / cpu["perplexity"] - 1
    print(f"perplexity {cuda['perplexity']:.4f} on {cuda['protocol']['device']}, {cpu['perplexity']:.4f} on {cpu['protocol']['device']}: "
          f"{difference:+.3%}, bound {PERPLEXITY_BOUND:.1%}")
    return abs(difference) <= PERPLEXITY_BOUND


COMPARISONS = {"tokens": compare_tokens, "perplexity": compare_perplexity}


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in COMPARISONS:
        sys.exit(__doc__)
    try:
        documents = [json.loads(Path(path).read_text()) for path in sys.argv[2:]]
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    sys.exit(0 if COMPARISONS[sys.argv[1]](*documents) else 1)


if __name__ == "__main__":
    main()
