# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machines that models may run on: memory and the bandwidth of reading it, as their makers publish them."""

from dataclasses import dataclass

# What of a machine's memory a model may take; the rest is the system's.
SHARE = 0.9


@dataclass(frozen=True)
class Machine:
    name: str
    memory: float  # bytes
    bandwidth: float  # bytes/s
    target: str = "cpu"  # of --target

    @property
    def is_gpu(self) -> bool:
        return self.target != "cpu"

    @property
    def usable(self) -> float:
        """Bytes that a model may take."""
        return SHARE * self.memory


def _machine(name: str, gigabytes: float, gigabytes_per_s: float, target: str = "cpu") -> Machine:
    return Machine(name, gigabytes * 1e9, gigabytes_per_s * 1e9, target)


# Bandwidths of CPUs are those of the memory that their makers allow at most: 8 bytes a channel and transfer. Memory of laptops, desktops
# and servers is a usual size. A socket is one.
MACHINES = (
    _machine("Laptop, Core i7-1165G7, DDR4-3200", 16, 51.2),  # Intel ARK 208921: 2 channels, 51.2 GB/s
    _machine("Laptop, Core Ultra 7 155H, LPDDR5x-7467", 32, 119.5),  # Intel ARK 236847: LPDDR5/x 7467 MT/s, 128 bits
    _machine("Desktop, Core i9-14900K, DDR5-5600", 64, 89.6),  # Intel ARK 236773: 2 channels, 89.6 GB/s
    _machine("Ryzen AI Max+ 395, LPDDR5x-8000", 128, 256),  # AMD, product page: 256 bits, LPDDR5x 8000
    _machine("Server, EPYC 7763, DDR4-3200", 256, 204.8),  # AMD, EPYC 7003 data sheet: 8 channels, 204.8 GB/s
    _machine("Server, Xeon 8480+, DDR5-4800", 512, 307.2),  # Intel ARK 231746: 8 channels, DDR5 4800
    _machine("Server, EPYC 9654, DDR5-4800", 768, 460.8),  # AMD, EPYC 9004 data sheet: 12 channels, 460.8 GB/s
    _machine("Jetson Orin Nano 8GB", 8, 68, "sm_87"),  # NVIDIA, Jetson Orin Nano series data sheet: 68 GB/s; the CPU's memory is the same
    _machine("Jetson AGX Orin 64GB", 64, 204.8, "sm_87"),  # NVIDIA, Jetson AGX Orin series data sheet; the CPU's memory is the same
    _machine("GeForce RTX 3090", 24, 936, "sm_86"),  # NVIDIA, GA102 whitepaper: 936 GB/s
    _machine("GeForce RTX 4090", 24, 1008, "sm_89"),  # NVIDIA, Ada GPU architecture whitepaper: 1008 GB/s
    _machine("GeForce RTX 5090", 32, 1792, "sm_120a"),  # NVIDIA, RTX Blackwell GPU architecture whitepaper: 1792 GB/s
    _machine("L40S", 48, 864, "sm_89"),  # NVIDIA, L40S data sheet
    _machine("A100 SXM 80GB", 80, 2039, "sm_80"),  # NVIDIA, A100 data sheet
    _machine("H100 SXM", 80, 3350, "sm_90a"),  # NVIDIA, H100 data sheet: 3.35 TB/s
    _machine("H200 SXM", 141, 4800, "sm_90a"),  # NVIDIA, H200 data sheet: 4.8 TB/s
)
