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
// that those of the next group are fetched one group ahead.
//
//===----------------------------------------------------------------------===//

#include "GemmRing.h"
#include "LinearKernels.h"
#include "ResultWriter.h"
#include "UnpackedWeights.h"
#include "WeightParams.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class WeightOnlyGemm {
public:
  WeightOnlyGemm(KernelBuilder &b, const WeightOnlySpec &spec, const GemmTile &tile,
                 const KernelArguments &arguments)
      : b(b), spec(spec), arguments(arguments),
        ring(b, {spec.n, spec.k, spec.bits, spec.groupSize, spec.groups(), 2}, tile, arguments["x"],
             b.mul(arguments["x_stride"], 2), spec.k * 2, arguments["w"], arguments["rows"]),
        weights(b, spec.bits, spec.input), params(b, spec.bits, spec.scales),
        writer(b, {spec.n, spec.bias, spec.accumulate, spec.output}, arguments, 2) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kState = GemmRing::kState;

  Values multiplySlab(Value stage, Values accumulators, ValueRange zeros);
  /// Scales of the two columns of each tile that this thread has sums of.
  Values scalesOf(Value group);
  /// The words with the zero points of the rows of weights that this lane unpacks, one a tile.
  Values zeroWordsOf(Value group);
  Values zeroPairs(ValueRange words);
  Values multiplyGroups();
  Values multiplyWhole();
  void write(ValueRange sums, ValueRange scales);

  KernelBuilder &b;
  const WeightOnlySpec &spec;
  const KernelArguments &arguments;
  GemmRing ring;
  UnpackedWeights weights;
  WeightParams params;
  ResultWriter writer;
};

} // namespace

WeightOnlyGemm::Values WeightOnlyGemm::multiplySlab(Value stage, Values accumulators,
                                                    ValueRange zeros) {
  const int64_t tilesOfBlock = ring.nTiles() / ring.blocksDown();
  const int64_t stepsOfBlock = ring.steps() / ring.blocksAcross();
  for (int64_t column = 0; column < ring.blocksAcross(); ++column) {
    SmallVector<UnpackedWeights::Tile> w;
    for (int64_t row = 0; row < ring.blocksDown(); ++row) {
      Values words = weights.load(ring.weightBlock(stage, row, column), ring.lane,
                                  /*constant=*/false, Value());
      llvm::append_range(
          w, weights.unpack(words,
                            zeros.empty() ? zeros : zeros.slice(row * tilesOfBlock, tilesOfBlock)));
    }
    for (int64_t step = 0; step < stepsOfBlock; ++step) {
      SmallVector<Values> a;
      for (int64_t i = 0; i < ring.mTiles(); ++i)
        a.push_back(ring.loadActivations(stage, i, column * stepsOfBlock + step));
      for (int64_t i = 0; i < ring.mTiles(); ++i)
        for (int64_t j = 0; j < ring.nTiles(); ++j) {
          int64_t at = ring.at(i, j, 0);
          Values d = b.multiplyFloats(spec.input, a[i], ArrayRef<Value>(w[j]).slice(2 * step, 2),
                                      ArrayRef(accumulators).slice(at, 4));
          llvm::copy(d, accumulators.begin() + at);
        }
    }
  }
  return accumulators;
}

WeightOnlyGemm::Values WeightOnlyGemm::scalesOf(Value group) {
  Values scales;
  Value base = b.mul(group, numerics::fragmentScaleRows(spec.n));
  for (int64_t j = 0; j < ring.nTiles(); ++j) {
    Value n = ring.paddedColumn(ring.columnOf(j), 2);
    Value pointer = b.advance(arguments["wscales"], b.add(base, n), params.scaleType());
    llvm::append_range(scales, params.loadScales(pointer, 2));
  }
  return scales;
}

