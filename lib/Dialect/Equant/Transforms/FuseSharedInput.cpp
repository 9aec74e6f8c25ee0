//===- FuseSharedInput.cpp - One linear for a shared input ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Transforms/Passes.h"

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

/// Can one linear compute what both compute? Packed weights are final.
static bool agree(equant::LinearOp a, equant::LinearOp b) {
  return a->getBlock() == b->getBlock() && a.getInput() == b.getInput() &&
         a.getWeightScheme() == b.getWeightScheme() &&
         a.getInputSchemeAttr() == b.getInputSchemeAttr() &&
         a.getInputScaleAttr() == b.getInputScaleAttr() &&
         a.getInputZeroPointAttr() == b.getInputZeroPointAttr() && !a.getLayout() &&
         !b.getLayout() && !a.getBias() == !b.getBias();
}

/// Codes, scales, ... of all linears below each other; null if they have none.
static Value concat(RewriterBase &rewriter, Location loc, ArrayRef<equant::LinearOp> linears,
                    llvm::function_ref<Value(equant::LinearOp)> operand) {
  SmallVector<Value> values(llvm::map_range(linears, operand));
  return values.front() ? ConcatOp::create(rewriter, loc, values).getOutput() : Value();
}

static void fuse(RewriterBase &rewriter, ArrayRef<equant::LinearOp> linears) {
  equant::LinearOp first = linears.front();
  SmallVector<int64_t> widths;
  SmallVector<Attribute> sites;
  SmallVector<Location> locations;
  for (equant::LinearOp linear : linears) {
    widths.push_back(lm::columns(linear.getOutput()));
    llvm::append_range(sites, linear.getSites());
    locations.push_back(linear.getLoc());
  }
  Location loc = rewriter.getFusedLoc(locations);
  rewriter.setInsertionPoint(first);
  Value codes = concat(rewriter, loc, linears, [](auto op) { return op.getCodes(); });
  Value scale = concat(rewriter, loc, linears, [](auto op) { return op.getScale(); });
  Value zeroPoint = concat(rewriter, loc, linears, [](auto op) { return op.getZeroPoint(); });
  Value outer = concat(rewriter, loc, linears, [](auto op) { return op.getOuter(); });
  Value bias = concat(rewriter, loc, linears, [](auto op) { return op.getBias(); });
  auto fused = equant::LinearOp::create(
      rewriter, loc, lm::activationType(rewriter.getContext(), llvm::sum_of(widths)),
      first.getInput(), codes, scale, zeroPoint, outer, /*codebook=*/Value(), /*code_sums=*/Value(),
      bias,
      /*row_scales=*/Value(), /*row_sums=*/Value(), /*row_zero_points=*/Value(),
      rewriter.getArrayAttr(sites), first.getWeightScheme(), first.getInputSchemeAttr(),
      first.getInputScaleAttr(), first.getInputZeroPointAttr(), /*layout=*/LayoutAttr());
  auto split = lm::SplitOp::create(rewriter, loc, fused.getOutput(), widths);
  for (auto [linear, slice] : llvm::zip_equal(linears, split.getOutputs()))
    rewriter.replaceOp(linear, slice);
}

void FuseSharedInput::runOnOperation() {
  // Scales per tensor have no place below each other.
  auto isCandidate = [](equant::LinearOp op) {
    SchemeAttr scheme = op.getWeightScheme();
    return scheme.getGranularity() == Granularity::Group ||
           scheme.getGranularity() == Granularity::Channel;
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
