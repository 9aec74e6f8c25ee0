//===- WeightOnlyGemm.cpp - Float activations times packed weights --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mma.sync m16n8k16 on f16 or bf16, on the ring of GemmRing.h: weights come into registers packed,
// 16 bytes a lane and block, and become floats there (UnpackedWeights.h).
//
// With scales per group, the sums of one group are added to those of all with the group's scales,
// which were fetched when the group began. Zero points are needed from its first product on, so
// that those of the next group are fetched one group ahead. Groups of 16 columns are one step of
// the product, two of them a slab, whose scales are fetched a slab ahead.
//
//===----------------------------------------------------------------------===//

#include "GemmRing.h"
#include "LinearKernels.h"
#include "ResultWriter.h"
#include "SharedSums.h"
#include "UnpackedWeights.h"
#include "WeightParams.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class WeightOnlyGemm {
public:
  WeightOnlyGemm(KernelBuilder &b, const WeightOnlySpec &spec, const GemmTile &tile,
                 const KernelArguments &arguments, TilePlace place)
      : b(b), spec(spec), tile(tile), place(place), arguments(arguments),
        ring(b,
             {spec.n, spec.k, spec.bits, spec.groupSize,
              spec.groupSize < tile.slab ? 1 : spec.groups(), 2},
             tile, arguments["x"], b.mul(arguments["x_stride"], 2), spec.k * 2, arguments["w"],
             arguments["rows"], place),
        weights(b, spec, spec.input), params(b, spec, spec.weightRows(), spec.k, arguments),
        writer(b, {spec.n, spec.bias, spec.accumulate, spec.output}, arguments, 2),
        hasShortGroups(spec.groups() > 1 && spec.groupSize < tile.slab) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  using Tiles = SmallVector<UnpackedWeights::Tile>;
  static constexpr int64_t kState = GemmRing::kState;

  int64_t stepsOfBlock() const { return ring.steps() / ring.blocksAcross(); }
  /// Accumulators: those of y, and with minima the sums of the thread's rows of activations.
  int64_t accumulatorCount() const {
    return ring.registers() + (spec.minima ? 4 * ring.mTiles() : 0);
  }
  int64_t onesAt(int64_t i, int64_t r) const { return ring.registers() + 4 * i + r; }
  Values zeroAccumulators() { return Values(accumulatorCount(), b.zero(b.f32())); }

  /// The weights of block `column` of a slab; zeros for each step of it, as UnpackedWeights has
  /// them.
  Tiles unpack(Value stage, int64_t column, std::array<ValueRange, 2> zeros);
  /// Adds the products of step `step` of the slab, which is in a block with weights `w`.
  void multiplyStep(Value stage, int64_t step, const Tiles &w, Values &accumulators);
  Values multiplySlab(Value stage, Values accumulators, ValueRange zeros);
  /// A number of the two columns of each tile that this thread has sums of.
  Values ofColumns(llvm::function_ref<Values(Value n)> load);
  /// Scales of a group and, behind them, minima.
  Values paramsOf(Value group);
  /// The words with the zero points of the rows of weights that this lane unpacks, one a tile.
  Values zeroWordsOf(Value group);
  Values zeroPairs(ValueRange words);
  /// Adds a group's accumulators to the sums of y.
  Values addGroup(ArrayRef<Value> group, ArrayRef<Value> params, ValueRange sums);
  Values multiplyGroups();
  Values multiplyShortGroups();
  Values multiplyWhole();
  void write(ValueRange sums, ValueRange scales);

  KernelBuilder &b;
  const WeightOnlySpec &spec;
  const GemmTile &tile;
  const TilePlace place;
  const KernelArguments &arguments;
  GemmRing ring;
  UnpackedWeights weights;
  WeightParams params;
  ResultWriter writer;
  const bool hasShortGroups;
};

} // namespace

WeightOnlyGemm::Tiles WeightOnlyGemm::unpack(Value stage, int64_t column,
                                             std::array<ValueRange, 2> zeros) {
  const int64_t tilesOfBlock = ring.nTiles() / ring.blocksDown();
  Tiles w;
  for (int64_t row = 0; row < ring.blocksDown(); ++row) {
    Values words = weights.load(ring.weightBlock(stage, row, column), ring.lane,
                                /*constant=*/false, Value());
    std::array<ValueRange, 2> own = zeros;
    for (ValueRange &zeros : own)
      if (!zeros.empty())
        zeros = zeros.slice(row * tilesOfBlock, tilesOfBlock);
    llvm::append_range(w, weights.unpack(words, own));
  }
  return w;
}

