//===- gpu_kernels.h - Kernels to be timed, with all a launch needs -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles the kernels of the benchmark for a chip into a folder that gpu_kernels.py measures on a
// machine without a compiler: for each layer PTX and, where NVIDIA's assembler is, a fatbin; and
// cases.json, which says of each kernel how it is launched and what its arguments are.
//
//   easyquant-gpu-kernel-bench --chip sm_90a --out FOLDER [--families w8a8,...] [--shapes NxK,...]
//                              [--rows M,...] [--jobs N] [--ptx-only]
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_BENCHMARKS_GPU_KERNELS_H
#define EASYQUANT_BENCHMARKS_GPU_KERNELS_H

#include "easyquant/Support/Result.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace easyquant::bench {

/// Names of all kernels that can be timed: linears and operations on rows.
std::vector<std::string> allKernelFamilies();

struct GPUKernelOptions {
  std::string chip;
  std::filesystem::path out;
  std::vector<std::string> families = allKernelFamilies();
  std::vector<std::string> shapes = {"256x512", "4096x4096", "11008x4096", "4096x11008",
                                     "17408x5120"};
  std::vector<int64_t> rows = {1, 16, 128, 4096};
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  bool ptxOnly = false;
};

/// Compiles the kernels and writes the folder.
Result<void> prepareGPUKernels(const GPUKernelOptions &options);

} // namespace easyquant::bench

#endif // EASYQUANT_BENCHMARKS_GPU_KERNELS_H
