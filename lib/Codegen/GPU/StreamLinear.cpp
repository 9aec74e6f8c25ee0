//===- StreamLinear.cpp - Few float rows times packed weights -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With one row or a few, all that matters is to read the weights at full speed. They go from memory
// to registers, 16 bytes a lane, a unit of several blocks ahead of the one that is multiplied; the
// warps of a block share K. The product is mma.sync with its operands swapped: sixteen rows of
// weights are its A, up to eight tokens its B, so that a token costs no more than an eighth of an
// mma and lanes multiply without moving anything between them. Activations come through the
// first-level cache, four pairs a lane and block.
//
// Partial sums of the warps meet in shared memory and are added in the order of the warps. Where
// there are too few rows of weights to keep a chip busy, several blocks share K as well. Each
// writes its sums to memory. A counter tells which block comes last; it adds the sums in the order
// of the blocks.
//
//===----------------------------------------------------------------------===//

#include "LinearKernels.h"
#include "ResultWriter.h"
#include "UnpackedWeights.h"
#include "WeightParams.h"

#include "easyquant/Numerics/FragmentPacking.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class StreamLinear {
public:
  StreamLinear(KernelBuilder &b, const WeightOnlySpec &spec, const StreamShape &shape,
               const KernelArguments &arguments)
      : b(b), spec(spec), shape(shape), arguments(arguments), weights(b, spec, spec.input),
        params(b, spec, spec.n, spec.k, arguments),
        writer(b, {spec.n, spec.bias, spec.accumulate, spec.output}, arguments, 1) {
    place();
  }

  using Values = KernelBuilder::Values;
  /// What the warp begins with: loadUnit of its first unit.
  Values loadFirst();
  void emit(ValueRange first);

private:
  static constexpr int64_t kColumns = numerics::kFragmentColumns;
  static constexpr int64_t kStepsOfBlock = kColumns / numerics::kFragmentStep;

  void place();
  int64_t columnBlocks() const { return divideCeil(spec.k, kColumns); }
  int64_t units() const { return divideCeil(columnBlocks(), shape.unit); }
  int64_t unitsAtOnce() const { return shape.splits * shape.warps; }
  /// Packed blocks above one another that a block multiplies: two of floats make sixteen rows.
  int64_t rowBlocks() const { return shape.columns / numerics::fragmentRows(spec.bits); }
  int64_t weightTiles() const { return shape.columns / 16; }
  int64_t tokenTiles() const { return divideCeil(shape.rows, 8); }
  int64_t at(int64_t t, int64_t j) const { return 4 * (t * tokenTiles() + j); }
  /// Are there parameters of a group to apply before its products meet others?
  bool grouped() const { return spec.groups() > 1 || spec.minima; }
  /// Steps of a unit, 16 columns each, and those of them that share scales.
  int64_t steps() const { return shape.unit * kStepsOfBlock; }
  int64_t run() const {
    return spec.groups() > 1 ? std::min(steps(), spec.groupSize / numerics::kFragmentStep)
                             : steps();
  }

  /// The words of all blocks of a unit; zeros where `there` (i1, may be null) is false and past the
  /// end of K. Behind them the scales of its groups, which would be waited for like the weights.
  Values loadUnit(Value unit, Value there);
  int64_t wordsOfUnit() const { return shape.unit * rowBlocks() * weights.words(); }
  /// The pairs of a lane for token tile j: registers r < 4 of a block.
  Values loadTokens(Value block, int64_t j);
  Value loadPair(Value pointer, Value column);
  /// Adds the products of a unit; `loaded` is what loadUnit gave.
  Values multiplyUnit(Value unit, ValueRange loaded, Values sums);
  /// The group of the unit's step `step`; the last one past the end of K.
  Value groupAt(Value unit, int64_t step) {
    Value group =
        b.div(b.add(b.mul(unit, steps()), step), spec.groupSize / numerics::kFragmentStep);
    return b.min(group, spec.groups() - 1);
  }
  /// A number of group `group` for the lane's rows g and g + 8 of each tile of weights.
  Values ofRows(llvm::function_ref<Value(Value n)> load);
  Values scalesOf(Value group) {
    return ofRows([&](Value n) { return params.scales(group, n, 1).front(); });
  }
  Values minimaOf(Value group) {
    return ofRows([&](Value n) { return params.minima(group, n, 1).front(); });
  }
  Values zerosOf(Value group);
  /// Adds the sums of one group, `dots`, and of the tokens alone, `ones`.
  void addGroup(ArrayRef<Value> dots, ArrayRef<Value> ones, ValueRange scales, ValueRange minima,
                Values &sums);
  void storeSums(ValueRange sums);
  Value slot(Int warp, Value token, Value column) {
    Value place = b.add(b.mul(b.add(b.mul(warp, shape.rows), token), shape.tokenStride()), column);
    return b.advance(shared, place, b.f32());
  }
  Value sumOfWarps(Value token, Value column);
  void finish();
  void finishSplit();
  void writeResult(Value token, Value column, Value sum);
  void forElements(llvm::function_ref<void(Value element, Value token, Value column)> body);

  KernelBuilder &b;
  const WeightOnlySpec &spec;
  const StreamShape &shape;
  const KernelArguments &arguments;
  UnpackedWeights weights;
  WeightParams params;
  ResultWriter writer;

  Value thread, warp, lane, quad, quarter; ///< lane = 4 quad + quarter
  Value rows, firstRow, firstColumn;       ///< of y
  Value firstUnit;                         ///< of the warp
  SmallVector<Value> blockRows;            ///< of packed weights
  SmallVector<Value> tokens;               ///< rows of x, one a token tile, from the lane's pair on
  Values zeros;                            ///< where there is one group
  Value shared;
};

} // namespace