void WeightOnlyGemm::multiplyStep(Value stage, int64_t step, const Tiles &w, Values &accumulators) {
  const int64_t ofBlock = step % stepsOfBlock();
  SmallVector<Values> a;
  for (int64_t i = 0; i < ring.mTiles(); ++i)
    a.push_back(ring.loadActivations(stage, i, step));
  auto multiply = [&](int64_t i, ArrayRef<Value> with, int64_t at) {
    Values d = b.multiplyFloats(spec.input, a[i], with, ArrayRef(accumulators).slice(at, 4));
    llvm::copy(d, accumulators.begin() + at);
  };
  for (int64_t i = 0; i < ring.mTiles(); ++i)
    for (int64_t j = 0; j < ring.nTiles(); ++j)
      multiply(i, ArrayRef<Value>(w[j]).slice(2 * ofBlock, 2), ring.at(i, j, 0));
  if (!spec.minima)
    return;
  // A product with ones is the sum of the row.
  const Values ones(2, b.pair(spec.input, 1.0));
  for (int64_t i = 0; i < ring.mTiles(); ++i)
    multiply(i, ones, onesAt(i, 0));
}

WeightOnlyGemm::Values WeightOnlyGemm::multiplySlab(Value stage, Values accumulators,
                                                    ValueRange zeros) {
  for (int64_t column = 0; column < ring.blocksAcross(); ++column) {
    const Tiles w = unpack(stage, column, {zeros, zeros});
    for (int64_t step = 0; step < stepsOfBlock(); ++step)
      multiplyStep(stage, column * stepsOfBlock() + step, w, accumulators);
  }
  return accumulators;
}

WeightOnlyGemm::Values WeightOnlyGemm::ofColumns(llvm::function_ref<Values(Value n)> load) {
  Values found;
  for (int64_t j = 0; j < ring.nTiles(); ++j)
    llvm::append_range(found, load(ring.paddedColumn(ring.columnOf(j), 2)));
  return found;
}

WeightOnlyGemm::Values WeightOnlyGemm::paramsOf(Value group) {
  Values found = ofColumns([&](Value n) { return params.scales(group, n, 2); });
  if (spec.minima)
    llvm::append_range(found, ofColumns([&](Value n) { return params.minima(group, n, 2); }));
  return found;
}

WeightOnlyGemm::Values WeightOnlyGemm::zeroWordsOf(Value group) {
  if (!spec.zeroPoints)
    return {};
  // The columns of a warp are all inside the padding, or all beyond it.
  Value n = ring.paddedColumn(ring.columnOfWarp, 8 * ring.nTiles());
  return params.zeroWords(group, n, ring.quad, ring.nTiles());
}

WeightOnlyGemm::Values WeightOnlyGemm::zeroPairs(ValueRange words) {
  if (words.empty())
    return {};
  return llvm::map_to_vector(params.zerosOf(words, ring.quad, ring.nTiles()),
                             [&](Value zero) { return weights.zeroPair(zero); });
}

WeightOnlyGemm::Values WeightOnlyGemm::addGroup(ArrayRef<Value> group, ArrayRef<Value> params,
                                                ValueRange sums) {
  Values results;
  for (int64_t i = 0; i < ring.mTiles(); ++i)
    for (int64_t j = 0; j < ring.nTiles(); ++j)
      for (int64_t r = 0; r < 4; ++r) {
        const int64_t column = 2 * j + r % 2;
        Value sum = b.fma(params[column], group[ring.at(i, j, r)], sums[ring.at(i, j, r)]);
        if (spec.minima)
          sum = b.fma(params[2 * ring.nTiles() + column], group[onesAt(i, r)], sum);
        results.push_back(sum);
      }
  return results;
}

WeightOnlyGemm::Values WeightOnlyGemm::multiplyWhole() {
  Values zeros = zeroPairs(zeroWordsOf(b.i32(0))), carried = ring.begin();
  llvm::append_range(carried, zeroAccumulators());
  carried =
      ring.multiply(ring.slabsOfBlock(), carried, [&](Value, Value stage, Values accumulators) {
        return multiplySlab(stage, std::move(accumulators), zeros);
      });
  return Values(ArrayRef(carried).drop_front(kState));
}

