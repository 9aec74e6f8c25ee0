//===- IntegerGemm.cpp - Codes of activations times packed weights --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mma.sync m16n8k32 on signed bytes or on FP8, on the ring of GemmRing.h: weights come into
// registers by one 16-byte load a lane and block.
//
// Weights of fewer bits than eight are unpacked in registers to bytes that are 2^(8 - b) times the
// code (the field moved to the top of its byte, the rest masked): a shift and a mask make four
// signed bytes, which subtracting an offset would not. Sums are then exact multiples of 2^(8 - b).
// Bytes of a table are looked up as they are.
//
// With scales per group, integer accumulators live for one group and are added to float ones with
// the group's scales, which were fetched when the group began. Where activations have groups of
// their own, several of them may lie in a group of the weights: float accumulators of these live
// for that one. Likewise those of FP8, of which tensor cores add up few columns at a time.
//
//===----------------------------------------------------------------------===//

#include "ByteProducts.h"
#include "GemmRing.h"
#include "LinearEpilogue.h"
#include "LinearKernels.h"
#include "SharedSums.h"
#include "UnpackedWeights.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class IntegerGemm {
public:
  IntegerGemm(KernelBuilder &b, const LinearSpec &spec, const LinearKernel &kernel,
              const KernelArguments &arguments, TilePlace place)
      : b(b), spec(spec), tile(kernel.tile), place(place), arguments(arguments),
        products(b, spec, kernel.converts),
        ring(b, {spec.n, spec.k, spec.bits, spec.dotGroup(), spec.dotGroups(), 1}, kernel.tile,
             arguments["codes"], paddedColumns(spec.k), paddedColumns(spec.k), arguments["w"],
             arguments["rows"], place),
        weights(b, spec), epilogue(b, spec, arguments, 2, weights.shift()) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  using Columns = SmallVector<LinearEpilogue::ColumnTerms>;

  /// Accumulators: those of y, and where the kernel sums the weights, theirs.
  int64_t accumulatorCount() const {
    return ring.registers() + (spec.sumsWeights() ? 4 * ring.nTiles() : 0);
  }
  int64_t onesAt(int64_t j) const { return ring.registers() + 4 * j; }
  Values multiplySlab(Value slab, Value stage, Values accumulators);
  /// The operand of each 8-column tile of a block row.
  SmallVector<Values> loadWeights(Value stage, int64_t blockRow, int64_t step);
  Columns columnsOf(Value group);
  /// What is made of a row's pair of accumulators in tile j, of all of the thread's rows and tiles;
  /// `number` is the row's among these.
  using OfPair = llvm::function_ref<Values(const LinearEpilogue::RowTerms &row, int64_t number,
                                           int64_t j, int64_t first)>;
  Values forPairs(Value group, OfPair body);
  Values addGroup(Value group, ArrayRef<Value> accumulators, ArrayRef<Value> sums,
                  const Columns &columns);
  Values multiply(Int slabs, ValueRange state);
  Values multiplyAll();
  /// The sums of all dot groups of a group, added to `sums`, which may be empty.
  Values multiplyInputGroups(Value group, Values &state, ArrayRef<Value> sums);
  Values multiplyInputs();

  /// Writes what is made of sums over the groups.
  void write(ValueRange sums);

  KernelBuilder &b;
  const LinearSpec &spec;
  const GemmTile &tile;
  const TilePlace place;
  const KernelArguments &arguments;
  ByteProducts products;
  GemmRing ring;
  UnpackedBytes weights;
  LinearEpilogue epilogue;
  SmallVector<Value> rowZeros; ///< zero points of the thread's rows
};

} // namespace

SmallVector<IntegerGemm::Values> IntegerGemm::loadWeights(Value stage, int64_t blockRow,
                                                          int64_t step) {
  Values words = weights.load(ring.weightBlock(stage, blockRow, step), ring.lane,
                              /*constant=*/false, Value());
  SmallVector<Values> operands;
  for (const std::array<Value, 2> &registers : weights.unpack(words))
    operands.push_back(products.operand(registers));
  return operands;
}

