//===- InsertScaleSync.cpp - One scale for rows that ranks share ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A row of activations whose columns lie on D ranks has one scale: that of max over ranks of
// max |x_r|, which also says whether the row leaves a static range that keeps sinks apart. The
// largest of maxima is exact, so that codes are those of one rank. Codes of online
// scales need no call, but the extrema from which scales go on do: those of all sites lie side by
// side, and are reduced in one call behind the last of them.
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
    return isa<lm::LinearOp, PackedLinearOp>(user) && isReduced(user->getResult(0));
  });
}

namespace {
struct InsertScaleSync : equant::impl::InsertScaleSyncBase<InsertScaleSync> {
  using InsertScaleSyncBase::InsertScaleSyncBase;

  void runOnOperation() override {
    getOperation().walk([&](QuantizeRowsOp op) {
      // Groups lie within the columns of a rank.
      SchemeAttr scheme = op.getScheme();
      if ((scheme.getDynamic() || scheme.hasSinksAroundZero()) && !scheme.getTokenGroup() &&
          !op.getRows().getType().isBlockScaled() && !op.getAbsmax() && spansRanks(op.getRows()))
        synchronize(op);
    });
    getOperation().walk([&](AdvanceOp op) { synchronize(op); });
    // Every rank would find by its own columns alone whether a row leaves the range.
    WalkResult apart = getOperation().walk([](QuantizeRowsOp op) -> WalkResult {
      if (!op.getScheme().getSinks() || op.getAbsmax() || !spansRanks(op.getRows()))
        return WalkResult::advance();
      return op.emitOpError() << "keeps sinks apart in a range that is not around 0, of rows that "
                                 "ranks share, which has no call; take a symmetric scheme or sinks "
                                 "none";
    });
    if (apart.wasInterrupted())
      return signalPassFailure();
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
    auto type = op.getRows().getType().getPart(RowsType::Part::Scales);
    Value own = TokenAbsMaxOp::create(b, op.getLoc(), type, op.getInput());
    Value all = shard::AllReduceOp::create(b, op.getLoc(), own, kGrid, ArrayRef<shard::GridAxis>{0},
                                           shard::ReductionKind::Max);
    op.getAbsmaxMutable().assign(all);
  }

  static void synchronize(AdvanceOp advance) {
    Operation *last = nullptr;
    bool isShared = false;
    for (Operation &op : *advance->getBlock()) {
      auto rows = dyn_cast<QuantizeRowsOp>(op);
      if (!rows || !rows.getOnline())
        continue;
      last = rows;
      isShared |= spansRanks(rows.getRows());
    }
    if (!isShared)
      return;
    OpBuilder b(advance.getContext());
    b.setInsertionPointAfter(last);
    advance.getStateMutable().assign(SyncExtremaOp::create(
        b, advance.getLoc(), advance.getState().getType(), advance.getState(), kGrid));
  }
};
} // namespace
