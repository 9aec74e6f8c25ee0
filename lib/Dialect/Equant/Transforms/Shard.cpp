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
  /// A part of the rows of each of the experts, where there are several.
  Value slice(Value constant, int64_t axis, int64_t experts = 1);
  void sliceOperand(MutableOperandRange operand, int64_t axis, int64_t experts = 1) {
    if (!operand.empty())
      operand.assign(slice(operand[0].get(), axis, experts));
  }
  void shrink(Value activation) {
    activation.setType(lm::activationType(b.getContext(), lm::columns(activation) / degree));
  }
  /// Cuts the weight of a linear along an axis, 0 or 1.
  template <typename LinearLike> void sliceWeight(LinearLike op, int64_t axis);
  void sliceWeight(Operation *op, int64_t axis);
  template <typename LinearLike> void sumOverRanks(LinearLike op);
  void combine(lm::CombineOp op);
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

Value FunctionSharder::slice(Value constant, int64_t axis, int64_t experts) {
  if (auto weight = dyn_cast<WeightType>(constant.getType())) {
    WeightType part = axis == 0 ? weight.withShape(weight.getRows() / degree, weight.getColumns())
                                : weight.withShape(weight.getRows(), weight.getColumns() / degree);
    if (experts > 1)
      return ExpertSliceOp::create(b, constant.getLoc(), part, constant, kGrid, experts);
    return equant::AllSliceOp::create(b, constant.getLoc(), part, constant, kGrid, axis);
  }
  auto type = cast<RankedTensorType>(constant.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[axis] /= degree;
  if (experts > 1)
    return ExpertSliceOp::create(b, constant.getLoc(), type.clone(shape), constant, kGrid, experts);
  return shard::AllSliceOp::create(b, constant.getLoc(), type.clone(shape), constant, kGrid,
                                   ArrayRef<shard::GridAxis>{0}, axis);
}

template <typename LinearLike> void FunctionSharder::sliceWeight(LinearLike op, int64_t axis) {
  b.setInsertionPoint(op);
  const int64_t experts = axis == 0 && op.getExperts() ? lm::expertCount(op.getExperts()) : 1;
  sliceOperand(op.getWeightMutable(), axis, experts);
  if (axis == 0)
    sliceOperand(op.getBiasMutable(), 0, experts);
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

void FunctionSharder::run() {
  for (BlockArgument argument : function.getArguments()) {
    if (sharing.apart.contains(argument))
      shrink(argument);
    if (auto cache = dyn_cast<lm::KVCacheType>(argument.getType())) {
      SmallVector<int64_t> kvHeads(cache.getKvHeads());
      for (int64_t &heads : kvHeads)
        heads /= degree;
      argument.setType(lm::KVCacheType::get(b.getContext(), cache.getLayers(), kvHeads,
                                            cache.getHeadDim(), cache.getWindow()));
    }
  }
  SmallVector<Operation *> ops;
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
            if (sharing.apart.contains(result))
              shrink(result);
        })
        .Case<lm::RopeOp, lm::HeadRmsNormOp, lm::GluOp, lm::GeluOp, HadamardOp>(
            [&](Operation *op) { op->getResult(0).setType(op->getOperand(0).getType()); });
  }
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
