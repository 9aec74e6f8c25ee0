//===- Shard.cpp - Tensor parallelism -------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shoeybi et al., 2019 (Megatron-LM, https://arxiv.org/abs/1909.08053), on D ranks, rank r:
//
//   q, k, v, gate, up:   W[r N/D .. (r+1) N/D, :]     heads, and columns of the MLP, are the rank's
//   own o, down:             W[:, r K/D .. (r+1) K/D]     y = sum over ranks of x_r W_rᵀ, then the
//   residual embedding, head:     rows of tokens r V/D .. (r+1) V/D, where D divides the vocabulary
//
// Every rank routes alike, and has such parts of each expert: one sum is behind lm.combine.
//
// Codes and scales are those of the whole weight: what is cut is the result of equant.quantize.
//
// One linear for q, k and v is cut in each of its parts, and so is whatever the columns of its
// result meet. A rank has channels of a convolution and heads of a gated delta net, and a D-th of
// what these keep of a sequence. A norm of all heads together follows from squares that ranks add
// up.
//
//===----------------------------------------------------------------------===//

#include "ShardDegrees.h"

#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/TypeSwitch.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_SHARD
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {

/// Rewrites one function into what a rank computes.
class FunctionSharder {
public:
  FunctionSharder(func::FuncOp function, int64_t degree, const Sharing &sharing)
      : function(function), b(function.getContext()), degree(degree), sharing(sharing) {}

  void run();

private:
  Value slice(Value constant, int64_t axis, ArrayRef<int64_t> parts);
  /// `parts` of the axis, of each of which a rank has its share; none: it is one.
  void sliceOperand(MutableOperandRange operand, int64_t axis, ArrayRef<int64_t> parts = {}) {
    if (!operand.empty())
      operand.assign(slice(operand[0].get(), axis, parts));
  }
  uint64_t share(uint64_t whole) const { return whole / static_cast<uint64_t>(degree); }
  void shrink(Value activation) {
    activation.setType(lm::activationType(b.getContext(), lm::columns(activation) / degree));
  }
  /// Cuts the weight of a linear along an axis, 0 or 1.
  template <typename LinearLike> void sliceWeight(LinearLike op, int64_t axis);
  void sliceWeight(Operation *op, int64_t axis);
  template <typename LinearLike> void sumOverRanks(LinearLike op);
  void combine(lm::CombineOp op);
  void shardConvolution(lm::Conv1dOp op);
  void shardDelta(lm::GatedDeltaOp op);
  void shardNorm(lm::RmsNormOp op);
  template <typename EmbeddingLike> void shardEmbedding(EmbeddingLike op);
  template <typename AttentionLike> void shardAttention(AttentionLike op);
  Value reduce(Operation *op);
  void gather(Operation *op);

  func::FuncOp function;
  OpBuilder b;
  int64_t degree;
  const Sharing &sharing;
};

} // namespace

