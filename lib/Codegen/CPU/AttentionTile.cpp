//===- AttentionTile.cpp - A few queries against a stretch of tokens ------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionTile.h"

#include "Hadamard.h"
#include "RowKernel.h"
#include "VectorMath.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/FormatVariadic.h"

#include <limits>
#include <numbers>
#include <numeric>

using namespace mlir;

namespace easyquant::cpu {

using Values = KernelBuilder::Values;

int64_t AttentionTile::headsOf(const AttentionSpec &spec) {
  constexpr int64_t most = 16;
  int64_t group = spec.heads / spec.kvHeads, heads = std::min(most, group);
  while (group % heads != 0)
    --heads;
  return heads;
}

AttentionTile::AttentionTile(const AttentionSpec &spec, const Target &target, int64_t tokens)
    : spec(spec), tokens(tokens), heads(headsOf(spec)) {
  int64_t lanes = target.lanes(), registers = target.registers();
  // 12 of 16 (24 of 32) registers accumulate where there are rows enough.
  int64_t accumulators = registers * 3 / 4, mostRows = accumulators / 2;
  int64_t needed = tokens * heads, blocks = llvm::divideCeil(needed, mostRows);
  microRows = llvm::divideCeil(needed, blocks);
  rows = blocks * microRows;
  // Beside the accumulators live the fewer of the factors and one of the others, and while one is
  // converted from f16, the next.
  auto fits = [&](int64_t vectors) {
    int64_t factors = std::min(microRows, vectors) + 1 + (spec.halfCache ? 1 : 0);
    return microRows * vectors <= accumulators && microRows * vectors + factors <= registers;
  };
  scoreVectors = kCacheBlock / lanes;
  while (2 * scoreVectors <= kStep / lanes && fits(2 * scoreVectors))
    scoreVectors *= 2;
  valueVectors = 1;
  while (valueVectors * lanes < spec.headDim && fits(valueVectors + 1))
    ++valueVectors;

  int64_t end = 0;
  auto place = [&](int64_t floats) {
    int64_t at = end;
    end += static_cast<int64_t>(llvm::alignTo(floats * 4, 64));
    return at;
  };
  queries = place(rows * spec.headDim);
  scores = place(rows * kStep);
  output = place(rows * spec.headDim);
  maxima = place(rows);
  decays = place(rows);
  sums = place(rows * lanes);
  bytes = end;
}

Type cacheElement(KernelBuilder &b, const AttentionSpec &spec) {
  return spec.halfCache ? Type(b.getF16Type()) : b.f32();
}

Value toCache(KernelBuilder &b, const AttentionSpec &spec, Value x) {
  if (!spec.halfCache)
    return x;
  Type type = x.getType(), narrow = b.getF16Type();
  if (auto vector = dyn_cast<VectorType>(type))
    narrow = vector.clone(narrow);
  constexpr double largest = 65504.0;
  auto clamp = [&](arith::CmpFPredicate beyond, double bound) {
    Value limit = b.constant(type, bound);
    x = b.select(b.compare(beyond, x, limit), limit, x);
  };
  clamp(arith::CmpFPredicate::OGT, largest);
  clamp(arith::CmpFPredicate::OLT, -largest);
  return arith::TruncFOp::create(b, narrow, x);
}

Value fromCache(KernelBuilder &b, Value x) {
  Type type = x.getType();
  if (getElementTypeOrSelf(type).isF32())
    return x;
  auto vector = dyn_cast<VectorType>(type);
  return arith::ExtFOp::create(b, vector ? Type(vector.clone(b.f32())) : b.f32(), x);
}

TileViews::TileViews(KernelBuilder &b, const AttentionTile &tile, Value scratch, Value offset) {
  auto view = [&](int64_t at, int64_t floats) {
    return b.view(scratch, b.add(offset, at), b.memref({floats}, b.f32()));
  };
  int64_t columns = tile.spec.headDim;
  queries = view(tile.queries, tile.rows * columns);
  scores = view(tile.scores, tile.rows * AttentionTile::kStep);
  output = view(tile.output, tile.rows * columns);
  maxima = view(tile.maxima, tile.rows);
  decays = view(tile.decays, tile.rows);
  sums = view(tile.sums, tile.rows * b.target.lanes());
}

TileEmitter::TileEmitter(KernelBuilder &b, const AttentionTile &tile, Value queries, Value position,
                         Value scratch, Value offset, Value first, Value head)
    : b(b), tile(tile), lanes(b.target.lanes()), columns(tile.spec.headDim), position(position),
      first(first), head(head), at(b, tile, scratch, offset), q(queries) {
  lastToken = b.sub(b.size(q, 0), 1);
  kvHead = b.div(b.mul(head, tile.heads), tile.spec.heads / tile.spec.kvHeads);
}

Value TileEmitter::tokenOf(Value row) {
  return b.min(b.add(first, b.min(b.div(row, tile.heads), tile.tokens - 1)), lastToken);
}

Value oldestSeen(KernelBuilder &b, const AttentionSpec &spec, Value at) {
  if (spec.window == 0)
    return b.index(0);
  Value past = b.max(b.add(at, 1), spec.window);
  return b.sub(past, spec.window);
}

/// One token streams through the cache faster than hardware finds out where it goes on.
void TileEmitter::prefetch(const Source &source, Value index, int64_t v) {
  int64_t bytes = lanes * (tile.spec.halfCache ? 2 : 4);
  if (source.distance && tile.tokens == 1 && v * bytes % 64 == 0)
    b.prefetch(source.elements, {b.add(index, source.distance)});
  if (source.later && tile.tokens == 1 && v * bytes % 64 == 0)
    b.prefetch(source.elements, {b.add(index, source.later)}, /*first=*/false);
}

void TileEmitter::emitQueries() {
  double factor = tile.spec.scale * std::numbers::log2e;
  b.forLoop(0, tile.rows, 1, [&](Value row) {
    Value token = tokenOf(row);
    Value rowHead = b.add(b.mul(head, tile.heads), b.rem(row, tile.heads));
    auto query = [&](Value column, int64_t width) {
      Value x = b.loadVector(width, q, {token, b.add(b.mul(rowHead, columns), column)});
      return b.mulf(x, b.constant(x.getType(), factor));
    };
    auto place = [&](Value column) { return b.add(b.mul(row, columns), column); };
    const int64_t hadamard = tile.spec.kv ? tile.spec.kv->hadamard : 0;
    if (hadamard)
      emitHadamard(b, {columns, hadamard, std::min(4 * lanes, hadamard),
                       [&](Value column) { return query(column, lanes); }, at.queries,
                       [&](Value column) { return SmallVector<Index>{place(column)}; }});
    forColumns(b, 0, columns, lanes, [&](Value column, int64_t width) {
      if (!hadamard)
        b.storeVector(query(column, width), at.queries, {place(column)});
      b.storeVector(b.zero(b.vec(width, b.f32())), at.output, {place(column)});
    });
    // Finite, so that a row that has seen nothing yet is not inf - inf.
    b.store(b.constant(b.f32(), double{std::numeric_limits<float>::lowest()}), at.maxima, {row});
    b.storeVector(b.zero(b.vec(lanes, b.f32())), at.sums, {b.mul(row, lanes)});
  });
}

TileEmitter::Values TileEmitter::emitOuterProduct(ValueRange sums, int64_t vectors,
                                                  llvm::function_ref<Value(int64_t)> scalar,
                                                  llvm::function_ref<Value(int64_t)> vector) {
  Values next(sums);
  auto multiply = [&](int64_t r, int64_t v, Value element, Value x) {
    Value &sum = next[r * vectors + v];
    int64_t width = cast<VectorType>(x.getType()).getNumElements();
    sum = b.fma(b.broadcast(element, width), x, sum);
  };
  // The fewer factors stay in registers, the others come by one at a time: a block of 12
  // accumulators needs all of 16 registers.
  SmallVector<Value> held;
  if (tile.microRows < vectors) {
    for (int64_t r = 0; r < tile.microRows; ++r)
      held.push_back(scalar(r));
    for (int64_t v = 0; v < vectors; ++v) {
      Value x = vector(v);
      for (int64_t r = 0; r < tile.microRows; ++r)
        multiply(r, v, held[r], x);
    }
    return next;
  }
  for (int64_t v = 0; v < vectors; ++v)
    held.push_back(vector(v));
  for (int64_t r = 0; r < tile.microRows; ++r) {
    Value element = scalar(r);
    for (int64_t v = 0; v < vectors; ++v)
      multiply(r, v, element, held[v]);
  }
  return next;
}

void TileEmitter::emitScores(Source keys, Index begin, Value count) {
  int64_t width = tile.scoreVectors * lanes;
  int64_t blockSize = columns * kCacheBlock;
  b.forLoop(b.mul(b.div(begin, width), width), count, width, [&](Value column) {
    Value firstBlock = b.div(column, kCacheBlock);
    SmallVector<Value> starts;
    for (int64_t v = 0; v < tile.scoreVectors; ++v) {
      int64_t token = v * lanes;
      Value block = b.add(firstBlock, token / kCacheBlock);
      starts.push_back(b.add(b.add(keys.start, b.mul(block, blockSize)), token % kCacheBlock));
    }
    b.forLoop(0, tile.rows, tile.microRows, [&](Value row) {
      Value queryStart = b.mul(row, columns);
      Values zeros(tile.microRows * tile.scoreVectors, b.zero(b.vec(lanes, b.f32())));
      Values sums = b.forLoop(0, columns, 1, zeros, [&](Value dim, ValueRange carried) {
        return emitOuterProduct(
            carried, tile.scoreVectors,
            [&](int64_t r) {
              return b.load(at.queries, {b.add(b.add(queryStart, dim), r * columns)});
            },
            [&](int64_t v) {
              Value index = b.add(starts[v], b.mul(dim, kCacheBlock));
              prefetch(keys, index, v);
              return fromCache(b, b.loadVector(lanes, keys.elements, {index}));
            });
      });
      Value to = b.add(b.mul(row, AttentionTile::kStep), column);
      for (int64_t r = 0; r < tile.microRows; ++r)
        for (int64_t v = 0; v < tile.scoreVectors; ++v)
          b.storeVector(sums[r * tile.scoreVectors + v], at.scores,
                        {b.add(to, r * AttentionTile::kStep + v * lanes)});
    });
  });
}

/// The scores of a step, which carry a factor log2(e), within the bound of the spec.
void TileEmitter::emitBound() {
  const int64_t width = 2 * lanes;
  b.forLoop(0, tile.rows * AttentionTile::kStep, width, [&](Value index) {
    Value score = b.loadVector(width, at.scores, {index});
    b.storeVector(softCap(b, score, tile.spec.bound * std::numbers::log2e), at.scores, {index});
  });
}

/// Scores of tokens that a row must not see become -inf, whatever they are: cache elements that
/// were never written may have made them NaN.
void TileEmitter::emitMask(Value step, Value end) {
  if (tile.spec.bound > 0)
    emitBound();
  // The first query sees no token from here on; the last one none before its oldest.
  Value firstLimit = b.min(b.add(b.add(position, first), 1), end);
  Value masked = b.less(firstLimit, b.add(step, AttentionTile::kStep));
  Value newest = b.add(position, tokenOf(b.index(tile.rows - 1)));
  if (tile.spec.window > 0)
    masked = arith::OrIOp::create(b, masked, b.less(step, oldestSeen(b, tile.spec, newest)));
  VectorType intType = b.vec(lanes, b.i32()), floatType = b.vec(lanes, b.f32());
  auto toInts = [&](Value index) {
    return b.broadcast(arith::IndexCastOp::create(b, b.i32(), index), lanes);
  };
  Value never = b.constant(floatType, -double{std::numeric_limits<float>::infinity()});
  auto maskRow = [&](Value row) {
    Value token = b.add(position, tokenOf(row));
    Value oldest = oldestSeen(b, tile.spec, token);
    // A limit below the oldest would wrap around: such a row sees nothing here.
    Value limit = b.max(b.min(b.add(token, 1), end), oldest);
    // Token t is seen when oldest <= t < limit: one unsigned comparison of t - oldest.
    Value shift = toInts(b.sub(step, oldest)), seen = toInts(b.sub(limit, oldest));
    for (int64_t v = 0; v < AttentionTile::kStep; v += lanes) {
      SmallVector<int32_t> tokens(lanes);
      std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(v));
      Value token = arith::ConstantOp::create(b, DenseElementsAttr::get(intType, ArrayRef(tokens)));
      Value visible =
          arith::CmpIOp::create(b, arith::CmpIPredicate::ult, b.addi(token, shift), seen);
      Value index = b.add(b.mul(row, AttentionTile::kStep), v);
      Value score = b.loadVector(lanes, at.scores, {index});
      b.storeVector(b.select(visible, score, never), at.scores, {index});
    }
  };
  b.ifThen(masked, [&] { b.forLoop(0, tile.rows, 1, maskRow); });
}

