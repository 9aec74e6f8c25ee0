# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tests of passes that run the model share: planned modules, a model that remembers its inputs."""

import re

import numpy as np
from safetensors.numpy import load_file

from helpers import run_tool
from oracles.llama import Llama

SITES = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
         "mlp.down_proj"]


def plan(methods, weight="<i4, symmetric, group = 16>", rule="absmax"):
    names = ", ".join(f'"{name}"' for name in methods)
    return f"#equant.plan<methods = [{names}], rule = {rule}, weight = {weight}>"


def planned_module(model, work, plan_of):
    """The IR of a model with plan_of(site) as the plan of each site (None: it stays float)."""
    result = run_tool("easyquant-translate", "--import-hf", model)
    assert result.returncode == 0, result.stderr

    def add(match):
        chosen = plan_of(match[1])
        return match[0] if chosen is None else f'{{equant.plan = {chosen}, site = "{match[1]}"}}'

    text = re.sub(r'\{site = "([^"]*)"\}', add, result.stdout)
    return text.replace("module attributes {", f'module attributes {{equant.work = "{work}", ', 1)


def run_pass(text, *passes):
    return run_tool("easyquant-opt", "-", *passes, input=text)


def dequantized(work, file, site, group):
    """The weight that the codes of a site in the work folder stand for, float64."""
    tensors = load_file(work / file)
    codes = tensors[f"{site}.weight_codes"].astype(np.float64)
    columns = np.arange(codes.shape[1]) // group if group else np.zeros(codes.shape[1], int)
    zero = tensors.get(f"{site}.weight_zero_point")
    offset = 0 if zero is None else zero.astype(np.float64)[:, columns]
    return (codes - offset) * tensors[f"{site}.weight_scale"].astype(np.float64)[:, columns]


class RecordingLinear:
    """y = x W^T that keeps every x."""

    def __init__(self, weight):
        self.weight, self.inputs = np.asarray(weight, np.float64), []

    def __call__(self, x):
        self.inputs.append(x)
        return x @ self.weight.T


def recorded_inputs(config, tensors, weights, samples, skip=0):
    """site -> what it reads in a float64 model with `weights` in the places of some, one row a token."""
    model = Llama(config, tensors, dtype=np.float64)
    recorders = {}
    for index, layer in enumerate(model.layers):
        for short in SITES:
            site = f"model.layers.{index}.{short}"
            weight = weights.get(site, tensors[site + ".weight"])
            recorders[site] = layer[short.split(".")[1]] = RecordingLinear(weight)
    for sample in samples:
        model.hidden(sample)
    return {site: np.concatenate([x[skip:] for x in recorder.inputs]) for site, recorder in recorders.items()}
