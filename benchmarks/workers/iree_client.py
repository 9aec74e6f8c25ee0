#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""IREE as a client of upstream ops (interop.py); runs in its own environment. Its requests are those of torch_clients.py, where a checkpoint is a folder
with model.mlir and weights.safetensors, as docs/guide/linalg.md makes it. What is dequantized is (code - zero point) * scale of that file."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy_clients import compare, describe, heights, parts
from safetensors import safe_open
from serving import serve

TOOLS = Path(sys.executable).parent
loaded = None  # the folder


def run(tool, *arguments):
    done = subprocess.run([str(TOOLS / tool), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{tool} ended with status {done.returncode}: {done.stderr[-400:]}")


def load(library, folder):
    global loaded
    loaded = Path(folder)
    run("iree-compile", loaded / "model.mlir", "-o", loaded / "model.vmfb", "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host")  # fmt: skip
    return {}


def linears(rows_of):
    """(site, weight) of the file, whose linears that share an input lie behind one another as one; `rows_of` says how many rows each has."""
    with safe_open(loaded / "weights.safetensors", "numpy") as file:
        names = set(file.keys())
        for name in sorted(name for name in names if f"{name}_scale" in names):
            codes, scales = file.get_tensor(name).astype(np.float32), file.get_tensor(f"{name}_scale")
            width = codes.shape[1] // scales.shape[1]
            if f"{name}_zero_point" in names:
                codes -= np.repeat(file.get_tensor(f"{name}_zero_point").astype(np.float32), width, axis=1)
            rows = codes * np.repeat(scales, width, axis=1)
            path, _, fused = name.removesuffix(".weight").rpartition(".")
            yield from parts(rows, [f"{path}.{part}" if path else part for part in fused.split("+")], rows_of)


def weights(ours):
    return compare(ours, linears(heights(ours)))


def logits(sequences, out):
    found = []
    for tokens in sequences:
        inputs = [f"--input={len(tokens)}xi32={' '.join(map(str, values))}" for values in (tokens, range(len(tokens)))]
        result = loaded / "logits.npy"
        run("iree-run-module", f"--module={loaded / 'model.vmfb'}", "--device=local-task", "--function=forward", *inputs,
            f"--parameters=model={loaded / 'weights.safetensors'}", f"--output=@{result}")  # fmt: skip
        found.append(np.load(result))
    np.save(out, np.concatenate(found))
    return {}


if __name__ == "__main__":
    serve(load=load, weights=weights, logits=logits, describe=describe)
