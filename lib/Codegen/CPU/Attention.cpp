//===- Attention.cpp - Causal attention over a key/value cache ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The threads rotate their shares of a step's tokens, if the kernel is to, and append them to the
// cache, meet, and share out tiles (AttentionTile.h) of each sequence:
//
//   one token     a tile per kv head and part of the cached tokens ("flash decoding"), so many
//   parts
//                 a round, whose results are then added up
//   more tokens   a tile per kv head and few tokens, over all that they see, part by part
//
// All threads together attend to few sequences, one after the other. With many sequences, whole
// heads and tiles are dealt out in turn, so that threads need not meet. The order of sums is that
// of AttentionTile.h in all of them.
//
//===----------------------------------------------------------------------===//

#include "AttentionTile.h"
#include "RowKernel.h"

#include "llvm/ADT/bit.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

struct FloatTiling : AttentionTiling<AttentionTile> {
  using AttentionTiling::AttentionTiling;
  /// Bytes of scratch for a thread. All threads together use the first one's share for one token.
  int64_t bytes() const { return std::max(2 * prefill.bytes, decode.bytes * decodeTiles()); }
};

std::string symbolName(const AttentionSpec &spec) {
  std::string name =
      llvm::formatv("attention_{0}of{1}x{2}_scale{3:x-}", spec.heads, spec.kvHeads, spec.headDim,
                    llvm::bit_cast<uint32_t>(static_cast<float>(spec.scale)));
  if (spec.window > 0)
    name += llvm::formatv("_window{0}", spec.window);
  if (spec.bound > 0)
    name += llvm::formatv("_bound{0:x-}", llvm::bit_cast<uint32_t>(static_cast<float>(spec.bound)));
  if (spec.sinkLogits)
    name += "_sinklogits";
  if (spec.appended)
    name += spec.before ? "_before" : "_appended";
  if (spec.positions > 0)
    name += llvm::formatv("_rotate{0}", spec.positions).str() +
            partOfHead(spec.rotated(), spec.headDim);
  name += spec.halfCache ? "_f16" : "_f32";
  if (const std::optional<KVQuantization> &kv = spec.kv) {
    name += llvm::formatv("_kv{0}_group{1}_residual{2}_sinks{3}", kv->bits, kv->group, kv->residual,
                          kv->sinks);
    if (kv->keysPerToken)
      name += "_token";
    if (kv->ropePositions > 0)
      name += llvm::formatv("_rope{0}", kv->ropePositions).str() +
              partOfHead(spec.rotated(), spec.headDim);
    if (kv->hadamard > 0)
      name += llvm::formatv("_h{0}", kv->hadamard);
  }
  return name;
}

int64_t scratchBytes(const AttentionSpec &spec, const Target &target) {
  if (spec.kv)
    return quantizedScratchBytes(spec, target);
  FloatTiling tiling(spec, target);
  return tiling.bytes();
}

namespace {

/// Writes tokens of one head to the cache.
class AppendEmitter {
public:
  AppendEmitter(KernelBuilder &b, const AttentionSpec &spec, ValueRange args)
      : b(b), spec(spec), columns(spec.headDim), k(args[0]), v(args[1]),
        pages(b, spec, args[2], args[3], args[4]), position(args[5]) {}
  void emit(Value head, Value begin, Value end);

private:
  /// Tokens whose keys are transposed in registers.
  static constexpr int64_t kTransposed = 8;

  Value slotOf(Value token) { return b.rem(b.add(position, token), numerics::kPageTokens); }
  /// Where dimension 0 of the key of a token lies; the others are a block apart.
  Value keyStart(Value token) {
    Value slot = slotOf(token), start = pages.start(head, b.add(position, token));
    Value block = b.mul(b.div(slot, kCacheBlock), columns * kCacheBlock);
    return b.add(b.add(start, block), b.rem(slot, kCacheBlock));
  }
  void emitKeysOneByOne(Value begin, Value end, int64_t firstDim);
  void emitEightKeys(Value token);

  KernelBuilder &b;
  const AttentionSpec &spec;
  int64_t columns;
  Value k, v;
  FloatPages pages;
  Value position, head, headColumn;
};

} // namespace

void AppendEmitter::emitKeysOneByOne(Value begin, Value end, int64_t firstDim) {
  if (firstDim == columns)
    return;
  b.forLoop(begin, end, 1, [&](Value token) {
    Value start = keyStart(token);
    b.forLoop(firstDim, columns, 1, [&](Value dim) {
      Value element = b.load(k, {token, b.add(headColumn, dim)});
      b.store(toCache(b, spec, element), pages.elements, {b.add(start, b.mul(dim, kCacheBlock))});
    });
  });
}

