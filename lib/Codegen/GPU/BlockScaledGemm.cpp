//===- BlockScaledGemm.cpp - FP4 times FP4 by tiles -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mma.block_scale m16n8k64 on the ring of GemmRing.h. Scales come to registers a slab ahead, past
// shared memory: a word of them serves two tiles of activations, or four of weights.
//
//===----------------------------------------------------------------------===//

#include "BlockProducts.h"
#include "LinearKernels.h"
#include "ResultWriter.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class BlockScaledGemm {
public:
  BlockScaledGemm(KernelBuilder &b, const BlockScaledSpec &spec, const GemmTile &tile,
                  const KernelArguments &arguments, TilePlace place)
      : b(b), ring(b, {spec.n, spec.k, spec.bits, 0, 1, 1, /*perByte=*/2}, tile, arguments["codes"],
                   blockCodeBytes(spec.k), blockCodeBytes(spec.k), arguments["w"],
                   arguments["rows"], place),
        products(b, spec, arguments, ring.lane),
        writer(b, {spec.n, spec.bias, spec.accumulate, spec.output}, arguments, 2) {
    // Results of rows that are not there are not written.
    for (int64_t i = 0; i < ring.mTiles(); i += kTilesOfRows)
      scaleRows.push_back(b.min(b.add(b.sub(ring.rowOf(i, 0), ring.quad), products.scaleRow()),
                                b.sub(ring.rows, 1)));
    for (int64_t j = 0; j < ring.nTiles(); j += kTilesOfColumns)
      scaleColumns.push_back(
          b.add(b.add(ring.columnOfWarp, j * GemmRing::kN), products.scaleRow()));
  }

  void emit();

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kState = GemmRing::kState;
  /// Tiles that share a word of scales.
  static constexpr int64_t kTilesOfRows = BlockProducts::kScaleRows / GemmRing::kM,
                           kTilesOfColumns = BlockProducts::kScaleRows / GemmRing::kN;

  int64_t scalesOfStep() const { return std::ssize(scaleRows) + std::ssize(scaleColumns); }
  /// The words of a slab: for each step those of rows, then those of columns.
  Values scalesOf(Value slab);
  void multiplyStep(Value stage, int64_t step, ValueRange scales, Values &sums);

  KernelBuilder &b;
  GemmRing ring;
  BlockProducts products;
  ResultWriter writer;
  Values scaleRows, scaleColumns; ///< whose scales this lane brings
};

} // namespace

BlockScaledGemm::Values BlockScaledGemm::scalesOf(Value slab) {
  Values words;
  for (int64_t i = 0; i < ring.steps(); ++i) {
    Value step = b.add(b.mul(slab, ring.steps()), i);
    for (Value m : scaleRows)
      words.push_back(products.activationScales(step, m));
    for (Value n : scaleColumns)
      words.push_back(products.weightScales(step, n));
  }
  return words;
}

void BlockScaledGemm::multiplyStep(Value stage, int64_t step, ValueRange scales, Values &sums) {
  ValueRange ofRows = scales.take_front(scaleRows.size()),
             ofColumns = scales.drop_front(scaleRows.size());
  SmallVector<Values> a;
  for (int64_t i = 0; i < ring.mTiles(); ++i)
    a.push_back(ring.loadActivations(stage, i, step));
  for (int64_t down = 0; down < ring.blocksDown(); ++down) {
    const Values first = products.load(ring.weightBlock(stage, down, 2 * step), false, Value()),
                 second =
                     products.load(ring.weightBlock(stage, down, 2 * step + 1), false, Value());
    for (int64_t t = 0; t < kTilesOfColumns; ++t) {
      const int64_t j = down * kTilesOfColumns + t;
      const Values w = products.weights(first[t], second[t]);
      for (int64_t i = 0; i < ring.mTiles(); ++i) {
        const int64_t at = ring.at(i, j, 0);
        Values d = products.multiply(a[i], w, ArrayRef(sums).slice(at, 4), ofRows[i / kTilesOfRows],
                                     i, ofColumns[j / kTilesOfColumns], j);
        llvm::copy(d, sums.begin() + at);
      }
    }
  }
}

void BlockScaledGemm::emit() {
  Values carried = ring.begin();
  carried.append(ring.registers(), b.zero(b.f32()));
  llvm::append_range(carried, scalesOf(b.i32(0)));
  carried = ring.multiply(ring.slabs(), carried, [&](Value slab, Value stage, Values state) {
    const Values next = scalesOf(b.add(slab, 1));
    Values sums(ArrayRef(state).take_front(ring.registers()));
    const ArrayRef<Value> scales = ArrayRef(state).drop_front(ring.registers());
    for (int64_t step = 0; step < ring.steps(); ++step)
      multiplyStep(stage, step, scales.slice(step * scalesOfStep(), scalesOfStep()), sums);
    llvm::append_range(sums, next);
    return sums;
  });
  ring.end();
  writer.columnsAreWhole = ring.columnsAreWhole();
  const ArrayRef<Value> sums = ArrayRef(carried).slice(kState, ring.registers());
  Values outer;
  for (int64_t j = 0; j < ring.nTiles(); ++j)
    llvm::append_range(outer, products.outerOfColumns(ring.paddedColumn(ring.columnOf(j), 2), 2));
  ring.forRows([&](int64_t i, int64_t half, Value m) {
    Value ofRow = products.outerOfRow(m);
    for (int64_t j = 0; j < ring.nTiles(); ++j) {
      Values values(sums.slice(ring.at(i, j, 2 * half), 2));
      for (int64_t c = 0; c < 2; ++c)
        values[c] = b.mulf(ofRow, b.mulf(outer[2 * j + c], values[c]));
      writer.write(m, ring.columnOf(j), values);
    }
  });
}

void emitMatrixLinear(KernelBuilder &b, const BlockScaledSpec &spec, const GemmTile &tile,
                      const KernelArguments &arguments, TilePlace place) {
  BlockScaledGemm(b, spec, tile, arguments, place).emit();
}

} // namespace easyquant::gpu
