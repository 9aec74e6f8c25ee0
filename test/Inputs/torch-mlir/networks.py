# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the networks beside it, as torch-mlir prints them, and what torch computes: python networks.py (torch 2.13, torch-mlir 20261001)."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch_mlir import fx


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(x.mean(dim=(2, 3)))


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight


class Layer(nn.Module):
    def __init__(self, width, heads, kv_heads, ffn, tokens):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        for name, inputs, outputs in (("q", width, width), ("k", width, kv_heads * self.head), ("v", width, kv_heads * self.head), ("o", width, width),
                                      ("gate", width, ffn), ("up", width, ffn), ("down", ffn, width)):  # fmt: skip
            setattr(self, name, nn.Linear(inputs, outputs, bias=False))
        self.before, self.between = Norm(width), Norm(width)
        angles = torch.arange(tokens)[:, None] / 10000 ** (torch.arange(0, self.head, 2) / self.head)
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", torch.full((tokens, tokens), -1e9).triu(1))

    def split(self, x, heads):
        return x.view(*x.shape[:2], heads, self.head).transpose(1, 2)

    def rotate(self, x):
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat([-high, low], -1) * self.sin

    def forward(self, x):
        y, copies = self.before(x), self.heads // self.kv_heads
        q, k, v = self.rotate(self.split(self.q(y), self.heads)), self.rotate(self.split(self.k(y), self.kv_heads)), self.split(self.v(y), self.kv_heads)
        k, v = k.repeat_interleave(copies, 1), v.repeat_interleave(copies, 1)
        p = torch.softmax(q @ k.transpose(-1, -2) / self.head**0.5 + self.mask, -1)
        x = x + self.o((p @ v).transpose(1, 2).reshape(x.shape))
        y = self.between(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocabulary=32, width=16, tokens=6):
        super().__init__()
        self.embedding, self.layer = nn.Embedding(vocabulary, width), Layer(width, 2, 1, 24, tokens)
        self.norm, self.head = Norm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.layer(self.embedding(tokens))))


class TiedLlama(nn.Module):
    """Two layers, of which no heads share k and v; the head is the embedding."""

    def __init__(self, vocabulary=24, width=16, tokens=5):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(vocabulary, width), Norm(width)
        self.layers = nn.ModuleList(Layer(width, 2, 2, 8, tokens) for _ in range(2))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return nn.functional.linear(self.norm(x), self.embedding.weight)


def write(name, seed, make, x, **options):
    torch.manual_seed(seed)
    model = make().eval()
    module = fx.export_and_import(model, x, output_type="linalg-on-tensors", func_name="forward", **options)
    here = Path(__file__).parent
    (here / f"{name}.mlir").write_text(module.operation.get_asm(print_generic_op_form=True))
    np.save(here / f"{name}.npy", model(x).detach().numpy())


def normal(seed, *shape):
    return torch.tensor(np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32))


if __name__ == "__main__":
    write("mlp", 7, MLP, normal(1, 5, 16), dynamic_shapes={"x": {0: torch.export.Dim("rows", min=2, max=64)}})
    write("convolutions", 8, Convolutions, normal(2, 2, 3, 12, 12))
    write("llama", 5, Llama, torch.tensor([[3, 9, 1, 30, 22, 7]]))
    write("tied_llama", 9, TiedLlama, torch.tensor([[3, 9, 1, 20, 7]]))