/// Half a block of the cache, as many dimensions at a time as there are tokens.
void AppendEmitter::emitEightKeys(Value token) {
  Value start = keyStart(token);
  int64_t dims = columns / kTransposed * kTransposed;
  b.forLoop(0, dims, kTransposed, [&](Value dim) {
    SmallVector<Value> rows;
    for (int64_t i = 0; i < kTransposed; ++i)
      rows.push_back(b.loadVector(kTransposed, k, {b.add(token, i), b.add(headColumn, dim)}));
    for (auto [i, row] : llvm::enumerate(b.transpose8(rows)))
      b.storeVector(toCache(b, spec, row), pages.elements,
                    {b.add(start, b.mul(b.add(dim, static_cast<int64_t>(i)), kCacheBlock))});
  });
  emitKeysOneByOne(token, b.add(token, kTransposed), dims);
}

void AppendEmitter::emit(Value ofHead, Value begin, Value end) {
  head = ofHead;
  headColumn = b.mul(head, columns);
  // Eight at a time from the first that starts half a block of the cache.
  Value into = b.rem(b.add(position, begin), kTransposed);
  Value aligned = b.min(b.add(begin, b.rem(b.sub(kTransposed, into), kTransposed)), end);
  Value left = b.sub(end, aligned);
  Value alignedEnd = b.add(aligned, b.sub(left, b.rem(left, kTransposed)));
  emitKeysOneByOne(begin, aligned, 0);
  b.forLoop(aligned, alignedEnd, kTransposed, [&](Value token) { emitEightKeys(token); });
  emitKeysOneByOne(alignedEnd, end, 0);
  b.forLoop(begin, end, 1, [&](Value token) {
    Value start = b.add(pages.start(head, b.add(position, token)), pages.valuesBehind());
    start = b.add(start, b.mul(slotOf(token), columns));
    forColumns(b, 0, columns, b.target.lanes(), [&](Value dim, int64_t lanes) {
      Value elements = b.loadVector(lanes, v, {token, b.add(headColumn, dim)});
      b.storeVector(toCache(b, spec, elements), pages.elements, {b.add(start, dim)});
    });
  });
}

/// Calls append(k, v, cache, pages, layer, position, begin, end, [q, table]), which rotates and
/// writes the tokens [begin, end) of the call.
static void emitAppend(KernelBuilder &b, ModuleOp module, const AttentionSpec &spec,
                       ValueRange operands) {
  auto build = [&](KernelBuilder &b, ValueRange args) {
    Value position = args[5], begin = args[6], end = args[7];
    if (spec.positions > 0) {
      RopeSpec queries{spec.heads, spec.headDim, spec.positions, false, spec.rotated()};
      RopeSpec keys = queries;
      keys.heads = spec.kvHeads;
      b.forLoop(begin, end, 1, [&](Value token) {
        emitRotation(b, queries, args[8], args[9], token, b.add(position, token));
        emitRotation(b, keys, args[0], args[9], token, b.add(position, token));
      });
    }
    AppendEmitter append(b, spec, args);
    b.forLoop(0, spec.kvHeads, 1, [&](Value head) { append.emit(head, begin, end); });
  };
  func::CallOp::create(
      b,
      getOrEmitFunction(module, symbolName(spec) + "_append", b.target, operands.getTypes(), build),
      operands);
}

namespace {

class FloatSequence : public AttentionSequence {
public:
  FloatSequence(KernelBuilder &b, ModuleOp module, const FloatTiling &tiling,
                const KernelArguments &in, const Team &team, const Sequence &sequence)
      : AttentionSequence(b, module, in, team, sequence, tiling.prefill, tiling.decode,
                          tiling.heads, tiling.parts, tiling.bytes()),
        cache(in["cache"]), pages(pagesOf(b, in["pages"], sequence)), layer(in["layer"]) {
    y = sequence.rowsOf(b, in["y"]);
  }

  /// The step's rows [begin, end), as far as they are its own.
  void append(Value begin, Value end);
  /// Shares a sequence's work among all threads, which meet in the midst of it.
  void attendTogether();
  /// Shares out tiles, and where there is one token heads, none of which takes two threads. The
  /// result is the `turn` of the next sequence.
  Value attendInTurn(Value turn);

private:
  /// The parts that tokens first .. of a tile see.
  Parts partsOf(const AttentionTile &tile, Value first);
  void attend(const AttentionTile &tile, const Parts &parts, Value offset, Value first, Value head,
              Value number) {
    auto [begin, end] = part(parts, number);
    emitAttendTile(
        b, module, tile,
        {q, cache, pages, layer, sequence.position, scratch, offset, first, head, begin, end});
  }
  Parts decodeParts() override { return partsOf(decode, b.index(0)); }
  Value itemsOf(const Parts &parts) override { return parts.count; }
  void attendItem(const Parts &parts, Value offset, Value head, Value item) override {
    attend(decode, parts, offset, b.index(0), head, item);
  }
  void prefillTile(Value tiles, Value item);

  Value cache, pages, layer;
};

} // namespace

