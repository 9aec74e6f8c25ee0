//===- FuseKernels.cpp - Ops that one kernel computes ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Dialect/LM/Analysis/InPlace.h"
#include "easyquant/Target/Target.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_FUSEKERNELS
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

/// Moves `ops`, of which each may read those before it, into a fusion in the place of `at`, with
/// the results of the last `yielding` of them.
static void fuse(PatternRewriter &rewriter, Operation *at, ArrayRef<Operation *> ops,
                 size_t yielding = 1) {
  SmallVector<Value> results;
  for (Operation *op : ops.take_back(yielding))
    llvm::append_range(results, op->getResults());
  rewriter.setInsertionPoint(at);
  auto fusion = FusionOp::create(rewriter, ops.front()->getLoc(), ValueRange(results).getTypes());
  Block *body = rewriter.createBlock(&fusion.getBody());
  auto yield = YieldOp::create(rewriter, fusion.getLoc(), results);
  for (auto [result, output] : llvm::zip_equal(results, fusion.getOutputs()))
    rewriter.replaceUsesWithIf(result, output,
                               [&](OpOperand &use) { return use.getOwner()->getBlock() != body; });
  for (Operation *op : ops)
    rewriter.moveOpBefore(op, yield);
}

static bool isFused(Operation *op) { return isa<FusionOp>(op->getParentOp()); }

/// Codes with scales of groups of f8E4M3FN are made of whole rows in memory.
static bool hasOwnKernel(Operation *op) {
  auto quantize = dyn_cast<QuantizeRowsOp>(op);
  return quantize && quantize.getRows().getType().isBlockScaled();
}

namespace {

/// What only a quantization or a cast reads, the kernel that makes it writes so.
template <typename Producer, typename Consumer> struct FuseConversion : OpRewritePattern<Consumer> {
  using OpRewritePattern<Consumer>::OpRewritePattern;

  LogicalResult matchAndRewrite(Consumer op, PatternRewriter &rewriter) const override {
    Operation *producer = op->getOperand(0).template getDefiningOp<Producer>();
    if (!producer || isFused(op) || isFused(producer))
      return rewriter.notifyMatchFailure(op, "its operand comes from another kind of op");
    if (hasOwnKernel(op))
      return rewriter.notifyMatchFailure(op, "a kernel of its own makes such codes");
    if (!producer->hasOneUse() || producer->getBlock() != op->getBlock())
      return rewriter.notifyMatchFailure(op, "others read its operand, too");
    fuse(rewriter, op, {producer, op});
    return success();
  }
};

/// May a kernel go on with what `op` makes? Just so many ops read it, in one block with it.
static bool mayGoOn(Operation *op, unsigned readers) {
  return !isFused(op) && op->getResult(0).hasNUses(readers) &&
         llvm::all_of(op->getUsers(),
                      [&](Operation *user) { return user->getBlock() == op->getBlock(); });
}

/// The norm or activation function that makes rows, where a kernel may go on with them, or null.
static Operation *makerOf(Value rows, unsigned readers = 1) {
  Operation *op = rows.getDefiningOp();
  return isa_and_present<lm::RmsNormOp, lm::LayerNormOp, lm::GluOp, lm::GeluOp>(op) &&
                 mayGoOn(op, readers)
             ? op
             : nullptr;
}

/// A row is rotated by the kernel that makes it, or that quantizes or casts it.
struct FuseRotation : OpRewritePattern<HadamardOp> {
  FuseRotation(MLIRContext *context, const targets::Fusions &fusions)
      : OpRewritePattern(context), fusions(fusions) {}

  LogicalResult matchAndRewrite(HadamardOp op, PatternRewriter &rewriter) const override {
    if (isFused(op))
      return failure();
    SmallVector<Operation *> ops;
    if (Operation *maker = makerOf(op.getInput()))
      ops.push_back(maker);
    ops.push_back(op);
    if (mayGoOn(op, /*readers=*/1) && isWritten(*op->getUsers().begin()))
      ops.push_back(*op->getUsers().begin());
    if (ops.size() == 1)
      return rewriter.notifyMatchFailure(op, "neither made nor written by a kernel over rows");
    fuse(rewriter, ops.back(), ops);
    return success();
  }

private:
  /// Is it what the kernel writes in the place of the rotated rows?
  bool isWritten(Operation *reader) const {
    auto quantize = dyn_cast<QuantizeRowsOp>(reader);
    return (quantize && !quantize.getOnline() && !hasOwnKernel(quantize)) ||
           (fusions.bf16Results && isa<arith::TruncFOp>(reader));
  }

