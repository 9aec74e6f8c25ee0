# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small model, searches in it, and what its choices lose by an oracle."""

import json
import os
import subprocess
import sys

import numpy as np

from calibrating import write_tokens
from helpers import random_llama, random_tokens, run_tool, write_model
from oracles.llama import Llama

TEXT = "Once upon a time there was a little girl named Lily. She loved to play in the park with her friends. " * 12
FORMATS, GROUPS = ("W2A16", "W3A16", "W4A16", "W8A16"), "16"


class Searched:
    """A random model of two layers, and a search in it."""

    def __init__(self, folder, tied=True, **fields):
        self.folder, (self.config, self.tensors) = folder, random_llama(5, hidden=64, ffn=96, heads=4, kv_heads=4, tied=tied, **fields)
        self.head = "model.embed_tokens.weight" if tied else "lm_head.weight"
        write_model(folder / "model", self.config, self.tensors)
        self.samples = [random_tokens(seed, length, 97) for seed, length in ((1, 40), (2, 33))]
        self.tokens = write_tokens(folder / "tokens.safetensors", self.samples)

    def run(self, name, *options, plan="equant-absmax{scheme=W4A16 group-size=16}", formats=",".join(FORMATS), group_sizes=GROUPS, tokens=True, **run_options):
        out = self.folder / name
        out.mkdir(exist_ok=True)
        given = f'tokens="{self.tokens}" ' if tokens else ""
        text = (f'{plan},equant-search-bitwidths{{{given}work="{out}/work" formats={formats} group-sizes={group_sizes} '
                f'output="{out}/recipe.json" report="{out}/report.json" {" ".join(options)}}}')
        return run_tool("easyquant-compile", self.folder / "model", f"--pipeline={text}", **run_options)

    def search(self, name, *options, **more):
        result = self.run(name, *options, **more)
        assert result.returncode == 0, result.stderr
        return json.loads((self.folder / name / "report.json").read_text())

    def loss_of(self, recipe, folder, with_head=False):
        """Mean KL of the model compiled by a recipe, all in float64; losses are with a float head where that is not searched."""
        path = folder / "recipe-of-loss.json"
        path.write_text(json.dumps(recipe))
        result = run_tool("easyquant-compile", self.folder / "model", "--recipe", path, "--dry-run")
        assert result.returncode == 0, result.stderr
        tensors = dict(self.tensors)
        for site in json.loads(result.stdout)["sites"]:
            if site["weight"] and (with_head or site["name"] != "lm_head"):
                for name in self.tensors_of(site["name"]):
                    tensors[name] = rounded(tensors[name], site["weight"])
        return self.divergence(tensors)

    def tensors_of(self, site):
        """The names of its weights: one, or one of each expert."""
        name = self.head if site == "lm_head" else f"{site}.weight"
        at, part = site.rsplit(".", 1) if name not in self.tensors else (None, None)
        return [name] if at is None else [name for name in self.tensors if name.startswith(f"{at}.") and name.endswith(f".{part}.weight")]

    def divergence(self, tensors):
        exact, found = (Llama(self.config, weights, dtype=np.float64) for weights in (self.tensors, tensors))
        divergences = [kl_of(exact.logits(sample), found.logits(sample)) for sample in self.samples]
        return float(np.concatenate(divergences).mean())


def kl_of(p, q):
    p, q = (x - x.max(axis=1, keepdims=True) for x in (p, q))
    p, q = (x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in (p, q))
    return (np.exp(p) * (p - q)).sum(axis=1)


def rounded(weight, scheme):
    """Round to nearest, symmetric, f16 scales of groups."""
    most, group = 2 ** (scheme["bits"] - 1) - 1, scheme["group_size"]
    result = np.empty(weight.shape, np.float64)
    for first in range(0, weight.shape[1], group):
        part = weight[:, first:first + group].astype(np.float32)
        scale = (np.abs(part).max(axis=1, keepdims=True) / np.float32(most)).astype(np.float16).astype(np.float32)
        scale[scale == 0] = 1
        result[:, first:first + group] = np.clip(np.rint(part / scale), -most, most).astype(np.float64) * scale
    return result


COMMON = ("--group-sizes", "16,32", "--formats", "W3A16,W4A16,W8A16", "--search-samples", "2", "--seqlen", "64")


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "easyquant", "search", *map(str, arguments)], capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
