//===- ZeroPoint.cpp - Scales and zero points from extrema ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SitePlans.h"

#include "easyquant/Dialect/Equant/Transforms/Passes.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_ZEROPOINT
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"

namespace {
struct ZeroPoint : PlanPass<impl::ZeroPointBase<ZeroPoint>> {
  using PlanPass::PlanPass;
};
} // namespace
} // namespace easyquant::equant
