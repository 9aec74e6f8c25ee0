"""Writes a tokens file of random samples."""

import argparse

import numpy as np
from safetensors.numpy import save_file

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out")
parser.add_argument("--vocabulary", type=int, required=True)
parser.add_argument("--samples", type=int, required=True)
parser.add_argument("--length", type=int, required=True)
args = parser.parse_args()
tokens = np.random.default_rng(0).integers(0, args.vocabulary, (args.samples, args.length)).astype(np.int32)
save_file({"tokens": tokens}, args.out, metadata={"seed": "0", "bos": "0"})
