#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tunes scales, zero points and norm gains of a rounded model by its KL divergence from the float one (tuning.py); runs beside compressed-tensors.

Its request, as serving.py reads it; windows are .npy files, int32 [windows, tokens]:

    {"op": "tune", "model": PATH, "rounded": PATH, "steps": PATH,     folders: float, and compressed-tensors' of integers; a step a window of `steps`
     "held_out": PATH, "texts": {NAME: PATH}, "rates": [1e-3, ...],   the rate is the one that leaves least on `held_out`
     "threads": 2}
    -> {"before": {NAME: [KL of each window]}, "rates": [[rate, KL on held_out], ...], "rate": R, "after": {NAME: ...}, "seconds": 150.0}
"""

import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from safetensors.torch import load_file
from serving import serve
from torch.nn.functional import kl_div, linear, log_softmax
from transformers import AutoModelForCausalLM


class RoundedLinear(torch.nn.Module):
    """Codes stay as they are. A scale moves by a factor, a zero point by a share of half the range of its codes."""

    def __init__(self, tensors: dict[str, torch.Tensor], bias: torch.Tensor | None):
        super().__init__()
        rows, columns = tensors["weight_shape"].tolist()
        scales = tensors["weight_scale"].float()
        groups = scales.shape[1]
        bits = tensors["weight_packed"].shape[1] * 32 // columns
        codes = unpack_from_int32(tensors["weight_packed"], bits, torch.Size([rows, columns]))
        zeros = unpack_from_int32(tensors["weight_zero_point"], bits, torch.Size([rows, groups]), packed_dim=0)
        self.codes, self.bias, self.half = codes.view(rows, groups, -1).float(), bias, 2.0 ** (bits - 1)
        self.scales, self.zeros = scales[..., None], zeros.float()[..., None]
        self.scale_step = torch.nn.Parameter(torch.zeros_like(self.scales))
        self.zero_step = torch.nn.Parameter(torch.zeros_like(self.zeros))

    def forward(self, inputs):
        weight = (self.codes - (self.zeros + self.half * self.zero_step)) * (self.scales * (1 + self.scale_step))
        return linear(inputs, weight.flatten(1), self.bias)


class RoundedNorm(torch.nn.Module):
    def __init__(self, norm: torch.nn.Module, gain: torch.Tensor):
        super().__init__()
        self.gain, self.epsilon = gain, norm.variance_epsilon
        self.gain_step = torch.nn.Parameter(torch.zeros_like(gain))

    def forward(self, inputs):
        return inputs * torch.rsqrt(inputs.square().mean(-1, keepdim=True) + self.epsilon) * (self.gain * (1 + self.gain_step))


def read_rounded(model: str, folder: str):
    """The float model with the folder's linears and norms."""
    tensors = {name: tensor for path in sorted(Path(folder).glob("*.safetensors")) for name, tensor in load_file(path).items()}
    rounded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    rounded.requires_grad_(False)
    for name, module in list(rounded.named_modules()):
        own = {key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items() if key.startswith(f"{name}.")}
        if "weight_packed" in own:
            rounded.set_submodule(name, RoundedLinear(own, module.bias))
        elif type(module).__name__.endswith("RMSNorm"):
            rounded.set_submodule(name, RoundedNorm(module, own["weight"].float()))
    return rounded


class Tuning:
    def __init__(self, model: str, rounded: str):
        self.float = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).requires_grad_(False)
        self.rounded = read_rounded(model, rounded)
        self.parameters = [parameter for parameter in self.rounded.parameters() if parameter.requires_grad]

    def kl(self, window: np.ndarray) -> torch.Tensor:
        """The mean over a window's tokens of KL(float ‖ rounded)."""
        tokens = torch.from_numpy(window.astype(np.int64))[None]
        with torch.no_grad():
            wanted = log_softmax(self.float(tokens).logits[0], -1)
        found = log_softmax(self.rounded(tokens).logits[0], -1)
        return kl_div(found, wanted, reduction="batchmean", log_target=True)

    @torch.no_grad()
    def of(self, windows: np.ndarray) -> list[float]:
        return [self.kl(window).item() for window in windows]

    @torch.no_grad()
    def restart(self) -> None:
        for parameter in self.parameters:
            parameter.zero_()

    def run(self, steps: np.ndarray, rate: float) -> None:
        """Adam, its rate along half a cosine to zero."""
        self.restart()
        optimizer = torch.optim.Adam(self.parameters, lr=rate, betas=(0.9, 0.95))
        for index, window in enumerate(steps):
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 + math.cos(math.pi * index / len(steps))) / 2
            optimizer.zero_grad()
            loss = self.kl(window)
            loss.backward()
            optimizer.step()
            print(f"rate {rate:g}, step {index + 1} of {len(steps)}: KL {loss.item():.4f}", file=sys.stderr)

    def kept(self) -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def set(self, values: list[torch.Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value)


def tune(model, rounded, steps, held_out, texts, rates, threads):
    torch.set_num_threads(threads)
    steps, held_out = np.load(steps), np.load(held_out)
    texts = {name: np.load(path) for name, path in texts.items()}
    tuning = Tuning(model, rounded)
    before = {name: tuning.of(windows) for name, windows in texts.items()}
    found = [(float(np.mean(tuning.of(held_out))), 0.0, tuning.kept(), 0.0)]
    for rate in rates:
        begin = time.perf_counter()
        tuning.run(steps, rate)
        seconds = time.perf_counter() - begin
        found.append((float(np.mean(tuning.of(held_out))), rate, tuning.kept(), seconds))
    best = min(found, key=lambda each: each[0])
    tuning.set(best[2])
    return {"before": before, "rates": [[rate, kl] for kl, rate, _, _ in found], "rate": best[1],
            "after": {name: tuning.of(windows) for name, windows in texts.items()}, "seconds": max(each[3] for each in found)}  # fmt: skip


if __name__ == "__main__":
    serve(tune=tune)
