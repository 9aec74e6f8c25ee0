//===- Memory.cpp - What launches read and write --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Launch/Analysis/Memory.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::launch;

SmallVector<Access> easyquant::launch::accessesOf(Operation *op) {
  SmallVector<Access> accesses;
  auto kernel = dyn_cast<KernelOp>(op);
  auto collect = [&](auto launch) {
    for (auto [i, operand] : llvm::enumerate(launch.getArguments()))
      if (isa<MemRefType>(operand.getType()))
        accesses.push_back({operand, launch.isWritten(i), kernel && kernel.isShared(i)});
  };
  llvm::TypeSwitch<Operation *>(op).Case<KernelOp, HostOp>(collect).Case<CollectiveOp, WaitOp>(
      [&](auto launch) {
        accesses.push_back(
            {launch.getMemory(), /*isWrite=*/true, /*isShare=*/false, /*isFirst=*/true});
      });
  return accesses;
}

/// What `memory` is a part of, null if it is no part.
static Value wholeOf(Value memory) {
  Operation *op = memory.getDefiningOp();
  if (isa_and_present<memref::SubViewOp, memref::ReinterpretCastOp, memref::CastOp, CacheOp>(op))
    return op->getOperand(0);
  return nullptr;
}

Value easyquant::launch::rootOf(Value memory) {
  while (Value whole = wholeOf(memory))
    memory = whole;
  return memory;
}

int64_t easyquant::launch::bufferBytes(BufferOp buffer) {
  auto step = buffer->getParentOfType<func::FuncOp>();
  int64_t rows = step->getAttrOfType<IntegerAttr>(kMaxRowsAttr).getInt() *
                 static_cast<int64_t>(buffer.getMultiple());
  int64_t bytes = rowBytes(cast<MemRefType>(buffer.getMemory().getType()));
  return bytes > kMaxBytes / rows ? kMaxBytes + kAlignment : alignUp(rows * bytes);
}

/// The columns of its root that a part of rows covers, if these are known.
static std::optional<std::pair<int64_t, int64_t>> columnsOf(Value memory) {
  auto type = cast<MemRefType>(memory.getType());
  int64_t first = 0, count = type.getRank() == 2 ? type.getDimSize(1) : ShapedType::kDynamic;
  while (auto part = memory.getDefiningOp<memref::SubViewOp>()) {
    if (part.getStaticOffsets().size() != 2 || part.isDynamicOffset(1))
      return std::nullopt;
    first += part.getStaticOffset(1);
    memory = part.getSource();
  }
  if (wholeOf(memory) || ShapedType::isDynamic(count))
    return std::nullopt;
  return std::pair(first, first + count);
}

static bool overlap(Value a, Value b) {
  Value rootA = rootOf(a), rootB = rootOf(b);
  if (rootA == rootB) {
    auto columnsA = columnsOf(a), columnsB = columnsOf(b);
    return !columnsA || !columnsB ||
           (columnsA->first < columnsB->second && columnsB->first < columnsA->second);
  }
  Operation *definingA = rootA.getDefiningOp(), *definingB = rootB.getDefiningOp();
  if (!definingA || !definingB || definingA->getName() != definingB->getName())
    return false;
  if (isa<ScratchOp, CountersOp, PartialsOp, PartialCountersOp>(definingA))
    return true;
  auto bufferA = dyn_cast<BufferOp>(definingA), bufferB = dyn_cast<BufferOp>(definingB);
  if (!bufferA || !bufferA.getOffset() || !bufferB.getOffset())
    return false;
  auto beginA = static_cast<int64_t>(*bufferA.getOffset());
  auto beginB = static_cast<int64_t>(*bufferB.getOffset());
  return beginA < beginB + bufferBytes(bufferB) && beginB < beginA + bufferBytes(bufferA);
}

bool easyquant::launch::dependsOn(Operation *b, Operation *a) {
  for (const Access &later : accessesOf(b))
    for (const Access &earlier : accessesOf(a))
      if ((later.isWrite || earlier.isWrite) && overlap(later.memory, earlier.memory))
        return true;
  return false;
}

//===----------------------------------------------------------------------===//
// Threads of a team
//===----------------------------------------------------------------------===//

/// Where the rows begin that `memory` is of its root: null for all.
static Value firstRowOf(Value memory) {
  while (Value whole = wholeOf(memory)) {
    auto part = memory.getDefiningOp<memref::SubViewOp>();
    if (part && part.isDynamicOffset(0))
      return part.getDynamicOffset(0);
    memory = whole;
  }
  return nullptr;
}

/// Is what two accesses share out among threads shared out alike?
static bool haveSameShares(const Access &a, const Access &b) {
  if (a.isFirst || b.isFirst)
    return a.isFirst && b.isFirst;
  if (!a.isShare || !b.isShare)
    return false;
  Value rootA = rootOf(a.memory), rootB = rootOf(b.memory);
  if (auto scratchA = rootA.getDefiningOp<ScratchOp>(), scratchB = rootB.getDefiningOp<ScratchOp>();
      scratchA && scratchB)
    return scratchA.getBytes() == scratchB.getBytes();
  return rootA == rootB && firstRowOf(a.memory) == firstRowOf(b.memory);
}

bool Pending::mustMeet(Operation *op) const {
  auto kernel = dyn_cast<KernelOp>(op);
  for (const Access &later : accessesOf(op)) {
    if (kernel && kernel.getMeets() && !later.isShare)
      continue; // behind its own barrier
    for (const Access &earlier : accesses)
      if ((later.isWrite || earlier.isWrite) && !haveSameShares(later, earlier) &&
          overlap(later.memory, earlier.memory))
        return true;
  }
  return false;
}

void Pending::add(Operation *op) {
  auto kernel = dyn_cast<KernelOp>(op);
  bool meets = kernel && kernel.getMeets();
  if (meets)
    clear();
  for (const Access &access : accessesOf(op))
    if (!meets || !access.isShare || access.isWrite)
      accesses.push_back({access.memory, access.isWrite, access.isShare && !meets, access.isFirst});
}
