//===- Symmetric.cpp - Symmetric codes of the full range ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SitePlans.h"

#include "easyquant/Dialect/Equant/Transforms/Passes.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_SYMMETRIC
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"

namespace {
struct Symmetric : PlanPass<impl::SymmetricBase<Symmetric>> {
  using PlanPass::PlanPass;
};
} // namespace
} // namespace easyquant::equant
