//===- AttentionQuantized.cpp - Causal attention over a cache of codes ----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A call of M tokens sees the sinks, the keys and values that are codes, the float window, and its
// own tokens as they come. One token is appended first and then finds itself in the window; more
// attend first, for what they push out of the window they still see in float.
//
// Work is cut up as in Attention.cpp: one token into parts of codes, and one more item a head for
// the float rows; more tokens into tiles over all that they see. Few sequences are attended to by
// all threads together, of many heads and tiles are dealt out in turn.
//
//===----------------------------------------------------------------------===//

#include "AttentionCodes.h"

#include "RowKernel.h"

using namespace mlir;

namespace easyquant::cpu {

namespace {

struct CodesTiling : AttentionTiling<CodesTile> {
  CodesTiling(const AttentionSpec &spec, const Target &target) : AttentionTiling(spec, target) {
    panels = std::max(prefill.tile.bytes, decode.tile.bytes * decodeTiles());
    bytes = panels + std::max(prefill.bytes, decode.bytes);
  }
  int64_t panels; ///< where a thread's panels begin in its scratch
  int64_t bytes;  ///< of scratch, a thread
};

class CodesSequence : public AttentionSequence {
public:
  CodesSequence(KernelBuilder &b, ModuleOp module, const CodesTiling &tiling,
                const KernelArguments &in, const Team &team, const Sequence &sequence);

  /// Shares a sequence's work among all threads, which meet in the midst of it.
  void attendTogether();
  /// The same in three parts, between which the threads meet; within a part they do not. With one
  /// token all work is in the first. Each gives the `turn` of the next sequence.
  Value begin(Value turn);
  Value attend(Value turn);
  Value end(Value turn);

private:
  /// Where the cache is, then indices.
  SmallVector<Value> onCache(ValueRange indices) {
    SmallVector<Value> operands = place.values();
    llvm::append_range(operands, indices);
    return operands;
  }
  void restore(Value begin, Value end) {
    b.ifThen(b.less(sequence.position, sequence.held), [&] {
      emitRestore(b, module, layout, onCache({sequence.position, sequence.held, begin, end}));
    });
  }
  void makeRoom(Value begin, Value end) {
    emitMakeRoom(b, module, layout, onCache({sequence.position, begin, end}));
  }
  void append(Value begin, Value end) {
    SmallVector<Value> operands = {k, v};
    llvm::append_range(operands, onCache({sequence.position, begin, end}));
    emitCacheAppend(b, module, layout, operands);
  }
  /// What the parts of a tile take (AttentionCodes.h).
  SmallVector<Value> onTile(Value offset, Value first, Value head, ValueRange range = {}) {
    SmallVector<Value> operands = {q, k, v};
    llvm::append_range(operands, place.values());
    if (table)
      operands.push_back(table);
    operands.append({sequence.position, scratch, offset, b.add(ownScratch(), panels), first, head});
    llvm::append_range(operands, range);
    return operands;
  }
  /// The first token >= begin, a whole number of steps behind it, from which on `oldest` lies in
  /// the same step or later.
  Value stepOf(Value begin, Value oldest) {
    if (layout.spec.window == 0)
      return begin;
    Value past = b.max(begin, oldest);
    Value steps = b.div(b.sub(past, begin), AttentionTile::kStep);
    return b.add(begin, b.mul(steps, AttentionTile::kStep));
  }
  Value oldestSeen(Value at) { return cpu::oldestSeen(b, layout.spec, at); }
  /// The sinks, and the window from its first key on, before token `end`.
  void callFloatRows(const CodesTile &tile, Value offset, Value first, Value head, Value oldest,
                     Value end) {
    Value none = b.index(0), sinks = b.index(layout.kv.sinks);
    if (layout.kv.sinks > 0)
      emitAttendRows(b, module, tile, /*ofCall=*/false,
                     onTile(offset, first, head, {stepOf(none, oldest), b.min(sinks, end)}));
    emitAttendRows(b, module, tile, /*ofCall=*/false,
                   onTile(offset, first, head, {stepOf(b.add(sinks, keys), oldest), end}));
  }

  /// The last of the items of a head is its float rows, the others are parts of the codes.
  Parts decodeParts() override;
  Value itemsOf(const Parts &parts) override { return b.add(parts.count, 1); }
  void attendItem(const Parts &parts, Value offset, Value head, Value item) override;
  void prefillTile(Value tiles, Value item);