StreamLinear::Values StreamLinear::loadUnit(Value unit, Value there) {
  Values words;
  for (int64_t u = 0; u < shape.unit; ++u) {
    Value block = b.add(b.mul(unit, shape.unit), u), valid = there;
    if (columnBlocks() % shape.unit != 0)
      valid = b.both(valid, b.less(block, columnBlocks()));
    for (Value row : blockRows) {
      Value pointer = b.advance(row, b.mul(block, numerics::fragmentBytes(spec.bits)), b.i8());
      llvm::append_range(words, weights.load(pointer, lane, /*constant=*/true, valid));
    }
  }
  for (int64_t begin = 0; grouped() && begin < steps(); begin += run()) {
    llvm::append_range(words, scalesOf(groupAt(unit, begin)));
    if (spec.minima)
      llvm::append_range(words, minimaOf(groupAt(unit, begin)));
  }
  return words;
}

Value StreamLinear::loadPair(Value pointer, Value column) {
  Type element = b.type(spec.input);
  auto whole = [&] { return b.load(pointer, b.i32(), true); };
  // All columns are there where the units end at K.
  if (units() * shape.unit * kColumns == spec.k)
    return whole();
  Value zero = b.i32(0);
  if (spec.k % 2 == 0)
    return b.guarded(b.less(column, spec.k), zero, whole);
  Value single = b.guarded(b.equal(column, spec.k - 1), zero, [&]() -> Value {
    return b.bitcast(b.join({b.load(pointer, element, true), b.zero(element)}), b.i32());
  });
  return b.guarded(b.less(column, spec.k - 1), single, whole);
}

StreamLinear::Values StreamLinear::loadTokens(Value block, int64_t j) {
  Value first = b.mul(block, kColumns);
  Values pairs;
  for (int64_t r = 0; r < 4; ++r) {
    Value column = b.add(first, 8 * r);
    Value pointer = b.advance(tokens[j], column, b.type(spec.input));
    pairs.push_back(loadPair(pointer, b.add(column, b.mul(quarter, 2))));
  }
  return pairs;
}

StreamLinear::Values StreamLinear::ofRows(llvm::function_ref<Value(Value n)> load) {
  Values numbers;
  Value first = b.add(firstColumn, quad);
  for (int64_t row = 0; row < shape.columns; row += 8)
    numbers.push_back(load(b.add(first, row)));
  return numbers;
}

StreamLinear::Values StreamLinear::zerosOf(Value group) {
  Values pairs;
  if (!spec.zeroPoints)
    return pairs;
  const int64_t tiles = shape.columns / 8;
  Values words = params.zeroWords(group, firstColumn, quad, tiles);
  for (Value zero : params.zerosOf(words, quad, tiles))
    pairs.push_back(weights.zeroPair(zero));
  return pairs;
}

void StreamLinear::addGroup(ArrayRef<Value> dots, ArrayRef<Value> ones, ValueRange scales,
                            ValueRange minima, Values &sums) {
  for (int64_t t = 0; t < weightTiles(); ++t)
    for (int64_t j = 0; j < tokenTiles(); ++j)
      for (int64_t i = 0; i < 4; ++i) {
        Value &sum = sums[at(t, j) + i];
        sum = b.fma(scales[2 * t + i / 2], dots[at(t, j) + i], sum);
        if (spec.minima)
          sum = b.fma(minima[2 * t + i / 2], ones[at(0, j) + i], sum);
      }
}

