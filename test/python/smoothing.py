# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SmoothQuant as the tests run it: the IR of a model, plans and statistics for it, and the pass."""

import re
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from helpers import run_tool

PLAN = ('equant.plan = #equant.plan<methods = ["smoothquant"], rule = absmax, weight = <i8, symmetric, channel>, '
        'input = <i8, symmetric, token, dynamic>>, ')


def checked(result):
    assert result.returncode == 0, result.stderr
    return result.stdout


def write_statistics(path, absmax, model_hash, **stamp):
    """A statistics file of {site: largest magnitude of each channel}."""
    metadata = {"format": "easyquant-statistics", "format_version": "1", "model_hash": model_hash, "text_hash": "0",
                "tokenizer_hash": "0", "samples": "1", "length": "8", "seed": "0", "bos": "0"} | stamp
    save_file({site + "/absmax": np.asarray(values, np.float32) for site, values in absmax.items()}, path, metadata)


class Smoothed:
    """Runs equant-smooth-quant over a Hugging Face folder, with all files in `scratch`."""

    def __init__(self, model, scratch, absmax, alpha=0.5, planned=lambda site: True, model_hash=None):
        self.scratch = Path(scratch)
        (self.scratch / "float").mkdir(parents=True)
        (self.scratch / "smooth").mkdir()
        imported = checked(run_tool("easyquant-translate", "--import-hf", model))
        if model_hash is None:
            written = checked(run_tool("easyquant-opt", "-", f"--equant-materialize-weights=output={scratch}/float", input=imported))
            model_hash = re.search(r'xxh3_128 = "([0-9a-f]+)"', written)[1]
        write_statistics(self.scratch / "statistics.safetensors", absmax, model_hash)
        planned_ir = re.sub(r'(?=site = "([^"]+)")', lambda match: PLAN if planned(match[1]) else "", imported)
        self.input = planned_ir.replace("module attributes {", f'module attributes {{equant.work = "{scratch}/work", ', 1)
        self.result = run_tool(
            "easyquant-opt", "-", f"--equant-smooth-quant=statistics={scratch}/statistics.safetensors alpha={alpha}",
            input=self.input)

    @property
    def ir(self):
        return checked(self.result)

    def factors(self):
        """{site: s} of all layers."""
        found = {}
        for file in sorted((self.scratch / "work").glob("*.safetensors")):
            found |= load_file(file)
        return {name.removesuffix(".smooth_scale"): s for name, s in found.items() if name.endswith(".smooth_scale")}

    def tensors(self):
        """The float model that the transformed IR is."""
        checked(run_tool("easyquant-opt", "-", f"--equant-materialize-weights=output={self.scratch}/smooth", input=self.ir))
        return load_file(self.scratch / "smooth" / "weights.safetensors")


def formula(absmax, weights, alpha):
    """s_j = max|X_j|^alpha / max|W_j|^(1 - alpha), over all weights that read X."""
    largest = np.max([np.abs(w).max(axis=0) for w in weights], axis=0).astype(np.float64)
    scale = np.asarray(absmax, np.float64) ** alpha / np.maximum(largest, 1e-5) ** (1 - alpha)
    return np.maximum(scale, 1e-5).astype(np.float32)
