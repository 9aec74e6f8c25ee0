//===- BlasAArch64.cpp - Kernels of OpenBLAS on 64-bit Arm ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Blas.h"

namespace easyquant::numerics {

// All of OpenBLAS's kernels for 64-bit Arm take NEON: what it chooses serves.
void restartWithFittingBlas(char **) {}

} // namespace easyquant::numerics