WeightOnlyGemm::Values WeightOnlyGemm::zeroWordsOf(Value group) {
  if (!spec.zeroPoints)
    return {};
  // The columns of a warp are all inside the padding, or all beyond it.
  Value n = ring.paddedColumn(ring.columnOfWarp, 8 * ring.nTiles());
  Value first = b.add(b.mul(group, numerics::fragmentScaleRows(spec.n)), n);
  return params.loadZeroWords(arguments["wzeros"], first, ring.quad, ring.nTiles());
}

WeightOnlyGemm::Values WeightOnlyGemm::zeroPairs(ValueRange words) {
  if (words.empty())
    return {};
  return llvm::map_to_vector(params.zerosOf(words, ring.quad, ring.nTiles()),
                             [&](Value zero) { return weights.zeroPair(zero); });
}

WeightOnlyGemm::Values WeightOnlyGemm::multiplyWhole() {
  Values zeros = zeroPairs(zeroWordsOf(b.i32(0))), carried = ring.begin();
  carried.append(ring.registers(), b.zero(b.f32()));
  carried = ring.multiply(ring.slabs(), carried, [&](Value stage, Values accumulators) {
    return multiplySlab(stage, std::move(accumulators), zeros);
  });
  return Values(ArrayRef(carried).drop_front(kState));
}

WeightOnlyGemm::Values WeightOnlyGemm::multiplyGroups() {
  Value zero = b.zero(b.f32());
  Values carried = ring.begin();
  llvm::append_range(carried, zeroWordsOf(b.i32(0)));
  int64_t sumsBegin = carried.size();
  carried.append(ring.registers(), zero);
  carried = b.forLoop(0, spec.groups(), 1, carried, [&](Value group, ValueRange carried) {
    Values scales = scalesOf(group);
    Values zeros = zeroPairs(carried.slice(kState, sumsBegin - kState));
    Values nextZeros = zeroWordsOf(b.min(b.add(group, 1), spec.groups() - 1));
    Values inner(carried.take_front(kState));
    inner.append(ring.registers(), zero);
    inner = ring.multiply(ring.slabsOfGroup(), inner, [&](Value stage, Values accumulators) {
      return multiplySlab(stage, std::move(accumulators), zeros);
    });
    Values results(ArrayRef(inner).take_front(kState));
    llvm::append_range(results, nextZeros);
    for (int64_t i = 0; i < ring.mTiles(); ++i)
      for (int64_t j = 0; j < ring.nTiles(); ++j)
        for (int64_t r = 0; r < 4; ++r)
          results.push_back(b.fma(scales[2 * j + r % 2], inner[kState + ring.at(i, j, r)],
                                  carried[sumsBegin + ring.at(i, j, r)]));
    return results;
  });
  return Values(ArrayRef(carried).drop_front(sumsBegin));
}

void WeightOnlyGemm::write(ValueRange sums, ValueRange scales) {
  writer.columnsAreWhole = ring.columnsAreWhole();
  ring.forRows([&](int64_t i, int64_t half, Value m) {
    for (int64_t j = 0; j < ring.nTiles(); ++j) {
      Values values(sums.slice(ring.at(i, j, 2 * half), 2));
      for (int64_t c = 0; c < 2 && !scales.empty(); ++c)
        values[c] = b.mulf(scales[2 * j + c], values[c]);
      writer.write(m, ring.columnOf(j), values);
    }
  });
}

void WeightOnlyGemm::emit() {
  bool grouped = spec.groups() > 1;
  Values sums = grouped ? multiplyGroups() : multiplyWhole(), scales;
  if (!grouped && !spec.isFloat())
    scales = scalesOf(b.i32(0));
  ring.end();
  write(sums, scales);
}

void emitMatrixLinear(KernelBuilder &b, const WeightOnlySpec &spec, const GemmTile &tile,
                      const KernelArguments &arguments) {
  WeightOnlyGemm(b, spec, tile, arguments).emit();
}

} // namespace easyquant::gpu
