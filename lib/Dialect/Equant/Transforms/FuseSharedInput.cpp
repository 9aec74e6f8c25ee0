//===- FuseSharedInput.cpp - One linear for a shared input ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Dialect/LM/Analysis/ExpertWeights.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/RegionUtils.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_FUSESHAREDINPUT
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {
struct FuseSharedInput : equant::impl::FuseSharedInputBase<FuseSharedInput> {
  using FuseSharedInputBase::FuseSharedInputBase;
  void runOnOperation() override;
};
} // namespace

/// Can one linear compute what both compute?
static bool agree(equant::LinearOp a, equant::LinearOp b) {
  WeightType weight = a.getWeight().getType(), other = b.getWeight().getType();
  return a->getBlock() == b->getBlock() && a.getInput() == b.getInput() &&
         weight.getScheme() == other.getScheme() &&
         a.getInputSchemeAttr() == b.getInputSchemeAttr() &&
         a.getInputScaleAttr() == b.getInputScaleAttr() &&
         a.getInputZeroPointAttr() == b.getInputZeroPointAttr() && !a.getOnline() &&
         !b.getOnline() && !a.getBias() == !b.getBias();
}

static void fuse(RewriterBase &rewriter, ArrayRef<equant::LinearOp> linears) {
  equant::LinearOp first = linears.front();
  SmallVector<int64_t> widths;
  SmallVector<Value> weights, biases;
  SmallVector<Attribute> sites;
  SmallVector<Location> locations;
  for (equant::LinearOp linear : linears) {
    widths.push_back(lm::columns(linear.getOutput()));
    llvm::append_range(sites, linear.getSites());
    weights.push_back(linear.getWeight());
    if (Value bias = linear.getBias())
      biases.push_back(bias);
    locations.push_back(linear.getLoc());
  }
  Location loc = rewriter.getFusedLoc(locations);
  rewriter.setInsertionPoint(first);
  Value weight = ConcatOp::create(rewriter, loc, weights),
        bias = biases.empty() ? Value() : ConcatOp::create(rewriter, loc, biases).getOutput();
  auto fused = equant::LinearOp::create(
      rewriter, loc, lm::activationType(rewriter.getContext(), llvm::sum_of(widths)),
      first.getInput(), weight, bias, /*online=*/Value(), /*experts=*/Value(),
      rewriter.getArrayAttr(sites), first.getInputSchemeAttr(), first.getInputScaleAttr(),
      first.getInputZeroPointAttr());
  auto split = lm::SplitOp::create(rewriter, loc, fused.getOutput(), widths);
  for (auto [linear, slice] : llvm::zip_equal(linears, split.getOutputs()))
    rewriter.replaceOp(linear, slice);
}

void FuseSharedInput::runOnOperation() {
  // Scales per tensor have no place below each other.
  auto isCandidate = [](equant::LinearOp op) {
    SchemeAttr scheme = op.getWeight().getType().getScheme();
    // Rows of one expert would not lie together. Numbers that weigh experts are few, behind which
    // other columns would begin anywhere, and kernels may sum them in an order of their own.
    return !op.getExperts() && !lm::weighExperts(op.getOutput()) &&
           (scheme.getGranularity() == Granularity::Group ||
            scheme.getGranularity() == Granularity::Channel);
  };
  SmallVector<SmallVector<equant::LinearOp>> groups;
  IRRewriter rewriter(&getContext());
  getOperation().walk([&](equant::LinearOp op) {
    if (!isCandidate(op))
      return;
    for (SmallVector<equant::LinearOp> &group : groups) {
      // The weights of a later linear must be available where the first one is.
      if (agree(group.front(), op) &&
          succeeded(moveOperationDependencies(rewriter, op, group.front()))) {
        group.push_back(op);
        return;
      }
    }
    groups.push_back({op});
  });
  for (ArrayRef<equant::LinearOp> group : groups)
    if (group.size() > 1)
      fuse(rewriter, group);
}
