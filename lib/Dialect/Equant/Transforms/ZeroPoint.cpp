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
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {
struct ZeroPoint : PlanPass<equant::impl::ZeroPointBase<ZeroPoint>> {
  using PlanPass::PlanPass;

  void runOnOperation() override {
    if (failed(planSites("zeropoint")))
      signalPassFailure();
  }
};
} // namespace
