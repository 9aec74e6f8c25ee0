//===- HalfGemm.cpp - Float activations times packed weights --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mma.sync m16n8k16 on f16 or bf16, on the ring of IntegerGemm.cpp: slabs arrive by cp.async while
// those before are multiplied, activations come into registers by ldmatrix, weights packed, 16
// bytes a lane and block, and become floats there (HalfWeights.h).
//
// With scales per group, the sums of one group are added to those of all with the group's scales,
// which were fetched when the group began. Zero points are needed from its first product on, so
// that those of the next group are fetched one group ahead.
//
//===----------------------------------------------------------------------===//

#include "HalfWeights.h"
#include "ResultWriter.h"
#include "TileCopy.h"
#include "WeightOnlyKernels.h"

#include "easyquant/Numerics/FragmentPacking.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class HalfGemm {
public:
  HalfGemm(KernelBuilder &b, const WeightOnlySpec &spec, const GemmTile &tile,
           const KernelArguments &arguments)
      : b(b), spec(spec), tile(tile), arguments(arguments), activations{tile.slab * 2},
        weights(b, spec.bits, spec.input),
        writer(b, {spec.n, spec.bias, spec.accumulate, spec.output}, arguments, 2) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kM = 16, kN = 8, kK = 16; ///< of an mma
  static constexpr int64_t kColumns = numerics::kFragmentColumns;
  static constexpr int64_t kRing = 3; ///< loop values before the others: slab, read, fill

  int64_t warpTileRows() const { return tile.rows / tile.warpRows; }
  int64_t warpTileColumns() const { return tile.columns / tile.warpColumns; }
  int64_t mTiles() const { return warpTileRows() / kM; }
  int64_t nTiles() const { return warpTileColumns() / kN; }
  int64_t rowsOfBlock() const { return numerics::fragmentRows(spec.bits); }
  int64_t blockBytes() const { return numerics::fragmentBytes(spec.bits); }
  int64_t slabBlocks() const { return tile.slab / kColumns; }
  int64_t columnBlocks() const { return llvm::divideCeil(spec.k, kColumns); }
  bool grouped() const { return spec.groups() > 1; }
  int64_t slabsOfGroup() const { return spec.groupSize / tile.slab; }
  int64_t slabs() const {
    return grouped() ? spec.groups() * slabsOfGroup() : llvm::divideCeil(spec.k, tile.slab);
  }
  int64_t activationBytes() const { return tile.rows * activations.bytes; }
  int64_t stageBytes() const {
    return activationBytes() + tile.columns / rowsOfBlock() * slabBlocks() * blockBytes();
  }
  /// Index of accumulator register `r` of tile (i, j).
  int64_t at(int64_t i, int64_t j, int64_t r) const { return (i * nTiles() + j) * 4 + r; }

  void placeLanes();
  void startCopy(Value slab, Value stage);
  Values loadActivations(Value stage, int64_t i, int64_t step);
  Values multiplySlab(Value stage, Values accumulators, ValueRange zeros);
  /// One slab of the ring: waits for it, starts another copy, multiplies. carried: slab, stage
  /// offset to read, stage offset to fill, accumulators.
  Values step(ValueRange carried, ValueRange zeros);
  /// Of column `n`, or the last one that scales are padded to.
  Value paddedColumn(Value n, int64_t width);
  /// Scales of the two columns of each tile that this thread has sums of.
  Values scalesOf(Value group);
  /// Zero points (i8) of the rows of weights that this lane unpacks, one a tile.
  Values zeroBytesOf(Value group);
  Values zeroPairs(ValueRange bytes);
  Values multiplyGroups(Values ring);
  void write(ValueRange sums, ValueRange scales);

  KernelBuilder &b;
  const WeightOnlySpec &spec;
  const GemmTile &tile;
  const KernelArguments &arguments;
  SwizzledRows activations;
  HalfWeights weights;
  ResultWriter writer;

  std::optional<RowCopy> rowCopy;
  std::optional<BlockCopy> blockCopy;
  Value shared;
  Value rows, lane;
  Value firstRow, firstColumn; ///< this thread's first row and column of y
  Value firstWeight;           ///< the first row of weights that this lane unpacks
  Values activationOffsets;    ///< of this lane for ldmatrix, one a step of the slab
  Value weightOffset;          ///< of this warp
};

} // namespace

void HalfGemm::startCopy(Value slab, Value stage) {
  b.ifThen(b.less(slab, slabs()), [&] {
    rowCopy->copy(slab, b.advance(shared, stage, b.i8()));
    blockCopy->copy(slab, b.advance(shared, b.add(stage, activationBytes()), b.i8()));
  });
  // An empty group keeps the count of groups under way the same to the end.
  b.commitCopies();
}

