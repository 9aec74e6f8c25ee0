//===- BlockScaledDot.cpp - A few rows of FP4 times FP4 -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With few rows all that matters is to read the weights at full speed. They go from memory to
// registers, 16 bytes a lane and block, and so do activations, which all blocks of the grid read. A
// block of threads has 32 rows of weights, and its warps share K: warp w has the steps w, w + 8,
// ..., whose sums meet in shared memory and are added in the order of the warps.
//
//===----------------------------------------------------------------------===//

#include "BlockProducts.h"
#include "LinearKernels.h"
#include "ResultWriter.h"

#include "easyquant/Numerics/FragmentPacking.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class BlockScaledDot {
public:
  BlockScaledDot(KernelBuilder &b, const BlockScaledSpec &spec, const KernelArguments &arguments)
      : b(b), spec(spec), arguments(arguments), lane(b.rem(b.thread(), 32)),
        products(b, spec, arguments, lane),
        writer(b, {spec.n, spec.bias, spec.accumulate, spec.output}, arguments, 1) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kWarps = kDotThreads / 32;
  static constexpr int64_t kUnroll = 4; ///< steps of a warp whose loads are under way
  static constexpr int64_t kColumns = 32, kTiles = kColumns / 8; ///< of y in a block
  static constexpr int64_t kStride =
      kColumns + 8; ///< of sums: lanes store pairs, without conflicts

  int64_t columnBlocks() const { return divideCeil(spec.k, numerics::kFragmentColumns); }
  /// Adds the products of a step that is `there` (null: it is).
  Values addStep(Value step, Value there, Values sums);
  Values addAll();
  Value slot(Int warp, Int row, Value column) {
    Value at = b.add(b.mul(b.add(b.mul(warp, kMatrixRows), row), kStride), column);
    return b.advance(shared, at, b.f32());
  }

  KernelBuilder &b;
  const BlockScaledSpec &spec;
  const KernelArguments &arguments;
  const Value lane;
  BlockProducts products;
  ResultWriter writer;
  Value warp, weights, shared;
  std::array<Value, 2> rows; ///< of codes, from the lane's word on
  Value scaleRow, scaleColumn;
};

} // namespace

BlockScaledDot::Values BlockScaledDot::addStep(Value step, Value there, Values sums) {
  std::array<Values, 2> words;
  for (int64_t i = 0; i < 2; ++i) {
    Value block = b.add(b.mul(step, 2), i), valid = there;
    if (i == 1 && columnBlocks() % 2 != 0)
      valid = b.both(valid, b.less(block, columnBlocks()));
    Value pointer = b.advance(weights, b.mul(block, numerics::fragmentBytes(spec.bits)), b.i8());
    words[i] = products.load(pointer, /*constant=*/true, valid);
  }
  Values a;
  for (int64_t half = 0; half < 2; ++half)
    for (Value row : rows) {
      Value at = b.add(b.mul(step, kBlockStep / 2), 16 * half);
      a.push_back(b.guarded(there, b.i32(0),
                            [&] { return b.load(b.advance(row, at, b.i8()), b.i32(), true); }));
    }
  Value aScales = products.activationScales(step, scaleRow),
        wScales = products.weightScales(step, scaleColumn);
  for (int64_t t = 0; t < kTiles; ++t) {
    Values d = products.multiply(a, products.weights(words[0][t], words[1][t]),
                                 ArrayRef(sums).slice(4 * t, 4), aScales, 0, wScales, t);
    llvm::copy(d, sums.begin() + 4 * t);
  }
  return sums;
}

BlockScaledDot::Values BlockScaledDot::addAll() {
  const int64_t ofWarp = divideCeil(spec.steps(), kWarps), unroll = std::min(kUnroll, ofWarp);
  const int64_t trips = divideCeil(ofWarp, unroll);
  const bool certain = trips * unroll * kWarps == spec.steps();
  Values sums(4 * kTiles, b.zero(b.f32()));
  return b.forLoop(0, trips, 1, sums, [&](Value trip, ValueRange carried) {
    Values sums(carried);
    Value first = b.add(b.mul(trip, unroll * kWarps), warp);
    for (int64_t u = 0; u < unroll; ++u) {
      Value step = b.add(first, u * kWarps);
      sums = addStep(step, certain ? Value() : b.less(step, spec.steps()), sums);
    }
    return sums;
  });
}

void BlockScaledDot::emit() {
  Value thread = b.thread(), quad = b.div(lane, 4), quarter = b.rem(lane, 4);
  Value firstRow = b.mul(b.block(1), kMatrixRows), firstColumn = b.mul(b.block(0), kColumns);
  Value rowCount = arguments["rows"], last = b.sub(rowCount, 1);
  warp = b.warp();
  weights = b.rowOf(arguments["w"], b.block(0), columnBlocks() * numerics::fragmentBytes(spec.bits),
                    b.i8());
  // Lanes without a row read the last.
  for (int64_t half = 0; half < 2; ++half) {
    Value row = b.min(b.add(b.add(firstRow, quad), 8 * half), last);
    rows[half] = b.advance(b.rowOf(arguments["codes"], row, blockCodeBytes(spec.k), b.i8()),
                           b.mul(quarter, 4), b.i8());
  }
  scaleRow = b.min(b.add(firstRow, products.scaleRow()), last);
  scaleColumn = b.add(firstColumn, products.scaleRow());
  shared = b.sharedMemory(kWarps * kMatrixRows * kStride * 4);

  const Values sums = addAll();
  for (int64_t t = 0; t < kTiles; ++t)
    for (int64_t half = 0; half < 2; ++half) {
      Value pair = b.join({sums[4 * t + 2 * half], sums[4 * t + 2 * half + 1]});
      b.store(pair, slot(warp, b.add(quad, 8 * half), b.add(b.mul(quarter, 2), 8 * t)));
    }
  b.barrier();
  writer.columnsAreWhole = spec.n % kColumns == 0;
  Value column = b.rem(thread, kColumns), n = b.add(firstColumn, column);
  for (int64_t first = 0; first < kMatrixRows; first += kDotThreads / kColumns) {
    Value row = b.add(b.div(thread, kColumns), first), m = b.add(firstRow, row);
    b.ifThen(b.less(m, rowCount), [&] {
      Value sum = b.load(slot(0, row, column), b.f32());
      for (int64_t w = 1; w < kWarps; ++w)
        sum = b.addf(sum, b.load(slot(w, row, column), b.f32()));
      Value outer = products.outerOfColumns(n, 1).front();
      writer.write(m, n, b.mulf(products.outerOfRow(m), b.mulf(outer, sum)));
    });
  }
}

void emitDotLinear(KernelBuilder &b, const BlockScaledSpec &spec,
                   const KernelArguments &arguments) {
  BlockScaledDot(b, spec, arguments).emit();
}

} // namespace easyquant::gpu