IntegerGemm::Values IntegerGemm::multiplySlab(Value slab, Value stage, Values accumulators) {
  for (int64_t step = 0; step < ring.steps(); ++step) {
    SmallVector<Values> a;
    for (int64_t i = 0; i < ring.mTiles(); ++i)
      a.push_back(products.operand(ring.loadActivations(stage, i, step)));
    SmallVector<Values> w;
    for (int64_t block = 0; block < ring.blocksDown(); ++block)
      llvm::append_range(w, loadWeights(stage, block, step));
    for (int64_t i = 0; i < ring.mTiles(); ++i)
      for (int64_t j = 0; j < ring.nTiles(); ++j) {
        int64_t at = ring.at(i, j, 0);
        Values d = products.multiply(a[i], w[j], ArrayRef(accumulators).slice(at, 4));
        llvm::copy(d, accumulators.begin() + at);
      }
    // A product with ones sums the codes.
    for (int64_t j = 0; spec.sumsWeights() && j < ring.nTiles(); ++j) {
      Value first = b.mul(b.add(b.mul(slab, ring.steps()), step), numerics::kFragmentColumns);
      std::array<Value, 2> halves = weights.ones(first, ring.lane, spec.k);
      Values d = b.multiplyBytes({halves[0], halves[0], halves[1], halves[1]}, w[j],
                                 ArrayRef(accumulators).slice(onesAt(j), 4));
      llvm::copy(d, accumulators.begin() + onesAt(j));
    }
  }
  return accumulators;
}

IntegerGemm::Columns IntegerGemm::columnsOf(Value group) {
  Columns columns;
  for (int64_t j = 0; j < ring.nTiles(); ++j)
    columns.push_back(epilogue.columnTerms(group, ring.paddedColumn(ring.columnOf(j), 2)));
  return columns;
}

IntegerGemm::Values IntegerGemm::forPairs(Value group, OfPair body) {
  Values results(ring.registers());
  for (int64_t i = 0; i < ring.mTiles(); ++i)
    for (int64_t half = 0; half < 2; ++half) {
      Value m = ring.rowOf(i, half);
      LinearEpilogue::RowTerms row = epilogue.rowTerms(m, group, b.less(m, ring.rows));
      if (!rowZeros.empty())
        row.zero = rowZeros[2 * i + half];
      for (int64_t j = 0; j < ring.nTiles(); ++j) {
        const int64_t first = ring.at(i, j, 2 * half);
        llvm::copy(body(row, 2 * i + half, j, first), results.begin() + first);
      }
    }
  return results;
}

IntegerGemm::Values IntegerGemm::addGroup(Value group, ArrayRef<Value> accumulators,
                                          ArrayRef<Value> sums, const Columns &columns) {
  return forPairs(group,
                  [&](const LinearEpilogue::RowTerms &row, int64_t, int64_t j, int64_t first) {
                    return epilogue.addGroup(accumulators.slice(first, 2), columns[j], row,
                                             sums.empty() ? sums : sums.slice(first, 2));
                  });
}

IntegerGemm::Values IntegerGemm::multiply(Int slabs, ValueRange state) {
  Values carried(state);
  carried.append(accumulatorCount(), products.zero());
  return ring.multiply(slabs, carried, [&](Value slab, Value stage, Values accumulators) {
    return multiplySlab(slab, stage, std::move(accumulators));
  });
}

/// The sums of all groups, scaled.
IntegerGemm::Values IntegerGemm::multiplyAll() {
  constexpr int64_t kState = GemmRing::kState;
  Values carried = ring.begin();
  if (spec.groups() == 1) {
    carried = multiply(ring.slabs(), carried);
    return addGroup(b.i32(0), ArrayRef(carried).drop_front(kState), {}, columnsOf(b.i32(0)));
  }
  carried.append(ring.registers(), b.zero(b.f32()));
  carried = b.forLoop(0, spec.groups(), 1, carried, [&](Value group, ValueRange carried) {
    Columns columns = columnsOf(group);
    Values inner = multiply(ring.slabsOfGroup(), carried.take_front(kState));
    Values results(ArrayRef(inner).take_front(kState));
    llvm::append_range(results, addGroup(group, ArrayRef(inner).drop_front(kState),
                                         Values(carried.drop_front(kState)), columns));
    return results;
  });
  return Values(ArrayRef(carried).drop_front(kState));
}

