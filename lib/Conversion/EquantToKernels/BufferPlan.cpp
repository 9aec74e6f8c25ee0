//===- BufferPlan.cpp - Where activations live ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/EquantToKernels/BufferPlan.h"

#include "easyquant/Codegen/CPU/Kernels.h"
#include "easyquant/Dialect/LM/Analysis/Calls.h"
#include "easyquant/Dialect/LM/IR/LM.h"

using namespace mlir;

namespace easyquant {

bool isActivationType(Type valueType) {
  auto type = dyn_cast<RankedTensorType>(valueType);
  return type && type.getRank() == 2 && type.isDynamicDim(0) && type.getElementType().isF32();
}

static bool isActivation(Value value) { return isActivationType(value.getType()); }

static int64_t columnsOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getDimSize(1);
}

CodesKind CodesKind::of(equant::LinearOp linear) {
  return {static_cast<int64_t>(linear.getWeightScheme().getGroupSize()),
          linear.getInputSchemeAttr(), linear.getInputScaleAttr(), linear.getInputZeroPointAttr()};
}

ArrayAttr CodesKind::key() const {
  if (halves)
    return ArrayAttr::get(halves.getContext(), halves);
  Builder b(scheme.getContext());
  SmallVector<Attribute> parts = {b.getI64IntegerAttr(groupSize), scheme};
  if (scale)
    parts.push_back(scale);
  if (zeroPoint)
    parts.push_back(zeroPoint);
  return b.getArrayAttr(parts);
}

std::optional<CodesKind> quantizedUse(OpOperand &use, const BufferRules &rules) {
  auto linear = dyn_cast<equant::LinearOp>(use.getOwner());
  if (linear && linear.getInputScheme())
    return CodesKind::of(linear);
  if (!rules.gpu || !(linear || isa<lm::LinearOp>(use.getOwner())))
    return std::nullopt;
  CodesKind kind;
  kind.halves = UnitAttr::get(use.getOwner()->getContext());
  return kind;
}

QuantizedBytes quantizedBytes(int64_t columns, const CodesKind &kind, int64_t rows,
                              const BufferRules &rules) {
  int64_t padded = llvm::alignTo(columns, rules.codeColumns);
  if (kind.isHalves())
    return {alignBuffer(rows * padded * 2), 0, 0, 0};
  return {alignBuffer(rows * padded), alignBuffer(rows * 4),
          alignBuffer(rows * 4 * cpu::groupCount(columns, kind.groupSize)),
          kind.hasZeroPoints() ? alignBuffer(rows * 4) : 0};
}

Value BufferPlan::storageOf(Value value) const {
  for (auto it = storage.find(value); it != storage.end(); it = storage.find(value))
    value = it->second;
  return value;
}

std::optional<int64_t> BufferPlan::offsetOf(Value value) const {
  auto it = floats.find(value);
  return it == floats.end() ? std::nullopt : std::optional(it->second.offset);
}