void FloatSequence::append(Value begin, Value end) {
  auto [from, to] = sequence.part(b, begin, end);
  SmallVector<Value> operands = {k, v, cache, pages, layer, sequence.position, from, to};
  if (table)
    operands.append({q, table});
  emitAppend(b, module, decode.spec, operands);
}

FloatSequence::Parts FloatSequence::partsOf(const AttentionTile &tile, Value first) {
  Value oldest = oldestSeen(b, tile.spec, b.add(sequence.position, first));
  Value end = b.add(sequence.position, b.min(b.add(first, tile.tokens), sequence.rows));
  return cut(b.mul(b.div(oldest, AttentionTile::kStep), AttentionTile::kStep), end);
}

void FloatSequence::prefillTile(Value tiles, Value item) {
  Value head = arith::DivUIOp::create(b, item, tiles);
  Value first = b.mul(b.sub(item, b.mul(head, tiles)), prefill.tokens);
  Parts parts = partsOf(prefill, first);
  attendAlone(prefill, parts.count, first, head, [&](Value offset, Value number) {
    attend(prefill, parts, offset, first, head, number);
  });
}

void FloatSequence::attendTogether() {
  b.ifThenElse(
      isOneToken(), [&] { decodeTogether(); },
      [&] {
        Value tiles = prefillTiles();
        b.forLoop(team.thread, b.mul(tiles, heads), team.threads,
                  [&](Value item) { prefillTile(tiles, item); });
      });
}

Value FloatSequence::attendInTurn(Value turn) {
  Value tiles = prefillTiles(), items = b.mul(tiles, heads); // of one token: its heads
  b.ifThenElse(
      isOneToken(), [&] { forTurns(b, items, turn, team, [&](Value head) { decodeHead(head); }); },
      [&] { forTurns(b, items, turn, team, [&](Value item) { prefillTile(tiles, item); }); });
  return nextTurn(b, items, turn, team);
}

Description describe(const AttentionSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Other);
  Type queries = d.rows(spec.heads * spec.headDim), rows = d.rows(spec.kvHeads * spec.headDim);
  Type bytes = d.vector(d.getI8Type()), index = d.getIndexType();
  d.reads("q", queries);
  d.reads("k", rows, !spec.appended);
  d.reads("v", rows, !spec.appended);
  d.writes("cache", bytes);
  d.reads("pages", allPagesType(d));
  d.reads("sequences", sequencesType(d));
  d.reads("layer", index);
  if (spec.kv) {
    d.reads("window", index);
    d.reads("windows", index);
  }
  if (int64_t positions = spec.kv ? spec.kv->ropePositions : spec.positions)
    d.reads("table", rotationTable(d, positions, spec.rotated()));
  d.reads("sink_logits", d.memory({spec.heads}, d.getF32Type()), spec.sinkLogits);
  d.writes("y", queries);
  d.writes("scratch", bytes);
  if (spec.kv || spec.appended)
    return std::move(d.kernel);
  // Rows are rotated and appended one by one; behind its barrier the kernel attends.
  d.kernel.meets = true;
  for (Parameter &parameter : MutableArrayRef(d.kernel.parameters).take_front(3)) {
    parameter.written = spec.positions > 0 && parameter.name != "v";
    parameter.shared = spec.positions > 0 || parameter.name != "q";
  }
  return std::move(d.kernel);
}

func::FuncOp getOrEmitAttention(ModuleOp module, const AttentionSpec &spec, const Target &target) {
  Description kernel = describe(spec, module.getContext());
  if (auto existing = module.lookupSymbol<func::FuncOp>(kernel.name))
    return existing;
  if (spec.kv)
    return getOrEmitQuantizedAttention(module, kernel, spec, target);
  FloatTiling tiling(spec, target);
  auto build = [&](KernelBuilder &b, const KernelArguments &in, const Team &team) {
    Value sequences = in["sequences"];
    auto of = [&](Sequence sequence) {
      if (spec.before) // what a row sees ends with the token before it
        sequence.position = b.sub(sequence.position, 1);
      return FloatSequence(b, module, tiling, in, team, sequence);
    };
    if (!spec.appended) {
      auto [begin, end] = shareOf(b, b.size(in["q"], 0), team);
      forSequences(b, sequences, [&, begin = begin, end = end](const Sequence &sequence) {
        of(sequence).append(begin, end);
      });
      emitBarrier(b, module, b.target, team);
    }
    shareSequences(
        b, module, sequences, tiling.heads, team,
        [&](const Sequence &sequence) { of(sequence).attendTogether(); },
        [&] {
          forSequencesInTurn(b, sequences, [&](const Sequence &sequence, Value turn) {
            return of(sequence).attendInTurn(turn);
          });
        });
  };
  return getOrEmitKernel(module, kernel, target, build);
}

} // namespace easyquant::cpu
