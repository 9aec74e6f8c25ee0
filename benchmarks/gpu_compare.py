#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what two devices made of one model, from the JSON files that the tools wrote. Exit status 1: they differ.

    gpu_compare.py tokens CPU.json CUDA.json [BOUND]    # of easyquant-run --json
    gpu_compare.py perplexity CPU.json CUDA.json        # of easyquant eval --json

The integers of the devices are the same. What differs are floats (exponentials, roots and sums in another order), and where such a
difference stands right before a quantization, a code may move by one, and with it others in all layers behind.
"""

import json
import math
import statistics
import sys
from pathlib import Path

LOGIT_BOUND = 0.02  # of the largest logit, as in test/python/test_gpu.py
# The bound of the loss, in nats. Where codes move, windows are better or worse by chance, so that their mean has an error of its own.
LOSS_BOUND, STANDARD_ERRORS = 0.005, 3


def compare_tokens(cpu, cuda, bound):
    """Tokens are to be the same, and the logits that gave the last one within the bound; that token may be another where the CPU's logits
    of both are closer than two logits that are off by the bound."""
    largest = max(map(abs, cpu["logits"]))
    difference = max(abs(a - b) for a, b in zip(cpu["logits"], cuda["logits"], strict=True)) / largest
    ours, theirs = cpu["generated"], cuda["generated"]
    tie = ours[:-1] == theirs[:-1] and cpu["logits"][ours[-1]] - cpu["logits"][theirs[-1]] <= 2 * bound * largest
    found = "the same" if ours == theirs else "the same but for the last, which is near a tie" if tie else "DIFFERENT"
    print(f"greedy tokens on {cuda['device_name']} ({cuda['isa']}) and {cpu['device_name']} ({cpu['isa']}): {len(ours)}, {found}; "
          f"last logits differ by {difference:.2%} of the largest, bound {bound:.0%}")
    return (ours == theirs or tie) and difference <= bound


def compare_perplexity(cpu, cuda, _):
    differences = [b - a for a, b in zip(cpu["windows"]["loss"], cuda["windows"]["loss"], strict=True)]
    mean, error = statistics.mean(differences), statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
    bound = LOSS_BOUND + STANDARD_ERRORS * error
    print(f"perplexity {cuda['perplexity']:.4f} on {cuda['protocol']['device']} ({cuda['protocol']['isa']}), {cpu['perplexity']:.4f} on {cpu['protocol']['device']} "
          f"({cpu['protocol']['isa']}), {len(differences)} windows of {cpu['protocol']['context']} tokens; loss {mean:+.5f} ± {error:.5f} nats, "
          f"bound {LOSS_BOUND} + {STANDARD_ERRORS} standard errors = {bound:.5f}")
    return abs(mean) <= bound


COMPARISONS = {"tokens": compare_tokens, "perplexity": compare_perplexity}


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in COMPARISONS:
        sys.exit(__doc__)
    try:
        documents = [json.loads(Path(path).read_text()) for path in sys.argv[2:4]]
        bound = float(sys.argv[4]) if len(sys.argv) == 5 else LOGIT_BOUND
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    sys.exit(0 if COMPARISONS[sys.argv[1]](*documents, bound) else 1)


if __name__ == "__main__":
    main()
