#!/usr/bin/env python3
"""Compare the F32 weights of two Hugging Face folders bit for bit, and the configurations where both have a field.

    compare_checkpoints.py A B     prints the first difference and exits with 1
"""

import json
import struct
import sys
from pathlib import Path


def read(folder):
    data = (folder / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return json.loads((folder / "config.json").read_text()), tensors


def main():
    (config_a, a), (config_b, b) = (read(Path(folder)) for folder in sys.argv[1:])
    for key in config_a.keys() & config_b.keys():
        if config_a[key] != config_b[key]:
            sys.exit(f"config.json: {key} is {config_a[key]!r} and {config_b[key]!r}")
    if a.keys() != b.keys():
        sys.exit(f"only one has {sorted(a.keys() ^ b.keys())}")
    for name in a:
        if a[name] != b[name]:
            sys.exit(f"{name} differs: {a[name][:2]} and {b[name][:2]}")
    if len(a) == 0 or len(config_a.keys() & config_b.keys()) < 8:
        sys.exit("there is too little to compare")


if __name__ == "__main__":
    main()
