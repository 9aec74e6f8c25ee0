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

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalLoadConstOp;
using ml_program::GlobalOp;
using Kind = FileTensor::Kind;

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
  void load(WeightUse &use) const;
  void load(const FloatConstant &constant) const;
  /// Erases what nothing reads any more.
  void eraseOthers();

private:
  GlobalOp declareFloat(const FloatConstant &constant, StringRef name, formats::DType stored);
  GlobalOp declareGlobal(GlobalOp old, StringRef name, Type type);

  const TargetWeights &target;
  ModuleOp module;
  Builder attributes;
  llvm::StringMap<GlobalOp> before;
  llvm::DenseMap<const ConstantWeight *, GlobalOp> packed;
  llvm::DenseMap<const FloatConstant *, GlobalOp> floats;
  llvm::SmallPtrSet<Operation *, 16> kept;
};

} // namespace

/// In the place of what it is made of.
GlobalOp WeightGlobals::declareGlobal(GlobalOp old, StringRef name, Type type) {
  OpBuilder place(old);
  auto global = GlobalOp::create(place, old.getLoc(), name, type, /*is_mutable=*/false,
                                 ml_program::ExternAttr::get(module.getContext(), type),
                                 attributes.getStringAttr("private"));
  kept.insert(global);
  return global;
}

/// One global for all forms of a constant.
GlobalOp WeightGlobals::declareFloat(const FloatConstant &constant, StringRef name,
                                     formats::DType stored) {
  GlobalOp &known = floats[&constant];
  if (known)
    return known;
  GlobalOp old = before.lookup(constant.parts.front().global);
  RankedTensorType type = constant.type;
  if (stored == formats::DType::F16)
    type = type.clone(attributes.getF16Type());
  else if (stored == formats::DType::BF16)
    type = type.clone(attributes.getBF16Type());
  bool isSame = name == old.getSymName() && type == old.getType();
  known = isSame ? old : declareGlobal(old, name, type);
  known->removeAttr(kFileAttr);
  known->removeAttr(kStampAttr);
  known->removeAttr(kStoredAttr);
  known->removeAttr(lm::kFileTypeAttr);
  kept.insert(known);
  return known;
}

void WeightGlobals::declare(const FileTensor &tensor, int64_t offset) {
  if (const ConstantWeight *weight = tensor.weight) {
    GlobalOp &global = packed[weight];
    if (!global)
      global = declareGlobal(before.lookup(weight->parts.front().weight.global), tensor.name,
                             packedType(*weight, target.form));
    // The parts of a weight come one behind the other, in the order of its type.
    SmallVector<int64_t> offsets;
    if (auto known = global->getAttrOfType<DenseI64ArrayAttr>(kOffsetAttr))
      llvm::append_range(offsets, known.asArrayRef());
    offsets.push_back(offset);
    global->setAttr(kOffsetAttr, attributes.getDenseI64ArrayAttr(offsets));
    return;
  }
  StringRef name = tensor.name;
  // Fragments of bf16 stand beside, or in the place of, what the model has.
  const bool isFragments = tensor.kind == Kind::BF16;
  if (isFragments)
    name.consume_back("_bf16");
  declareFloat(*tensor.constant, name, isFragments ? formats::DType::F32 : tensor.dtype)
      ->setAttr(isFragments ? kBF16OffsetAttr : kOffsetAttr, attributes.getI64IntegerAttr(offset));
}

/// A linear becomes a packed one, which is who uses the weight from then on.
void WeightGlobals::load(WeightUse &use) const {
  OpBuilder builder(use.op);
  Value weight = loadGlobal(builder, use.op->getLoc(), packed.at(use.weight));
  if (auto embedding = dyn_cast<equant::EmbeddingOp>(use.op)) {
    embedding.getTableMutable().assign(weight);
    return;
  }
  auto linear = cast<equant::LinearOp>(use.op);
  auto reader = PackedLinearOp::create(
      builder, linear.getLoc(), linear.getType(), linear.getInput(), weight, linear.getBias(),
      linear.getOnline(), linear.getExperts(), linear.getSites(), linear.getInputSchemeAttr(),
      linear.getInputScaleAttr(), linear.getInputZeroPointAttr());
  linear.replaceAllUsesWith(reader.getOutput());
  linear.erase();
  use.op = reader;
}

void WeightGlobals::load(const FloatConstant &constant) const {
  GlobalOp global = floats.lookup(&constant);
  for (OpOperand *reader : constant.readers) {
    auto load = reader->get().getDefiningOp<GlobalLoadConstOp>();
    if (load && load.getGlobal().getLeafReference() == global.getSymName() &&
        load.getType() == global.getType())
      continue;
    OpBuilder builder(reader->getOwner());
    reader->set(loadGlobal(builder, reader->getOwner()->getLoc(), global));
  }
}

void WeightGlobals::eraseOthers() {
  // What made the weights is dead now, uses before definitions.
  module.walk<WalkOrder::PostOrder, ReverseIterator>([](Operation *op) {
    if (isa<ConcatOp, QuantizeOp, FromCodesOp, SliceOp, AllSliceOp, FirstRankOp, ScaleOp,
            HadamardOp, tensor::ExtractSliceOp, shard::AllSliceOp, GlobalLoadConstOp>(op) &&
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
  // First what points to operands of linears, which are replaced then.
  for (const FloatConstant &constant : target.weights.floats())
    globals.load(constant);
  for (WeightUse &use : target.weights.uses())
    globals.load(use);
  globals.eraseOthers();
  Builder attributes(target.module.getContext());
  target.module->setAttr(kWeightsBytesAttr, attributes.getI64IntegerAttr(target.bytes));
  target.module->removeAttr(kWorkAttr);
}
