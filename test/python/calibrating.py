# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens files, and running `equant-calibrate` as a user's pipeline does."""

import numpy as np
from safetensors.numpy import save_file

from helpers import run_tool

ALL = "absmax,minmax,mean_abs,moments,histogram,hessian,ema,sinks,inliers"


def write_tokens(path, samples, /, bos=False, **metadata):
    """A tokens file of lists of token ids; the shorter ones are padded."""
    tokens = np.full((len(samples), max(map(len, samples))), -1, np.int32)
    for row, sample in zip(tokens, samples):
        row[:len(sample)] = sample
    save_file({"tokens": tokens}, path, metadata={"bos": "1" if bos else "0", "seed": "0"} | metadata)
    return path


def pipeline(folder, tokens, statistics=ALL, **options):
    text = " ".join(f"{name.replace('_', '-')}={value}" for name, value in options.items())
    return (f"equant-insert-observers{{statistics={statistics}}},"
            f'equant-calibrate{{tokens="{tokens}" work="{folder}/work" statistics="{folder}/statistics.safetensors" {text}}}')


def calibrate(model, folder, tokens, statistics=ALL, **options):
    """The statistics file."""
    folder.mkdir(exist_ok=True)
    result = run_tool("easyquant-compile", model, f"--pipeline={pipeline(folder, tokens, statistics, **options)}")
    assert result.returncode == 0, result.stderr
    return folder / "statistics.safetensors"
