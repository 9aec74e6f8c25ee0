//===- DotLinear.cpp - Few int8 rows times packed weights -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With one row or a few, only the speed of reading the weights matters. A block does as many rows
// of weights as a packed block has. Its eight warps split K, every lane has several 16-byte loads
// under way, and dp4a multiplies. The packed weights are those for the tensor cores.
//
// Partial sums are integers and go through shared memory, one slot for a warp. Where scales are per
// group there is a slot for a group: a warp does whole groups, 32 groups in all between two
// barriers, and the threads that own an element of y add them up in the order of the groups. The
// bits are those of the other kernels.
//
//===----------------------------------------------------------------------===//

#include "GemmTiles.h"
#include "LinearEpilogue.h"
#include "LinearKernels.h"
#include "UnpackedWeights.h"

#include "easyquant/Numerics/FragmentPacking.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class DotLinear {
public:
  DotLinear(KernelBuilder &b, const LinearSpec &spec, int64_t rowCount,
            const KernelArguments &arguments)
      : b(b), spec(spec), rowCount(rowCount), arguments(arguments),
        epilogue(b, spec, arguments, 1, 8 - spec.bits) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kWarps = kDotThreads / 32;
  static constexpr int64_t kUnroll = 4;         ///< loads of a lane under way
  static constexpr int64_t kSlots = kWarps * 4; ///< groups between two barriers

  int64_t blockRows() const { return numerics::fragmentRows(spec.bits); }
  int64_t tiles() const { return blockRows() / 8; }
  int64_t columnBlocks() const { return divideCeil(spec.k, numerics::kFragmentColumns); }

  /// Adds blocks first, first + stride, ... (`count` in all, as far as the row has them).
  Values accumulate(Value first, int64_t stride, int64_t count);
  Values addBlock(Value block, bool certain, Values sums);
  /// Sums over the four lanes that share a row, written to a slot.
  void storeSlot(Values sums, Value slot);
  Value slotWord(Int slot, Int element) {
    return b.advance(shared, b.add(b.mul(slot, rowCount * blockRows()), element), b.i32());
  }
  void emitPlain();
  void emitGrouped();
  void finish(llvm::function_ref<Value()> total);

  KernelBuilder &b;
  const LinearSpec &spec;
  int64_t rowCount;
  const KernelArguments &arguments;
  LinearEpilogue epilogue;

  Value rows, firstRow; ///< of y
  Value thread, warp, lane, quarter;
  Value weights;                         ///< of this lane in the block row
  SmallVector<Value> activations, valid; ///< of each row, at this lane's first column
  Value shared;
};

} // namespace

DotLinear::Values DotLinear::addBlock(Value block, bool certain, Values sums) {
  VectorType words = b.vec(4, b.i32());
  Value inside = certain ? Value() : b.less(block, columnBlocks());
  Value loaded = b.guarded(inside, b.zero(words), [&] {
    return b.load(b.advance(weights, b.mul(block, numerics::kFragmentBytes), b.i8()), words, true);
  });
  auto unpacked = unpackBytes(b, spec.bits, b.elements(loaded));
  for (int64_t m = 0; m < rowCount; ++m)
    for (int64_t half = 0; half < 2; ++half) {
      Value there = b.both(inside, valid[m]);
      // Codes are padded to 16 columns, half a block.
      if (half == 1 && paddedColumns(spec.k) % numerics::kFragmentColumns != 0)
        there = b.both(there, b.less(block, columnBlocks() - 1));
      Value x = b.guarded(there, b.i32(0), [&] {
        Value column = b.add(b.mul(block, numerics::kFragmentColumns), 16 * half);
        return b.load(b.advance(activations[m], column, b.i8()), b.i32(), true);
      });
      for (int64_t t = 0; t < tiles(); ++t)
        sums[m * tiles() + t] = b.dp4a(unpacked[t][half], x, sums[m * tiles() + t]);
    }
  return sums;
}

DotLinear::Values DotLinear::accumulate(Value first, int64_t stride, int64_t count) {
  Values sums(rowCount * tiles(), b.i32(0));
  int64_t unroll = std::min(kUnroll, count);
  int64_t trips = divideCeil(count, unroll);
  // Which blocks there are is known if all warps and trips end where the row ends.
  bool certain = stride == kWarps && trips * unroll * kWarps == columnBlocks();
  if (stride == 1)
    certain = columnBlocks() % count == 0 && count % unroll == 0;
  return b.forLoop(0, trips, 1, sums, [&](Value trip, ValueRange carried) {
    Values sums(carried);
    Value base = b.add(first, b.mul(trip, unroll * stride));
    for (int64_t u = 0; u < unroll; ++u) {
      Value block = b.add(base, u * stride);
      // Past the end of a group is another one.
      bool inGroup = stride != 1 || trips * unroll == count;
      if (inGroup) {
        sums = addBlock(block, certain, sums);
        continue;
      }
      Values added = addBlock(block, false, sums);
      Value mine = b.less(b.add(b.mul(trip, unroll), u), count);
      for (auto [sum, with] : llvm::zip_equal(sums, added))
        sum = b.select(mine, with, sum);
    }
    return sums;
  });
}