void TileEmitter::emitSoftmax() {
  b.forLoop(0, tile.rows, 1, [&](Value row) {
    Value start = b.mul(row, AttentionTile::kStep);
    SmallVector<Value> scores;
    for (int64_t v = 0; v < AttentionTile::kStep; v += lanes)
      scores.push_back(b.loadVector(lanes, at.scores, {b.add(start, v)}));
    // Pairs of pairs, so that the longest chain is short.
    auto combine = [&](SmallVector<Value> x, llvm::function_ref<Value(Value, Value)> join) {
      for (size_t n = x.size(); n > 1; n /= 2)
        for (size_t i = 0; i < n / 2; ++i)
          x[i] = join(x[i], x[i + n / 2]);
      return x[0];
    };
    Value largest = combine(scores, [&](Value x, Value y) { return b.larger(x, y); });
    for (int64_t n = lanes; n > 1; n /= 2)
      largest = b.larger(b.slice(largest, 0, n / 2), b.slice(largest, n / 2, n / 2));
    Value before = b.load(at.maxima, {row});
    Value maximum = b.larger(b.extract(largest, 0), before);
    b.store(maximum, at.maxima, {row});
    Value decay = exp2NonPositive(b, b.broadcast(b.subf(before, maximum), lanes));
    b.store(b.extract(decay, 0), at.decays, {row});

    Value shift = b.broadcast(maximum, lanes);
    for (auto [i, score] : llvm::enumerate(scores)) {
      score = exp2NonPositive(b, b.subf(score, shift));
      b.storeVector(score, at.scores, {b.add(start, static_cast<int64_t>(i) * lanes)});
    }
    Value sum = combine(scores, [&](Value x, Value y) { return b.addf(x, y); });
    Value sumStart = b.mul(row, lanes);
    Value sumBefore = b.loadVector(lanes, at.sums, {sumStart});
    b.storeVector(b.fma(sumBefore, decay, sum), at.sums, {sumStart});
  });
}

