//===- DotLinear.cpp - Few rows of codes times packed weights -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With one row or a few, only the speed of reading the weights matters. A block does as many rows
// of weights as a packed block has. Its eight warps split K, every lane has several 16-byte loads
// under way, and dp4a multiplies, or mma.sync where there are sixteen rows, or FP8. The packed
// weights are those for the tensor cores.
//
// Partial sums are integers, or those of FP8, and go through shared memory, one slot for a warp.
// Where scales are per group there is a slot for a group: a warp does whole groups, 32 groups in
// all between two barriers, and the threads that own an element of y add them up in the order of
// the groups. The bits are those of the other kernels. The scales of those groups are fetched
// before the weights: thirty-two loads one after the other would take longer than all the rest.
//
//===----------------------------------------------------------------------===//

#include "ByteProducts.h"
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
  DotLinear(KernelBuilder &b, const LinearSpec &spec, const LinearKernel &kernel,
            const KernelArguments &arguments)
      : b(b), spec(spec), rowCount(kernel.rows), arguments(arguments), blocks(b, spec),
        products(b, spec, kernel.converts), epilogue(b, spec, arguments, 1, blocks.shift()) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kWarps = kDotThreads / 32;
  static constexpr int64_t kMostSharedBytes = 40 * 1024;

  bool isMatrix() const { return rowCount == kMatrixRows; }
  /// Groups between two barriers, whose terms a thread keeps in registers.
  int64_t slots() const {
    int64_t count = kWarps * (spec.readsSums() || spec.inputZeroPoints ? 2 : 4);
    while (count > kWarps && count * slotWords() * 4 > kMostSharedBytes)
      count /= 2;
    return count;
  }
  /// Elements between the sums of two rows of y: padded where all lanes store pairs of them.
  int64_t rowStride() const { return blockRows() + (isMatrix() ? 8 : 0); }
  int64_t slotWords() const { return slotRows() * rowStride(); }
  /// Rows of sums: those of y, and where the kernel sums the weights, theirs behind them.
  int64_t slotRows() const { return rowCount + (spec.sumsWeights() ? 1 : 0); }
  int64_t sumCount() const {
    return isMatrix() ? (spec.sumsWeights() ? 8 : 4) * tiles() : slotRows() * tiles();
  }
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
  /// What a thread carries of an element from group to group: t, and where several dot groups share
  /// a group of the weight, s and with minima what these are multiplied by.
  int64_t carriedOf() const { return !isNested() ? 1 : spec.minima ? 3 : 2; }
  bool isNested() const { return spec.dotsOfGroup() > 1; }
  /// Adds the sum of dot group `group` to what is carried of an element.
  Values addGroup(Value group, Value dot, const LinearEpilogue::ColumnTerms &columns,
                  const LinearEpilogue::RowTerms &row, ArrayRef<Value> carried);
  /// Writes the thread's elements, from their sums over the groups.
  void write(ValueRange totals);

  KernelBuilder &b;
  const LinearSpec &spec;
  int64_t rowCount;
  const KernelArguments &arguments;
  UnpackedBytes blocks;
  ByteProducts products;
  LinearEpilogue epilogue;

  Value rows, firstRow; ///< of y
  Value thread, warp, lane, quarter;
  Value weights;                         ///< the block row
  SmallVector<Value> activations, valid; ///< of each row of a lane, at its first column
  Value column, columnOfBlock;           ///< of the thread's elements
  Value shared;
};

} // namespace

