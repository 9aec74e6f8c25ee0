#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""llama.cpp as a client of GGUF files and as their maker (interop.py); runs in its own environment. Its requests are those of torch_clients.py, where a
checkpoint is a folder with a GGUF file, what is dequantized is that of the package gguf, and a scheme is a file type of llama.cpp's quantizer.

LIBRARY is llama.cpp, which rounds activations to 8 bits beside codes, or `llama.cpp, floats`: it runs the file after its tensors were dequantized to f32."""

import os
from pathlib import Path

import gguf
import numpy as np
from llama_cpp_judge import ROWS, Judged
from llama_cpp_models import name_of, quantize, start, write_f32
from numpy_clients import compare, describe
from safetensors import safe_open
from serving import serve

CONTEXT = 1024
loaded = None  # the file, and the model


def load(library, folder):
    global loaded
    if loaded:
        loaded[1].close()
        loaded = None
    path = run = next(Path(folder).glob("*.gguf"))
    if library == "llama.cpp, floats":
        run = Path(folder) / "floats.part"
        write_f32(path, run)
    loaded = path, Judged(run, CONTEXT, os.cpu_count() or 1)
    if run != path:
        run.unlink()  # it is mapped
    return {}


def undo_rope(weight, heads):
    """Rows in the order of Hugging Face, out of llama.cpp's (llama_cpp_models.permute_rope)."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def linears(sites):
    reader = gguf.GGUFReader(loaded[0])
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    heads = {"q_proj": "llama.attention.head_count", "k_proj": "llama.attention.head_count_kv"}
    for site in sites:
        # An embedding that is tied to the head is the head.
        name = name_of(site) if site != "lm_head" or "output.weight" in tensors else "token_embd.weight"
        weight, kind = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type), site.rpartition(".")[2]
        yield site, undo_rope(weight, int(reader.fields[heads[kind]].contents())) if kind in heads else weight


def weights(ours):
    with safe_open(ours, "numpy") as file:
        sites = list(file.keys())
    return compare(ours, linears(sites))


def logits(sequences, out):
    judged, rows = loaded[1], []
    for tokens in sequences:
        judged.reset()
        rows += [judged.logits(tokens[at : at + ROWS], at).copy() for at in range(0, len(tokens), ROWS)]
    np.save(out, np.concatenate(rows))
    return {}


def make(library, model, out, scheme, group, windows):
    part = Path(f"{out}.part")
    part.mkdir(parents=True, exist_ok=True)
    quantize(model, part / "model.gguf", scheme)
    part.rename(out)
    return {}


if __name__ == "__main__":
    start()
    serve(load=load, weights=weights, logits=logits, make=make, describe=describe)