StreamLinear::Values StreamLinear::multiplyUnit(Value unit, ValueRange loaded, Values sums) {
  ValueRange words = loaded.take_front(wordsOfUnit()), params = loaded.drop_front(wordsOfUnit());
  const int64_t wordsOfBlock = weights.words(), perColumn = wordsOfBlock * rowBlocks();
  const int64_t rowCount = shape.columns / 8;
  Value firstBlock = b.mul(unit, shape.unit), zero = b.zero(b.f32());
  // A product with ones is the sum of the tokens.
  Values ofOnes(4, b.pair(spec.input, 1.0)), ones;
  SmallVector<Values> x;
  SmallVector<UnpackedWeights::Tile> tiles;
  Values groupZeros = zeros, dots = sums;
  for (int64_t step = 0; step < steps(); ++step) {
    const int64_t ofBlock = step % kStepsOfBlock, u = step / kStepsOfBlock;
    if (grouped() && step % run() == 0) {
      groupZeros = zerosOf(groupAt(unit, step));
      dots.assign(sums.size(), zero);
      ones.assign(4 * tokenTiles(), zero);
    }
    if (ofBlock == 0) {
      x.clear();
      tiles.clear();
      for (int64_t j = 0; j < tokenTiles(); ++j)
        x.push_back(loadTokens(b.add(firstBlock, u), j));
      // A block has two groups of one step.
      Values nextZeros = groupZeros;
      if (grouped() && run() < kStepsOfBlock)
        nextZeros = zerosOf(groupAt(unit, step + 1));
      for (int64_t i = 0; i < rowBlocks(); ++i)
        llvm::append_range(
            tiles, weights.unpack(words.slice(u * perColumn + i * wordsOfBlock, wordsOfBlock),
                                  {groupZeros, nextZeros}));
    }
    for (int64_t t = 0; t < weightTiles(); ++t)
      for (int64_t j = 0; j < tokenTiles(); ++j) {
        const UnpackedWeights::Tile &upper = tiles[2 * t], &lower = tiles[2 * t + 1];
        Values a = {upper[2 * ofBlock], lower[2 * ofBlock], upper[2 * ofBlock + 1],
                    lower[2 * ofBlock + 1]};
        Values d = b.multiplyFloats(spec.input, a, ArrayRef(x[j]).slice(2 * ofBlock, 2),
                                    ArrayRef(dots).slice(at(t, j), 4));
        llvm::copy(d, dots.begin() + at(t, j));
      }
    for (int64_t j = 0; spec.minima && j < tokenTiles(); ++j) {
      Values d = b.multiplyFloats(spec.input, ofOnes, ArrayRef(x[j]).slice(2 * ofBlock, 2),
                                  ArrayRef(ones).slice(at(0, j), 4));
      llvm::copy(d, ones.begin() + at(0, j));
    }
    if (!grouped() || (step + 1) % run() != 0)
      continue;
    ValueRange minima = spec.minima ? params.slice(rowCount, rowCount) : ValueRange();
    addGroup(dots, ones, params.take_front(rowCount), minima, sums);
    params = params.drop_front(spec.minima ? 2 * rowCount : rowCount);
  }
  return grouped() ? sums : dots;
}

void StreamLinear::storeSums(ValueRange sums) {
  // With one token only the lanes that have it store; their second token is not there.
  int64_t columns = std::min<int64_t>(2, shape.rows);
  b.ifThen(shape.rows == 1 ? b.equal(quarter, 0) : Value(), [&] {
    for (int64_t t = 0; t < weightTiles(); ++t)
      for (int64_t j = 0; j < tokenTiles(); ++j)
        for (int64_t half = 0; half < 2; ++half)
          for (int64_t i = 0; i < columns; ++i) {
            Value token = b.add(b.mul(quarter, 2), 8 * j + i);
            b.store(sums[at(t, j) + 2 * half + i],
                    slot(warp, token, b.add(quad, 16 * t + 8 * half)));
          }
  });
}

Value StreamLinear::sumOfWarps(Value token, Value column) {
  Value sum = b.load(slot(0, token, column), b.f32());
  for (int64_t w = 1; w < shape.warps; ++w)
    sum = b.addf(sum, b.load(slot(w, token, column), b.f32()));
  return sum;
}

void StreamLinear::forElements(llvm::function_ref<void(Value, Value, Value)> body) {
  int64_t count = shape.rows * shape.columns, threads = 32 * shape.warps;
  for (int64_t first = 0; first < count; first += threads) {
    Value element = b.add(thread, first);
    b.ifThen(first + threads > count ? b.less(element, count) : Value(),
             [&] { body(element, b.div(element, shape.columns), b.rem(element, shape.columns)); });
  }
}