DotLinear::Values DotLinear::addBlock(Value block, bool certain, Values sums) {
  Value inside = certain ? Value() : b.less(block, columnBlocks());
  Value pointer = b.advance(weights, b.mul(block, numerics::fragmentBytes(spec.bits)), b.i8());
  auto unpacked = blocks.unpack(blocks.load(pointer, lane, /*constant=*/true, inside));
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
  // Codes times ones are what zero points of activations multiply.
  std::array<Value, 2> ones;
  if (spec.sumsWeights())
    ones = blocks.ones(b.mul(block, numerics::kFragmentColumns), lane, spec.k);
  auto multiply = [&](ValueRange with, int64_t t, int64_t at) {
    Values d = products.multiply(with, products.operand(unpacked[t]), ArrayRef(sums).slice(at, 4));
    llvm::copy(d, sums.begin() + at);
  };
  if (isMatrix())
    x = products.operand(x);
  for (int64_t t = 0; t < tiles(); ++t) {
    if (isMatrix()) {
      multiply(x, t, 4 * t);
      if (spec.sumsWeights())
        multiply({ones[0], ones[0], ones[1], ones[1]}, t, 4 * (tiles() + t));
      continue;
    }
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t m = 0; m < lanesRows; ++m)
        sums[m * tiles() + t] =
            b.dp4a(unpacked[t][half], x[half * lanesRows + m], sums[m * tiles() + t]);
      if (spec.sumsWeights())
        sums[rowCount * tiles() + t] =
            b.dp4a(unpacked[t][half], ones[half], sums[rowCount * tiles() + t]);
    }
  }
  return sums;
}

DotLinear::Values DotLinear::accumulate(Value first, int64_t stride, int64_t count) {
  Values sums(sumCount(), products.zero());
  int64_t unroll = std::min(kDotUnroll, count);
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
    if (spec.sumsWeights()) // all rows of the product are the same
      b.ifThen(b.equal(b.div(lane, 4), 0), [&] {
        for (int64_t t = 0; t < tiles(); ++t) {
          const int64_t at = 4 * (tiles() + t);
          b.store(b.join({sums[at], sums[at + 1]}),
                  slotWord(slot, rowCount, b.add(b.mul(quarter, 2), 8 * t)));
        }
      });
    return;
  }
  for (Value &sum : sums)
    for (int64_t mask : {1, 2})
      sum = b.add(sum, b.shuffleXor(sum, mask));
  b.ifThen(b.equal(quarter, 0), [&] {
    for (int64_t m = 0; m < slotRows(); ++m)
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
      auto sumOfWarps = [&](Int row) {
        Value sum = b.load(slotWord(0, row, columnOfBlock), products.sumType());
        for (int64_t slot = 1; slot < kWarps; ++slot)
          sum = products.add(sum, b.load(slotWord(slot, row, columnOfBlock), products.sumType()));
        return sum;
      };
      Value sum = sumOfWarps(rowOf(i)), group = b.i32(0);
      LinearEpilogue::ColumnTerms columns = epilogue.columnTerms(group, column);
      if (spec.sumsWeights())
        columns.sums =
            epilogue.weightSums(sumOfWarps(rowCount), columns, epilogue.columnsOf(group));
      LinearEpilogue::RowTerms row = epilogue.rowTerms(m, group, Value());
      if (Value zero = epilogue.rowZero(m, Value()))
        row.zero = zero;
      if (!spec.sharesGroups())
        return epilogue.addGroup(sum, columns, row, {}).front();
      Value ones = epilogue.addOnes(row, b.zero(b.f32()));
      return epilogue.addInputGroups(epilogue.addDots(sum, columns, row, {}), ones, columns, {})
          .front();
    }));
  write(totals);
}

DotLinear::Values DotLinear::addGroup(Value group, Value dot,
                                      const LinearEpilogue::ColumnTerms &columns,
                                      const LinearEpilogue::RowTerms &row,
                                      ArrayRef<Value> carried) {
  Value t = carried[0], zero = b.zero(b.f32());
  if (!spec.sharesGroups())
    return epilogue.addGroup(dot, columns, row, t);
  if (!isNested())
    return epilogue.addInputGroups(epilogue.addDots(dot, columns, row, {}),
                                   epilogue.addOnes(row, zero), columns, t);
  Value s = epilogue.addDots(dot, columns, row, carried[1]).front();
  Value ones = spec.minima ? epilogue.addOnes(row, carried[2]) : Value();
  // Behind the last dot group of a group of the weight.
  Value next = b.add(group, 1);
  Value ends = b.equal(b.rem(next, spec.dotsOfGroup()), 0);
  if (spec.dotGroups() % spec.dotsOfGroup() != 0)
    ends = b.either(b.equal(next, spec.dotGroups()), ends);
  Value added = epilogue.addInputGroups(s, ones, columns, t).front();
  Values results = {b.select(ends, added, t), b.select(ends, zero, s)};
  if (spec.minima)
    results.push_back(b.select(ends, zero, ones));
  return results;
}

