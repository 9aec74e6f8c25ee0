//===- Blas.cpp - The BLAS that results and times depend on ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Blas.h"

#include <cblas.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <unistd.h>

namespace easyquant::numerics {

std::string blasKernels() { return openblas_get_config(); }

std::string_view fittingBlasCore(std::string_view chosen, bool hasAvx2, bool hasAvx512) {
  // Kernels without AVX2, by the names of openblas_get_corename.
  constexpr std::array<std::string_view, 15> old = {
      "Katmai", "Coppermine",   "Northwood", "Prescott",   "Banias",
      "Atom",   "Core2",        "Penryn",    "Dunnington", "Nehalem",
      "Athlon", "Opteron_SSE3", "Barcelona", "Bobcat",     "Sandybridge"};
  if (std::ranges::find(old, chosen) == old.end())
    return {};
  if (hasAvx512)
    return "SKYLAKEX";
  return hasAvx2 ? "HASWELL" : "";
}

void restartWithFittingBlas([[maybe_unused]] char **argv) {
#if defined(__x86_64__)
  constexpr const char *variable = "OPENBLAS_CORETYPE";
  if (std::getenv(variable))
    return;
  const bool hasAvx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool hasAvx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                         __builtin_cpu_supports("avx512cd");
  const std::string core(fittingBlasCore(openblas_get_corename(), hasAvx2, hasAvx512));
  if (core.empty() || setenv(variable, core.c_str(), /*overwrite=*/0) != 0)
    return;
  execv("/proc/self/exe", argv); // where that fails, slow kernels serve
#endif
}

} // namespace easyquant::numerics
