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

} // namespace easyquant::numerics
