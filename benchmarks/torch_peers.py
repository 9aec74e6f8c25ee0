# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same matrix products as torch does them: in bf16, in int8 with a separate epilogue, and in fp8. Weights are rotated inside a CUDA
graph as ours are."""

import math


class NoTorch(Exception):
    pass


def import_torch():
    try:
        import torch
    except ImportError as error:
        raise NoTorch(f"torch cannot be imported ({error}); install it (pip install torch), or leave the peers out with --no-torch") from None
    if not torch.cuda.is_available():
        raise NoTorch(f"torch {torch.__version__} sees no GPU; install a build for CUDA, or leave the peers out with --no-torch")
    return torch


def epilogue(torch):
    """int32 sums to bf16 by row and column scales, and how it was compiled."""

    def scaled(sums, rows, columns):
        return (sums.float() * columns * rows).to(torch.bfloat16)

    try:
        compiled = torch.compile(scaled, dynamic=True)
        compiled(torch.zeros(32, 64, dtype=torch.int32, device="cuda"), torch.ones(32, 1, device="cuda"), torch.ones(64, device="cuda"))
        return compiled, "epilogue by torch.compile"
    except Exception as error:  # no Triton, no C compiler: whatever it is, the eager form works
        return scaled, f"epilogue eager, as torch.compile failed: {str(error).splitlines()[0] if str(error) else type(error).__name__}"


class Peers:
    """Of one shape: `seconds(name)` of one product, for each of `names`; what cannot be is in `missing` with the reason."""

    def __init__(self, torch, scaled, n, k, rows, cold_bytes):
        self.torch, self.graphs, self.missing, self.kernels = torch, {}, {}, {}
        makers = {"bf16": self.bf16, "int8": self.int8, "fp8": self.fp8}
        for name, make in makers.items():
            try:
                bytes_each = n * k * (2 if name == "bf16" else 1)
                copies = max(1, math.ceil(cold_bytes / bytes_each))
                product = make(n, k, rows, copies, scaled)
                self.kernels[name] = self.profile(lambda: product(0))
                self.graphs[name] = (self.capture(product, copies), copies)
            except Exception as error:  # each version of torch refuses other shapes, in its own words
                self.missing[name] = str(error).splitlines()[0] if str(error) else type(error).__name__
                torch.cuda.synchronize()

    def bf16(self, n, k, rows, copies, _):
        torch = self.torch
        w = torch.randn(n, k, device="cuda").bfloat16().repeat(copies, 1, 1)
        x, y = torch.randn(rows, k, device="cuda").bfloat16(), torch.empty(rows, n, device="cuda", dtype=torch.bfloat16)
        return lambda i: torch.matmul(x, w[i].t(), out=y)

    def int8(self, n, k, rows, copies, scaled):
        torch = self.torch
        if rows <= 16:
            raise ValueError("_int_mm takes more than 16 rows")
        w = torch.randint(-127, 128, (n, k), device="cuda", dtype=torch.int8).repeat(copies, 1, 1)
        x = torch.randint(-127, 128, (rows, k), device="cuda", dtype=torch.int8)
        row_scales, column_scales = torch.rand(rows, 1, device="cuda"), torch.rand(n, device="cuda")
        return lambda i: scaled(torch._int_mm(x, w[i].t()), row_scales, column_scales)

    def fp8(self, n, k, rows, copies, _):
        torch = self.torch
        w = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
        w = w.view(torch.uint8).repeat(copies, 1, 1).view(torch.float8_e4m3fn)
        x = torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn)
        row_scales, column_scales = torch.rand(rows, 1, device="cuda"), torch.rand(1, n, device="cuda")
        return lambda i: torch._scaled_mm(x, w[i].t(), scale_a=row_scales, scale_b=column_scales, out_dtype=torch.bfloat16)

    def profile(self, work):
        """Names of the kernels that it launches."""
        work()
        self.torch.cuda.synchronize()
        activity = self.torch.profiler.ProfilerActivity
        try:
            with self.torch.profiler.profile(activities=[activity.CPU, activity.CUDA]) as profiler:
                work()
                self.torch.cuda.synchronize()
        except RuntimeError as error:
            return [f"not known: {str(error).splitlines()[0]}"]
        on_gpu = self.torch.autograd.DeviceType.CUDA
        return sorted({event.name for event in profiler.events() if event.device_type == on_gpu})

    def capture(self, product, copies):
        torch = self.torch
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                product(0)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(copies):
                product(i)
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
        self.graphs.clear()
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()