void DotLinear::emitGrouped() {
  const int64_t groups = spec.dotGroups(), slots = this->slots();
  const int64_t blocks = spec.dotGroup() / numerics::kFragmentColumns, ofElement = carriedOf();
  const bool allThere = groups % slots == 0;
  shared = b.sharedMemory(slots * slotWords() * 4);
  Values totals(elements() * ofElement, b.zero(b.f32()));
  totals = b.forLoop(0, groups, slots, totals, [&](Value base, ValueRange carried) {
    // All threads, as loads that some lanes leave out are not fewer.
    SmallVector<LinearEpilogue::ColumnTerms> columns;
    for (int64_t slot = 0; slot < slots; ++slot) {
      Value group = b.add(base, slot);
      if (!allThere)
        group = b.min(group, groups - 1);
      columns.push_back(epilogue.columnTerms(b.div(group, spec.dotsOfGroup()), column));
    }
    for (int64_t slot = 0; slot < slots; slot += kWarps) {
      Value group = b.add(b.add(base, slot), warp);
      b.ifThen(allThere ? Value() : b.less(group, groups),
               [&] { storeSlot(accumulate(b.mul(group, blocks), 1, blocks), b.add(warp, slot)); });
    }
    b.barrier();
    Values sums;
    for (int64_t i = 0; i < elements(); ++i) {
      const Values before(carried.slice(i * ofElement, ofElement));
      llvm::append_range(sums, b.guardedAll(owns(i), before, [&] {
        Value m = b.add(firstRow, rowOf(i)), zero = epilogue.rowZero(m, Value());
        Values state = before;
        for (int64_t slot = 0; slot < slots; ++slot) {
          Value group = b.add(base, slot), there = b.less(group, groups);
          Value dot = b.load(slotWord(slot, rowOf(i), columnOfBlock), products.sumType());
          LinearEpilogue::RowTerms row = epilogue.rowTerms(m, group, allThere ? Value() : there);
          if (zero)
            row.zero = zero;
          LinearEpilogue::ColumnTerms own = columns[slot];
          if (spec.sumsWeights())
            own.sums = epilogue.weightSums(b.load(slotWord(slot, rowCount, columnOfBlock), b.i32()),
                                           own, epilogue.columnsOf(group));
          Values added = addGroup(group, dot, own, row, state);
          for (auto [value, with] : llvm::zip_equal(state, added))
            value = allThere ? with : b.select(there, with, value);
        }
        return state;
      }));
    }
    b.barrier();
    return sums;
  });
  Values ofElements;
  for (int64_t i = 0; i < elements(); ++i)
    ofElements.push_back(totals[i * ofElement]);
  write(ofElements);
}

void DotLinear::emit() {
  rows = arguments["rows"];
  thread = b.thread();
  warp = b.div(thread, 32);
  lane = b.rem(thread, 32);
  quarter = b.rem(lane, 4);
  firstRow = b.mul(b.block(1), rowCount);
  weights = b.rowOf(arguments["w"], b.block(0), columnBlocks() * numerics::fragmentBytes(spec.bits),
                    b.i8());
  blocks.prepare(arguments);
  columnOfBlock = b.rem(thread, blockRows());
  column = b.add(b.mul(b.block(0), blockRows()), columnOfBlock);
  for (int64_t m = 0; m < (isMatrix() ? 2 : rowCount); ++m) {
    Value row = isMatrix() ? b.add(b.add(firstRow, b.div(lane, 4)), 8 * m) : b.add(firstRow, m);
    valid.push_back(rowCount == 1 ? Value() : b.less(row, rows));
    activations.push_back(b.advance(b.rowOf(arguments["codes"], row, paddedColumns(spec.k), b.i8()),
                                    b.mul(quarter, 4), b.i8()));
  }
  spec.dotGroups() == 1 ? emitPlain() : emitGrouped();
}

void emitDotLinear(KernelBuilder &b, const LinearSpec &spec, const LinearKernel &kernel,
                   const KernelArguments &arguments) {
  DotLinear(b, spec, kernel, arguments).emit();
}

} // namespace easyquant::gpu
