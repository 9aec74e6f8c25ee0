//===- Rotate.cpp - Sites in a rotated basis ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/RotatedValues.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/Builders.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_ROTATE
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalLoadConstOp;

namespace {
struct Rotate : equant::impl::RotateBase<Rotate> {
  using RotateBase::RotateBase;
  void runOnOperation() override;

private:
  Value rotated(OpBuilder builder, Location loc, Value value, int64_t block, int64_t axis = 1,
                int64_t first = 0);
  void rotateInput(QuantizableOpInterface op, int64_t block);

  llvm::DenseMap<std::pair<Value, int64_t>, Value> known; ///< activations
};
} // namespace

Value Rotate::rotated(OpBuilder builder, Location loc, Value value, int64_t block, int64_t axis,
                      int64_t first) {
  return HadamardOp::create(builder, loc, value.getType(), value, builder.getI64IntegerAttr(block),
                            builder.getI64IntegerAttr(axis), builder.getI64IntegerAttr(first));
}

/// The site reads a rotated input: it comes so where the values of its attention are made so.
void Rotate::rotateInput(QuantizableOpInterface op, int64_t block) {
  OpOperand &input = op.getActivationOperand();
  if (ValuesOfSite values = valuesOf(op); values.takes(block)) {
    auto rotateRows = [&](OpOperand &constant) {
      constant.set(rotated(OpBuilder(values.linear), values.linear.getLoc(), constant.get(), block,
                           /*axis=*/0, values.firstRow));
    };
    rotateRows(values.linear.getWeightMutable());
    if (values.linear.getBias())
      rotateRows(values.linear.getBiasMutable()[0]);
    return;
  }
  Value &shared = known[{input.get(), block}];
  if (!shared) {
    OpBuilder builder(op.getContext());
    builder.setInsertionPointAfterValue(input.get());
    shared = rotated(builder, op.getLoc(), input.get(), block);
  }
  input.set(shared);
}

void Rotate::runOnOperation() {
  known.clear();
  llvm::DenseMap<Attribute, int64_t> blockOf; // of globals that are weights
  getOperation().walk([&](QuantizableOpInterface op) {
    PlanAttr plan = getPlan(op);
    const int64_t block = plan ? plan.getWeight().getHadamard() : 0;
    if (block == 0)
      return;
    OpOperand &weight = op.getWeightOperand();
    if (auto load = weight.get().getDefiningOp<GlobalLoadConstOp>())
      blockOf[load.getGlobal()] = block;
    weight.set(rotated(OpBuilder(op), op.getLoc(), weight.get(), block));
    rotateInput(op, block);
  });
  // A table that is the weight of a head is stored as the head reads it.
  getOperation().walk([&](lm::EmbeddingOp op) {
    auto load = op.getTable().getDefiningOp<GlobalLoadConstOp>();
    const int64_t block = load ? blockOf.lookup(load.getGlobal()) : 0;
    if (block == 0)
      return;
    op.getTableMutable().assign(rotated(OpBuilder(op), op.getLoc(), op.getTable(), block));
    OpBuilder builder(op.getContext());
    builder.setInsertionPointAfter(op);
    Value back = rotated(builder, op.getLoc(), op.getOutput(), block);
    op.getOutput().replaceAllUsesExcept(back, back.getDefiningOp());
  });
}
