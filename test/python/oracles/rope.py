# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rotary angles as config.json asks for them, in fp64: "linear", "yarn" and "longrope" as their papers have them, "llama3" as
Meta's reference code has it, "proportional" as transformers has it."""

import numpy as np


def linear(frequency, scaling):
    return frequency / scaling["factor"]


def llama3(frequency, scaling):
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    scaled = []
    for f in frequency:
        wavelength = 2 * np.pi / f
        if wavelength < original / high:
            scaled.append(f)
        elif wavelength > original / low:
            scaled.append(f / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            scaled.append((1 - smooth) * f / factor + smooth * f)
    return np.array(scaled)


def yarn(frequency, scaling, theta, context):
    """Section 3.2 of the paper, with the ramp over the index of the pair that the reference implementations have."""
    dim, original = 2 * len(frequency), scaling.get("original_max_position_embeddings", context)

    def pair(rotations):
        return dim * np.log(original / (2 * np.pi * rotations)) / (2 * np.log(theta))

    first, last = pair(scaling.get("beta_fast", 32)), pair(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        first, last = np.floor(first), np.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    interpolated = np.clip((np.arange(len(frequency)) - first) / (last - first), 0, 1)
    return frequency / scaling["factor"] * interpolated + frequency * (1 - interpolated)


def longrope(frequency, scaling, config, context):
    """Frequencies for sequences of up to `context` tokens, and the factor of rotations."""
    original = config.get("original_max_position_embeddings") or scaling["original_max_position_embeddings"]
    longer = scaling.get("factor") or config["max_position_embeddings"] / original
    gain = scaling.get("attention_factor") or np.sqrt(1 + np.log(max(longer, 1)) / np.log(original))
    return frequency / np.array(scaling["long_factor" if context > original else "short_factor"]), gain


def rotated_dims(config, head_dim):
    """How many dimensions of a head turn, the first ones."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return int(head_dim * (scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1))


def rotations(config, dims, position, count, context=None):
    """(cos, sin), both (count, dims / 2), of the tokens from `position` on, where sequences may have `context` tokens."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    theta = scaling.get("rope_theta") or config.get("rope_theta") or 10000.0
    half = dims // 2
    frequency, gain = theta ** (-np.arange(half, dtype=np.float64) / half), 1.0
    if kind == "linear":
        frequency = linear(frequency, scaling)
    elif kind == "llama3":
        frequency = llama3(frequency, scaling)
    elif kind == "yarn":
        frequency = yarn(frequency, scaling, theta, config["max_position_embeddings"])
        gain = scaling.get("attention_factor", 0.1 * np.log(scaling["factor"]) + 1)
    elif kind == "longrope":
        frequency, gain = longrope(frequency, scaling, config, context or config["max_position_embeddings"])
    elif kind == "proportional":  # the first pairs turn, by the angles that they have among all
        frequency = frequency * (np.arange(half) < scaling.get("partial_rotary_factor", 1.0) * dims // 2)
    elif kind not in ("default", "dynamic"):  # dynamic: equal within the model's context
        raise ValueError(f"no oracle for the RoPE scaling {kind}")
    angle = (position + np.arange(count, dtype=np.float64))[:, None] * frequency
    return gain * np.cos(angle), gain * np.sin(angle)
