#!/usr/bin/env python3
"""Statistics of made-up activations, and static scales that follow from them.

    static_inputs.py HASH FILE SITE=CHANNELS ...       of the model with the checksum in the file HASH; SITE=CHANNELS:0,16 are observed
                                                       behind a factor and a rotation in blocks of 16
    static_inputs.py --check FILE SMOOTH MINMAX ABSMAX the IR that quantize-static.mlir made with either observer
    static_inputs.py --check-inliers ...               the same, of plans that keep sinks apart
    static_inputs.py --check-observed ...              the same, of statistics behind the factor
"""

import re
import sys
import zlib
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file


def write(checksum, path, *sites):
    tensors = {}
    for argument in sites:
        site, _, channels = argument.partition("=")
        channels, _, basis = channels.partition(":")
        if basis:
            tensors[f"{site}/basis"] = np.array(basis.split(","), np.int64)
        x = np.random.default_rng(zlib.crc32(site.encode())).normal(0.3, 1, (50, int(channels))).astype(np.float32)
        tensors[f"{site}/minmax"] = np.stack([x.min(axis=0), x.max(axis=0)])
        tensors[f"{site}/absmax"] = np.abs(x).max(axis=0)
        inliers = x[np.abs(x).max(axis=1) <= 2.5]
        tensors[f"{site}/inliers"] = np.stack([inliers.min(axis=0), inliers.max(axis=0)])
        tensors[f"{site}/tokens"] = np.array([50], np.int64)
    stamp = {"format": "easyquant-statistics", "format_version": "1", "model_hash": Path(checksum).read_text().strip(), "text_hash": "0",
             "tokenizer_hash": "0", "samples": "1", "length": "50", "seed": "0", "bos": "0"}
    save_file(tensors, path, stamp)


def check(file, smooth, minmax, absmax, extrema="minmax", divided=True):
    statistics, s = load_file(file), load_file(smooth)["smooth"] if divided else 1
    up_low, up_high = statistics[f"up/{extrema}"] / s
    low, high = statistics[f"gate/{extrema}"]
    largest = max(-low.min(), high.max())
    peak = np.float32(max(np.abs(up_low).max(), np.abs(up_high).max()))
    for path, (low, high) in ((minmax, (low.min(), high.max())), (absmax, (-largest, largest))):
        text = Path(path).read_text()
        scales = [np.float32(value) for value in re.findall(r"input_scale = ([0-9.e+-]+) : f32", text)]
        (zero,) = re.findall(r"input_zero_point = (-?\d+) : i32", text)
        assert abs(scales[0] / (peak / np.float32(127)) - 1) < 1e-6, (scales, peak / 127)
        low, high = min(low, np.float32(0)), max(high, np.float32(0))
        scale = np.float32((np.float64(high) - low) / 255)
        assert abs(scales[1] / scale - 1) < 1e-6 and int(zero) == np.rint(-128 - low / scale), (scales, scale, zero)


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(*sys.argv[2:])
    elif sys.argv[1] == "--check-inliers":
        check(*sys.argv[2:], extrema="inliers")
    elif sys.argv[1] == "--check-observed":
        check(*sys.argv[2:], divided=False)
    else:
        write(*sys.argv[1:])
