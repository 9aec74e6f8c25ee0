//===- WeightGlobals.cpp - Globals of the artifact's tensors --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/WeightGlobals.h"

#include "easyquant/Weights/GPUWeights.h"

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
  explicit WeightGlobals(ModuleOp module) : module(module), attributes(module.getContext()) {
    for (GlobalOp global : module.getOps<GlobalOp>())
      before[global.getSymName()] = global;
  }

  void declare(const FileTensor &tensor);
  void setPlaces(ArrayRef<FileTensor> tensors, WeightFiles files, const WrittenWeights &written);
  void load(const WeightUse &use) const;
  void load(const FloatConstant &constant) const;
  /// Erases what nothing reads any more.
  void eraseOthers();

private:
  GlobalOp globalOf(const FileTensor &tensor) const {
    return tensor.weight ? packed.at({tensor.weight, tensor.part}) : floats.lookup(tensor.constant);
  }

  ModuleOp module;
  Builder attributes;
  llvm::StringMap<GlobalOp> before;
  std::map<std::pair<const ConstantWeight *, WeightTensor>, GlobalOp> packed;
  llvm::DenseMap<const FloatConstant *, GlobalOp> floats;
  llvm::SmallPtrSet<Operation *, 16> kept;
};

} // namespace

/// The type of a packed tensor in the IR: without what the file pads it with.
static RankedTensorType packedType(const FileTensor &tensor) {
  const ConstantWeight &weight = *tensor.weight;
  const SchemeAttr scheme = weight.scheme;
  const int64_t groups = scheme.getScaleShape({weight.rows, weight.columns})[1];
  switch (tensor.part) {
  case WeightTensor::Codes:
    return weight.layout.getPackedCodesType(weight.rows, weight.columns, scheme.getBits());
  case WeightTensor::Scales:
    return weight.layout.getPackedScalesType(weight.rows, groups, scheme.getScale());
  case WeightTensor::ZeroPoints:
    return weight.layout.getPackedZeroPointsType(weight.rows, groups, scheme.getBits());
  case WeightTensor::Sums:
    return weight.layout.getPackedSumsType(weight.rows, groups);
  case WeightTensor::Outer:
    break;
  }
  llvm_unreachable("no global stands for it");
}

void WeightGlobals::declare(const FileTensor &tensor) {
  if (tensor.kind == Kind::Halves) // another form of a tensor that has a global
    return;
  GlobalOp old = before.lookup(tensor.weight ? tensor.weight->parts.front().weight.global
                                             : tensor.constant->parts.front().global);
  RankedTensorType type = tensor.weight
                              ? packedType(tensor)
                              : RankedTensorType::get(tensor.shape, attributes.getF32Type());
  GlobalOp global = old;
  if (tensor.weight || tensor.name != old.getSymName() || type != old.getType()) {
    OpBuilder place(old);
    global = GlobalOp::create(place, old.getLoc(), tensor.name, type, /*is_mutable=*/false,
                              ml_program::ExternAttr::get(module.getContext(), type),
                              attributes.getStringAttr("private"));
  }
  global->removeAttr(kFileAttr);
  global->removeAttr(kStampAttr);
  if (tensor.weight)
    packed[{tensor.weight, tensor.part}] = global;
  else
    floats[tensor.constant] = global;
  kept.insert(global);
}

void WeightGlobals::setPlaces(ArrayRef<FileTensor> tensors, WeightFiles files,
                              const WrittenWeights &written) {
  for (auto [index, tensor] : llvm::enumerate(tensors)) {
    GlobalOp global = globalOf(tensor);
    auto set = [&](StringRef attribute, int64_t offset) {
      global->setAttr(attribute, attributes.getI64IntegerAttr(offset));
    };
    if (tensor.kind == Kind::Halves) {
      set(kGPUHalvesAttr, written.gpuOffsets[index]);
      continue;
    }
    if (files.cpu)
      set(kOffsetAttr, written.offsets[index]);
    if (files.gpu && tensor.isIn(/*gpu=*/true))
      set(kGPUOffsetAttr, written.gpuOffsets[index]);
    if (files.gpu && tensor.weight && tensor.part == WeightTensor::Codes) {
      bool halves = fragmentOrderOf(*tensor.weight) == numerics::FragmentOrder::Halves;
      global->setAttr(kGPUOrderAttr, attributes.getStringAttr(halves ? "halves" : "bytes"));
    }
  }
  if (files.gpu)
    module->setAttr(kGPUBytesAttr, attributes.getI64IntegerAttr(written.gpuBytes));
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
    if (isa<PackOp, PackScalesOp, ConcatOp, QuantizeOp, ChooseQParamsOp, ScaleOp,
            GlobalLoadConstOp>(op) &&
        isOpTriviallyDead(op))
      op->erase();
  });
  for (GlobalOp global : llvm::make_early_inc_range(module.getOps<GlobalOp>()))
    if (isa_and_nonnull<ml_program::ExternAttr>(global.getValueAttr()) && !kept.contains(global))
      global.erase();
}

void easyquant::equant::readFromFiles(ModuleOp module, const ModelWeights &weights,
                                      ArrayRef<FileTensor> tensors, WeightFiles files,
                                      const WrittenWeights &written) {
  WeightGlobals globals(module);
  for (const FileTensor &tensor : tensors)
    globals.declare(tensor);
  globals.setPlaces(tensors, files, written);
  for (const WeightUse &use : weights.uses())
    globals.load(use);
  for (const FloatConstant &constant : weights.floats())
    globals.load(constant);
  globals.eraseOthers();
}
