//===- HoistRows.cpp - Compute only the rows that are asked for -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/Transforms/Passes.h"

#include "easyquant/Dialect/LM/Analysis/Calls.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Inliner.h"
#include "mlir/Transforms/InliningUtils.h"

namespace easyquant::lm {
#define GEN_PASS_DEF_HOISTROWS
#include "easyquant/Dialect/LM/Transforms/Passes.h.inc"
} // namespace easyquant::lm

using namespace mlir;
using namespace easyquant::lm;

/// Some rows of `value`, an argument being their numbers, by an op that is there already if there
/// is one.
static Value rowsOf(PatternRewriter &rewriter, Location loc, Value value, Value numbers) {
  // As early as possible: a buffer that is added into must exist before what is added.
  rewriter.setInsertionPointAfterValue(value);
  for (Operation *user : value.getUsers())
    if (auto rows = dyn_cast<RowsOp>(user); rows && rows.getRows() == numbers) {
      if (rewriter.getInsertionPoint() != Block::iterator(rows))
        rewriter.moveOpBefore(rows, rewriter.getInsertionBlock(), rewriter.getInsertionPoint());
      return rows.getOutput();
    }
  return RowsOp::create(rewriter, loc, value.getType(), value, numbers);
}

/// Ranks have the same rows, so that sums over ranks and gathered columns are row by row, too.
static bool isByRows(Operation *op) {
  auto gather = dyn_cast<shard::AllGatherOp>(op);
  return isRowWise(op) || isa<shard::AllReduceOp>(op) || (gather && gather.getGatherAxis() == 1);
}

namespace {

/// rows(f(x, y)) = f(rows(x), rows(y)) for an op that works row by row, if nobody needs its other
/// rows.
struct HoistAboveRowWiseOp : OpRewritePattern<RowsOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(RowsOp rows, PatternRewriter &rewriter) const override {
    Operation *producer = rows.getInput().getDefiningOp();
    if (!producer || !isByRows(producer))
      return rewriter.notifyMatchFailure(rows, "its operand is not computed row by row");
    Value numbers = rows.getRows();
    if (!isa<BlockArgument>(numbers))
      return rewriter.notifyMatchFailure(rows, "which rows is computed in the function");
    SmallVector<RowsOp> users;
    for (Operation *user : producer->getUsers()) {
      auto other = dyn_cast<RowsOp>(user);
      if (!other || other.getRows() != numbers)
        return rewriter.notifyMatchFailure(rows, "other rows of its operand are needed too");
      users.push_back(other);
    }
    SmallVector<Value> operands;
    for (Value operand : producer->getOperands())
      operands.push_back(isActivationType(operand.getType())
                             ? rowsOf(rewriter, rows.getLoc(), operand, numbers)
                             : operand);
    rewriter.modifyOpInPlace(producer, [&] { producer->setOperands(operands); });
    for (RowsOp user : users)
      rewriter.replaceOp(user, user.getInput());
    return success();
  }
};

/// What a mixture of experts does between the rows that come in and those that go out.
struct Mixture {
  RouteOp route;
  SmallVector<RowsOp> gathers; ///< of what experts read

  /// Fails where something else reads choices, or what is computed for them, than what `combine`
  /// adds up.
  LogicalResult find(CombineOp combine) {
    route = combine.getPlaces().getDefiningOp<RouteOp>();
    auto onlyCombine = [&](Value value) {
      return llvm::all_of(value.getUsers(), [&](Operation *user) { return user == combine; });
    };
    if (!route || combine.getPlaces() != route.getPlaces() ||
        combine.getWeights() != route.getWeights() || !onlyCombine(route.getPlaces()) ||
        !onlyCombine(route.getWeights()))
      return failure();
    llvm::SmallPtrSet<Value, 8> choices;
    SmallVector<Operation *> worklist;
    for (Operation *user : route.getOrder().getUsers()) {
      auto gather = dyn_cast<RowsOp>(user);
      if (!gather)
        return failure();
      gathers.push_back(gather);
      choices.insert(gather.getOutput());
      llvm::append_range(worklist, gather->getUsers());
    }
    while (!worklist.empty()) {
      Operation *op = worklist.pop_back_val();
      if (op == combine)
        continue;
      if (!op->hasTrait<OpTrait::RowWise>() || op->getNumResults() == 0)
        return failure();
      if (choices.contains(op->getResult(0)))
        continue;
      choices.insert_range(op->getResults());
      for (Value result : op->getResults())
        llvm::append_range(worklist, result.getUsers());
    }
    // No op may have rows of another kind beside, nor other experts.
    for (Value value : choices) {
      Operation *op = value.getDefiningOp();
      if (isa<RowsOp>(op))
        continue;
      for (Value operand : op->getOperands())
        if (isActivationType(operand.getType()) && !choices.contains(operand))
          return failure();
    }
    return success(choices.contains(combine.getInput()));
  }
};

