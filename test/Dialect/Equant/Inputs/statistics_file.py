#!/usr/bin/env python3
"""A statistics file as calibration writes it, of random magnitudes.

    statistics_file.py FILE HASH SITE=K ...        SITE/absmax of K channels each, for the model of checksum HASH
    statistics_file.py FILE IR SITE=K ...          HASH taken from the report in materialized IR
"""

import re
import sys
import zlib
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def main():
    path, model, *sites = sys.argv[1:]
    if model.endswith(".mlir"):
        model = re.search(r'xxh3_128 = "([0-9a-f]+)"', Path(model).read_text())[1]
    tensors = {}
    for site in sites:
        name, _, columns = site.partition("=")
        random = np.random.default_rng(zlib.crc32(name.encode()))
        tensors[name + "/absmax"] = np.exp2(random.uniform(-2, 6, int(columns))).astype(np.float32)
    save_file(tensors, path, {
        "format": "easyquant-statistics", "format_version": "1", "model_hash": model, "text_hash": "0", "tokenizer_hash": "0",
        "samples": "1", "length": "8", "seed": "0", "bos": "0"})


if __name__ == "__main__":
    main()
