//===- DotLinear.cpp - Few int8 rows times packed weights -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With one row or a few, only the speed of reading the weights matters. A block does as many rows
// of weights as a packed block has. Its eight warps split K, every lane has several 16-byte loads
// under way, and dp4a multiplies, or mma.sync where there are sixteen rows. The packed weights are
// those for the tensor cores.
//
// Partial sums are integers and go through shared memory, one slot for a warp. Where scales are per
// group there is a slot for a group: a warp does whole groups, 32 groups in all between two
// barriers, and the threads that own an element of y add them up in the order of the groups. The
// bits are those of the other kernels. The scales of those groups are fetched before the weights:
// thirty-two loads one after the other would take longer than all the rest.
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
  static constexpr int64_t kUnroll = 4; ///< loads of a lane under way
  static constexpr int64_t kMostSharedBytes = 40 * 1024;

  bool isMatrix() const { return rowCount == kMatrixRows; }
  /// Groups between two barriers, whose terms a thread keeps in registers.
  int64_t slots() const {
    int64_t count = kWarps * (spec.zeroPoints || spec.inputZeroPoints ? 2 : 4);
    while (count > kWarps && count * slotWords() * 4 > kMostSharedBytes)
      count /= 2;
    return count;
  }
  /// Elements between the sums of two rows of y: padded where all lanes store pairs of them.
  int64_t rowStride() const { return blockRows() + (isMatrix() ? 8 : 0); }
  int64_t slotWords() const { return rowCount * rowStride(); }
  /// Elements of y that a thread has, all in one column.
  int64_t elements() const { return divideCeil(rowCount * blockRows(), int64_t{kDotThreads}); }
  int64_t blockRows() const { return numerics::fragmentRows(spec.bits); }
  int64_t tiles() const { return blockRows() / 8; }
  int64_t columnBlocks() const { return divideCeil(spec.k, numerics::kFragmentColumns); }

  /// Adds blocks first, first + stride, ... (`count` in all, as far as the row has them).
  Values accumulate(Value first, int64_t stride, int64_t count);
  Values addBlock(Value block, bool certain, Values sums);
  /// Sums over the four lanes that share a row, written to a slot.
  void storeSlot(Values sums, Value slot);
  Value slotWord(Int slot, Int row, Int column) {
    Value element = b.add(b.mul(row, rowStride()), column);
    return b.advance(shared, b.add(b.mul(slot, slotWords()), element), b.i32());
  }
  /// The row in the block of the thread's element `i`.
  Value rowOf(int64_t i) {
    return b.add(b.div(thread, blockRows()), i * (kDotThreads / blockRows()));
  }
  /// Whether that is there.
  Value owns(int64_t i) {
    return b.both(b.less(rowOf(i), rowCount), b.less(b.add(firstRow, rowOf(i)), rows));
  }
  void emitPlain();
  void emitGrouped();
  /// Writes the thread's elements, from their sums over the groups.
  void write(ValueRange totals);

  KernelBuilder &b;
  const LinearSpec &spec;
  int64_t rowCount;
  const KernelArguments &arguments;
  LinearEpilogue epilogue;

  Value rows, firstRow; ///< of y
  Value thread, warp, lane, quarter;
  Value weights;                         ///< of this lane in the block row
  SmallVector<Value> activations, valid; ///< of each row of a lane, at its first column
  Value column, columnOfBlock;           ///< of the thread's elements
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
  const int64_t lanesRows = std::ssize(activations);
  Values x; // of each half of the block's columns and each row of the lane
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t m = 0; m < lanesRows; ++m) {
      Value there = b.both(inside, valid[m]);
      // Codes are padded to 16 columns, half a block.
      if (half == 1 && paddedColumns(spec.k) % numerics::kFragmentColumns != 0)
        there = b.both(there, b.less(block, columnBlocks() - 1));
      x.push_back(b.guarded(there, b.i32(0), [&] {
        Value column = b.add(b.mul(block, numerics::kFragmentColumns), 16 * half);
        return b.load(b.advance(activations[m], column, b.i8()), b.i32(), true);
      }));
    }
  for (int64_t t = 0; t < tiles(); ++t) {
    if (isMatrix()) {
      Values d = b.multiplyBytes(x, unpacked[t], ArrayRef(sums).slice(4 * t, 4));
      llvm::copy(d, sums.begin() + 4 * t);
      continue;
    }
    for (int64_t m = 0; m < lanesRows; ++m)
      for (int64_t half = 0; half < 2; ++half)
        sums[m * tiles() + t] =
            b.dp4a(unpacked[t][half], x[half * lanesRows + m], sums[m * tiles() + t]);
  }
  return sums;
}

