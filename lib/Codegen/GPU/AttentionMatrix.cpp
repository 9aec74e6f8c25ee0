//===- AttentionMatrix.cpp - Attention by mma.sync ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// m16n8k16 on f16, sums in f32. A warp has 16 queries as fragments; scores come out in the layout
// in which weights go into the product with values, so that nothing passes through memory between.
// While keys are multiplied values are under way, and the next keys while values are (of a float
// cache: by cp.async).
//
// With many queries every warp has some of its own and sees all tokens of a tile. With few, all
// warps have the same ones, each sees 16 tokens of a tile with a maximum and sum of its own, and
// the results of the warps are merged in the end, in shared memory.
//
// Heads of more than 256 dimensions have too many for a warp's registers. Four warps have the same
// queries and tokens then, each with all of the scores, and a quarter of the result.
//
//===----------------------------------------------------------------------===//

#include "AttentionBlock.h"

#include <limits>

using namespace mlir;

namespace easyquant::gpu {
namespace {

class MatrixAttention {
public:
  MatrixAttention(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                  const KernelArguments &arguments, Value item)
      : b(b), item(item), block(b, spec, kernel, arguments, item), spec(spec),
        split(kernel.form == AttentionKernel::Split), places(spec, kernel.tile, split),
        warps(kernel.tile.warps / kernel.tile.columnWarps), steps(spec.headDim / 16),
        columns(spec.headDim / kernel.tile.columnWarps),
        tokenTiles((split ? 16 : kernel.tile.tokens) / 8), shared(b.dynamicSharedMemory()),
        tiles(b, block, places, shared) {}

  void emit();

private:
  /// All tiles, one after the other.
  KernelBuilder::Values walk(KernelBuilder::Values state);
  /// The same, of which some are on their way meanwhile.
  KernelBuilder::Values walkStages(KernelBuilder::Values state);

  using Values = KernelBuilder::Values;
  /// Maxima and sums of the thread's two rows, then the output: registers 0 and 1 are of the first
  /// row, 2 and 3 of the second one.
  enum { kMaxima = 0, kSums = 2, kOutput = 4 };

  int64_t columnTiles() const { return columns / 8; }
  /// Only one of the warps that share a result's dimensions; null: there is no other.
  Value isFirstOfColumns() { return columns < spec.headDim ? b.equal(firstColumn, 0) : Value(); }
  /// Lanes of a row of fragments: its sum or maximum.
  template <typename Combine> Value acrossQuad(Value x, Combine combine) {
    for (int64_t mask : {1, 2})
      x = combine(x, b.shuffleXor(x, mask));
    return x;
  }
  Value packPair(Value x, Value y) {
    return b.bitcast(b.fromF32(b.join({x, y}), Float::F16), b.i32());
  }
  void loadQueries();
  Values queriesOf(int64_t step);
  Values scores();
  void mask(Values &s, Value firstToken);
  Values weigh(Values s, ValueRange state);
  void writeOwn(const Values &state);
  void merge(AttentionBlock &block, const Values &state);
  /// Where this lane reads matrices of a stage.
  void placeMatrices(Value stage);

  KernelBuilder &b;
  Value item;
  AttentionBlock block;
  const AttentionSpec &spec;
  const bool split;
  const AttentionShared places;
  const int64_t warps; ///< that differ in their queries or tokens
  const int64_t steps, columns, tokenTiles;
  Value shared;
  KeyValueTiles tiles;

