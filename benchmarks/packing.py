#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Round to nearest and packing, in Mweights/s of one thread, beside the quantizer of the PyPI package gguf.

    ninja -C build easyquant-packing-bench && .venv/bin/python benchmarks/packing.py

Runs build/bin/easyquant-packing-bench, which also shows the share of the read bandwidth, then gguf on as many weights.
"""

import json
import subprocess
import time
from pathlib import Path

import gguf
import numpy as np

BENCH = Path(__file__).resolve().parent.parent / "build" / "bin" / "easyquant-packing-bench"
ROWS, COLUMNS, ROUNDS = 2048, 4096, 5
PEERS = {"Q8_0": "int8 per channel", "Q4_0": "int4, groups of 32"}


def gguf_rate(weights, kind):
    """Weights a second, median of the rounds, on the clock of the thread."""
    rates = []
    for _ in range(ROUNDS):
        begin = time.thread_time()
        gguf.quants.quantize(weights, gguf.GGMLQuantizationType[kind])
        rates.append(weights.size / (time.thread_time() - begin))
    return sorted(rates)[ROUNDS // 2]


def main():
    output = subprocess.run([BENCH, str(ROWS), str(COLUMNS), str(ROUNDS)], capture_output=True, text=True, check=True).stdout.rstrip()
    print(output[: output.rindex("\n")])
    ours = json.loads(output[output.rindex("\n") :])
    weights = np.random.default_rng(1).standard_normal((ROWS, COLUMNS), np.float32)
    for kind, name in PEERS.items():
        rate = gguf_rate(weights, kind)
        print(f"gguf {kind:<17}{rate / 1e6:14.0f} Mweights/s   EasyQuant ({name}) over it: {ours[name] / rate:.1f}")


if __name__ == "__main__":
    main()
