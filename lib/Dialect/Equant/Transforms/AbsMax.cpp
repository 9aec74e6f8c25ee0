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

namespace {
struct AbsMax : PlanPass<impl::AbsMaxBase<AbsMax>> {
  using PlanPass::PlanPass;
};
} // namespace
} // namespace easyquant::equant