void TileEmitter::emitValues(Source values, Index begin, Value count, bool decayed) {
  int64_t width = tile.valueVectors * lanes, full = columns / width * width;
  auto emitColumns = [&](Value column, ArrayRef<int64_t> widths) {
    b.forLoop(0, tile.rows, tile.microRows, [&](Value row) {
      emitValueBlock(values, begin, count, row, column, widths, decayed);
    });
  };
  SmallVector<int64_t> whole(tile.valueVectors, lanes), rest;
  if (full == width)
    emitColumns(b.index(0), whole);
  else if (full > 0)
    b.forLoop(0, full, width, [&](Value column) { emitColumns(column, whole); });
  for (int64_t left = columns - full; left > 0; left -= lanes)
    rest.push_back(std::min(left, lanes));
  if (!rest.empty())
    emitColumns(b.index(full), rest);
}

/// For some rows, and columns in vectors of these widths.
void TileEmitter::emitValueBlock(Source values, Index begin, Value count, Value row, Value column,
                                 ArrayRef<int64_t> widths, bool decayed) {
  int64_t vectors = widths.size();
  Value outputStart = b.add(b.mul(row, columns), column);
  auto outputAt = [&](int64_t r, int64_t v) { return b.add(outputStart, r * columns + v * lanes); };
  Values sums;
  for (int64_t r = 0; r < tile.microRows; ++r) {
    Value decay = decayed ? b.load(at.decays, {b.add(row, r)}) : Value();
    for (int64_t v = 0; v < vectors; ++v) {
      Value before = b.loadVector(widths[v], at.output, {outputAt(r, v)});
      sums.push_back(decayed ? b.mulf(before, b.broadcast(decay, widths[v])) : before);
    }
  }
  Value scoreStart = b.mul(row, AttentionTile::kStep);
  Value valueStart = b.add(values.start, column);
  sums = b.forLoop(begin, count, 1, sums, [&](Value token, ValueRange carried) {
    Value from = b.add(valueStart, b.mul(token, columns));
    return emitOuterProduct(
        carried, vectors,
        [&](int64_t r) {
          return b.load(at.scores, {b.add(b.add(scoreStart, token), r * AttentionTile::kStep)});
        },
        [&](int64_t v) {
          Value index = b.add(from, v * lanes);
          prefetch(values, index, v);
          return fromCache(b, b.loadVector(widths[v], values.elements, {index}));
        });
  });
  for (int64_t r = 0; r < tile.microRows; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      b.storeVector(sums[r * vectors + v], at.output, {outputAt(r, v)});
}

void emitAttendTile(KernelBuilder &b, ModuleOp module, const AttentionTile &tile,
                    ValueRange operands) {
  auto build = [&](KernelBuilder &b, ValueRange args) {
    Value begin = args[9], end = args[10];
    TileEmitter emitter(b, tile, args[0], args[4], args[5], args[6], args[7], args[8]);
    FloatPages pages(b, tile.spec, args[1], args[2], args[3]);
    int64_t valuesBehind = pages.valuesBehind();
    emitter.emitQueries();
    Value last = b.sub(end, 1);
    Value oldest = oldestSeen(b, tile.spec, b.add(emitter.position, emitter.first));
    auto touch = [&](Value token) { // of one token's queries, which stream through
      if (tile.tokens == 1)
        pages.touch(emitter.kvHead, b.min(token, last));
    };
    touch(b.add(begin, AttentionTile::kStep));
    b.forLoop(begin, end, AttentionTile::kStep, [&](Value step) {
      touch(b.add(step, 2 * AttentionTile::kStep));
      Value count = b.min(b.sub(end, step), AttentionTile::kStep);
      Value page = pages.start(emitter.kvHead, step);
      Value next = pages.start(emitter.kvHead, b.min(b.add(step, AttentionTile::kStep), last));
      // While keys are read, the values of their tokens are fetched, then the next step's keys; and
      // of both those of the next step.
      TileEmitter::Source keys{pages.elements, page, b.index(valuesBehind)};
      TileEmitter::Source values{pages.elements, b.add(page, valuesBehind)};
      // Nothing before the first query's oldest token is seen.
      Index seen = 0;
      if (tile.spec.window > 0)
        seen = b.sub(b.max(step, oldest), step);
      values.distance = b.sub(next, b.add(page, valuesBehind));
      keys.later = values.later = b.sub(next, page);
      emitter.emitScores(keys, seen, count);
      emitter.emitMask(step, end);
      emitter.emitSoftmax();
      emitter.emitValues(values, seen, count);
    });
  };
  std::string name = llvm::formatv("{0}_attend{1}", symbolName(tile.spec), tile.tokens);
  func::CallOp::create(b, getOrEmitFunction(module, name, b.target, operands.getTypes(), build),
                       operands);
}

//===----------------------------------------------------------------------===//
// A sequence
//===----------------------------------------------------------------------===//

AttentionSequence::Parts AttentionSequence::cut(Value begin, Value end) {
  Value first = b.div(begin, kPart);
  return {begin, end, first, b.sub(b.div(b.add(end, kPart - 1), kPart), first)};
}

std::pair<Value, Value> AttentionSequence::part(const Parts &parts, Value number) {
  Value start = b.mul(b.add(parts.first, number), kPart);
  return {b.max(start, parts.begin), b.min(b.add(start, kPart), parts.end)};
}

void AttentionSequence::decodeTogether() {
  Parts parts = decodeParts();
  Value items = itemsOf(parts);
  // A head has a tile for the sum of its items so far, in the first round the first item, and tiles
  // for those of a round.
  const int64_t headBytes = decode.bytes * (mostParts + 1);
  Value rounds = b.max(b.div(b.add(items, mostParts - 2), mostParts), 1);
  b.forLoop(0, rounds, 1, [&](Value round) {
    Value before = b.mul(round, mostParts); // items that the numbers of tiles do not count
    Value firstTile = b.min(round, 1);
    Value tiles = b.min(b.sub(items, before), mostParts + 1), fresh = b.sub(tiles, firstTile);
    auto [from, to] = shareOf(b, b.mul(fresh, heads), team);
    b.forLoop(from, to, 1, [&](Value n) {
      Value head = arith::DivUIOp::create(b, n, fresh);
      Value tile = b.add(b.sub(n, b.mul(head, fresh)), firstTile);
      Value offset = b.add(b.mul(head, headBytes), b.mul(tile, decode.bytes));
      attendItem(parts, offset, head, b.add(before, tile));
    });
    // A head in one item is finished by the thread that attended.
    b.ifThen(b.less(1, items), [&] { emitBarrier(b, module, b.target, team); });
    Value isLast = b.equal(b.add(round, 1), rounds);
    auto [first, last] = shareOf(b, heads, team);
    b.forLoop(first, last, 1, [&](Value head) {
      Value offset = b.mul(head, headBytes);
      addUp(decode, offset, tiles);
      b.ifThen(isLast, [&] { finish(decode, offset, b.index(0), head); });
    });
    b.ifThenElse(isLast, [] {}, [&] { emitBarrier(b, module, b.target, team); });
  });
}

void AttentionSequence::decodeHead(Value head) {
  Parts parts = decodeParts();
  attendAlone(decode, itemsOf(parts), b.index(0), head,
              [&](Value offset, Value item) { attendItem(parts, offset, head, item); });
}

void AttentionSequence::attendAlone(const AttentionTile &tile, Value items, Value first, Value head,
                                    llvm::function_ref<void(Value, Value)> attend) {
  Value offset = ownScratch();
  b.forLoop(0, items, 1, [&](Value item) {
    Value place = b.min(item, 1);
    attend(b.add(offset, b.mul(place, tile.bytes)), item);
    addUp(tile, offset, b.add(place, 1));
  });
  finish(tile, offset, first, head);
}

void AttentionSequence::addUp(const AttentionTile &tile, Value offset, Value count) {
  int64_t columns = tile.spec.headDim, lanes = b.target.lanes();
  auto build = [&](KernelBuilder &b, ValueRange args) {
    Value scratch = args[0], offset = args[1], count = args[2];
    TileViews sum(b, tile, scratch, offset);
    b.forLoop(1, count, 1, [&](Value n) {
      TileViews part(b, tile, scratch, b.add(offset, b.mul(n, tile.bytes)));
      b.forLoop(0, tile.rows, 1, [&](Value row) {
        Value before = b.load(sum.maxima, {row}), own = b.load(part.maxima, {row});
        Value maximum = b.larger(own, before);
        b.store(maximum, sum.maxima, {row});
        auto weightOf = [&](Value x) {
          return exp2NonPositive(b, b.broadcast(b.subf(x, maximum), lanes));
        };
        Value decay = weightOf(before), weight = weightOf(own);
        auto add = [&](Value to, Value from, Value at, int64_t width) {
          auto cut = [&](Value x) { return width == lanes ? x : b.slice(x, 0, width); };
          Value so = b.mulf(b.loadVector(width, to, {at}), cut(decay));
          b.storeVector(b.fma(b.loadVector(width, from, {at}), cut(weight), so), to, {at});
        };
        add(sum.sums, part.sums, b.mul(row, lanes), lanes);
        forColumns(b, 0, columns, lanes, [&](Value column, int64_t width) {
          add(sum.output, part.output, b.add(b.mul(row, columns), column), width);
        });
      });
    });
  };
  std::string name = llvm::formatv("{0}_add{1}", symbolName(tile.spec), tile.tokens);
  SmallVector<Value> operands = {scratch, offset, count};
  func::CallOp::create(b, getOrEmitFunction(module, name, b.target, TypeRange(operands), build),
                       operands);
}

void AttentionSequence::finish(const AttentionTile &tile, Value offset, Value first, Value head) {
  int64_t columns = tile.spec.headDim, lanes = b.target.lanes();
  auto build = [&](KernelBuilder &b, ValueRange args) {
    Value y = args[0], first = args[3], head = args[4];
    Value sinkLogits = tile.spec.sinkLogits ? args[5] : Value();
    TileViews at(b, tile, args[1], args[2]);
    Value tokens = b.min(b.sub(b.size(y, 0), first), tile.tokens);
    b.forLoop(0, b.mul(tokens, tile.heads), 1, [&](Value row) {
      Value total = b.sumLanes(b.loadVector(lanes, at.sums, {b.mul(row, lanes)}));
      Value token = b.add(first, b.div(row, tile.heads));
      Value rowHead = b.add(b.mul(head, tile.heads), b.rem(row, tile.heads));
      Value decay = b.constant(b.f32(), 1.0);
      if (sinkLogits) {
        Value sink =
            b.mulf(b.load(sinkLogits, {rowHead}), b.constant(b.f32(), std::numbers::log2e));
        Value before = b.load(at.maxima, {row}), maximum = b.larger(sink, before);
        auto weightOf = [&](Value x) {
          return b.extract(exp2NonPositive(b, b.broadcast(b.subf(x, maximum), lanes)), 0);
        };
        decay = weightOf(before);
        total = b.addf(b.mulf(total, decay), weightOf(sink));
      }
      Value inverse = b.divf(decay, total);
      forColumns(b, 0, columns, lanes, [&](Value column, int64_t width) {
        Value sum = b.loadVector(width, at.output, {b.add(b.mul(row, columns), column)});
        b.storeVector(b.mulf(sum, b.broadcast(inverse, width)), y,
                      {token, b.add(b.mul(rowHead, columns), column)});
      });
    });
  };
  std::string name = llvm::formatv("{0}_finish{1}", symbolName(tile.spec), tile.tokens);
  SmallVector<Value> operands = {y, scratch, offset, first, head};
  if (sinkLogits)
    operands.push_back(sinkLogits);
  func::CallOp::create(b, getOrEmitFunction(module, name, b.target, TypeRange(operands), build),
                       operands);
}

} // namespace easyquant::cpu