Value FunctionSharder::slice(Value constant, int64_t axis, ArrayRef<int64_t> parts) {
  auto widths = parts.size() > 1 ? b.getDenseI64ArrayAttr(parts) : DenseI64ArrayAttr();
  if (auto weight = dyn_cast<WeightType>(constant.getType())) {
    WeightType part = axis == 0 ? weight.withShape(weight.getRows() / degree, weight.getColumns())
                                : weight.withShape(weight.getRows(), weight.getColumns() / degree);
    return equant::AllSliceOp::create(b, constant.getLoc(), part, constant, kGrid, axis, widths);
  }
  auto type = cast<RankedTensorType>(constant.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[axis] /= degree;
  if (widths)
    return equant::AllSliceOp::create(b, constant.getLoc(), type.clone(shape), constant, kGrid,
                                      axis, widths);
  return shard::AllSliceOp::create(b, constant.getLoc(), type.clone(shape), constant, kGrid,
                                   ArrayRef<shard::GridAxis>{0}, axis);
}

template <typename LinearLike> void FunctionSharder::sliceWeight(LinearLike op, int64_t axis) {
  b.setInsertionPoint(op);
  ColumnParts parts = sharing.partsOf(axis == 0 ? op.getOutput() : op.getInput());
  if (axis == 0 && op.getExperts()) { // their rows lie one below the other
    const ColumnParts own = parts;
    for (int64_t expert = 1; expert < lm::expertCount(op.getExperts()); ++expert)
      llvm::append_range(parts, own);
  }
  sliceOperand(op.getWeightMutable(), axis, parts);
  if (axis == 0)
    sliceOperand(op.getBiasMutable(), 0, parts);
}

void FunctionSharder::sliceWeight(Operation *op, int64_t axis) {
  llvm::TypeSwitch<Operation *>(op).Case<lm::LinearOp, equant::LinearOp>(
      [&](auto linear) { sliceWeight(linear, axis); });
}

/// A bias is added once: behind the sum, or on one rank where the results of experts are weighted
/// before they are summed.
template <typename LinearLike> void FunctionSharder::sumOverRanks(LinearLike op) {
  Value bias = op.getBias();
  if (isSummedLater(op)) {
    if (bias)
      op.getBiasMutable().assign(
          FirstRankOp::create(b, bias.getLoc(), bias.getType(), bias, kGrid).getOutput());
    return;
  }
  op.getBiasMutable().clear();
  Value sum = reduce(op);
  if (!bias)
    return;
  b.setInsertionPointAfterValue(sum);
  auto biased = AddBiasOp::create(b, op.getLoc(), sum.getType(), sum, bias);
  sum.replaceAllUsesExcept(biased.getOutput(), biased);
}

/// The sum over ranks of what the experts of a row give.
void FunctionSharder::combine(lm::CombineOp op) {
  if (sharing.linears.lookup(op.getInput().getDefiningOp()) == Split::Rows)
    reduce(op);
}

/// The sum of the ranks' results in the place of a rank's.
Value FunctionSharder::reduce(Operation *op) {
  b.setInsertionPointAfter(op);
  auto sum = shard::AllReduceOp::create(b, op->getLoc(), op->getResult(0), kGrid,
                                        ArrayRef<shard::GridAxis>{0}, shard::ReductionKind::Sum);
  op->getResult(0).replaceAllUsesExcept(sum.getResult(), sum);
  return sum.getResult();
}

void FunctionSharder::gather(Operation *op) {
  Value part = op->getResult(0);
  Type whole = part.getType();
  shrink(part);
  // What is done to each logit alike, ranks do to their own.
  while (part.hasOneUse() && isa<lm::SoftCapOp, lm::MultiplyOp>(*part.user_begin())) {
    op = *part.user_begin();
    part = op->getResult(0);
    shrink(part);
  }
  b.setInsertionPointAfter(op);
  auto all = shard::AllGatherOp::create(b, op->getLoc(), whole,
                                        FlatSymbolRefAttr::get(b.getContext(), kGrid),
                                        b.getDenseI16ArrayAttr({0}), part, b.getIndexAttr(1));
  part.replaceAllUsesExcept(all.getResult(), all);
}

template <typename EmbeddingLike> void FunctionSharder::shardEmbedding(EmbeddingLike op) {
  auto weight = dyn_cast<WeightType>(op.getTable().getType());
  const int64_t tokens =
      weight ? weight.getRows() : cast<RankedTensorType>(op.getTable().getType()).getDimSize(0);
  if (tokens % degree != 0)
    return;
  b.setInsertionPoint(op);
  sliceOperand(op.getTableMutable(), 0);
  op.setSharded(true);
  reduce(op);
}

template <typename AttentionLike> void FunctionSharder::shardAttention(AttentionLike op) {
  op.setNumHeads(op.getNumHeads() / degree);
  op.setNumKvHeads(op.getNumKvHeads() / degree);
  b.setInsertionPoint(op);
  sliceOperand(op.getSinkLogitsMutable(), 0);
  shrink(op.getOutput());
}

void FunctionSharder::shardConvolution(lm::Conv1dOp op) {
  b.setInsertionPoint(op);
  const ColumnParts parts = sharing.partsOf(op.getOutput());
  sliceOperand(op.getWeightMutable(), 0, parts);
  sliceOperand(op.getBiasMutable(), 0, parts);
  op.setFirst(share(op.getFirst()));
  shrink(op.getOutput());
}

void FunctionSharder::shardDelta(lm::GatedDeltaOp op) {
  b.setInsertionPoint(op);
  const ColumnParts heads = sharing.partsOf(op.getDecay());
  sliceOperand(op.getLogRateMutable(), 0, heads);
  sliceOperand(op.getBiasMutable(), 0, heads);
  op.setKeyHeads(share(op.getKeyHeads()));
  op.setValueHeads(share(op.getValueHeads()));
  op.setFirst(share(op.getFirst()));
  shrink(op.getOutput());
}

void FunctionSharder::shardNorm(lm::RmsNormOp op) {
  b.setInsertionPoint(op);
  const int64_t columns = lm::columns(op.getOutput()) * degree;
  sliceOperand(op.getWeightMutable(), 0, sharing.partsOf(op.getOutput()));
  auto numbers = RankedTensorType::get({ShapedType::kDynamic}, b.getF32Type());
  Value own = TokenSquaresOp::create(b, op.getLoc(), numbers, op.getInput());
  Value all = shard::AllReduceOp::create(b, op.getLoc(), own, kGrid, ArrayRef<shard::GridAxis>{0},
                                         shard::ReductionKind::Sum);
  auto norm =
      PartRmsNormOp::create(b, op.getLoc(), op.getInput().getType(), op.getInput(), op.getWeight(),
                            all, op.getEpsilonAttr(), b.getI64IntegerAttr(columns));
  op.getOutput().replaceAllUsesWith(norm.getOutput());
  op.erase();
}

void FunctionSharder::run() {
  for (BlockArgument argument : function.getArguments()) {
    if (sharing.sharded.contains(argument))
      shrink(argument);
    if (auto cache = dyn_cast<lm::KVCacheType>(argument.getType())) {
      SmallVector<int64_t> kvHeads(cache.getKvHeads());
      for (int64_t &heads : kvHeads)
        heads /= degree;
      argument.setType(lm::KVCacheType::get(b.getContext(), cache.getLayers(), kvHeads,
                                            cache.getHeadDim(), cache.getWindow()));
    } else if (auto state = dyn_cast<lm::RecurrentType>(argument.getType())) {
      argument.setType(lm::RecurrentType::get(b.getContext(), state.getValues() / degree));
    }
  }
  SmallVector<Operation *> ops;
  SmallVector<lm::RmsNormOp> norms; ///< of rows that ranks share
  for (Operation &op : function.front())
    ops.push_back(&op);
  for (Operation *op : ops) {
    switch (sharing.linears.lookup(op)) {
    case Split::None:
      break;
    case Split::Columns:
      sliceWeight(op, 0);
      shrink(op->getResult(0));
      continue;
    case Split::Rows:
      sliceWeight(op, 1);
      llvm::TypeSwitch<Operation *>(op).Case<lm::LinearOp, equant::LinearOp>(
          [&](auto linear) { sumOverRanks(linear); });
      continue;
    case Split::Vocabulary:
      sliceWeight(op, 0);
      gather(op);
      continue;
    }
    llvm::TypeSwitch<Operation *>(op)
        .Case<lm::EmbeddingOp, equant::EmbeddingOp>([&](auto op) { shardEmbedding(op); })
        .Case<lm::AttentionOp, equant::AttentionOp>([&](auto op) { shardAttention(op); })
        .Case([&](lm::CombineOp op) { combine(op); })
        .Case([&](func::CallOp call) {
          for (Value result : call.getResults())
            if (sharing.sharded.contains(result))
              shrink(result);
        })
        .Case([&](lm::Conv1dOp op) { shardConvolution(op); })
        .Case([&](lm::GatedDeltaOp op) { shardDelta(op); })
        .Case([&](lm::RmsNormOp op) {
          if (!sharing.sharded.contains(op.getOutput()))
            return;
          shrink(op.getOutput());
          norms.push_back(op);
        })
        .Case([&](lm::SplitOp op) {
          for (Value output : op.getOutputs())
            if (sharing.sharded.contains(output))
              shrink(output);
        })
        .Default([&](Operation *op) {
          if (isByColumn(op))
            op->getResult(0).setType(op->getOperand(0).getType());
        });
  }
  // Behind all others, which ask for the parts of what is there before.
  for (lm::RmsNormOp norm : norms)
    shardNorm(norm);
  Block &body = function.front();
  function.setFunctionType(
      b.getFunctionType(body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
}

namespace {
struct Shard : equant::impl::ShardBase<Shard> {
  using ShardBase::ShardBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (degreeOf(module) != 1) {
      module.emitError() << "is sharded already: it has a shard.grid @" << kGrid;
      return signalPassFailure();
    }
    FailureOr<Sharing> sharing = checkDegree(module, degree);
    if (failed(sharing))
      return signalPassFailure();
    if (degree == 1)
      return;
    auto b = OpBuilder::atBlockBegin(module.getBody());
    shard::GridOp::create(b, module.getLoc(), kGrid, {degree});
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal())
        FunctionSharder(function, degree, *sharing).run();
  }
};
} // namespace