  targets::Fusions fusions;
};

/// Codes with online scales: the kernel that makes them reads the scales, and notes the extrema of
/// what it rounds; ops whose results nothing else reads make that on their way.
struct FuseOnline : OpRewritePattern<QuantizeRowsOp> {
  using OpRewritePattern::OpRewritePattern;
  static constexpr unsigned kReaders = 2; ///< of the rows: what rounds them, and what tracks them

  LogicalResult matchAndRewrite(QuantizeRowsOp op, PatternRewriter &rewriter) const override {
    auto scale = op.getOnline() ? op.getOnline().getDefiningOp<OnlineScaleOp>() : OnlineScaleOp();
    if (!scale || isFused(op) || isFused(scale) || scale->getBlock() != op->getBlock())
      return rewriter.notifyMatchFailure(op, "its scales are not online ones");
    TrackOp track;
    for (Operation *user : op.getInput().getUsers()) {
      if (auto found = dyn_cast<TrackOp>(user);
          found && !isFused(found) && found->getBlock() == op->getBlock() &&
          found.getState() == scale.getState() && found.getIndex() == scale.getIndex())
        track = found;
    }
    if (!track)
      return rewriter.notifyMatchFailure(op, "nothing tracks its input for the same site");
    SmallVector<Operation *> ops;
    auto rotation = op.getInput().getDefiningOp<HadamardOp>();
    if (rotation && mayGoOn(rotation, kReaders)) {
      if (Operation *maker = makerOf(rotation.getInput()))
        ops.push_back(maker);
      ops.push_back(rotation);
    } else if (Operation *maker = makerOf(op.getInput(), kReaders)) {
      ops.push_back(maker);
    }
    // Each of several kernels that read one scale gets it.
    if (!scale->hasOneUse()) {
      rewriter.setInsertionPoint(op);
      scale = cast<OnlineScaleOp>(rewriter.clone(*scale));
      track = cast<TrackOp>(rewriter.clone(*track));
      rewriter.modifyOpInPlace(op, [&] { op.getOnlineMutable().assign(scale); });
    }
    ops.append({scale, track, op});
    fuse(rewriter, op, ops);
    return success();
  }
};

/// x + linear(y): the linear adds into the memory of x, where nobody reads x any more.
struct FuseResidual : OpRewritePattern<lm::AddOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(lm::AddOp add, PatternRewriter &rewriter) const override {
    if (isFused(add))
      return failure();
    for (auto [term, stream] :
         {std::pair(add.getRhs(), add.getLhs()), std::pair(add.getLhs(), add.getRhs())}) {
      Operation *linear = term.getDefiningOp();
      if (!isa_and_present<lm::LinearOp, PackedLinearOp, RescaleOp>(linear) ||
          !linear->hasOneUse() || linear->getBlock() != add->getBlock() ||
          !lm::mayOverwrite(add, stream))
        continue;
      fuse(rewriter, add, {linear, add});
      return success();
    }
    return rewriter.notifyMatchFailure(add, "no term is a linear that the other may take in");
  }
};

/// Are queries and keys rotated by the same angles, where they lie?
bool areRotatedAlike(lm::RopeOp queries, lm::RopeOp keys) {
  auto tableOf = [](lm::RopeOp op) {
    auto load = op.getTable().getDefiningOp<ml_program::GlobalLoadConstOp>();
    return load ? load.getGlobalAttr() : SymbolRefAttr();
  };
  return keys.getHeadDim() == queries.getHeadDim() && tableOf(keys) &&
         tableOf(keys) == tableOf(queries) && keys.getBatch() == queries.getBatch() &&
         lm::mayOverwrite(queries, queries.getInput()) && lm::mayOverwrite(keys, keys.getInput());
}

/// Why these queries and keys do not go with attention over a float cache, which appends the keys;
/// null if they do.
const char *whyNotAppended(lm::AttentionOp op, lm::RopeOp queries, lm::RopeOp keys,
                           const targets::Fusions &fusions) {
  if (op.getAppended())
    return "it appends no keys";
  if (fusions.splitAttention && (!lm::areSideBySide(queries.getInput(), keys.getInput()) ||
                                 !lm::areSideBySide(keys.getInput(), op.getValue())))
    return "queries, keys and values are not side by side";
  return nullptr;
}

/// The same for a cache of codes, in whose basis they have to be.
const char *whyNotAppended(AttentionOp op, lm::RopeOp queries, lm::RopeOp /*keys*/,
                           const targets::Fusions &fusions) {
  if (lm::rotatedDims(queries.getTable()) != static_cast<int64_t>(queries.getHeadDim()))
    return "the kernel of a basis turns whole heads";
  if (!fusions.keyBasis || !op.getKvScheme().getHadamard())
    return "its own kernels do with keys what is to be done";
  return nullptr;
}

