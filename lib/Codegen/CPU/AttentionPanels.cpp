//===- AttentionPanels.cpp - A step's keys and values as f32 --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionCodes.h"

#include "Hadamard.h"
#include "RowKernel.h"

using namespace mlir;

namespace easyquant::cpu {

PanelEmitter::PanelEmitter(KernelBuilder &b, const CodesTile &tile, CacheViews &cache, Value kvHead,
                           Value scratch, Value offset)
    : b(b), tile(tile), cache(cache), kvHead(kvHead), columns(tile.layout.spec.headDim) {
  MemRefType type = b.memref({AttentionTile::kStep * columns}, b.f32());
  keys = b.view(scratch, b.add(offset, tile.keyPanel), type);
  values = b.view(scratch, b.add(offset, tile.valuePanel), type);
}

Value PanelEmitter::keyAt(Value t, Index dim) {
  Value block = b.mul(b.div(t, kCacheBlock), columns);
  return b.add(b.mul(b.add(block, dim), kCacheBlock), b.rem(t, kCacheBlock));
}

void PanelEmitter::emitKeyRows(Value count, LoadRow load) {
  b.forLoop(0, count, kBlock, [&](Value t) {
    b.forLoop(0, columns, kBlock, [&](Value dim) {
      SmallVector<Value> rows;
      for (int64_t i = 0; i < kBlock; ++i)
        rows.push_back(load(b.add(t, i), dim));
      Value at = keyAt(t, dim);
      for (auto [i, row] : llvm::enumerate(b.transpose8(rows)))
        b.storeVector(row, keys, {b.add(at, static_cast<int64_t>(i) * kCacheBlock)});
    });
  });
}

void PanelEmitter::emitValueRows(Index begin, Value count, LoadRow load) {
  b.forLoop(begin, count, 1, [&](Value t) {
    b.forLoop(0, columns, kBlock, [&](Value dim) {
      b.storeVector(load(t, dim), values, {b.add(b.mul(t, columns), dim)});
    });
  });
}

Value PanelEmitter::broadcastSlice(Value at, int64_t lanes) {
  return b.broadcast(fromCache(b, b.load(cache.elements, {at})), lanes);
}

/// One word of 16 tokens, their numbers from i on: dimensions word * fields ...
void PanelEmitter::emitKeyWord(CodesPage &page, Value i, Value block, Value word, int64_t fields) {
  const CacheLayout &layout = tile.layout;
  int64_t lanes = b.target.lanes();
  Value dim = b.mul(word, layout.fields);
  Value slice = layout.kv.keysPerToken ? page.keySlice(b.div(dim, layout.width), i)
                                       : b.add(page.channelSlice(i), dim);
  for (int64_t t = 0; t < kCacheBlock; t += lanes) {
    Value at = b.add(b.add(block, b.mul(word, kCacheBlock)), t);
    Value codes = b.loadVector(lanes, cache.words, {at});
    Value minimum, scale;
    if (layout.kv.keysPerToken) {
      Value first = b.add(slice, t);
      minimum = fromCache(b, b.loadVector(lanes, cache.elements, {first}));
      scale =
          fromCache(b, b.loadVector(lanes, cache.elements, {b.add(first, layout.tokenScales())}));
    }
    for (int64_t k = 0; k < fields; ++k) {
      if (!layout.kv.keysPerToken) {
        minimum = broadcastSlice(b.add(slice, k), lanes);
        scale = broadcastSlice(b.add(slice, columns + k), lanes);
      }
      Value code = b.andi(b.shrLogical(codes, k * layout.kv.bits), layout.levels);
      Value to = b.add(keyAt(b.rem(i, AttentionTile::kStep), b.add(dim, k)), t);
      b.storeVector(b.fma(scale, b.toFloat(code), minimum), keys, {to});
    }
  }
}

void PanelEmitter::emitKeyCodes(CodesPage &page, Value i, Value count) {
  const CacheLayout &layout = tile.layout;
  int64_t whole = columns / layout.fields;
  b.forLoop(0, count, kCacheBlock, [&](Value t) {
    Value first = b.add(i, t), block = page.keyBlock(first);
    b.forLoop(0, whole, 1,
              [&](Value word) { emitKeyWord(page, first, block, word, layout.fields); });
    if (columns % layout.fields != 0)
      emitKeyWord(page, first, block, b.index(whole), columns % layout.fields);
  });
}

void PanelEmitter::emitValueCodes(CodesPage &page, Value i, Value count) {
  const CacheLayout &layout = tile.layout;
  b.forLoop(0, count, 1, [&](Value t) {
    Value number = b.add(i, t), row = page.valueRow(number);
    Value shift =
        arith::IndexCastOp::create(b, b.i32(), b.mul(b.rem(number, layout.fields), layout.kv.bits));
    b.forLoop(0, layout.slices, 1, [&](Value slice) {
      Value at = page.valueSlice(slice, number);
      Value scaleAt = b.add(at, layout.tokenScales());
      Value first = b.mul(slice, layout.width);
      forColumns(b, first, layout.width, b.target.lanes(), [&](Value dim, int64_t lanes) {
        Value word = b.loadVector(lanes, cache.words, {b.add(row, dim)});
        Value code = arith::ShRUIOp::create(b, word, b.broadcast(shift, lanes));
        Value x = b.fma(broadcastSlice(scaleAt, lanes), b.toFloat(b.andi(code, layout.levels)),
                        broadcastSlice(at, lanes));
        b.storeVector(x, values, {b.add(b.mul(t, columns), dim)});
      });
    });
  });
}

void PanelEmitter::emitKeyBasis(Value count) {
  b.forLoop(0, count, b.target.lanes(), [&](Value t) {
    emitHadamardAcross(
        b, columns, tile.layout.kv.hadamard, keys, [&](Value dim) { return keyAt(t, dim); },
        [&](Value x) { return fromCache(b, toCache(b, tile.layout.spec, x)); });
  });
}

void PanelEmitter::emitRope(Value table, Value token, Value count) {
  int64_t half = tile.layout.spec.rotated() / 2, last = tile.layout.kv.ropePositions - 1;
  b.forLoop(0, count, kBlock, [&](Value t) {
    b.forLoop(0, half, kBlock / 2, [&](Value dim) {
      // (cos, sin) of four pairs for eight tokens, then eight tokens for each of them.
      SmallVector<Value> turns;
      for (int64_t i = 0; i < kBlock; ++i) {
        Value position = b.min(b.add(b.add(token, t), i), last);
        turns.push_back(b.loadVector(kBlock, table, {position, dim, 0}));
      }
      turns = b.transpose8(turns);
      for (int64_t i = 0; i < kBlock / 2; ++i) {
        Value at = keyAt(t, b.add(dim, i)), other = b.add(at, half * kCacheBlock);
        Value u = b.loadVector(kBlock, keys, {at}), v = b.loadVector(kBlock, keys, {other});
        Value cosine = turns[2 * i], sine = turns[2 * i + 1];
        Value minusSine = b.negate(sine);
        b.storeVector(b.fma(u, cosine, b.mulf(v, minusSine)), keys, {at});
        b.storeVector(b.fma(v, cosine, b.mulf(u, sine)), keys, {other});
      }
    });
  });
}

} // namespace easyquant::cpu
