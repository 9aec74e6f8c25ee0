//===- BlasTest.cpp - Which kernels OpenBLAS is asked for -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Blas.h"

#include <gtest/gtest.h>

using easyquant::numerics::fittingBlasCore;

TEST(Blas, KernelsThatFitAreLeft) {
  for (const char *core : {"Haswell", "Zen", "SkylakeX", "Cooperlake", "Sapphirerapids"}) {
    EXPECT_EQ(fittingBlasCore(core, true, true), "");
    EXPECT_EQ(fittingBlasCore(core, true, false), "");
  }
}

TEST(Blas, KernelsOfBeforeAVX2AreReplaced) {
  for (const char *core : {"Prescott", "Nehalem", "Barcelona", "Sandybridge"}) {
    EXPECT_EQ(fittingBlasCore(core, true, true), "SKYLAKEX");
    EXPECT_EQ(fittingBlasCore(core, true, false), "HASWELL");
    EXPECT_EQ(fittingBlasCore(core, false, false), "");
  }
}