HalfGemm::Values HalfGemm::loadActivations(Value stage, int64_t i, int64_t step) {
  Value pointer = b.advance(shared, b.add(stage, activationOffsets[step]), b.i8());
  return b.loadMatrix4(b.advance(pointer, i * kM * activations.bytes, b.i8()));
}

HalfGemm::Values HalfGemm::multiplySlab(Value stage, Values accumulators, ValueRange zeros) {
  Value weightsOfWarp = b.advance(shared, b.add(stage, weightOffset), b.i8());
  for (int64_t column = 0; column < slabBlocks(); ++column) {
    SmallVector<HalfWeights::Tile> w;
    for (int64_t row = 0; row < warpTileColumns() / rowsOfBlock(); ++row) {
      int64_t offset = activationBytes() + (row * slabBlocks() + column) * blockBytes();
      Values words = weights.load(b.advance(weightsOfWarp, offset, b.i8()), lane,
                                  /*constant=*/false, Value());
      int64_t tiles = rowsOfBlock() / 8;
      llvm::append_range(
          w, weights.unpack(words, zeros.empty() ? zeros : zeros.slice(row * tiles, tiles)));
    }
    for (int64_t half = 0; half < kColumns / kK; ++half) {
      SmallVector<Values> a;
      for (int64_t i = 0; i < mTiles(); ++i)
        a.push_back(loadActivations(stage, i, column * (kColumns / kK) + half));
      for (int64_t i = 0; i < mTiles(); ++i)
        for (int64_t j = 0; j < nTiles(); ++j) {
          Values d = b.multiplyHalves(spec.input, a[i], ArrayRef<Value>(w[j]).slice(2 * half, 2),
                                      ArrayRef(accumulators).slice(at(i, j, 0), 4));
          llvm::copy(d, accumulators.begin() + at(i, j, 0));
        }
    }
  }
  return accumulators;
}

HalfGemm::Values HalfGemm::step(ValueRange carried, ValueRange zeros) {
  Value slab = carried[0], read = carried[1], fill = carried[2];
  b.waitForCopies(tile.stages - 2);
  b.barrier();
  startCopy(b.add(slab, tile.stages - 1), fill);
  Values accumulators = multiplySlab(read, Values(carried.drop_front(kRing)), zeros);
  auto next = [&](Value offset) {
    Value after = b.add(offset, stageBytes());
    return b.select(b.equal(after, tile.stages * stageBytes()), b.i32(0), after);
  };
  Values results = {b.add(slab, 1), next(read), next(fill)};
  llvm::append_range(results, accumulators);
  return results;
}

Value HalfGemm::paddedColumn(Value n, int64_t width) {
  if (spec.n % tile.columns == 0)
    return n;
  return b.min(n, numerics::fragmentScaleRows(spec.n) - width);
}

HalfGemm::Values HalfGemm::scalesOf(Value group) {
  Values scales;
  Value base = b.mul(group, numerics::fragmentScaleRows(spec.n));
  for (int64_t j = 0; j < nTiles(); ++j) {
    Value n = paddedColumn(b.add(firstColumn, j * kN), 2);
    Value two = b.load(b.advance(arguments["wscales"], b.add(base, n), b.f32()), b.vec(2, b.f32()),
                       /*constant=*/true);
    scales.push_back(b.extract(two, 0));
    scales.push_back(b.extract(two, 1));
  }
  return scales;
}

HalfGemm::Values HalfGemm::zeroBytesOf(Value group) {
  Values bytes;
  if (!spec.zeroPoints)
    return bytes;
  Value base = b.mul(group, numerics::fragmentScaleRows(spec.n));
  for (int64_t j = 0; j < nTiles(); ++j) {
    Value n = paddedColumn(b.add(firstWeight, j * kN), 1);
    bytes.push_back(b.load(b.advance(arguments["wzeros"], b.add(base, n), b.i8()), b.i8(),
                           /*constant=*/true));
  }
  return bytes;
}

HalfGemm::Values HalfGemm::zeroPairs(ValueRange bytes) {
  return llvm::map_to_vector(bytes, [&](Value byte) { return weights.zeroPair(byte); });
}

HalfGemm::Values HalfGemm::multiplyGroups(Values ring) {
  int64_t count = at(mTiles(), 0, 0);
  Value zero = b.zero(b.f32());
  Values carried = ring;
  llvm::append_range(carried, zeroBytesOf(b.i32(0)));
  int64_t sumsBegin = carried.size();
  carried.append(count, zero);
  carried = b.forLoop(0, spec.groups(), 1, carried, [&](Value group, ValueRange carried) {
    Values scales = scalesOf(group);
    Values zeros = zeroPairs(carried.slice(kRing, sumsBegin - kRing));
    Values nextZeros = zeroBytesOf(b.min(b.add(group, 1), spec.groups() - 1));
    Values inner(carried.take_front(kRing));
    inner.append(count, zero);
    inner = b.forLoop(0, slabsOfGroup(), 1, inner,
                      [&](Value, ValueRange carried) { return step(carried, zeros); });
    Values results(ArrayRef(inner).take_front(kRing));
    llvm::append_range(results, nextZeros);
    for (int64_t i = 0; i < mTiles(); ++i)
      for (int64_t j = 0; j < nTiles(); ++j)
        for (int64_t r = 0; r < 4; ++r)
          results.push_back(b.fma(scales[2 * j + r % 2], inner[kRing + at(i, j, r)],
                                  carried[sumsBegin + at(i, j, r)]));
    return results;
  });
  return Values(ArrayRef(carried).drop_front(sumsBegin));
}