void StreamLinear::writeResult(Value token, Value column, Value sum) {
  Value m = b.add(firstRow, token), n = b.add(firstColumn, column);
  b.ifThen(b.less(m, rows), [&] {
    Value value = sum;
    if (!grouped() && !spec.isFloat())
      value = b.mulf(params.scales(0, n, 1).front(), sum);
    if (spec.outer)
      value = b.mulf(params.outer(n, 1).front(), value);
    writer.write(m, n, value);
  });
}

void StreamLinear::finish() {
  forElements([&](Value, Value token, Value column) {
    writeResult(token, column, sumOfWarps(token, column));
  });
}

void StreamLinear::finishSplit() {
  int64_t count = shape.rows * shape.columns;
  int64_t across = divideCeil(spec.n, shape.columns);
  Value tile = b.add(b.mul(b.block(2), across), b.block(0));
  auto partial = [&](Int split, Value element) {
    Value base = b.rowOf(arguments["partials"], tile, shape.splits * count, b.f32());
    return b.advance(base, b.add(b.mul(split, count), element), b.f32());
  };
  forElements([&](Value element, Value token, Value column) {
    b.store(sumOfWarps(token, column), partial(b.block(1), element));
  });
  // The answer comes through the memory of the warps' sums.
  Value counter = b.advance(arguments["counters"], tile, b.i32());
  b.ifLastBlock(shape.splits - 1, counter, shared, [&] {
    forElements([&](Value element, Value token, Value column) {
      Value sum = b.load(partial(0, element), b.f32());
      for (int64_t split = 1; split < shape.splits; ++split)
        sum = b.addf(sum, b.load(partial(split, element), b.f32()));
      writeResult(token, column, sum);
    });
  });
}

void StreamLinear::place() {
  rows = arguments["rows"];
  thread = b.thread();
  warp = b.warp();
  lane = b.rem(thread, 32);
  quad = b.div(lane, 4);
  quarter = b.rem(lane, 4);
  firstRow = b.mul(b.block(2), shape.rows);
  firstColumn = b.mul(b.block(0), shape.columns);
  firstUnit = b.add(b.mul(b.block(1), shape.warps), warp);

  int64_t rowBytes = columnBlocks() * numerics::fragmentBytes(spec.bits);
  int64_t last = divideCeil(spec.n, numerics::fragmentRows(spec.bits)) - 1;
  for (int64_t i = 0; i < rowBlocks(); ++i) {
    Value row = b.add(b.mul(b.block(0), rowBlocks()), i);
    // The products of a second block row that is not there are not written.
    if ((last + 1) % rowBlocks() != 0)
      row = b.min(row, last);
    blockRows.push_back(b.rowOf(arguments["w"], row, rowBytes, b.i8()));
  }
}

StreamLinear::Values StreamLinear::loadFirst() {
  return loadUnit(firstUnit, units() < unitsAtOnce() ? b.less(firstUnit, units()) : Value());
}

void StreamLinear::emit(ValueRange first) {
  writer.columnsAreWhole = spec.n % shape.columns == 0;
  shared = b.sharedMemory(shape.sharedBytes());
  weights.prepare(arguments);
  Type element = b.type(spec.input);
  for (int64_t j = 0; j < tokenTiles(); ++j) {
    // Likewise of tokens: lanes without one read the last.
    Value row = firstRow;
    if (shape.rows > 1)
      row = b.min(b.add(b.add(firstRow, quad), 8 * j), b.sub(rows, 1));
    tokens.push_back(b.advance(b.rowOf(arguments["x"], row, arguments["x_stride"], element),
                               b.mul(quarter, 2), element));
  }
  if (!grouped())
    zeros = zerosOf(b.i32(0));

  int64_t wordCount = first.size();
  Values carried(first);
  carried.append(at(weightTiles(), 0), b.zero(b.f32()));
  carried =
      b.forLoop(firstUnit, units(), unitsAtOnce(), carried, [&](Value unit, ValueRange carried) {
        Value next = b.add(unit, unitsAtOnce());
        Values results = loadUnit(next, b.less(next, units()));
        llvm::append_range(results, multiplyUnit(unit, carried.take_front(wordCount),
                                                 Values(carried.drop_front(wordCount))));
        return results;
      });
  storeSums(ValueRange(carried).drop_front(wordCount));
  b.barrier();
  shape.splits == 1 ? finish() : finishSplit();
}

void emitStreamLinear(KernelBuilder &b, const WeightOnlySpec &spec, const StreamShape &shape,
                      const KernelArguments &arguments, ValueRange firstWeights) {
  StreamLinear(b, spec, shape, arguments).emit(firstWeights);
}

KernelBuilder::Values loadFirstWeights(KernelBuilder &b, const WeightOnlySpec &spec,
                                       const StreamShape &shape, const KernelArguments &arguments) {
  return StreamLinear(b, spec, shape, arguments).loadFirst();
}

} // namespace easyquant::gpu