/// Decides which results live in the memory of an operand.
void BufferPlan::shareMemory(Block &block) {
  // A layer may overwrite its argument; that of a function which is called from outside is its
  // caller's.
  bool isPublic = cast<func::FuncOp>(block.getParentOp()).isPublic();
  auto isForeign = [&](Value value) { return isPublic && isa<BlockArgument>(storageOf(value)); };
  // True if an op from `from` on, but for `except`, reads the memory of `root`.
  auto isReadFrom = [&](Value root, int from, Operation *except) {
    return llvm::any_of(block, [&](Operation &op) {
      return position.lookup(&op) >= from && &op != except &&
             llvm::any_of(op.getOperands(), [&](Value v) { return storageOf(v) == root; });
    });
  };
  for (Operation &op : block) {
    // Views.
    if (isa<lm::SplitOp, lm::RowsOp>(op)) {
      for (Value result : op.getResults())
        storage[result] = op.getOperand(0);
      continue;
    }
    // Updates in place, where nobody else sees the operand. A layer function updates its argument.
    if (isa<lm::RopeOp, lm::RopeGradientOp, lm::HeadRmsNormOp, lm::PositionEmbeddingOp,
            func::CallOp>(op)) {
      auto operand = llvm::find_if(op.getOperands(), isActivation);
      Operation *split = (*operand).getDefiningOp<lm::SplitOp>();
      if (!isForeign(*operand) && (*operand).hasOneUse() &&
          (!split || split->getOperand(0).hasOneUse()))
        storage[op.getResult(0)] = *operand;
      continue;
    }
    // x + linear(...): the linear adds into x, if x is not read from the linear on.
    auto add = dyn_cast<lm::AddOp>(op);
    if (!add)
      continue;
    for (auto [term, stream] :
         {std::pair(add.getRhs(), add.getLhs()), std::pair(add.getLhs(), add.getRhs())}) {
      Operation *linear = term.getDefiningOp();
      if (!isa_and_present<lm::LinearOp, equant::LinearOp>(linear) || !term.hasOneUse())
        continue;
      Operation *producer = stream.getDefiningOp();
      int at = position.lookup(linear);
      if (isForeign(stream) || (producer && position.lookup(producer) > at) ||
          isReadFrom(storageOf(stream), at, add))
        continue;
      accumulating[linear] = add;
      storage[term] = stream;
      storage[add.getOutput()] = stream;
      break;
    }
  }
}

/// Finds the size and lifetime of every buffer.
void BufferPlan::measure(Block &block, int64_t maxRows) {
  auto touch = [](Buffer &buffer, int at) {
    buffer.first = std::min(buffer.first, at);
    buffer.last = std::max(buffer.last, at);
  };
  bool isPublic = cast<func::FuncOp>(block.getParentOp()).isPublic();
  auto isReturned = [&](Value value) {
    return rules.gpu && isPublic && llvm::is_contained(block.getTerminator()->getOperands(), value);
  };
  for (Operation &op : block) {
    int at = position.lookup(&op);
    for (Value result : op.getResults()) {
      if (!isActivation(result) || isReturned(result))
        continue;
      // What only linears read, and all as the same codes, need not exist in float if its producer
      // can quantize.
      ArrayAttr key;
      bool isRowOp = isa<lm::RmsNormOp, lm::LayerNormOp, lm::SiluMulOp, lm::GeluOp>(op);
      bool onlyCodes =
          !result.use_empty() && (isRowOp || isa<lm::AttentionOp, equant::AttentionOp>(op));
      for (OpOperand &use : result.getUses()) {
        std::optional<CodesKind> kind = quantizedUse(use, rules);
        onlyCodes &= kind && (isRowOp || kind->isHalves()) && (!key || key == kind->key());
        key = kind ? kind->key() : nullptr;
      }
      if (onlyCodes)
        quantizedOnly.insert(result);
      else if (storageOf(result) == result)
        floats[result] = {alignBuffer(maxRows * columnsOf(result) * 4), at, at};
    }
    for (OpOperand &use : op.getOpOperands()) {
      if (!isActivation(use.get()))
        continue;
      if (auto kind = quantizedUse(use, rules)) {
        QuantizedValue key(use.get(), kind->key());
        Operation *producer = use.get().getDefiningOp();
        int first = isQuantizedOnly(use.get()) ? position.lookup(producer) : at;
        auto [it, isNew] = quantized.insert(
            {key,
             {quantizedBytes(columnsOf(use.get()), *kind, maxRows, rules).total(), first, first}});
        touch(it->second, at);
      }
      if (auto it = floats.find(storageOf(use.get())); it != floats.end())
        touch(it->second, at);
    }
  }
}