void DotLinear::storeSlot(Values sums, Value slot) {
  for (Value &sum : sums)
    for (int64_t mask : {1, 2})
      sum = b.add(sum, b.shuffleXor(sum, mask));
  b.ifThen(b.equal(quarter, 0), [&] {
    for (int64_t m = 0; m < rowCount; ++m)
      for (int64_t t = 0; t < tiles(); ++t)
        b.store(sums[m * tiles() + t],
                slotWord(slot, b.add(b.div(lane, 4), m * blockRows() + 8 * t)));
  });
}

/// In the threads that own an element of y: it, from its sum over the groups.
void DotLinear::finish(llvm::function_ref<Value()> total) {
  Value m = b.add(firstRow, b.div(thread, blockRows()));
  Value n = b.add(b.mul(b.block(0), blockRows()), b.rem(thread, blockRows()));
  Value mine = b.both(b.less(thread, rowCount * blockRows()), b.less(m, rows));
  b.ifThen(mine, [&] {
    Value t = total();
    epilogue.write(m, n, epilogue.rowScale(m, Value()), t);
  });
}

void DotLinear::emitPlain() {
  shared = b.sharedMemory(kWarps * rowCount * blockRows() * 4);
  storeSlot(accumulate(warp, kWarps, divideCeil(columnBlocks(), kWarps)), warp);
  b.barrier();
  Value m = b.add(firstRow, b.div(thread, blockRows()));
  Value n = b.add(b.mul(b.block(0), blockRows()), b.rem(thread, blockRows()));
  finish([&] {
    Value sum = b.load(slotWord(0, thread), b.i32());
    for (int64_t slot = 1; slot < kWarps; ++slot)
      sum = b.add(sum, b.load(slotWord(slot, thread), b.i32()));
    Value group = b.i32(0);
    return epilogue
        .addGroup(sum, epilogue.columnTerms(group, n), epilogue.rowSum(m, group, Value()),
                  epilogue.rowZero(m, Value()), {})
        .front();
  });
}

void DotLinear::emitGrouped() {
  shared = b.sharedMemory(kSlots * rowCount * blockRows() * 4);
  int64_t groups = spec.groups(), blocks = spec.groupSize / numerics::kFragmentColumns;
  Value m = b.add(firstRow, b.div(thread, blockRows()));
  Value n = b.add(b.mul(b.block(0), blockRows()), b.rem(thread, blockRows()));
  Value mine = b.both(b.less(thread, rowCount * blockRows()), b.less(m, rows));
  Values total = b.forLoop(0, groups, kSlots, b.zero(b.f32()), [&](Value base, ValueRange carried) {
    for (int64_t slot = 0; slot < kSlots; slot += kWarps) {
      Value group = b.add(b.add(base, slot), warp);
      b.ifThen(b.less(group, groups),
               [&] { storeSlot(accumulate(b.mul(group, blocks), 1, blocks), b.add(warp, slot)); });
    }
    b.barrier();
    Value sum = b.guarded(mine, carried.front(), [&] {
      Value count = b.min(b.sub(groups, base), kSlots);
      return b
          .forLoop(0, count, 1, carried,
                   [&](Value slot, ValueRange t) {
                     Value group = b.add(base, slot);
                     Value dot = b.load(slotWord(slot, thread), b.i32());
                     return epilogue.addGroup(dot, epilogue.columnTerms(group, n),
                                              epilogue.rowSum(m, group, Value()),
                                              epilogue.rowZero(m, Value()), t);
                   })
          .front();
    });
    b.barrier();
    return Values{sum};
  });
  finish([&] { return total.front(); });
}

void DotLinear::emit() {
  rows = arguments["rows"];
  thread = b.thread();
  warp = b.div(thread, 32);
  lane = b.rem(thread, 32);
  quarter = b.rem(lane, 4);
  firstRow = b.mul(b.block(1), rowCount);
  weights = b.advance(
      b.rowOf(arguments["w"], b.block(0), columnBlocks() * numerics::kFragmentBytes, b.i8()),
      b.mul(lane, 16), b.i8());
  for (int64_t m = 0; m < rowCount; ++m) {
    Value row = b.add(firstRow, m);
    valid.push_back(rowCount == 1 ? Value() : b.less(row, rows));
    activations.push_back(b.advance(b.rowOf(arguments["codes"], row, paddedColumns(spec.k), b.i8()),
                                    b.mul(quarter, 4), b.i8()));
  }
  spec.groups() == 1 ? emitPlain() : emitGrouped();
}

void emitDotLinear(KernelBuilder &b, const LinearSpec &spec, int64_t rows,
                   const KernelArguments &arguments) {
  DotLinear(b, spec, rows, arguments).emit();
}

} // namespace easyquant::gpu
