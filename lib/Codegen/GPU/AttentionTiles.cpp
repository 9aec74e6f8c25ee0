//===- AttentionTiles.cpp - Queries and tiles of a block ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionBlock.h"

#include "ScalarMath.h"

#include <cmath>
#include <numbers>
#include <numeric>

using namespace mlir;

namespace easyquant::gpu {

Value warpMax(KernelBuilder &b, Value value) {
  for (int64_t mask = 16; mask > 0; mask /= 2)
    value = b.maxf(value, b.shuffleXor(value, mask));
  return value;
}

//===- Queries ------------------------------------------------------------===//

AttentionBlock::AttentionBlock(KernelBuilder &b, const AttentionSpec &spec,
                               const AttentionKernel &kernel, const KernelArguments &arguments,
                               Value item)
    : piece(b, arguments, b.div(item, spec.kvHeads * QueryCut(spec, kernel.tile).chunks)),
      sequence(b, arguments, piece.sequence), spec(spec), kernel(kernel), arguments(arguments),
      b(b), cut(spec, kernel.tile) {
  const int64_t items = spec.kvHeads * cut.chunks, tokens = kernel.tile.tokens;
  Value own = b.rem(item, items);
  kvHead = b.div(own, cut.chunks);
  firstHead = b.mul(b.rem(own, cut.chunks), kernel.tile.queries);
  position = b.add(sequence.position, b.sub(piece.row, sequence.firstRow));
  firstTile = b.div(b.sub(piece.begin, kernel.cut.origin), tokens);
  endTile = b.div(b.add(b.sub(piece.end, kernel.cut.origin), tokens - 1), tokens);
  if (kernel.cut.tokens > 0)
    counter =
        b.advance(arguments["partial_counters"], b.add(b.mul(piece.partials, items), own), b.i32());
}

AttentionBlock::Query AttentionBlock::query(Value u) {
  Query query;
  if (cut.chunks == 1) {
    query.token = b.div(u, cut.group);
    query.head = b.rem(u, cut.group);
    query.valid = b.less(query.token, piece.rows);
    if (cut.tokens * cut.group < kernel.tile.queries)
      query.valid = b.both(query.valid, b.less(u, cut.tokens * cut.group));
    query.token = b.select(query.valid, query.token, b.i32(0));
    query.head = b.select(query.valid, query.head, b.i32(0));
  } else {
    query.token = b.i32(0);
    query.head = b.add(firstHead, u);
    query.valid = b.less(query.head, cut.group);
    query.head = b.select(query.valid, query.head, firstHead);
  }
  query.end = b.add(b.add(position, query.token), 1);
  query.first = spec.window > 0 ? b.max(b.sub(query.end, spec.window), 0) : b.i32(0);
  query.end = b.select(query.valid, query.end, b.i32(0));
  return query;
}

Value AttentionBlock::headOf(const Query &query) {
  return b.add(b.mul(kvHead, cut.group), query.head);
}

Value AttentionBlock::queryRow(const Query &query) {
  Value row =
      b.rowOf(arguments["q"], b.add(piece.row, query.token), arguments["q_stride"], b.f32());
  return b.advance(row, b.mul(headOf(query), spec.headDim), b.f32());
}

double AttentionBlock::queryScale() const { return spec.scale * std::numbers::log2e; }

Value AttentionBlock::bounded(Value score) {
  return spec.bound > 0 ? softCap(b, score, spec.bound * std::numbers::log2e) : score;
}

Value AttentionBlock::normalizer(const Query &query, Value maximum, Value sum) {
  if (!spec.sinkLogits)
    return b.reciprocalApproximate(sum);
  Value logit = b.load(b.advance(arguments["sink_logits"], headOf(query), b.f32()), b.f32(),
                       /*constant=*/true);
  Value sink = b.mulf(logit, b.constant(b.f32(), std::numbers::log2e));
  Value largest = b.maxf(sink, maximum);
  Value decay = b.exp2Approximate(b.subf(maximum, largest));
  Value total = b.fma(sum, decay, b.exp2Approximate(b.subf(sink, largest)));
  return b.mulf(decay, b.reciprocalApproximate(total));
}

Value AttentionBlock::firstToken(Value tile) {
  return b.add(b.mul(tile, kernel.tile.tokens), kernel.cut.origin);
}

void AttentionBlock::forResult(llvm::function_ref<void(bool)> body) {
  if (kernel.cut.tokens == 0)
    return body(false);
  b.ifThen(b.equal(piece.parts, 1), [&] { body(false); });
  b.ifThen(b.less(1, piece.parts), [&] { body(true); });
}

Value AttentionBlock::outputRow(const Query &query) {
  Type element = b.type(spec.output);
  Value row =
      b.rowOf(arguments["y"], b.add(piece.row, query.token), arguments["y_stride"], element);
  return b.advance(row, b.mul(headOf(query), spec.headDim), element);
}

Value AttentionBlock::partialPlace(const Query &query, Value part) {
  Value number = b.add(b.add(piece.partials, b.mul(query.token, piece.parts)), part);
  return b.rowOf(arguments["partials"], number, PartialPlace(spec).stride, b.f32());
}

Value AttentionBlock::partialRow(const Query &query, Value part) {
  Value at = b.add(b.mul(headOf(query), spec.headDim), PartialPlace(spec).values);
  return b.advance(partialPlace(query, part), at, b.f32());
}

Value AttentionBlock::partialMerge(const Query &query, Value part) {
  return b.advance(partialPlace(query, part), b.mul(headOf(query), 2), b.f32());
}

void emitAttention(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                   const KernelArguments &arguments) {
  const int64_t items = spec.kvHeads * QueryCut(spec, kernel.tile).chunks;
  Value count = b.mul(countOfPieces(b, arguments), items);
  b.forLoop(b.block(0), count, kernel.launch.grid[0].factor, [&](Value item) {
    if (kernel.tile.matrix)
      emitMatrixAttention(b, spec, kernel, arguments, item);
    else
      emitScalarAttention(b, spec, kernel, arguments, item);
    b.barrier(); // all are through with shared memory
  });
}

//===- Keys and values ----------------------------------------------------===//

KeyValueTiles::KeyValueTiles(KernelBuilder &b, const AttentionBlock &block,
                             const AttentionShared &places, Value shared)
    : b(b), block(block), places(places), shared(shared),
      cache(b, block.spec, block.arguments, block.kvHead, block.sequence) {}

/// body(row of the tile, first dimension, i1: there is such a row) for every run of `width`
/// dimensions of the tile.
static void forRuns(KernelBuilder &b, const AttentionTile &tile, int64_t headDim, int64_t width,
                    llvm::function_ref<void(Value, Value)> body) {
  int64_t perRow = headDim / width, total = tile.tokens * perRow, threads = tile.threads();
  // Addresses of wide heads are too many to be kept in registers from one tile to the next.
  Value thread = headDim > 128 ? b.opaque(b.thread()) : b.thread();
  for (int64_t i = 0; i < divideCeil(total, threads); ++i) {
    Value index = b.add(thread, i * threads);
    Value row = b.div(index, perRow), dim = b.mul(b.rem(index, perRow), width);
    b.ifThen((i + 1) * threads > total ? b.less(index, total) : Value(), [&] { body(row, dim); });
  }
}

void KeyValueTiles::copyFloats(bool keys, Value page, Value firstToken, Value to) {
  Value rows = cache.row(keys, page, firstToken);
  int64_t headDim = block.spec.headDim;
  forRuns(b, block.kernel.tile, headDim, 8, [&](Value row, Value dim) {
    Value from = b.advance(rows, b.add(b.mul(row, headDim), dim), b.type(Float::F16));
    Value at = b.add(b.mul(row, places.rowBytes), b.mul(dim, 2));
    b.copyAsync16(b.advance(to, at, b.i8()), from, b.less(b.add(firstToken, row), block.piece.end));
  });
}

void KeyValueTiles::store(Value x, Value row, Value dim, Value to) {
  Value at = b.advance(to, b.mul(row, places.rowBytes), b.i8());
  if (block.kernel.tile.matrix)
    return b.store(x, b.advance(at, dim, b.type(Float::F16)));
  auto vector = dyn_cast<VectorType>(x.getType());
  for (int64_t i = 0; i < (vector ? vector.getNumElements() : 1); ++i)
    b.store(b.toF32(b.extract(x, i)), b.advance(at, b.add(dim, i), b.f32()));
}

/// Whatever the tokens of the tile are.
void KeyValueTiles::convert(bool keys, Value page, Value firstToken, Value to) {
  int64_t width = std::gcd<int64_t>(block.spec.headDim, kRun);
  Type half = b.type(Float::F16), type = width == 1 ? half : Type(b.vec(width, half));
  forRuns(b, block.kernel.tile, block.spec.headDim, width, [&](Value row, Value dim) {
    Value token = b.add(firstToken, row);
    Value inside = b.less(token, block.piece.end);
    if (block.spec.kv)
      inside = b.both(inside, b.less(-1, token));
    Value x =
        b.guarded(inside, b.zero(type), [&] { return cache.read(keys, page, token, dim, width); });
    store(x, row, dim, to);
  });
}

/// All tokens of the tile are codes.
void KeyValueTiles::convertCodes(bool keys, Value page, Value firstToken, Value to) {
  CodePlaces &codes = cache.codePlaces();
  const CodeCache &layout = codes.layout;
  const AttentionTile &tile = block.kernel.tile;
  const int64_t perRow = block.spec.headDim / kRun;
  Value i = b.sub(firstToken, layout.kv.sinks);
  Value rows = codes.codeRow(keys, page, block.kvHead, i);
  // Where a tile is part of one group of channels and a thread has the same dimensions in each of
  // its rows, slices are read once.
  bool once = !codes.slicesPerToken(keys) && layout.kv.group % tile.tokens == 0 &&
              tile.threads() % perRow == 0;
  std::optional<CodePlaces::Slices> slices;
  if (once)
    slices = codes.slices(keys, page, block.kvHead, i, b.mul(b.rem(b.thread(), perRow), kRun));
  forRuns(b, tile, block.spec.headDim, kRun, [&](Value row, Value dim) {
    Value from = b.advance(rows, b.mul(row, layout.codeBytes), b.i8());
    Value x = codes.dequantize(
        from, dim, once ? *slices : codes.slices(keys, page, block.kvHead, b.add(i, row), dim));
    store(b.bitcast(x, b.vec(kRun, b.type(Float::F16))), row, dim, to);
  });
}

/// The keys of a tile, by the angles of their tokens.
void KeyValueTiles::rotate(Value firstToken) {
  const int64_t rotated = block.spec.rotated(), threads = block.kernel.tile.threads();
  const bool matrix = block.kernel.tile.matrix;
  const int64_t width = matrix ? 2 : 1; // dimensions of a thread: a word of either form
  const int64_t perRow = rotated / 2 / width;
  Value keys = b.advance(shared, places.keys, b.i8());
  Type element = b.type(matrix ? Float::F16 : Float::F32);
  Type word = matrix ? Type(b.vec(2, element)) : element;
  b.forLoop(b.thread(), block.kernel.tile.tokens * perRow, threads, [&](Value unit) {
    Value row = b.div(unit, perRow), dim = b.mul(b.rem(unit, perRow), width);
    Value token = b.add(firstToken, row);
    b.ifThen(b.both(b.less(token, block.piece.end), b.less(-1, token)), [&] {
      Value table = b.rowOf(block.arguments["table"], token, rotated, b.f32());
      Value turns = b.load(b.advance(table, b.mul(dim, 2), b.f32()), b.vec(2 * width, b.f32()),
                           /*constant=*/true);
      Value left = b.advance(b.advance(keys, b.mul(row, places.rowBytes), b.i8()), dim, element);
      Value right = b.advance(left, rotated / 2, element);
      Value u = b.load(left, word), v = b.load(right, word);
      KernelBuilder::Values x, y;
      for (int64_t i = 0; i < width; ++i) {
        Value cosine = b.extract(turns, 2 * i), sine = b.extract(turns, 2 * i + 1);
        Value minusSine = b.mulf(sine, b.constant(b.f32(), -1.0));
        Value p = b.toF32(b.extract(u, i)), q = b.toF32(b.extract(v, i));
        x.push_back(b.fma(p, cosine, b.mulf(q, minusSine)));
        y.push_back(b.fma(q, cosine, b.mulf(p, sine)));
      }
      Float type = matrix ? Float::F16 : Float::F32;
      b.store(b.fromF32(b.join(x), type), left);
      b.store(b.fromF32(b.join(y), type), right);
    });
  });
  b.barrier();
}

void KeyValueTiles::finishKeys(Value firstToken) {
  finishValues();
  if (block.spec.keyPositions > 0)
    rotate(firstToken);
}

void KeyValueTiles::start(bool keys, Value firstToken) {
  Value to = b.advance(shared, keys ? places.keys : places.values, b.i8());
  Value page = cache.page(firstToken);
  if (!block.spec.kv)
    return block.kernel.tile.matrix ? copyFloats(keys, page, firstToken, to)
                                    : convert(keys, page, firstToken, to);
  // The same for all threads. No query sees less than the codes.
  Value all = cache.allCodes(keys, firstToken, block.kernel.tile.tokens);
  b.ifThen(all, [&] { convertCodes(keys, page, firstToken, to); });
  b.ifThen(b.equal(all, b.zero(all.getType())), [&] { convert(keys, page, firstToken, to); });
}

void KeyValueTiles::finishValues() {
  if (block.kernel.tile.matrix && !block.spec.kv) {
    b.commitCopies();
    b.waitForCopies(0);
  }
  b.barrier();
}

} // namespace easyquant::gpu