DotLinear::Values DotLinear::accumulate(Value first, int64_t stride, int64_t count) {
  Values sums((isMatrix() ? 4 : rowCount) * tiles(), b.i32(0));
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
  if (isMatrix()) { // a lane has pairs of columns, of two rows
    for (int64_t t = 0; t < tiles(); ++t)
      for (int64_t half = 0; half < 2; ++half) {
        Value pair = b.join({sums[4 * t + 2 * half], sums[4 * t + 2 * half + 1]});
        b.store(pair,
                slotWord(slot, b.add(b.div(lane, 4), 8 * half), b.add(b.mul(quarter, 2), 8 * t)));
      }
    return;
  }
  for (Value &sum : sums)
    for (int64_t mask : {1, 2})
      sum = b.add(sum, b.shuffleXor(sum, mask));
  b.ifThen(b.equal(quarter, 0), [&] {
    for (int64_t m = 0; m < rowCount; ++m)
      for (int64_t t = 0; t < tiles(); ++t)
        b.store(sums[m * tiles() + t], slotWord(slot, m, b.add(b.div(lane, 4), 8 * t)));
  });
}

void DotLinear::write(ValueRange totals) {
  for (auto [i, total] : llvm::enumerate(totals)) {
    Value m = b.add(firstRow, rowOf(i));
    b.ifThen(owns(i), [&] { epilogue.write(m, column, epilogue.rowScale(m, Value()), total); });
  }
}

void DotLinear::emitPlain() {
  shared = b.sharedMemory(kWarps * slotWords() * 4);
  storeSlot(accumulate(warp, kWarps, divideCeil(columnBlocks(), kWarps)), warp);
  b.barrier();
  Values totals;
  for (int64_t i = 0; i < elements(); ++i)
    totals.push_back(b.guarded(owns(i), b.zero(b.f32()), [&] {
      Value m = b.add(firstRow, rowOf(i));
      Value sum = b.load(slotWord(0, rowOf(i), columnOfBlock), b.i32());
      for (int64_t slot = 1; slot < kWarps; ++slot)
        sum = b.add(sum, b.load(slotWord(slot, rowOf(i), columnOfBlock), b.i32()));
      Value group = b.i32(0);
      return epilogue
          .addGroup(sum, epilogue.columnTerms(group, column), epilogue.rowSum(m, group, Value()),
                    epilogue.rowZero(m, Value()), {})
          .front();
    }));
  write(totals);
}

void DotLinear::emitGrouped() {
  const int64_t groups = spec.groups(), slots = this->slots();
  const int64_t blocks = spec.groupSize / numerics::kFragmentColumns;
  const bool allThere = groups % slots == 0;
  shared = b.sharedMemory(slots * slotWords() * 4);
  Values totals(elements(), b.zero(b.f32()));
  totals = b.forLoop(0, groups, slots, totals, [&](Value base, ValueRange carried) {
    // All threads, as loads that some lanes leave out are not fewer.
    SmallVector<LinearEpilogue::ColumnTerms> columns;
    for (int64_t slot = 0; slot < slots; ++slot) {
      Value group = b.add(base, slot);
      columns.push_back(epilogue.columnTerms(allThere ? group : b.min(group, groups - 1), column));
    }
    for (int64_t slot = 0; slot < slots; slot += kWarps) {
      Value group = b.add(b.add(base, slot), warp);
      b.ifThen(allThere ? Value() : b.less(group, groups),
               [&] { storeSlot(accumulate(b.mul(group, blocks), 1, blocks), b.add(warp, slot)); });
    }
    b.barrier();
    Values sums;
    for (int64_t i = 0; i < elements(); ++i)
      sums.push_back(b.guarded(owns(i), carried[i], [&] {
        Value m = b.add(firstRow, rowOf(i)), sum = carried[i];
        for (int64_t slot = 0; slot < slots; ++slot) {
          Value group = b.add(base, slot), there = b.less(group, groups);
          Value dot = b.load(slotWord(slot, rowOf(i), columnOfBlock), b.i32());
          Value added = epilogue
                            .addGroup(dot, columns[slot],
                                      epilogue.rowSum(m, group, allThere ? Value() : there),
                                      epilogue.rowZero(m, Value()), sum)
                            .front();
          sum = allThere ? added : b.select(there, added, sum);
        }
        return sum;
      }));
    b.barrier();
    return sums;
  });
  write(totals);
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
  columnOfBlock = b.rem(thread, blockRows());
  column = b.add(b.mul(b.block(0), blockRows()), columnOfBlock);
  for (int64_t m = 0; m < (isMatrix() ? 2 : rowCount); ++m) {
    Value row = isMatrix() ? b.add(b.add(firstRow, b.div(lane, 4)), 8 * m) : b.add(firstRow, m);
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
