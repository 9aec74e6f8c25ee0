//===- PlaceBuffers.cpp - Where activations live --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Launch/Analysis/Memory.h"
#include "easyquant/Dialect/Launch/Transforms/Passes.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

namespace easyquant::launch {
#define GEN_PASS_DEF_PLACEBUFFERS
#include "easyquant/Dialect/Launch/Transforms/Passes.h.inc"
} // namespace easyquant::launch

using namespace mlir;
using namespace easyquant::launch;

namespace {

struct Lifetime {
  int64_t bytes = 0;
  int first = 0, last = 0; ///< numbers of launches
  int64_t offset = 0;
};

struct PlaceBuffers : easyquant::launch::impl::PlaceBuffersBase<PlaceBuffers> {
  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!step->hasAttr(kMaxRowsAttr))
      return;
    llvm::MapVector<Operation *, Lifetime> buffers;
    int64_t scratchBytes = 0, counterBytes = 0;
    for (auto [index, op] : llvm::enumerate(step.front())) {
      if (auto scratch = dyn_cast<ScratchOp>(op))
        scratchBytes = std::max(scratchBytes, alignUp(scratch.getBytes()));
      if (auto counters = dyn_cast<CountersOp>(op))
        counterBytes =
            std::max(counterBytes, alignUp(counters.getMemory().getType().getNumElements() * 4));
      for (const Access &access : accessesOf(&op)) {
        auto buffer = rootOf(access.memory).getDefiningOp<BufferOp>();
        if (!buffer)
          continue;
        int at = static_cast<int>(index);
        auto [it, isNew] = buffers.insert({buffer, {bufferBytes(buffer), at, at}});
        it->second.last = at;
      }
    }
    int64_t arenaBytes = place(buffers);
    if (arenaBytes + scratchBytes > kMaxBytes) {
      step.emitOpError("needs more than the ")
          << kMaxBytes << " bytes of buffers that can be addressed, for calls of up to "
          << step->getAttrOfType<IntegerAttr>(kMaxRowsAttr).getInt() << " tokens; lower max-rows";
      return signalPassFailure();
    }
    Builder b(&getContext());
    for (auto &[buffer, lifetime] : buffers)
      cast<BufferOp>(buffer).setOffset(lifetime.offset);
    step->setAttr(kArenaBytesAttr, b.getI64IntegerAttr(arenaBytes));
    step->setAttr(kScratchBytesAttr, b.getI64IntegerAttr(scratchBytes));
    step->setAttr(kCounterBytesAttr, b.getI64IntegerAttr(counterBytes));
  }

  /// The first byte behind all buffers, or more than kMaxBytes.
  static int64_t place(llvm::MapVector<Operation *, Lifetime> &buffers) {
    int64_t end = 0;
    SmallVector<Lifetime *> placed; // by offset
    for (auto &[op, buffer] : buffers) {
      int64_t offset = 0;
      for (Lifetime *other : placed) {
        bool alive = other->first <= buffer.last && buffer.first <= other->last;
        if (alive && offset < other->offset + other->bytes && other->offset < offset + buffer.bytes)
          offset = other->offset + other->bytes;
      }
      buffer.offset = offset;
      end = std::max(end, offset + buffer.bytes);
      if (end > kMaxBytes) // and far from overflow: no buffer is much larger
        return end;
      placed.insert(
          llvm::upper_bound(placed, &buffer,
                            [](Lifetime *a, Lifetime *b) { return a->offset < b->offset; }),
          &buffer);
    }
    return end;
  }
};

} // namespace
