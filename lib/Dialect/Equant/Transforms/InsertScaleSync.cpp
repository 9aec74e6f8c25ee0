//===- InsertScaleSync.cpp - One scale for rows that ranks share ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A row of activations whose columns lie on D ranks has one scale: that of max over ranks of
// max |x_r|. The largest of maxima is exact, so that codes are those of one rank.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"

#include "mlir/IR/Builders.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_INSERTSCALESYNC
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

/// Do linears read it whose results are parts of sums over ranks?
static bool spansRanks(Value codes) {
  return llvm::any_of(codes.getUsers(), [](Operation *user) {
    return isa<lm::LinearOp, equant::LinearOp>(user) && isReduced(user->getResult(0));
  });
}

namespace {
struct InsertScaleSync : equant::impl::InsertScaleSyncBase<InsertScaleSync> {
  using InsertScaleSyncBase::InsertScaleSyncBase;

  void runOnOperation() override {
    getOperation().walk([&](QuantizeRowsOp op) {
      if (op.getScheme().getDynamic() && !op.getAbsmax() && spansRanks(op.getCodes()))
        synchronize(op);
    });
    WalkResult refused = getOperation().walk([](FakeQuantizeOp op) -> WalkResult {
      SchemeAttr scheme = op.getScheme();
      if (!scheme.getDynamic() || scheme.getGranularity() != Granularity::Token ||
          !spansRanks(op.getOutput()))
        return WalkResult::advance();
      return op.emitOpError() << "has scales per token in " << scheme
                              << " of rows that ranks share, which only integers have yet; take "
                                 "static activations";
    });
    if (refused.wasInterrupted())
      signalPassFailure();
  }

  static void synchronize(QuantizeRowsOp op) {
    OpBuilder b(op);
    auto type = cast<RankedTensorType>(op.getScales().getType());
    Value own = TokenAbsMaxOp::create(b, op.getLoc(), type, op.getInput());
    Value all = shard::AllReduceOp::create(b, op.getLoc(), own, kGrid, ArrayRef<shard::GridAxis>{0},
                                           shard::ReductionKind::Max);
    op.getAbsmaxMutable().assign(all);
  }
};
} // namespace
