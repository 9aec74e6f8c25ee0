//===- AbsMax.cpp - Scales from the largest magnitude ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SitePlans.h"

#include "easyquant/Dialect/Equant/Transforms/Passes.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_ABSMAX
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {
struct AbsMax : PlanPass<equant::impl::AbsMaxBase<AbsMax>> {
  using PlanPass::PlanPass;

  void runOnOperation() override {
    if (failed(planSites("absmax")))
      signalPassFailure();
  }
};
} // namespace
