//===- ZeroQuant.cpp - Weights per group, activations per token -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SitePlans.h"

#include "easyquant/Dialect/Equant/Transforms/Passes.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_ZEROQUANT
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"

namespace {
struct ZeroQuant : PlanPass<impl::ZeroQuantBase<ZeroQuant>> {
  using PlanPass::PlanPass;
};
} // namespace
} // namespace easyquant::equant
