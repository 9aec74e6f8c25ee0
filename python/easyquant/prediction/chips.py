# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is known of the chips that kernels are made for, each as in one device. docs/guide/predict.md says where the numbers come from."""

from dataclasses import dataclass

# The constants of time, in seconds. docs/benchmarks/gpu-h200.md has the times that they are chosen by; for other devices they are assumed.
# lib/Codegen/GPU/TileTime.cpp chooses tiles by some of them.
LAUNCH = 1.8e-6  # from the end of a launch to the end of the next one, beside what the next one does
OVERLAPPED_LAUNCH = 0.3e-6  # the same, where the one before lets its successor begin early
LATENCY = 0.7e-6  # of memory under load
CACHE_LATENCY = 0.15e-6  # of what many blocks read, which the second-level cache has
COPY_SHARE = 0.85  # of the data sheet's bandwidth, that a copy reaches
# Bytes a cycle that a multiprocessor can ask for: 5,500 GB/s of the second-level cache of an H200.
ASKED_BYTES = 22.8


@dataclass(frozen=True)
class Chip:
    """The rates of a multiprocessor in one cycle. Sources: products from the dense rates of NVIDIA's data sheets (A100, A40, AGX Orin,
    L40S, H100 SXM), divided by multiprocessors and boost clock; lanes from "Arithmetic instructions" of the CUDA C++ Programming Guide;
    memory from the same data sheets, H200 for sm_90a; resident threads from "Technical specifications per compute capability"."""

    device: str
    half_products: int  # multiply-adds of f16 or bf16 with sums in f32, in the tensor cores
    byte_products: int  # of int8
    half_lanes: int  # threads whose pair of bf16 is multiplied and added
    float_lanes: int
    gigabytes: float  # of the device's memory, a second
    multiprocessors: int
    gigahertz: float
    threads: int  # resident at once
    shared_kb: int

    @property
    def copy_bandwidth(self) -> float:
        """Bytes a second, as a copy in the device's memory reaches them."""
        return COPY_SHARE * self.gigabytes * 1e9

    @property
    def hertz(self) -> float:
        return self.gigahertz * 1e9

    @property
    def wanted_bytes(self) -> float:
        """Under way at once, so that memory does not wait for a multiprocessor."""
        return self.gigabytes * 1e9 / self.multiprocessors * LATENCY

    @property
    def memory_bytes(self) -> float:
        """That the device's memory delivers to each multiprocessor in a cycle, by the data sheet."""
        return self.gigabytes / self.multiprocessors / self.gigahertz


CHIPS = {
    "sm_80": Chip("A100 80 GB", 1024, 2048, 64, 64, 2039, 108, 1.41, 2048, 164),
    "sm_86": Chip("A40", 512, 1024, 64, 128, 696, 84, 1.74, 1536, 100),
    "sm_87": Chip("AGX Orin", 1024, 2048, 64, 128, 204.8, 16, 1.3, 1536, 164),
    "sm_89": Chip("L40S", 512, 1024, 64, 128, 864, 142, 2.52, 1536, 100),
    "sm_90a": Chip("H200", 2048, 4096, 128, 128, 4800, 132, 1.83, 2048, 228),
}