void HalfGemm::write(ValueRange sums, ValueRange scales) {
  writer.columnsAreWhole = spec.n % tile.columns == 0;
  for (int64_t i = 0; i < mTiles(); ++i)
    for (int64_t half = 0; half < 2; ++half) {
      Value m = b.add(firstRow, i * kM + half * 8);
      b.ifThen(b.less(m, rows), [&] {
        for (int64_t j = 0; j < nTiles(); ++j) {
          Values values(sums.slice(at(i, j, 2 * half), 2));
          for (int64_t c = 0; c < 2 && !scales.empty(); ++c)
            values[c] = b.mulf(scales[2 * j + c], values[c]);
          writer.write(m, b.add(firstColumn, j * kN), values);
        }
      });
    }
}

void HalfGemm::placeLanes() {
  Value thread = b.thread(), warp = b.div(thread, 32);
  lane = b.rem(thread, 32);
  Value warpRow = b.div(warp, tile.warpColumns), warpColumn = b.rem(warp, tile.warpColumns);
  Value blockRow = b.mul(b.block(0), tile.rows), blockColumn = b.mul(b.block(1), tile.columns);

  int64_t blocksDown = tile.columns / rowsOfBlock();
  rowCopy.emplace(b, activations, tile.rows, tile.threads(), arguments["x"],
                  b.mul(arguments["x_stride"], 2), spec.k * 2, slabs(), blockRow, rows);
  blockCopy.emplace(b, spec.bits, blocksDown, slabBlocks(), tile.threads(), arguments["w"],
                    b.mul(b.block(1), blocksDown), llvm::divideCeil(spec.n, rowsOfBlock()),
                    columnBlocks(), slabs());

  // Lanes 0 .. 15 name the rows of the left 16 bytes, the others those of the right ones. A warp's
  // first row is a multiple of 16, which the swizzle does not see.
  Value row = b.rem(lane, 16), right = b.div(lane, 16);
  Value warpOffset = b.mul(warpRow, warpTileRows() * activations.bytes);
  for (int64_t step = 0; step < tile.slab / kK; ++step)
    activationOffsets.push_back(
        b.add(warpOffset, activations.offset(b, row, b.add(right, 2 * step))));
  int64_t blocksOfWarp = warpTileColumns() / rowsOfBlock() * slabBlocks();
  weightOffset = b.mul(warpColumn, blocksOfWarp * blockBytes());
  firstRow = b.add(b.add(blockRow, b.mul(warpRow, warpTileRows())), b.div(lane, 4));
  Value columnOfWarp = b.add(blockColumn, b.mul(warpColumn, warpTileColumns()));
  firstColumn = b.add(columnOfWarp, b.mul(b.rem(lane, 4), 2));
  firstWeight = b.add(columnOfWarp, b.div(lane, 4));
}

void HalfGemm::emit() {
  rows = arguments["rows"];
  shared = b.dynamicSharedMemory();
  placeLanes();
  for (int64_t stage = 0; stage < tile.stages - 1; ++stage)
    startCopy(b.i32(stage), b.i32(stage * stageBytes()));
  Values ring = {b.i32(0), b.i32(0), b.i32((tile.stages - 1) * stageBytes())};
  Values sums, scales;
  if (grouped()) {
    sums = multiplyGroups(ring);
  } else {
    Values zeros = zeroPairs(zeroBytesOf(b.i32(0)));
    ring.append(at(mTiles(), 0, 0), b.zero(b.f32()));
    ring = b.forLoop(0, slabs(), 1, ring,
                     [&](Value, ValueRange carried) { return step(carried, zeros); });
    sums = Values(ArrayRef(ring).drop_front(kRing));
    if (!spec.isFloat())
      scales = scalesOf(b.i32(0));
  }
  // Copies of the last, empty groups are complete; none outlives the block.
  b.waitForCopies(0);
  write(sums, scales);
}

void emitMatrixLinear(KernelBuilder &b, const WeightOnlySpec &spec, const GemmTile &tile,
                      const KernelArguments &arguments) {
  HalfGemm(b, spec, tile, arguments).emit();
}

} // namespace easyquant::gpu
