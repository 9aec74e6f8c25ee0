//===- AttentionScalar.cpp - Attention by fma -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For heads whose dimension is no multiple of 16. A warp has every fourth query of the block. Lanes
// have tokens while scores are computed, and dimensions while values are weighed; keys and values
// take turns in shared memory, as f32.
//
//===----------------------------------------------------------------------===//

#include "AttentionBlock.h"

#include <limits>

using namespace mlir;

namespace easyquant::gpu {
namespace {

class ScalarAttention {
public:
  ScalarAttention(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                  const KernelArguments &arguments, Value item)
      : b(b), block(b, spec, kernel, arguments, item), spec(spec), tile(kernel.tile),
        places(spec, tile, kernel.form == AttentionKernel::Split), shared(b.dynamicSharedMemory()),
        tiles(b, block, places, shared), queries(tile.queries / tile.warps),
        columns(divideCeil(spec.headDim, 32)) {}

  void emit();

private:
  using Values = KernelBuilder::Values;

  /// Query j of the warp.
  Value queryOf(int64_t j) { return b.add(warp, j * tile.warps); }
  Value place(int64_t part, Int offset) { return b.advance(shared, b.add(offset, part), b.i8()); }
  /// State: for each query maximum, sum, and the output's columns.
  int64_t at(int64_t j) const { return j * (2 + columns); }
  Value columnOf(int64_t c) { return b.add(lane, c * 32); }
  Value insideOf(int64_t c) {
    return (c + 1) * 32 > spec.headDim ? b.less(columnOf(c), spec.headDim) : Value();
  }
  void loadQueries();
  Values step(Value tileIndex, ValueRange state);
  Values scores();
  Values weigh(Values state);
  void write(const Values &state);

