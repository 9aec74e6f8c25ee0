//===- AttentionCombine.cpp - Parts of the tokens into one ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The block that ends the last part of a tile of queries, whichever that is, adds up all parts in
// their order. A warp has every fourth query: first its lanes have parts, whose maxima and sums of
// weights they merge, then dimensions.
//
//===----------------------------------------------------------------------===//

#include "AttentionBlock.h"

#include <numeric>

using namespace mlir;

namespace easyquant::gpu {
namespace {

class CombineEmitter {
public:
  CombineEmitter(KernelBuilder &b, AttentionBlock &block)
      : b(b), block(block), width(std::gcd<int64_t>(block.spec.headDim, 4)),
        passes(divideCeil(block.spec.headDim, 32 * width)),
        atOnce(std::max<int64_t>(1, 8 / passes)), lane(b.rem(b.thread(), 32)) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  /// Maximum and sum of weights over all parts.
  std::pair<Value, Value> merge(const AttentionBlock::Query &query);
  void combine(const AttentionBlock::Query &query);
  Value columnOf(int64_t pass) { return b.add(b.mul(lane, width), pass * 32 * width); }
  Value insideOf(int64_t pass) {
    const int64_t headDim = block.spec.headDim;
    return (pass + 1) * 32 * width > headDim ? b.less(columnOf(pass), headDim) : Value();
  }

  KernelBuilder &b;
  AttentionBlock &block;
  const int64_t width, passes; ///< dimensions of a lane at once; how often
  const int64_t atOnce;        ///< parts whose loads are under way together
  Value lane;
};

} // namespace

std::pair<Value, Value> CombineEmitter::merge(const AttentionBlock::Query &query) {
  Type pair = b.vec(2, b.f32());
  Value parts = block.piece.parts, least = b.constant(b.f32(), kLeastMaximum);
  Value none = b.join({least, b.zero(b.f32())});
  Values merged = b.forLoop(
      0, parts, 32, {least, b.zero(b.f32())}, [&](Value first, ValueRange carried) -> Values {
        Value part = b.add(first, lane);
        Value own = b.guarded(b.less(part, parts), none,
                              [&] { return b.load(block.partialMerge(query, part), pair); });
        Value maximum = b.maxf(b.extract(own, 0), carried[0]);
        auto weighed = [&](Value m, Value sum) {
          return b.mulf(b.exp2Approximate(b.subf(m, maximum)), sum);
        };
        return {maximum, b.addf(weighed(carried[0], carried[1]),
                                weighed(b.extract(own, 0), b.extract(own, 1)))};
      });
  Value maximum = warpMax(b, merged[0]);
  Value factor = b.exp2Approximate(b.subf(merged[0], maximum));
  return {maximum, b.warpSum(b.mulf(factor, merged[1]))};
}

void CombineEmitter::combine(const AttentionBlock::Query &query) {
  Type run = width == 1 ? b.f32() : Type(b.vec(width, b.f32()));
  auto [maximum, total] = merge(query);
  Value parts = block.piece.parts, last = b.sub(parts, 1);
  Values sums(passes * width, b.zero(b.f32()));
  sums = b.forLoop(0, parts, atOnce, sums, [&](Value first, ValueRange carried) {
    Values factors, values;
    for (int64_t i = 0; i < atOnce; ++i) {
      // Behind the end, the last part once more, which counts for nothing.
      Value number = b.add(first, i), part = b.min(number, last);
      Value factor =
          b.exp2Approximate(b.subf(b.load(block.partialMerge(query, part), b.f32()), maximum));
      factors.push_back(b.select(b.less(number, parts), factor, b.zero(b.f32())));
      for (int64_t pass = 0; pass < passes; ++pass)
        values.push_back(b.guarded(insideOf(pass), b.zero(run), [&] {
          return b.load(b.advance(block.partialRow(query, part), columnOf(pass), b.f32()), run);
        }));
    }
    Values next(carried.begin(), carried.end());
    for (int64_t i = 0; i < atOnce; ++i)
      for (int64_t pass = 0; pass < passes; ++pass)
        for (int64_t j = 0; j < width; ++j) {
          Value &sum = next[pass * width + j];
          sum = b.fma(b.extract(values[i * passes + pass], j), factors[i], sum);
        }
    return next;
  });
  Value inverse = block.normalizer(query, maximum, total);
  const Float output = block.spec.output;
  Value y = block.outputRow(query);
  for (int64_t pass = 0; pass < passes; ++pass)
    b.ifThen(insideOf(pass), [&] {
      Values own;
      for (int64_t j = 0; j < width; ++j)
        own.push_back(b.mulf(sums[pass * width + j], inverse));
      b.store(b.fromF32(b.join(own), output), b.advance(y, columnOf(pass), b.type(output)));
    });
}

void CombineEmitter::emit() {
  const AttentionTile &tile = block.kernel.tile;
  b.forLoop(b.div(b.thread(), 32), tile.queries, tile.warps, [&](Value u) {
    AttentionBlock::Query query = block.query(u);
    // The same for all lanes.
    b.ifThen(query.valid, [&] { combine(query); });
  });
}

void emitCombine(KernelBuilder &b, AttentionBlock &block, Value shared) {
  b.ifLastBlock(b.sub(block.piece.parts, 1), block.counter, shared,
                [&] { CombineEmitter(b, block).emit(); });
}

} // namespace easyquant::gpu
