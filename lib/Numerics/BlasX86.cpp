//===- BlasX86.cpp - Kernels of OpenBLAS that fit an x86-64 CPU -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Blas.h"

#include <cblas.h>

#include <cstdlib>
#include <unistd.h>

namespace easyquant::numerics {

void restartWithFittingBlas(char **argv) {
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
}

} // namespace easyquant::numerics
