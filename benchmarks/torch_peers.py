#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same matrix products as torch does them: in bf16, in int8 with a separate epilogue, and in fp8 with fast accumulation. gpu_kernels.py
times them, their weights rotated inside a CUDA graph as ours are.

    python3 benchmarks/torch_peers.py [--shape 256x512] [--rows 1,16,17,128] [--device cpu]

By itself it checks that they are the products that ours are compared with: results against float64, for each the kernels that torch ran, or
why it refused. --device cpu is this check where there is no GPU: the same calls on tensors of the same layouts, but the CPU's kernels, no
CUDA graph, one scale a matrix in fp8, which is all that torch has there, and other things that it refuses. Nothing is timed.
"""

import argparse
import math
import sys
from dataclasses import dataclass
from typing import Callable

# Errors are measured in the size of a product of random signs, |x| |w| / sqrt(K). Rounding the result to bf16 moves it by 2^-9 of a
# few of those; the product of other rows or columns is off by more than one.
ERROR_BOUND = 0.05


class NoTorch(Exception):
    pass


def import_torch(device="cuda"):
    try:
        import torch
    except ImportError as error:
        raise NoTorch(f"torch cannot be imported ({error}); install it (pip install torch), or leave the peers out with --no-torch") from None
    if device == "cuda" and not torch.cuda.is_available():
        raise NoTorch(f"torch {torch.__version__} sees no GPU; install a build for CUDA, or leave the peers out with --no-torch")
    return torch


def first_line(error):
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def epilogue(torch, device="cuda"):
    """int32 sums to bf16 by row and column scales, and how it was compiled."""

    def scaled(sums, rows, columns):
        return (sums.float() * columns * rows).to(torch.bfloat16)

    try:
        compiled = torch.compile(scaled, dynamic=True)
        compiled(torch.zeros(32, 64, dtype=torch.int32, device=device), torch.ones(32, 1, device=device), torch.ones(64, device=device))
        return compiled, "epilogue by torch.compile"
    except Exception as error:  # no Triton, no C compiler: whatever it is, the eager form works
        return scaled, f"epilogue eager, as torch.compile failed: {first_line(error)}"


@dataclass
class Product:
    """x W^T, of one shape and type: `run(i)` with copy i of the weights."""

    run: Callable
    x: object
    w: object  # [copies, N, K], all alike
    row_scales: object = None
    column_scales: object = None

    def error(self):
        """The largest one, of the last copy."""
        x, w = self.x.float().double(), self.w[-1].float().double()
        exact, size = x @ w.T, x.norm(dim=1, keepdim=True) * w.norm(dim=1) / math.sqrt(x.shape[1])
        if self.row_scales is not None:
            factors = self.row_scales.double() * self.column_scales.double()
            exact, size = exact * factors, size * factors
        return float(((self.run(len(self.w) - 1).double() - exact).abs() / size).max())


class Peers:
    """torch's products of one shape: `seconds(name)` of one product, for each of `names`. `missing` has the products that torch refuses,
    with the reason, and `kernels` the kernels that ran."""

    def __init__(self, torch, scaled, n, k, rows, cold_bytes, device="cuda"):
        self.torch, self.device = torch, device
        self.products, self.graphs, self.missing, self.kernels = {}, {}, {}, {}
        makers = {"bf16": self.bf16, "int8": self.int8, "fp8": self.fp8}
        for name, make in makers.items():
            try:
                copies = max(1, math.ceil(cold_bytes / (n * k * (2 if name == "bf16" else 1))))
                product = make(n, k, rows, copies, scaled)
                self.kernels[name] = self.profile(lambda: product.run(0))
                if device == "cuda":
                    self.graphs[name] = (self.capture(product.run, copies), copies)
                self.products[name] = product
            except Exception as error:  # each version of torch refuses other shapes, in its own words
                self.missing[name] = first_line(error)
                self.kernels.pop(name, None)
                self.synchronize()

    def synchronize(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    # Weights are rows of K, as torch.nn.Linear has them: their transpose is the column-major matrix that _int_mm and _scaled_mm want.

    def bf16(self, n, k, rows, copies, _):
        torch, device = self.torch, self.device
        w = torch.randn(n, k, device=device).bfloat16().repeat(copies, 1, 1)
        x, y = torch.randn(rows, k, device=device).bfloat16(), torch.empty(rows, n, device=device, dtype=torch.bfloat16)
        return Product(lambda i: torch.matmul(x, w[i].t(), out=y), x, w)

    def int8(self, n, k, rows, copies, scaled):
        torch, device = self.torch, self.device
        if rows <= 16:
            raise ValueError("_int_mm takes more than 16 rows")
        w = torch.randint(-127, 128, (n, k), device=device, dtype=torch.int8).repeat(copies, 1, 1)
        x = torch.randint(-127, 128, (rows, k), device=device, dtype=torch.int8)
        row_scales, column_scales = torch.rand(rows, 1, device=device) + 0.5, torch.rand(n, device=device) + 0.5
        return Product(lambda i: scaled(torch._int_mm(x, w[i].t()), row_scales, column_scales), x, w, row_scales, column_scales)

    def fp8(self, n, k, rows, copies, _):
        torch, device = self.torch, self.device
        w = torch.randn(n, k, device=device).to(torch.float8_e4m3fn)
        w = w.view(torch.uint8).repeat(copies, 1, 1).view(torch.float8_e4m3fn)
        x = torch.randn(rows, k, device=device).to(torch.float8_e4m3fn)
        scaled_rows, scaled_columns = (1, 1) if device == "cpu" else (rows, n)
        row_scales, column_scales = torch.rand(scaled_rows, 1, device=device) + 0.5, torch.rand(1, scaled_columns, device=device) + 0.5
        return Product(lambda i: torch._scaled_mm(x, w[i].t(), scale_a=row_scales, scale_b=column_scales, out_dtype=torch.bfloat16, use_fast_accum=True),
                       x, w, row_scales, column_scales)

    def profile(self, work):
        """Names of the kernels that it launches; on a CPU those of torch's operations that multiply."""
        work()
        self.synchronize()
        activity = self.torch.profiler.ProfilerActivity
        activities = [activity.CPU, activity.CUDA] if self.device == "cuda" else [activity.CPU]
        try:
            with self.torch.profiler.profile(activities=activities) as profiler:
                work()
                self.synchronize()
        except RuntimeError as error:
            return [f"not known: {first_line(error)}"]
        if self.device == "cuda":
            on_gpu = self.torch.autograd.DeviceType.CUDA
            return sorted({event.name for event in profiler.events() if event.device_type == on_gpu})
        return sorted({event.name for event in profiler.events() if event.name.endswith(("mm", "matmul"))})

    def capture(self, run, copies):
        torch = self.torch
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                run(0)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for i in range(copies):
                run(i)
        graph.replay()
        torch.cuda.synchronize()
        return graph

    @property
    def names(self):
        return list(self.graphs)

    def seconds(self, name):
        torch = self.torch
        graph, copies = self.graphs[name]
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e3 / copies

    def close(self):
        self.products.clear()
        self.graphs.clear()
        if self.device == "cuda":
            self.torch.cuda.synchronize()
            self.torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--shape", default="256x512", help="weights, N x K")
    parser.add_argument("--rows", default="1,16,17,128", help="rows of the activations, separated by commas")
    args = parser.parse_args()
    try:
        n, k = map(int, args.shape.split("x"))
        all_rows = [int(rows) for rows in args.rows.split(",")]
    except ValueError:
        sys.exit(f"error: --shape {args.shape} --rows {args.rows}: expected numbers, such as 256x512 and 1,128")
    try:
        torch = import_torch(args.device)
    except NoTorch as error:
        sys.exit(f"error: {error}")
    torch.manual_seed(1)
    scaled, how = epilogue(torch, args.device)
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name() if args.device == 'cuda' else 'the CPU'}, {how}; weights {n} × {k}")
    wrong = 0
    for rows in all_rows:
        peers = Peers(torch, scaled, n, k, rows, cold_bytes=3 * n * k, device=args.device)
        for name, product in peers.products.items():
            error = product.error()
            verdict = "" if error <= ERROR_BOUND else f", above the bound of {ERROR_BOUND}: WRONG"
            wrong += error > ERROR_BOUND
            print(f"{name}, M = {rows}: error {error:.4f}{verdict}; {', '.join(peers.kernels[name])}")
        for name, why in peers.missing.items():
            print(f"{name}, M = {rows}: refused: {why}")
        peers.close()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