/// Gives each buffer the lowest offset that no buffer alive at the same time covers.
int64_t BufferPlan::place(int64_t base) {
  SmallVector<Buffer *> buffers;
  for (auto &[value, buffer] : floats)
    buffers.push_back(&buffer);
  for (auto &[value, buffer] : quantized)
    buffers.push_back(&buffer);
  llvm::sort(buffers, [](Buffer *a, Buffer *b) { return a->first < b->first; });

  endOffset = base;
  SmallVector<Buffer *> placed; // by offset
  for (Buffer *buffer : buffers) {
    int64_t offset = base;
    for (Buffer *other : placed) {
      bool alive = other->first <= buffer->last && buffer->first <= other->last;
      if (alive && offset < other->offset + other->bytes && other->offset < offset + buffer->bytes)
        offset = other->offset + other->bytes;
    }
    buffer->offset = offset;
    endOffset = std::max(endOffset, offset + buffer->bytes);
    if (endOffset > kMaxPlannedBytes) // and far from overflow: no buffer is much larger
      return endOffset;
    placed.insert(llvm::upper_bound(placed, buffer,
                                    [](Buffer *a, Buffer *b) { return a->offset < b->offset; }),
                  buffer);
  }
  return endOffset;
}

FailureOr<BufferPlan> BufferPlan::create(func::FuncOp function, int64_t maxRows, int64_t base,
                                         BufferRules rules) {
  if (!llvm::hasSingleElement(function.getBody()))
    return function.emitOpError("expected a body of one block: layers are straight-line programs");
  BufferPlan plan(rules);
  Block &block = function.getBody().front();
  for (auto [index, op] : llvm::enumerate(block)) {
    plan.position[&op] = index;
    // Ops of our dialects keep the limit by themselves.
    for (Type type : op.getResultTypes())
      if (isActivationType(type) && cast<RankedTensorType>(type).getDimSize(1) > lm::kMaxExtent)
        return op.emitOpError("takes dimensions of at most ")
               << lm::kMaxExtent << ", found " << type;
  }
  plan.shareMemory(block);
  plan.measure(block, maxRows);
  if (plan.place(base) > kMaxPlannedBytes)
    return function.emitOpError("needs more than the ")
           << kMaxPlannedBytes << " bytes of buffers that can be addressed, for calls of up to "
           << maxRows << " tokens; lower max-rows";
  return plan;
}

LogicalResult verifyCacheBytes(Operation *op, int64_t layers, int64_t pageBytes,
                               int64_t windowBytes) {
  if (pageBytes <= kMaxPlannedBytes / layers && windowBytes <= kMaxPlannedBytes / layers)
    return success();
  return op->emitOpError("needs a cache with pages of ")
         << pageBytes << " bytes a layer and a window of " << windowBytes << ", for " << layers
         << " layers; at most " << kMaxPlannedBytes << " can be addressed";
}

/// One activation in, and one of its type out.
static bool isLayer(FunctionType type) {
  return type.getNumResults() == 1 && llvm::count_if(type.getInputs(), isActivationType) == 1 &&
         type.getResult(0) == *llvm::find_if(type.getInputs(), isActivationType);
}

FailureOr<ModelPlan> ModelPlan::create(ModuleOp module, func::FuncOp forward, int64_t maxRows,
                                       BufferRules rules) {
  if (maxRows < 1 || maxRows > kMaxRows)
    return module.emitError() << "max-rows is " << maxRows << "; expected 1 to " << kMaxRows;
  if (failed(lm::verifyCalls(module)))
    return failure();
  auto entry = BufferPlan::create(forward, maxRows, 0, rules);
  if (failed(entry))
    return failure();
  ModelPlan plan;
  const int64_t base = plan.arenaBytes = entry->end();
  for (auto function : module.getOps<func::FuncOp>()) {
    if (llvm::count_if(function.getArgumentTypes(), llvm::IsaPred<lm::KVCacheType>) > 1)
      return function.emitOpError("takes several caches; expected one for all layers");
    if (function == forward) {
      plan.functions.insert({function, std::move(*entry)});
      continue;
    }
    if (!isLayer(function.getFunctionType()))
      return function.emitOpError("expected a layer: one activation in, and one of its type out");
    auto layer = BufferPlan::create(function, maxRows, base, rules);
    if (failed(layer))
      return failure();
    auto nested = function.getOps<func::CallOp>();
    if (!nested.empty())
      return (*nested.begin()).emitOpError("expected calls in @")
             << forward.getSymName() << " only";
    plan.arenaBytes = std::max(plan.arenaBytes, layer->end());
    plan.functions.insert({function, std::move(*layer)});
  }
  return plan;
}

} // namespace easyquant