WeightOnlyGemm::Values WeightOnlyGemm::multiplyGroups() {
  Value first = b.i32(0), end = b.i32(spec.groups());
  if (place.part) {
    first = b.mul(place.part, ring.unitsOfPart());
    end = b.min(b.add(first, ring.unitsOfPart()), end);
  }
  Values carried = ring.begin();
  llvm::append_range(carried, zeroWordsOf(b.min(first, spec.groups() - 1)));
  int64_t sumsBegin = carried.size();
  carried.append(ring.registers(), b.zero(b.f32()));
  carried = b.forLoop(first, end, 1, carried, [&](Value group, ValueRange carried) {
    Values groupParams = paramsOf(group);
    Values zeros = zeroPairs(carried.slice(kState, sumsBegin - kState));
    Values nextZeros = zeroWordsOf(b.min(b.add(group, 1), spec.groups() - 1));
    Values inner(carried.take_front(kState));
    llvm::append_range(inner, zeroAccumulators());
    const int64_t slabs = spec.groups() > 1 ? ring.slabsOfGroup() : ring.slabs();
    inner = ring.multiply(slabs, inner, [&](Value, Value stage, Values accumulators) {
      return multiplySlab(stage, std::move(accumulators), zeros);
    });
    Values results(ArrayRef(inner).take_front(kState));
    llvm::append_range(results, nextZeros);
    llvm::append_range(results, addGroup(ArrayRef(inner).drop_front(kState), groupParams,
                                         carried.drop_front(sumsBegin)));
    return results;
  });
  return Values(ArrayRef(carried).drop_front(sumsBegin));
}

WeightOnlyGemm::Values WeightOnlyGemm::multiplyShortGroups() {
  auto groupAt = [&](Value slab, int64_t step) {
    return b.min(b.add(b.mul(slab, ring.steps()), step), spec.groups() - 1);
  };
  auto paramsOfSlab = [&](Value slab) {
    Values found;
    for (int64_t step = 0; step < ring.steps(); ++step)
      llvm::append_range(found, paramsOf(groupAt(slab, step)));
    return found;
  };
  Values carried = ring.begin(), first = paramsOfSlab(ring.firstOfBlock());
  const int64_t ofStep = std::ssize(first) / ring.steps();
  carried.append(ring.registers(), b.zero(b.f32()));
  llvm::append_range(carried, first);
  carried = ring.multiply(ring.slabsOfBlock(), carried, [&](Value slab, Value stage, Values state) {
    Values next = paramsOfSlab(b.add(slab, 1));
    Values sums(ArrayRef(state).take_front(ring.registers()));
    for (int64_t column = 0; column < ring.blocksAcross(); ++column) {
      const int64_t begin = column * stepsOfBlock();
      Values zeros[] = {zeroPairs(zeroWordsOf(groupAt(slab, begin))),
                        zeroPairs(zeroWordsOf(groupAt(slab, begin + 1)))};
      const Tiles w = unpack(stage, column, {zeros[0], zeros[1]});
      for (int64_t step = begin; step < begin + stepsOfBlock(); ++step) {
        Values dots = zeroAccumulators();
        multiplyStep(stage, step, w, dots);
        sums =
            addGroup(dots, ArrayRef(state).slice(ring.registers() + step * ofStep, ofStep), sums);
      }
    }
    llvm::append_range(sums, next);
    return sums;
  });
  return Values(ArrayRef(carried).slice(kState, ring.registers()));
}

void WeightOnlyGemm::write(ValueRange sums, ValueRange scales) {
  writer.columnsAreWhole = ring.columnsAreWhole();
  Values outer;
  if (spec.outer)
    outer = ofColumns([&](Value n) { return params.outer(n, 2); });
  ring.forRows([&](int64_t i, int64_t half, Value m) {
    for (int64_t j = 0; j < ring.nTiles(); ++j) {
      Values values(sums.slice(ring.at(i, j, 2 * half), 2));
      for (int64_t c = 0; c < 2; ++c) {
        if (!scales.empty())
          values[c] = b.mulf(scales[2 * j + c], values[c]);
        if (spec.outer)
          values[c] = b.mulf(outer[2 * j + c], values[c]);
      }
      writer.write(m, ring.columnOf(j), values);
    }
  });
}

void WeightOnlyGemm::emit() {
  weights.prepare(arguments);
  const bool grouped = spec.groups() > 1 || spec.minima;
  Values scales, sums = hasShortGroups ? multiplyShortGroups()
                        : grouped      ? multiplyGroups()
                                       : multiplyWhole();
  ring.end();
  auto finish = [&](ValueRange sums) {
    if (!grouped && !spec.isFloat())
      scales = ofColumns([&](Value n) { return params.scales(0, n, 2); });
    write(sums, scales);
  };
  if (place.part)
    SharedSums(b, tile, spec.n, place, arguments).add(sums, finish);
  else
    finish(sums);
}

void emitMatrixLinear(KernelBuilder &b, const WeightOnlySpec &spec, const GemmTile &tile,
                      const KernelArguments &arguments, TilePlace place) {
  WeightOnlyGemm(b, spec, tile, arguments, place).emit();
}

} // namespace easyquant::gpu
