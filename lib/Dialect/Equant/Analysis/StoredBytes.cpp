//===- StoredBytes.cpp - What weights take in an artifact -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/StoredBytes.h"

#include "easyquant/Dialect/LM/Analysis/WhyF32.h"
#include "easyquant/Formats/SafetensorsWriter.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalLoadConstOp;

int64_t easyquant::equant::storedBytes(Operation *reader, RankedTensorType weight,
                                       SchemeAttr scheme, SchemeAttr input,
                                       const targets::Family &family) {
  if (!scheme) {
    const bool isBF16 = family.file.bf16Floats && lm::whyF32(reader).empty();
    return weight.getNumElements() * static_cast<int64_t>(isBF16 ? 2 : 4);
  }
  const int64_t rows = weight.getDimSize(0), columns = weight.getDimSize(1);
  LayoutAttr layout = family.layoutFor(scheme, targets::Readers::of(scheme, input));
  // A weight that the layout cannot hold is refused later, with a reason.
  if (!layout.getPacker(scheme, rows, columns))
    return WeightType::get(rows, columns, scheme).getStoredBytes();
  return WeightType::get(rows, columns, scheme, layout, /*sums=*/input && input.readsWeightSums())
      .getStoredBytes();
}

/// The load that a constant expression, such as equant.scale of a weight, leads to; or null.
static GlobalLoadConstOp loadBehind(Value constant) {
  Operation *op = constant.getDefiningOp();
  while (op && !isa<GlobalLoadConstOp>(op))
    op = op->getNumOperands() ? op->getOperand(0).getDefiningOp() : nullptr;
  return dyn_cast_or_null<GlobalLoadConstOp>(op);
}

int64_t easyquant::equant::floatBytes(GlobalLoadConstOp load) {
  const bool isTable = llvm::all_of(load->getUsers(), llvm::IsaPred<lm::EmbeddingOp>);
  Operation *global = SymbolTable::lookupNearestSymbolFrom(load, load.getGlobalAttr());
  return isTable && global && global->hasAttr(lm::kFileTypeAttr) ? sizeof(uint16_t) : sizeof(float);
}

int64_t easyquant::equant::otherBytes(ModuleOp module, Holder holder) {
  llvm::DenseSet<Attribute> counted; // globals
  module.walk([&](QuantizableOpInterface op) {
    if (GlobalLoadConstOp load = loadBehind(op.getWeightOperand().get()))
      counted.insert(load.getGlobalAttr());
  });
  module.walk([&](lm::EmbeddingOp op) {
    GlobalLoadConstOp load = loadBehind(op.getTable());
    if (load && getPlan(op))
      counted.insert(load.getGlobalAttr());
  });
  SymbolTable symbols(module);
  int64_t bytes = 0;
  module.walk([&](GlobalLoadConstOp load) {
    Value stored = load;
    // Positions beyond the context are not stored.
    if (load->hasOneUse() && isa<tensor::ExtractSliceOp>(*load->user_begin()))
      stored = load->user_begin()->getResult(0);
    auto type = dyn_cast<RankedTensorType>(stored.getType());
    Operation *global = symbols.lookup(load.getGlobal().getLeafReference());
    // What a method computed, or the source has, is a part of what it scales.
    const bool isLeftOut =
        global && (global->hasAttr(kFileAttr) || global->hasAttr(kStoredAttr) ||
                   (holder == Holder::Checkpoint && global->hasAttr(lm::kRopeTableAttr)));
    if (type && type.hasStaticShape() && !isLeftOut && counted.insert(load.getGlobalAttr()).second)
      bytes += type.getNumElements() *
               (holder == Holder::Artifact ? floatBytes(load) : int64_t(sizeof(float)));
  });
  return bytes;
}

int64_t easyquant::equant::headerBytes(ModuleOp module) {
  // The text of an entry beside the name: type, shape and offsets, and what the name ends with.
  constexpr int64_t kEntry = 144;
  // Codes, scales, zero points, and a table, an outer scale or sums.
  constexpr int64_t kTensorsOfWeight = 4;
  llvm::DenseMap<Attribute, int64_t> tensors; // of globals
  module.walk([&](GlobalLoadConstOp load) { tensors[load.getGlobalAttr()] = 1; });
  module.walk([&](QuantizableOpInterface op) {
    if (GlobalLoadConstOp load = loadBehind(op.getWeightOperand().get()); load && getPlan(op))
      tensors[load.getGlobalAttr()] = kTensorsOfWeight;
  });
  module.walk([&](lm::EmbeddingOp op) {
    if (GlobalLoadConstOp load = loadBehind(op.getTable()); load && getPlan(op))
      tensors[load.getGlobalAttr()] = kTensorsOfWeight;
  });
  int64_t bytes = formats::SafetensorsWriter::kDataAlignment;
  for (auto [global, count] : tensors)
    bytes += count * (kEntry + std::ssize(cast<SymbolRefAttr>(global).getLeafReference().strref()));
  return bytes;
}