/// Rows of what experts give together are what they give for these rows, if nobody needs the
/// others: fewer rows choose.
struct HoistAboveExperts : OpRewritePattern<RowsOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(RowsOp rows, PatternRewriter &rewriter) const override {
    auto combine = rows.getInput().getDefiningOp<CombineOp>();
    Value numbers = rows.getRows();
    if (!combine || !isa<BlockArgument>(numbers))
      return rewriter.notifyMatchFailure(rows, "its operand is no sum over experts");
    SmallVector<RowsOp> users;
    for (Operation *user : combine->getUsers()) {
      auto other = dyn_cast<RowsOp>(user);
      if (!other || other.getRows() != numbers)
        return rewriter.notifyMatchFailure(rows, "other rows of its operand are needed too");
      users.push_back(other);
    }
    Mixture mixture;
    if (failed(mixture.find(combine)))
      return rewriter.notifyMatchFailure(rows, "something else reads choices of experts");
    auto cut = [&](OpOperand &operand) {
      Value some = rowsOf(rewriter, rows.getLoc(), operand.get(), numbers);
      rewriter.modifyOpInPlace(operand.getOwner(), [&] { operand.set(some); });
    };
    cut(mixture.route.getLogitsMutable());
    for (RowsOp gather : mixture.gathers)
      cut(gather.getInputMutable());
    for (OpOperand &operand : combine.getSharedMutable())
      cut(operand);
    for (RowsOp user : users)
      rewriter.replaceOp(user, user.getInput());
    return success();
  }
};

struct HoistRows : easyquant::lm::impl::HoistRowsBase<HoistRows> {
  using HoistRowsBase::HoistRowsBase;

  void runOnOperation() override {
    if (failed(verifyCalls(getOperation())))
      return signalPassFailure();
    RewritePatternSet set(&getContext());
    set.add<HoistAboveRowWiseOp, HoistAboveExperts>(&getContext());
    FrozenRewritePatternSet patterns(std::move(set));
    SymbolTable symbols(getOperation());
    bool inlined = true;
    while (inlined) {
      if (failed(applyPatternsGreedily(getOperation(), patterns)))
        return signalPassFailure();
      SmallVector<func::CallOp> layers;
      getOperation().walk([&](RowsOp rows) {
        if (auto call = rows.getInput().getDefiningOp<func::CallOp>(); call && call->hasOneUse())
          layers.push_back(call);
      });
      inlined = false;
      for (func::CallOp call : layers)
        inlined |= inlineOnlyCall(call, symbols);
    }
  }

  /// Puts the body of a private function in the place of its only call; false if that cannot be.
  bool inlineOnlyCall(func::CallOp call, SymbolTable &symbols) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (!callee || !callee.isPrivate() || callee.isExternal() ||
        !llvm::hasSingleElement(*SymbolTable::getSymbolUses(callee, getOperation())))
      return false;
    InlinerInterface interface(&getContext());
    if (failed(inlineCall(interface, InlinerConfig().getCloneCallback(), call, callee,
                          &callee.getBody(), /*shouldCloneInlinedRegion=*/false)))
      return false;
    call.erase();
    symbols.erase(callee);
    return true;
  }
};

} // namespace