  Value warp, firstColumn;          ///< which of `warps`; where its columns begin
  Value lane, quadRow, quadColumn;  ///< lane / 4, 2 * (lane mod 4)
  AttentionBlock::Query queries[2]; ///< of rows quadRow and quadRow + 8
  SmallVector<Values> fragments;    ///< of queries, where they are in registers
  Value fragmentPlace;              ///< where they are in shared memory
  Value keyPlace, valuePlace;       ///< of this lane, for ldmatrix
};

} // namespace

void MatrixAttention::loadQueries() {
  Value rows[2];
  for (int64_t half = 0; half < 2; ++half)
    rows[half] = b.advance(block.queryRow(queries[half]), quadColumn, b.f32());
  Value scale = b.constant(b.f32(), block.queryScale());
  auto fragment = [&](int64_t step) {
    Values words;
    for (int64_t part = 0; part < 4; ++part) {
      Value x = b.load(b.advance(rows[part % 2], step * 16 + part / 2 * 8, b.f32()),
                       b.vec(2, b.f32()), /*constant=*/true);
      auto element = [&](int64_t i) { return saturateToHalf(b, b.mulf(b.extract(x, i), scale)); };
      words.push_back(packPair(element(0), element(1)));
    }
    return words;
  };
  if (AttentionShared::queriesInRegisters(spec)) {
    for (int64_t step = 0; step < steps; ++step)
      fragments.push_back(fragment(step));
    return;
  }
  fragmentPlace = b.advance(shared, b.add(b.mul(lane, 16), places.queries), b.i8());
  if (!split)
    fragmentPlace = b.advance(fragmentPlace, b.mul(warp, steps * 512), b.i8());
  b.ifThen(split ? b.equal(warp, 0) : Value(), [&] {
    b.ifThen(isFirstOfColumns(), [&] {
      for (int64_t step = 0; step < steps; ++step)
        b.store(b.join(fragment(step)), b.advance(fragmentPlace, step * 512, b.i8()));
    });
  });
}

MatrixAttention::Values MatrixAttention::queriesOf(int64_t step) {
  if (!fragments.empty())
    return fragments[step];
  return b.elements(b.load(b.advance(fragmentPlace, step * 512, b.i8()), b.vec(4, b.i32())));
}

MatrixAttention::Values MatrixAttention::scores() {
  Values s(tokenTiles * 4, b.zero(b.f32()));
  for (int64_t step = 0; step < steps; ++step) {
    Values a = queriesOf(step);
    for (int64_t pair = 0; pair < tokenTiles / 2; ++pair) {
      Values k =
          b.loadMatrix4(b.advance(keyPlace, pair * 16 * places.rowBytes + step * 32, b.i8()));
      for (int64_t tile = 0; tile < 2; ++tile) {
        int64_t at = (2 * pair + tile) * 4;
        Values c = b.multiplyFloats(Float::F16, a, ArrayRef(k).slice(2 * tile, 2),
                                    ArrayRef(s).slice(at, 4));
        llvm::copy(c, s.begin() + at);
      }
    }
  }
  return s;
}

void MatrixAttention::mask(Values &s, Value firstToken) {
  Value hidden = b.constant(b.f32(), -std::numeric_limits<double>::infinity());
  Value own = b.add(firstToken, quadColumn);
  if (split)
    own = b.add(own, b.mul(warp, 16));
  for (int64_t half = 0; half < 2; ++half) {
    Value end = b.sub(queries[half].end, own), first = b.sub(queries[half].first, own);
    for (int64_t tile = 0; tile < tokenTiles; ++tile)
      for (int64_t i = 0; i < 2; ++i) {
        Value &score = s[tile * 4 + 2 * half + i];
        Value seen = b.less(tile * 8 + i, end);
        if (block.masksFirst())
          seen = b.both(seen, b.less(b.sub(first, 1), tile * 8 + i));
        score = b.select(seen, block.bounded(score), hidden);
      }
  }
}

MatrixAttention::Values MatrixAttention::weigh(Values s, ValueRange state) {
  Values next(state.begin(), state.end());
  for (int64_t half = 0; half < 2; ++half) {
    Value maximum = state[kMaxima + half];
    for (int64_t tile = 0; tile < tokenTiles; ++tile)
      for (int64_t i = 0; i < 2; ++i)
        maximum = b.maxf(maximum, s[tile * 4 + 2 * half + i]);
    maximum = acrossQuad(maximum, [&](Value x, Value y) { return b.maxf(x, y); });
    Value decay = b.exp2Approximate(b.subf(state[kMaxima + half], maximum));
    // The sum is that of this thread's columns; all of the row decay alike.
    Value sum = b.mulf(state[kSums + half], decay);
    for (int64_t tile = 0; tile < tokenTiles; ++tile)
      for (int64_t i = 0; i < 2; ++i) {
        Value &score = s[tile * 4 + 2 * half + i];
        score = b.exp2Approximate(b.subf(score, maximum));
        sum = b.addf(sum, score);
      }
    next[kMaxima + half] = maximum;
    next[kSums + half] = sum;
    for (int64_t tile = 0; tile < columnTiles(); ++tile)
      for (int64_t i = 0; i < 2; ++i) {
        Value &o = next[kOutput + tile * 4 + 2 * half + i];
        o = b.mulf(o, decay);
      }
  }
  for (int64_t step = 0; step < tokenTiles / 2; ++step) {
    const Value *left = &s[8 * step], *right = left + 4;
    Values a = {packPair(left[0], left[1]), packPair(left[2], left[3]),
                packPair(right[0], right[1]), packPair(right[2], right[3])};
    for (int64_t pair = 0; pair < columnTiles() / 2; ++pair) {
      Values v =
          b.loadMatrix4(b.advance(valuePlace, step * 16 * places.rowBytes + pair * 32, b.i8()),
                        /*transposed=*/true);
      for (int64_t tile = 0; tile < 2; ++tile) {
        int64_t at = kOutput + (2 * pair + tile) * 4;
        Values c = b.multiplyFloats(Float::F16, a, ArrayRef(v).slice(2 * tile, 2),
                                    ArrayRef(next).slice(at, 4));
        llvm::copy(c, next.begin() + at);
      }
    }
  }
  return next;
}

void MatrixAttention::writeOwn(const Values &state) {
  Type element = b.type(spec.output);
  for (int64_t half = 0; half < 2; ++half)
    b.ifThen(queries[half].valid, [&] {
      Value inverse = block.normalizer(queries[half], state[kMaxima + half], state[kSums + half]);
      Value row =
          b.advance(block.outputRow(queries[half]), b.add(firstColumn, quadColumn), element);
      for (int64_t tile = 0; tile < columnTiles(); ++tile) {
        const Value *o = &state[kOutput + tile * 4 + 2 * half];
        Value two = b.join({b.mulf(o[0], inverse), b.mulf(o[1], inverse)});
        b.store(b.fromF32(two, spec.output), b.advance(row, tile * 8, element));
      }
    });
}

void MatrixAttention::merge(AttentionBlock &block, const Values &state) {
  constexpr int64_t kRows = 16;
  const int64_t stride = mergeStride(spec.headDim), pairs = spec.headDim / 2;
  Type pair = b.vec(2, b.f32());
  Value merges = b.advance(shared, places.merge, b.i8());
  auto mergeOf = [&](Value w, Value row) {
    return b.advance(merges, b.mul(b.add(b.mul(w, kRows), row), 2), b.f32());
  };
  auto outputOf = [&](Value w, Value row) {
    return b.advance(shared, b.mul(b.add(b.mul(w, kRows), row), stride), b.f32());
  };
  b.barrier(); // all are through with keys and values
  for (int64_t half = 0; half < 2; ++half) {
    Value row = b.add(quadRow, half * 8);
    b.ifThen(b.equal(b.add(firstColumn, quadColumn), 0), [&] {
      b.store(b.join({state[kMaxima + half], state[kSums + half]}), mergeOf(warp, row));
    });
    for (int64_t tile = 0; tile < columnTiles(); ++tile) {
      const Value *o = &state[kOutput + tile * 4 + 2 * half];
      b.store(
          b.join({o[0], o[1]}),
          b.advance(outputOf(warp, row), b.add(b.add(firstColumn, quadColumn), tile * 8), b.f32()));
    }
  }
  b.barrier();
  b.forLoop(b.thread(), kRows * pairs, block.kernel.tile.threads(), [&](Value index) {
    Value row = b.div(index, pairs), column = b.mul(b.rem(index, pairs), 2);
    AttentionBlock::Query query = block.query(row);
    b.ifThen(query.valid, [&] {
      Values maxima, sums;
      Value maximum;
      for (int64_t w = 0; w < warps; ++w) {
        Value own = b.load(mergeOf(b.i32(w), row), pair);
        maxima.push_back(b.extract(own, 0));
        sums.push_back(b.extract(own, 1));
        maximum = maximum ? b.maxf(maximum, maxima.back()) : maxima.back();
      }
      Value sum = b.zero(b.f32()), x = b.zero(b.f32()), y = x;
      for (int64_t w = 0; w < warps; ++w) {
        Value factor = b.exp2Approximate(b.subf(maxima[w], maximum));
        Value own = b.load(b.advance(outputOf(b.i32(w), row), column, b.f32()), pair);
        sum = b.fma(sums[w], factor, sum);
        x = b.fma(b.extract(own, 0), factor, x);
        y = b.fma(b.extract(own, 1), factor, y);
      }
      block.forResult([&](bool isPart) {
        if (isPart) {
          Value part = block.piece.part;
          b.store(b.join({x, y}), b.advance(block.partialRow(query, part), column, b.f32()));
          return b.ifThen(b.equal(column, 0), [&] {
            b.store(b.join({maximum, sum}), block.partialMerge(query, part));
          });
        }
        Value inverse = block.normalizer(query, maximum, sum);
        Value two = b.join({b.mulf(x, inverse), b.mulf(y, inverse)});
        Value to = b.advance(block.outputRow(query), column, b.type(spec.output));
        b.store(b.fromF32(two, spec.output), to);
      });
    });
  });
}

MatrixAttention::Values MatrixAttention::walk(Values state) {
  b.ifThen(b.less(block.firstTile, block.endTile),
           [&] { tiles.startKeys(block.firstToken(block.firstTile)); });
  return b.forLoop(block.firstTile, block.endTile, 1, state, [&](Value tile, ValueRange carried) {
    Value token = block.firstToken(tile), next = b.add(tile, 1);
    tiles.finishKeys(token);
    tiles.startValues(token);
    Values s = scores();
    tiles.finishValues();
    b.ifThen(b.less(next, block.endTile), [&] { tiles.startKeys(block.firstToken(next)); });
    mask(s, token);
    return weigh(s, carried);
  });
}

MatrixAttention::Values MatrixAttention::walkStages(Values state) {
  const int64_t stages = block.kernel.tile.stages;
  Value lastTile = b.max(b.sub(block.endTile, 1), 0);
  auto pageOf = [&](Value tile) { return tiles.page(block.firstToken(b.min(tile, lastTile))); };
  auto bring = [&](Value tile, Value page) {
    Value stage = b.rem(b.sub(tile, block.firstTile), stages);
    tiles.bring(page, block.firstToken(tile), stage, b.less(tile, block.endTile));
  };
  // A page is looked up while the tile before is on its way.
  Values pages;
  for (int64_t i = 0; i < stages; ++i)
    pages.push_back(pageOf(b.add(block.firstTile, i)));
  for (int64_t i = 0; i + 1 < stages; ++i)
    bring(b.add(block.firstTile, i), pages[i]);
  state.push_back(pages.back());
  state = b.forLoop(block.firstTile, block.endTile, 1, state, [&](Value tile, ValueRange carried) {
    b.waitForCopies(stages - 2);
    b.barrier(); // all have their part, and are through with the tile before
    Value ahead = b.add(tile, stages - 1);
    bring(ahead, carried.back());
    Value page = pageOf(b.add(ahead, 1));
    Value stage = b.rem(b.sub(tile, block.firstTile), stages);
    if (spec.kv) {
      tiles.unpack(block.firstToken(tile), stage);
    } else {
      placeMatrices(stage);
    }
    Values s = scores();
    mask(s, block.firstToken(tile));
    Values next = weigh(s, carried.drop_back());
    next.push_back(page);
    return next;
  });
  state.pop_back();
  return state;
}

/// Matrices of keys are tokens 0 .. 7 with dimensions 0 .. 7, dimensions 8 .., then tokens 8 ..
/// Matrices of values, which are transposed, are tokens 0 .. 7, tokens 8 .., then dimensions 8 ..
void MatrixAttention::placeMatrices(Value stage) {
  // Places of wide heads are too many to be kept in registers from one tile to the next.
  Value thread = spec.headDim > 128 ? b.opaque(b.thread()) : b.thread();
  Value lane = b.rem(thread, 32);
  Value row = b.rem(lane, 8), second = b.rem(b.div(lane, 8), 2), third = b.div(lane, 16);
  auto place = [&](int64_t part, Value token, Value chunk) {
    if (split)
      token = b.add(token, b.mul(warp, 16));
    Value offset = b.add(b.mul(token, places.rowBytes), b.mul(chunk, 16));
    offset = b.add(b.add(offset, part), b.mul(stage, places.stageBytes));
    return b.advance(shared, offset, b.i8());
  };
  keyPlace = place(places.keys, b.add(row, b.mul(third, 8)), second);
  valuePlace = b.advance(place(places.values, b.add(row, b.mul(second, 8)), third),
                         b.mul(firstColumn, 2), b.i8());
}

void MatrixAttention::emit() {
  Value thread = b.thread();
  const int64_t columnWarps = block.kernel.tile.columnWarps;
  warp = b.div(thread, 32 * columnWarps);
  firstColumn = b.mul(b.rem(b.div(thread, 32), columnWarps), columns);
  lane = b.rem(thread, 32);
  quadRow = b.div(lane, 4);
  quadColumn = b.mul(b.rem(lane, 4), 2);
  Value firstQuery = split ? quadRow : b.add(b.mul(warp, 16), quadRow);
  queries[0] = block.query(firstQuery);
  queries[1] = block.query(b.add(firstQuery, 8));
  loadQueries();

  placeMatrices(b.i32(0));

  Values state(kOutput + columnTiles() * 4, b.zero(b.f32()));
  state[kMaxima] = state[kMaxima + 1] = b.constant(b.f32(), kLeastMaximum);
  state = block.kernel.tile.stages > 1 ? walkStages(state) : walk(state);
  for (int64_t half = 0; half < 2; ++half)
    state[kSums + half] =
        acrossQuad(state[kSums + half], [&](Value x, Value y) { return b.addf(x, y); });
  if (!split)
    return writeOwn(state);
  // Looked up once more: numbers that waited for the end of the loop would be registers too many.
  AttentionBlock again(b, spec, block.kernel, block.arguments, b.opaque(item));
  merge(again, state);
  b.ifThen(b.less(1, again.piece.parts), [&] { emitCombine(b, again, shared); });
}

void emitMatrixAttention(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                         const KernelArguments &arguments, Value item) {
  MatrixAttention(b, spec, kernel, arguments, item).emit();
}

} // namespace easyquant::gpu