  KernelBuilder &b;
  AttentionBlock block;
  const AttentionSpec &spec;
  const AttentionTile &tile;
  const AttentionShared places;
  Value shared;
  KeyValueTiles tiles;
  const int64_t queries, columns;
  Value warp, lane;
};

} // namespace

void ScalarAttention::loadQueries() {
  Value scale = b.constant(b.f32(), block.queryScale());
  b.forLoop(b.thread(), tile.queries * spec.headDim, tile.threads(), [&](Value index) {
    Value u = b.div(index, spec.headDim), dim = b.rem(index, spec.headDim);
    Value from = b.advance(block.queryRow(block.query(u)), dim, b.f32());
    b.store(b.mulf(b.load(from, b.f32(), /*constant=*/true), scale),
            place(places.queries, b.mul(index, 4)));
  });
}

/// The scores of the token of this lane.
ScalarAttention::Values ScalarAttention::scores() {
  Value key = place(places.keys, b.mul(lane, places.rowBytes));
  Values sums(queries, b.zero(b.f32()));
  return b.forLoop(0, spec.headDim, 1, sums, [&](Value dim, ValueRange carried) {
    Value k = b.load(b.advance(key, dim, b.f32()), b.f32());
    Values next;
    for (int64_t j = 0; j < queries; ++j) {
      Value q = b.load(place(places.queries, b.mul(b.add(b.mul(queryOf(j), spec.headDim), dim), 4)),
                       b.f32());
      next.push_back(b.fma(q, k, carried[j]));
    }
    return next;
  });
}

ScalarAttention::Values ScalarAttention::weigh(Values state) {
  return b.forLoop(0, tile.tokens, 1, state, [&](Value token, ValueRange carried) {
    Values next(carried.begin(), carried.end());
    Value row = place(places.values, b.mul(token, places.rowBytes));
    Values v;
    for (int64_t c = 0; c < columns; ++c) // behind the end, the last column once more
      v.push_back(b.load(b.advance(row, b.min(columnOf(c), spec.headDim - 1), b.f32()), b.f32()));
    for (int64_t j = 0; j < queries; ++j) {
      Value at = b.add(b.mul(queryOf(j), tile.tokens), token);
      Value weight = b.load(place(places.weights, b.mul(at, 4)), b.f32());
      for (int64_t c = 0; c < columns; ++c) {
        Value &o = next[this->at(j) + 2 + c];
        o = b.fma(weight, v[c], o);
      }
    }
    return next;
  });
}

ScalarAttention::Values ScalarAttention::step(Value tileIndex, ValueRange carried) {
  Value first = block.firstToken(tileIndex), token = b.add(first, lane);
  Values state(carried.begin(), carried.end());
  b.barrier(); // all are through with the values before
  tiles.startKeys(first);
  tiles.finishKeys(first);
  Values s = scores();
  Value hidden = b.constant(b.f32(), -std::numeric_limits<double>::infinity());
  for (int64_t j = 0; j < queries; ++j) {
    AttentionBlock::Query query = block.query(queryOf(j));
    Value seen = b.less(token, query.end);
    if (block.masksFirst())
      seen = b.both(seen, b.less(b.sub(query.first, 1), token));
    Value score = b.select(seen, block.bounded(s[j]), hidden);
    Value &maximum = state[at(j)], &sum = state[at(j) + 1];
    Value largest = b.maxf(maximum, warpMax(b, score));
    Value decay = b.exp2Approximate(b.subf(maximum, largest));
    Value weight = b.exp2Approximate(b.subf(score, largest));
    maximum = largest;
    sum = b.fma(sum, decay, b.warpSum(weight));
    for (int64_t c = 0; c < columns; ++c) {
      Value &o = state[at(j) + 2 + c];
      o = b.mulf(o, decay);
    }
    Value to = b.add(b.mul(queryOf(j), tile.tokens), lane);
    b.store(weight, place(places.weights, b.mul(to, 4)));
  }
  b.barrier(); // all are through with the keys, and weights are there
  tiles.startValues(first);
  tiles.finishValues();
  return weigh(state);
}

void ScalarAttention::write(const Values &state) {
  for (int64_t j = 0; j < queries; ++j) {
    AttentionBlock::Query query = block.query(queryOf(j));
    b.ifThen(query.valid, [&] {
      block.forResult([&](bool isPart) {
        Value maximum = state[at(j)], sum = state[at(j) + 1], part = block.piece.part;
        Value row = isPart ? block.partialRow(query, part) : block.outputRow(query);
        Value inverse = isPart ? Value() : block.normalizer(query, maximum, sum);
        const Float output = isPart ? Float::F32 : spec.output;
        for (int64_t c = 0; c < columns; ++c)
          b.ifThen(insideOf(c), [&] {
            Value o = state[at(j) + 2 + c];
            b.store(b.fromF32(isPart ? o : b.mulf(o, inverse), output),
                    b.advance(row, columnOf(c), b.type(output)));
          });
        if (isPart)
          b.ifThen(b.equal(lane, 0),
                   [&] { b.store(b.join({maximum, sum}), block.partialMerge(query, part)); });
      });
    });
  }
}

void ScalarAttention::emit() {
  warp = b.div(b.thread(), 32);
  lane = b.rem(b.thread(), 32);
  loadQueries();
  Values state(queries * (2 + columns), b.zero(b.f32()));
  for (int64_t j = 0; j < queries; ++j)
    state[at(j)] = b.constant(b.f32(), kLeastMaximum);
  state = b.forLoop(block.firstTile, block.endTile, 1, state,
                    [&](Value tile, ValueRange carried) { return step(tile, carried); });
  write(state);
  if (block.kernel.cut.tokens > 0)
    b.ifThen(b.less(1, block.piece.parts), [&] { emitCombine(b, block, shared); });
}

void emitScalarAttention(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                         const KernelArguments &arguments, Value item) {
  ScalarAttention(b, spec, kernel, arguments, item).emit();
}

} // namespace easyquant::gpu