/// Attention and the rotations of its queries and keys, which go to the cache, or to the basis of
/// its codes, as they are rotated.
template <typename AttentionLike> struct FuseAttention : OpRewritePattern<AttentionLike> {
  FuseAttention(MLIRContext *context, const targets::Fusions &fusions)
      : OpRewritePattern<AttentionLike>(context), fusions(fusions) {}

  LogicalResult matchAndRewrite(AttentionLike op, PatternRewriter &rewriter) const override {
    auto queries = op.getQuery().template getDefiningOp<lm::RopeOp>();
    auto keys = op.getKey().template getDefiningOp<lm::RopeOp>();
    if (isFused(op) || op->use_empty() || !queries || !keys || !queries->hasOneUse() ||
        !keys->hasOneUse())
      return rewriter.notifyMatchFailure(op, "not the only reader of rotated queries and keys");
    if (!areRotatedAlike(queries, keys) || queries.getBatch() != op.getBatch() ||
        queries.getHeadDim() != op.getHeadDim())
      return rewriter.notifyMatchFailure(op, "queries and keys are rotated otherwise");
    if (const char *why = whyNotAppended(op, queries, keys, fusions))
      return rewriter.notifyMatchFailure(op, why);
    keys.getTableMutable().assign(queries.getTable());
    SmallVector<Operation *> ops = {queries, keys, op};
    Operation *reader = *op->getUsers().begin();
    if (op->hasOneUse() && reader->getBlock() == op->getBlock() &&
        ((fusions.bf16Results && isa<arith::TruncFOp>(reader)) ||
         (fusions.attentionCodes && isa<QuantizeRowsOp>(reader) && !hasOwnKernel(reader))))
      ops.push_back(reader);
    fuse(rewriter, ops.back(), ops);
    return success();
  }

private:
  targets::Fusions fusions;
};

/// Queries and keys that lie side by side are rotated together.
struct FuseRotations : OpRewritePattern<lm::RopeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(lm::RopeOp queries, PatternRewriter &rewriter) const override {
    if (isFused(queries))
      return failure();
    for (auto keys : queries->getBlock()->getOps<lm::RopeOp>()) {
      if (!lm::areSideBySide(queries.getInput(), keys.getInput()))
        continue;
      if (!areRotatedAlike(queries, keys) ||
          !keys.getInput().getDefiningOp()->isBeforeInBlock(queries))
        break;
      keys.getTableMutable().assign(queries.getTable());
      fuse(rewriter, queries, {queries, keys}, 2);
      return success();
    }
    return rewriter.notifyMatchFailure(queries, "no keys behind it to rotate alike");
  }
};

struct FuseKernels : easyquant::equant::impl::FuseKernelsBase<FuseKernels> {
  using FuseKernelsBase::FuseKernelsBase;

  template <typename Consumer> static void addRowOps(RewritePatternSet &patterns) {
    patterns.add<FuseConversion<lm::RmsNormOp, Consumer>, FuseConversion<lm::LayerNormOp, Consumer>,
                 FuseConversion<lm::GluOp, Consumer>, FuseConversion<lm::GeluOp, Consumer>,
                 FuseConversion<GatherColumnsOp, Consumer>>(patterns.getContext());
  }

  LogicalResult apply(RewritePatternSet patterns) {
    GreedyRewriteConfig config;
    config.enableFolding(false).setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
    return applyPatternsGreedily(getOperation(), std::move(patterns), config);
  }

  void runOnOperation() override {
    Result<const targets::Family *> family = targets::findFamily(target);
    if (!family) {
      getOperation().emitError() << family.error().message;
      return signalPassFailure();
    }
    const targets::Fusions &fusions = (*family)->fusions;
    // First, for it takes in what others would.
    RewritePatternSet first(&getContext()), patterns(&getContext());
    first.add<FuseAttention<lm::AttentionOp>, FuseAttention<AttentionOp>>(&getContext(), fusions);
    first.add<FuseOnline>(&getContext());
    addRowOps<QuantizeRowsOp>(patterns);
    patterns.add<FuseResidual>(&getContext());
    patterns.add<FuseRotation>(&getContext(), fusions);
    if (fusions.bf16Results) {
      addRowOps<arith::TruncFOp>(patterns);
      patterns.add<FuseConversion<lm::AttentionOp, arith::TruncFOp>,
                   FuseConversion<equant::AttentionOp, arith::TruncFOp>,
                   FuseConversion<FakeQuantizeOp, arith::TruncFOp>>(&getContext());
    }
    if (fusions.attentionCodes)
      patterns.add<FuseConversion<lm::AttentionOp, QuantizeRowsOp>,
                   FuseConversion<equant::AttentionOp, QuantizeRowsOp>>(&getContext());
    if (fusions.rotations)
      patterns.add<FuseRotations>(&getContext());
    if (failed(apply(std::move(first))) || failed(apply(std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