IntegerGemm::Values IntegerGemm::multiplyInputGroups(Value group, Values &state,
                                                     ArrayRef<Value> sums) {
  constexpr int64_t kState = GemmRing::kState;
  const int64_t dots = spec.dotsOfGroup(), count = ring.registers();
  const int64_t rowCount = spec.minima ? 2 * ring.mTiles() : 0;
  Columns columns = columnsOf(group);
  auto add = [&](Value dotGroup, ValueRange carried) {
    Values inner = multiply(spec.dotGroups() > 1 ? ring.slabsOfGroup() : ring.slabs(),
                            carried.take_front(kState));
    Values results(ArrayRef(inner).take_front(kState)), ones(rowCount);
    ArrayRef<Value> accumulators = ArrayRef(inner).drop_front(kState);
    ValueRange before = carried.slice(kState, count),
               onesBefore = carried.drop_front(kState + count);
    Columns own = columns;
    for (int64_t j = 0; spec.sumsWeights() && j < ring.nTiles(); ++j)
      own[j].sums = epilogue.weightSums(accumulators.slice(onesAt(j), 2), columns[j],
                                        epilogue.columnsOf(dotGroup));
    llvm::append_range(results, forPairs(dotGroup, [&](const LinearEpilogue::RowTerms &row,
                                                       int64_t number, int64_t j, int64_t first) {
                         if (spec.minima && j == 0)
                           ones[number] = epilogue.addOnes(row, onesBefore[number]);
                         return epilogue.addDots(accumulators.slice(first, 2), own[j], row,
                                                 before.slice(first, 2));
                       }));
    llvm::append_range(results, ones);
    return results;
  };
  Value begin = b.mul(group, dots);
  Values carried(state);
  carried.append(count + rowCount, b.zero(b.f32()));
  if (dots == 1)
    carried = add(begin, carried);
  else
    carried = b.forLoop(begin, b.min(b.add(begin, dots), spec.dotGroups()), 1, carried,
                        [&](Value dotGroup, ValueRange carried) { return add(dotGroup, carried); });
  state.assign(carried.begin(), carried.begin() + kState);
  ArrayRef<Value> inner = ArrayRef(carried).slice(kState, count),
                  ones = ArrayRef(carried).drop_front(kState + count);
  Values results(count);
  for (int64_t i = 0; i < ring.mTiles(); ++i)
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t j = 0; j < ring.nTiles(); ++j) {
        const int64_t first = ring.at(i, j, 2 * half);
        llvm::copy(epilogue.addInputGroups(inner.slice(first, 2),
                                           spec.minima ? ones[2 * i + half] : Value(), columns[j],
                                           sums.empty() ? sums : sums.slice(first, 2)),
                   results.begin() + first);
      }
  return results;
}

/// The sums of all groups, where these have several accumulators.
IntegerGemm::Values IntegerGemm::multiplyInputs() {
  constexpr int64_t kState = GemmRing::kState;
  Values state = ring.begin();
  if (spec.groups() == 1)
    return multiplyInputGroups(b.i32(0), state, {});
  Values carried = state;
  carried.append(ring.registers(), b.zero(b.f32()));
  carried = b.forLoop(0, spec.groups(), 1, carried, [&](Value group, ValueRange carried) {
    Values state(carried.take_front(kState));
    const Values sums = multiplyInputGroups(group, state, Values(carried.drop_front(kState)));
    llvm::append_range(state, sums);
    return state;
  });
  return Values(ArrayRef(carried).drop_front(kState));
}

void IntegerGemm::write(ValueRange sums) {
  epilogue.writer.columnsAreWhole = ring.columnsAreWhole();
  ring.forRows([&](int64_t i, int64_t half, Value m) {
    Value scale = epilogue.rowScale(m, Value());
    for (int64_t j = 0; j < ring.nTiles(); ++j)
      epilogue.write(m, ring.columnOf(j), scale, sums.slice(ring.at(i, j, 2 * half), 2));
  });
}

void IntegerGemm::emit() {
  weights.prepare(arguments);
  if (spec.inputZeroPoints && !spec.sumsWeights())
    for (int64_t i = 0; i < ring.mTiles(); ++i)
      for (int64_t half = 0; half < 2; ++half) {
        Value m = ring.rowOf(i, half);
        rowZeros.push_back(epilogue.rowZero(m, b.less(m, ring.rows)));
      }
  if (place.part) {
    Values carried = multiply(ring.slabsOfBlock(), ring.begin());
    ring.end();
    SharedSums(b, tile, spec.n, place, arguments)
        .add(ArrayRef(carried).drop_front(GemmRing::kState), [&](ValueRange sums) {
          write(addGroup(b.i32(0), Values(sums), {}, columnsOf(b.i32(0))));
        });
    return;
  }
  Values sums = spec.sharesGroups() ? multiplyInputs() : multiplyAll();
  ring.end();
  write(sums);
}

void emitMatrixLinear(KernelBuilder &b, const LinearSpec &spec, const LinearKernel &kernel,
                      const KernelArguments &arguments, TilePlace place) {
  IntegerGemm(b, spec, kernel, arguments, place).emit();
}

} // namespace easyquant::gpu