  const CodesTiling &tiling;
  const CacheLayout &layout;
  const int64_t panels; ///< of a thread, in its scratch
  CachePlace place;
  Value keys; ///< that are codes
};

} // namespace

CodesSequence::CodesSequence(KernelBuilder &b, ModuleOp module, const CodesTiling &tiling,
                             const KernelArguments &in, const Team &team, const Sequence &sequence)
    : AttentionSequence(b, module, in, team, sequence, tiling.prefill.tile, tiling.decode.tile,
                        tiling.heads, tiling.parts, tiling.bytes),
      tiling(tiling), layout(tiling.decode.layout), panels(tiling.panels),
      place({in["cache"], pagesOf(b, in["pages"], sequence), in["layer"],
             b.add(b.mul(sequence.window, in["windows"]), in["window"])}) {
  y = sequence.rowsOf(b, in["y"]);
  int64_t sinks = layout.kv.sinks, residual = layout.kv.residual;
  Value behind = b.sub(b.max(sequence.position, sinks), sinks);
  keys = b.mul(b.div(behind, residual), residual);
}

void CodesSequence::attendTogether() {
  // A thread fills the cache of its heads, which the others read behind a barrier.
  auto [begin, end] = shareOf(b, layout.spec.kvHeads, team);
  restore(begin, end);
  b.ifThenElse(
      isOneToken(),
      [&, begin = begin, end = end] {
        append(begin, end);
        emitBarrier(b, module, b.target, team);
        decodeTogether();
      },
      [&, begin = begin, end = end] {
        makeRoom(begin, end);
        emitBarrier(b, module, b.target, team);
        Value tiles = prefillTiles();
        b.forLoop(team.thread, b.mul(tiles, heads), team.threads,
                  [&](Value item) { prefillTile(tiles, item); });
        emitBarrier(b, module, b.target, team);
        append(begin, end);
      });
}

Value CodesSequence::begin(Value turn) {
  Value kvHeads = b.index(layout.spec.kvHeads);
  const int64_t tilesOfHead = heads / layout.spec.kvHeads;
  forTurns(b, kvHeads, turn, team, [&](Value head) {
    Value next = b.add(head, 1);
    restore(head, next);
    b.ifThenElse(
        isOneToken(),
        [&] {
          append(head, next);
          b.forLoop(b.mul(head, tilesOfHead), b.mul(next, tilesOfHead), 1,
                    [&](Value tile) { decodeHead(tile); });
        },
        [&] { makeRoom(head, next); });
  });
  return nextTurn(b, kvHeads, turn, team);
}

Value CodesSequence::attend(Value turn) {
  Value tiles = prefillTiles();
  Value items = b.select(isOneToken(), b.index(0), b.mul(tiles, heads));
  forTurns(b, items, turn, team, [&](Value item) { prefillTile(tiles, item); });
  return nextTurn(b, items, turn, team);
}

Value CodesSequence::end(Value turn) {
  Value items = b.select(isOneToken(), b.index(0), b.index(layout.spec.kvHeads));
  forTurns(b, items, turn, team, [&](Value head) { append(head, b.add(head, 1)); });
  return nextTurn(b, items, turn, team);
}

CodesSequence::Parts CodesSequence::decodeParts() {
  Value oldest = oldestSeen(sequence.position);
  Value oldestNumber = b.sub(b.max(oldest, layout.kv.sinks), layout.kv.sinks);
  Value begin = stepOf(b.index(0), oldestNumber);
  return cut(begin, b.max(keys, begin));
}

void CodesSequence::attendItem(const Parts &parts, Value offset, Value head, Value item) {
  const CodesTile &tile = tiling.decode;
  Value none = b.index(0);
  emitStartTile(b, module, tile, onTile(offset, none, head));
  b.ifThenElse(
      b.less(item, parts.count),
      [&] {
        auto [first, last] = part(parts, item);
        emitAttendCodes(b, module, tile, onTile(offset, none, head, {first, last}));
      },
      [&] {
        callFloatRows(tile, offset, none, head, oldestSeen(sequence.position),
                      b.add(sequence.position, 1));
      });
}

void CodesSequence::prefillTile(Value tiles, Value item) {
  const CodesTile &tile = tiling.prefill;
  Value none = b.index(0), offset = ownScratch();
  Value head = arith::DivUIOp::create(b, item, tiles);
  Value first = b.mul(b.sub(item, b.mul(head, tiles)), tile.tile.tokens);
  Value oldest = oldestSeen(b.add(sequence.position, first));
  Value oldestNumber = b.sub(b.max(oldest, layout.kv.sinks), layout.kv.sinks);
  Value end = b.add(sequence.position, b.min(b.add(first, tile.tile.tokens), sequence.rows));
  emitStartTile(b, module, tile, onTile(offset, first, head));
  callFloatRows(tile, offset, first, head, oldest, sequence.position);
  emitAttendCodes(b, module, tile, onTile(offset, first, head, {stepOf(none, oldestNumber), keys}));
  emitAttendRows(b, module, tile, /*ofCall=*/true,
                 onTile(offset, first, head, {stepOf(sequence.position, oldest), end}));
  finish(prefill, offset, first, head);
}

int64_t quantizedScratchBytes(const AttentionSpec &spec, const Target &target) {
  return CodesTiling(spec, target).bytes;
}

func::FuncOp getOrEmitQuantizedAttention(ModuleOp module, const Description &kernel,
                                         const AttentionSpec &spec, const Target &target) {
  CodesTiling tiling(spec, target);
  auto build = [&](KernelBuilder &b, const KernelArguments &in, const Team &team) {
    Value sequences = in["sequences"];
    auto of = [&](const Sequence &sequence) {
      return CodesSequence(b, module, tiling, in, team, sequence);
    };
    auto inTurn = [&](Value (CodesSequence::*part)(Value)) {
      forSequencesInTurn(b, sequences, [&](const Sequence &sequence, Value turn) {
        CodesSequence codes = of(sequence);
        return (codes.*part)(turn);
      });
    };
    shareSequences(
        b, module, sequences, tiling.heads, team,
        [&](const Sequence &sequence) { of(sequence).attendTogether(); },
        [&] {
          inTurn(&CodesSequence::begin);
          // Else each has one token.
          b.ifThen(b.less(b.size(sequences, 0), b.size(in["q"], 0)), [&] {
            emitBarrier(b, module, b.target, team);
            inTurn(&CodesSequence::attend);
            emitBarrier(b, module, b.target, team);
            inTurn(&CodesSequence::end);
          });
        });
  };
  return getOrEmitKernel(module, kernel, target, build);
}

} // namespace easyquant::cpu
