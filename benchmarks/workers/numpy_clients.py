# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What clients of interop.py without torch do alike."""

import importlib.metadata

import numpy as np
from safetensors import safe_open


def compare(ours, linears):
    """The answer to `weights`: f32 weights of the safetensors file `ours` beside (site, weight) of a client."""
    equal, largest, found = 0, 0.0, set()
    with safe_open(ours, "numpy") as file:
        wanted = set(file.keys())
        for site, weight in linears:
            if site not in wanted:
                continue
            expected = file.get_tensor(site)
            found.add(site)
            equal += np.array_equal(weight, expected)
            largest = max(largest, float(np.abs(weight - expected).max() / np.abs(expected).max()))
    if missing := sorted(wanted - found):
        raise ValueError(f"has no quantized linear {missing[0]}")
    return {"linears": len(found), "equal": equal, "largest": largest, "type": "float32"}


def heights(ours):
    """Rows of each weight of the file, by site."""
    with safe_open(ours, "numpy") as file:
        return {site: file.get_slice(site).get_shape()[0] for site in file.keys()}


def parts(rows, sites, heights):
    """(site, weight) of linears that a client has one behind another as one."""
    for site in sites:
        height = heights.get(site, len(rows))
        yield site, rows[:height]
        rows = rows[height:]


def describe(packages):
    return {name: importlib.metadata.version(name) for name in packages}
