//===- WeightGlobals.cpp - Globals of the artifact's tensors --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/WeightGlobals.h"

#include "easyquant/Weights/WeightLayouts.h"

#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/ADT/SmallPtrSet.h"

#include <map>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalLoadConstOp;
using ml_program::GlobalOp;
using Kind = FileTensor::Kind;
using numerics::WeightTensor;

namespace {

/// The globals that stand for the tensors.
class WeightGlobals {
public:
  explicit WeightGlobals(const TargetWeights &target)
      : target(target), module(target.module), attributes(module.getContext()) {
    for (GlobalOp global : module.getOps<GlobalOp>())
      before[global.getSymName()] = global;
  }

  void declare(const FileTensor &tensor, int64_t offset);
  void load(const WeightUse &use) const;
  void load(const FloatConstant &constant) const;
  /// Erases what nothing reads any more.
  void eraseOthers();

private:
  GlobalOp declareFloat(const FloatConstant &constant, StringRef name);
  GlobalOp declareGlobal(GlobalOp old, StringRef name, RankedTensorType type);

  const TargetWeights &target;
  ModuleOp module;
  Builder attributes;
  llvm::StringMap<GlobalOp> before;
  std::map<std::pair<const ConstantWeight *, WeightTensor>, GlobalOp> packed;
  llvm::DenseMap<const FloatConstant *, GlobalOp> floats;
  llvm::SmallPtrSet<Operation *, 16> kept;
};

} // namespace

/// In the place of what it is made of.
GlobalOp WeightGlobals::declareGlobal(GlobalOp old, StringRef name, RankedTensorType type) {
  OpBuilder place(old);
  auto global = GlobalOp::create(place, old.getLoc(), name, type, /*is_mutable=*/false,
                                 ml_program::ExternAttr::get(module.getContext(), type),
                                 attributes.getStringAttr("private"));
  kept.insert(global);
  return global;
}

/// One global for all forms of a constant.
GlobalOp WeightGlobals::declareFloat(const FloatConstant &constant, StringRef name) {
  GlobalOp &known = floats[&constant];
  if (known)
    return known;
  GlobalOp old = before.lookup(constant.parts.front().global);
  bool isSame = name == old.getSymName() && constant.type == old.getType();
  known = isSame ? old : declareGlobal(old, name, constant.type);
  known->removeAttr(kFileAttr);
  known->removeAttr(kStampAttr);
  kept.insert(known);
  return known;
}

void WeightGlobals::declare(const FileTensor &tensor, int64_t offset) {
  GlobalOp global;
  if (const ConstantWeight *weight = tensor.weight) {
    // Without what the file pads it with.
    RankedTensorType type =
        layoutFor(*weight, target.target)
            .getPackedType(tensor.part, weight->scheme, weight->rows, weight->columns);
    global = declareGlobal(before.lookup(weight->parts.front().weight.global), tensor.name, type);
    packed[{weight, tensor.part}] = global;
  } else {
    StringRef name = tensor.name;
    if (tensor.kind == Kind::BF16)
      name.consume_back("_bf16");
    global = declareFloat(*tensor.constant, name);
  }
  global->setAttr(tensor.kind == Kind::BF16 ? kBF16OffsetAttr : kOffsetAttr,
                  attributes.getI64IntegerAttr(offset));
}

void WeightGlobals::load(const WeightUse &use) const {
  OpBuilder builder(use.op);
  auto load = [&](WeightTensor part) {
    return loadGlobal(builder, use.op->getLoc(), packed.at({use.weight, part}));
  };
  auto replace = [&](auto op) {
    op.getCodesMutable().assign(load(WeightTensor::Codes));
    op.getScaleMutable().assign(load(WeightTensor::Scales));
    if (op.getZeroPoint())
      op.getZeroPointMutable().assign(load(WeightTensor::ZeroPoints));
    if (op.getOuter())
      op.getOuterMutable().assign(load(WeightTensor::Outer));
    if (op.getWeightScheme().getCodebook())
      op.getCodebookMutable().assign(load(WeightTensor::Codebook));
    op.setLayoutAttr(layoutFor(*use.weight, target.target));
  };
  if (auto embedding = dyn_cast<equant::EmbeddingOp>(use.op))
    return replace(embedding);
  auto linear = cast<equant::LinearOp>(use.op);
  replace(linear);
  if (needsSums(linear))
    linear.getCodeSumsMutable().assign(load(WeightTensor::Sums));
}

void WeightGlobals::load(const FloatConstant &constant) const {
  GlobalOp global = floats.lookup(&constant);
  for (OpOperand *reader : constant.readers) {
    auto load = reader->get().getDefiningOp<GlobalLoadConstOp>();
    if (load && load.getGlobal().getLeafReference() == global.getSymName())
      continue;
    OpBuilder builder(reader->getOwner());
    reader->set(loadGlobal(builder, reader->getOwner()->getLoc(), global));
  }
}

void WeightGlobals::eraseOthers() {
  // What made the weights is dead now, uses before definitions.
  module.walk<WalkOrder::PostOrder, ReverseIterator>([](Operation *op) {
    if (isa<ConcatOp, QuantizeOp, ChooseQParamsOp, OuterScaleOp, ScaleOp, tensor::ExtractSliceOp,
            shard::AllSliceOp, GlobalLoadConstOp>(op) &&
        isOpTriviallyDead(op))
      op->erase();
  });
  for (GlobalOp global : llvm::make_early_inc_range(module.getOps<GlobalOp>()))
    if (isa_and_nonnull<ml_program::ExternAttr>(global.getValueAttr()) && !kept.contains(global))
      global.erase();
}

void easyquant::equant::readFromFile(TargetWeights &target) {
  WeightGlobals globals(target);
  for (auto [tensor, offset] : llvm::zip_equal(target.tensors, target.offsets))
    globals.declare(tensor, offset);
  for (const WeightUse &use : target.weights.uses())
    globals.load(use);
  for (const FloatConstant &constant : target.weights.floats())
    globals.load(constant);
  globals.eraseOthers();
  Builder attributes(target.module.getContext());
  target.module->setAttr(kWeightsBytesAttr, attributes.getI64IntegerAttr(target.bytes));
  target.module->removeAttr(kWorkAttr);
}
