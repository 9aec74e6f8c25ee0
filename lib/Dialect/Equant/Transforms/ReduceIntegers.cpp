//===- ReduceIntegers.cpp - Sums over ranks without rounding --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// y[m, n] = s_x[m] s_w[n] Σ_k q_x q_w: with one scale a row and one a channel the sums over ranks
// of int32 sums are exact, whatever their order, and what comes behind them is rounded as on one
// rank.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"

#include "mlir/IR/Builders.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_REDUCEINTEGERS
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

/// No accumulator of all ranks together overflows.
static bool fitsAccumulator(PackedLinearOp linear, int64_t ranks) {
  int64_t products = ranks * linear.getRows().getColumns();
  return products <= maxAccumulatedProducts(linear.getWeight().getType().getScheme(),
                                            linear.getActivations(), /*packed=*/true);
}

namespace {
struct ReduceIntegers : equant::impl::ReduceIntegersBase<ReduceIntegers> {
  using ReduceIntegersBase::ReduceIntegersBase;

  void runOnOperation() override {
    const int64_t ranks = degreeOf(getOperation());
    SmallVector<shard::AllReduceOp> sums;
    getOperation().walk([&](shard::AllReduceOp op) {
      auto linear = op.getInput().getDefiningOp<PackedLinearOp>();
      if (linear && linear.getRows() && !linear.getBias() && linear->hasOneUse() &&
          op.getReduction() == shard::ReductionKind::Sum &&
          linear.getWeight().getType().getScheme().isInteger() &&
          linear.getWeight().getType().getScheme().getGranularity() == Granularity::Channel &&
          !linear.getActivations().getTokenGroup() && lm::isActivationType(linear.getType()) &&
          op.getResult().getType() == linear.getType() && fitsAccumulator(linear, ranks))
        sums.push_back(op);
    });
    for (shard::AllReduceOp sum : sums)
      rewrite(sum, sum.getInput().getDefiningOp<PackedLinearOp>());
  }

  static void rewrite(shard::AllReduceOp sum, PackedLinearOp linear) {
    OpBuilder b(sum->getContext());
    b.setInsertionPointAfter(sum);
    Type activation = linear.getType();
    Type integers = cast<RankedTensorType>(activation).clone(b.getI32Type());
    linear.getOutput().setType(cast<RankedTensorType>(integers));
    sum.getResult().setType(integers);
    // A bias behind the sum is part of what rescales it, as of a linear.
    auto biased = sum->hasOneUse() ? dyn_cast<AddBiasOp>(*sum->user_begin()) : AddBiasOp();
    if (biased)
      b.setInsertionPoint(biased);
    auto scaled = RescaleOp::create(b, linear.getLoc(), activation, sum.getResult(),
                                    linear.getInput(), linear.getWeight(),
                                    biased ? biased.getBias() : Value(), linear.getSites());
    if (!biased) {
      sum.getResult().replaceAllUsesExcept(scaled.getOutput(), scaled);
      return;
    }
    biased.getOutput().replaceAllUsesWith(scaled.getOutput());
    biased.erase();
  }
};
} // namespace
