//===- AttentionCodes.cpp - Queries against a cache of codes --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionCodes.h"

#include "RowKernel.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <numeric>

using namespace mlir;

namespace easyquant::cpu {

using Values = KernelBuilder::Values;

/// The float tile works on f32 panels, whatever the cache's type.
static AttentionSpec onPanels(AttentionSpec spec) {
  spec.halfCache = false;
  return spec;
}

CodesTile::CodesTile(const AttentionSpec &spec, const Target &target, int64_t tokens)
    : layout(spec), tile(onPanels(spec), target, tokens),
      paddedColumns(layout.keyWords * layout.fields) {
  // Beside the accumulators live the words of a block, one vector of codes each, and a factor.
  int64_t registers = target.registers(), step = AttentionTile::kStep;
  int64_t widest = std::min(layout.kv.group, step) / target.lanes();
  codeVectors = 1;
  while (2 * codeVectors <= std::min<int64_t>(4, widest) &&
         (tile.microRows + 2) * 2 * codeVectors < registers)
    codeVectors *= 2;

  int64_t end = 0;
  auto place = [&](int64_t floats) {
    int64_t at = end;
    end += static_cast<int64_t>(llvm::alignTo(floats * 4, 64));
    return at;
  };
  keyPanel = place(step * spec.headDim);
  valuePanel = place(step * spec.headDim);
  scaledQueries = place(tile.rows * paddedColumns);
  weights = place(tile.rows * step);
  bias = place(tile.rows);
  bytes = end;
}

namespace {

/// What all parts take, by name.
struct Arguments {
  Arguments(const CodesTile &tile, ValueRange args)
      : q(args[0]), k(args[1]), v(args[2]), place(args.drop_front(3)) {
    args = args.drop_front(3 + CachePlace::kCount);
    if (tile.layout.kv.ropePositions > 0) {
      table = args[0];
      args = args.drop_front();
    }
    position = args[0], scratch = args[1], offset = args[2], panels = args[3], first = args[4];
    head = args[5];
  }
  Value q, k, v;
  CachePlace place;
  Value table, position, scratch, offset, panels, first, head;
};

/// Steps of a tile on panels and codes.
class CodesEmitter {
public:
  CodesEmitter(KernelBuilder &b, const CodesTile &tile, ValueRange args)
      : b(b), tile(tile), layout(tile.layout), in(tile, args), lanes(b.target.lanes()),
        columns(layout.spec.headDim),
        step(b, tile.tile, in.q, in.position, in.scratch, in.offset, in.first, in.head),
        cache(b, layout, in.place), panels(b, tile, cache, step.kvHead, in.scratch, in.panels) {
    auto view = [&](int64_t at, int64_t floats) {
      return b.view(in.scratch, b.add(in.panels, at), b.memref({floats}, b.f32()));
    };
    scaledQueries = view(tile.scaledQueries, tile.tile.rows * tile.paddedColumns);
    weights = view(tile.weights, tile.tile.rows * AttentionTile::kStep);
    bias = view(tile.bias, tile.tile.rows);
  }

  void emitStart() { step.emitQueries(); }
  void emitRows(bool ofCall, Value begin, Value end);
  void emitCodes(Value begin, Value end);

private:
  void emitPanelScores(Value token, Value count) {
    if (in.table)
      panels.emitRope(in.table, token, count);
    step.emitScores({panels.keys, b.index(0)}, 0, count);
  }
  /// A step of codes, number i .., and where the keys of the one behind it begin.
  struct Codes {
    CodesPage page;
    Value i, nextKeys;
  };
  void emitFetch(Value i, Value last);
  void emitDirectScores(Codes &codes, Value count);
  void emitScaledQueries(Codes &codes, Value i);
  void emitDirectValues(Codes &codes, Value count);
  void emitWeights(Codes &codes, Value slice, Value count);
  void emitValueBlock(Codes &codes, Value count, Value row, Value column, ArrayRef<int64_t> widths);

  /// Field k of words, as floats and times fieldFactor(k).
  Value field(Value words, int64_t k) {
    int64_t bits = layout.kv.bits;
    if (k == layout.fields - 1)
      return b.toFloat(b.shrLogical(words, k * bits));
    return b.toFloat(b.andi(words, layout.levels << (k * bits)));
  }
  /// The factors of field(k), for fields k, k + 1, ... in the lanes.
  Value fieldFactors(int64_t k, int64_t count) {
    SmallVector<float> factors;
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = (k + i) % layout.fields;
      bool shifted = at == layout.fields - 1;
      factors.push_back(shifted ? 1.0f : std::ldexp(1.0f, -static_cast<int>(at * layout.kv.bits)));
    }
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(b.vec(count, b.f32()), ArrayRef(factors)));
  }
  Value load(int64_t count, Value elements, Value at) {
    return fromCache(b, b.loadVector(count, elements, {at}));
  }

  KernelBuilder &b;
  const CodesTile &tile;
  const CacheLayout &layout;
  Arguments in;
  int64_t lanes, columns;
  TileEmitter step;
  CacheViews cache;
  PanelEmitter panels;
  Value scaledQueries, weights, bias;
};

} // namespace

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void CodesEmitter::emitRows(bool ofCall, Value begin, Value end) {
  b.forLoop(begin, end, AttentionTile::kStep, [&](Value token) {
    Value count = b.min(b.sub(end, token), AttentionTile::kStep);
    Value start = cache.floatRow(step.kvHead, token);
    const bool isToRotate = ofCall && layout.kv.hadamard > 0;
    auto rowOf = [&](Value call, Value kept, bool isToRotate) {
      return [this, ofCall, isToRotate, call, kept, token, start](Value t, Value dim) {
        if (!ofCall)
          return load(kBlock, kept, b.add(b.add(start, b.mul(t, columns)), dim));
        Value row = b.min(b.sub(b.add(token, t), in.position), step.lastToken);
        Value column = b.add(b.mul(step.kvHead, columns), dim);
        Value x = b.loadVector(kBlock, call, {row, column});
        return isToRotate ? x : fromCache(b, toCache(b, layout.spec, x));
      };
    };
    panels.emitKeyRows(count, rowOf(in.k, cache.floatKeys, isToRotate));
    if (isToRotate)
      panels.emitKeyBasis(count);
    panels.emitValueRows(0, count, rowOf(in.v, cache.floatValues, /*isToRotate=*/false));
    emitPanelScores(token, count);
    step.emitMask(token, end);
    step.emitSoftmax();
    step.emitValues({panels.values, b.index(0)}, 0, count);
  });
}

/// For one token's queries, which stream through: the slices of the step behind number i, and where
/// the codes of the one behind that lie.
void CodesEmitter::emitFetch(Value i, Value last) {
  Value next = b.min(b.add(i, AttentionTile::kStep), last);
  CodesPage page = cache.page(step.kvHead, next);
  auto fetch = [&](Value at, int64_t elements) {
    for (int64_t e = 0; e < elements; e += 64 / layout.elementBytes())
      b.prefetch(cache.elements, {b.add(at, e)});
  };
  if (tile.directKeys())
    fetch(page.channelSlice(next), 2 * columns);
  for (int64_t slice = 0; slice < 2 * layout.slices; ++slice)
    fetch(page.valueSlice(b.index(slice), next), AttentionTile::kStep);
  Value later = b.min(b.add(i, 2 * AttentionTile::kStep), last);
  touch(b, cache.words, cache.page(step.kvHead, later).firstWord(), layout.headBytes);
}

void CodesEmitter::emitCodes(Value begin, Value end) {
  int64_t sinks = layout.kv.sinks, behind = sinks + layout.kv.residual;
  // Values from this number on are still in the window: easyquant/Numerics/KVCache.h.
  Value past = b.max(b.add(in.position, 1), behind);
  Value firstFloat = b.sub(past, behind);
  b.forLoop(begin, end, AttentionTile::kStep, [&](Value i) {
    Value count = b.min(b.sub(end, i), AttentionTile::kStep), token = b.add(i, sinks);
    Value last = b.sub(end, 1), next = b.min(b.add(i, AttentionTile::kStep), last);
    if (tile.tile.tokens == 1)
      emitFetch(i, last);
    Codes here{cache.page(step.kvHead, i), i, cache.page(step.kvHead, next).keyBlock(next)};
    if (tile.directKeys()) {
      emitDirectScores(here, count);
    } else {
      panels.emitKeyCodes(here.page, i, count);
      emitPanelScores(token, count);
    }
    step.emitMask(token, b.add(end, sinks));
    step.emitSoftmax();

    Value codes = b.min(count, b.sub(b.max(firstFloat, i), i));
    auto fromWindow = [&](Value t, Value dim) {
      Value start = cache.floatRow(step.kvHead, b.add(token, t));
      return load(kBlock, cache.floatValues, b.add(start, dim));
    };
    if (tile.tile.tokens > 1) {
      panels.emitValueCodes(here.page, i, codes);
      panels.emitValueRows(codes, count, fromWindow);
      step.emitValues({panels.values, b.index(0)}, 0, count);
      return;
    }
    emitDirectValues(here, codes);
    b.ifThen(b.less(codes, count), [&] {
      panels.emitValueRows(codes, count, fromWindow);
      step.emitValues({panels.values, b.index(0)}, codes, count, /*decayed=*/false);
    });
  });
}

//===----------------------------------------------------------------------===//
// Scores in registers
//===----------------------------------------------------------------------===//

/// q_d s_d, and <q, m>, for the slices of key i.
void CodesEmitter::emitScaledQueries(Codes &codes, Value i) {
  Value slice = codes.page.channelSlice(i);
  VectorType vector = b.vec(kBlock, b.f32());
  int64_t span = std::max(kBlock, layout.fields), whole = columns / span * span;
  b.forLoop(0, tile.tile.rows, 1, [&](Value row) {
    auto emitSpan = [&](Value dim, int64_t dims, Value sum) {
      for (int64_t d = 0; d < dims; d += kBlock) {
        Value column = b.add(dim, d), at = b.add(slice, column);
        Value query = b.loadVector(kBlock, step.at.queries, {b.add(b.mul(row, columns), column)});
        Value scale = b.mulf(load(kBlock, cache.elements, b.add(at, columns)),
                             fieldFactors(d % layout.fields, kBlock));
        b.storeVector(b.mulf(query, scale), scaledQueries,
                      {b.add(b.mul(row, tile.paddedColumns), column)});
        sum = b.fma(query, load(kBlock, cache.elements, at), sum);
      }
      return sum;
    };
    Value sum =
        b.forLoop(0, whole, span, ValueRange{b.zero(vector)}, [&](Value dim, ValueRange carried) {
          return Values{emitSpan(dim, span, carried[0])};
        })[0];
    if (whole < columns)
      sum = emitSpan(b.index(whole), columns - whole, sum);
    for (int64_t d = columns; d < tile.paddedColumns; d += kBlock)
      b.storeVector(b.zero(vector), scaledQueries, {b.add(b.mul(row, tile.paddedColumns), d)});
    b.store(b.sumLanes(sum), bias, {row});
  });
}

void CodesEmitter::emitDirectScores(Codes &codes, Value count) {
  int64_t vectors = tile.codeVectors, width = vectors * lanes, rows = tile.tile.microRows;
  int64_t group = std::min(layout.kv.group, AttentionTile::kStep);
  Value keys = codes.page.keyBlock(codes.i);
  // The values of the same tokens come next, in as many words.
  Value ahead = b.sub(codes.page.valueRow(codes.i), keys);
  b.forLoop(0, count, group, [&](Value from) {
    emitScaledQueries(codes, b.add(codes.i, from));
    b.forLoop(from, b.min(b.add(from, group), count), width, [&](Value column) {
      SmallVector<Value> starts;
      for (int64_t v = 0; v < vectors; ++v) {
        // Tokens behind the last one are masked.
        Value token = b.add(column, v * lanes);
        Value block = b.mul(b.div(token, kCacheBlock), layout.keyWords * kCacheBlock);
        starts.push_back(b.add(b.add(keys, block), b.rem(token, kCacheBlock)));
      }
      b.forLoop(0, tile.tile.rows, rows, [&](Value row) {
        Values sums;
        for (int64_t r = 0; r < rows; ++r)
          sums.append(vectors, b.broadcast(b.load(bias, {b.add(row, r)}), lanes));
        sums = b.forLoop(0, layout.keyWords, 1, sums, [&](Value word, ValueRange carried) {
          SmallVector<Value> words;
          for (Value start : starts) {
            Value at = b.add(start, b.mul(word, kCacheBlock));
            if (words.size() * lanes % kCacheBlock == 0)
              b.prefetch(cache.words, {b.add(at, ahead)});
            words.push_back(b.loadVector(lanes, cache.words, {at}));
          }
          Value query = b.add(b.mul(row, tile.paddedColumns), b.mul(word, layout.fields));
          Values next(carried);
          for (int64_t k = 0; k < layout.fields; ++k)
            next = step.emitOuterProduct(
                next, vectors,
                [&](int64_t r) {
                  return b.load(scaledQueries, {b.add(query, r * tile.paddedColumns + k)});
                },
                [&](int64_t v) { return field(words[v], k); });
          return next;
        });
        Value to = b.add(b.mul(row, AttentionTile::kStep), column);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t v = 0; v < vectors; ++v)
            b.storeVector(sums[r * vectors + v], step.at.scores,
                          {b.add(to, r * AttentionTile::kStep + v * lanes)});
      });
    });
  });
}

//===----------------------------------------------------------------------===//
// Values in registers
//===----------------------------------------------------------------------===//

/// p_t s_t, and sum p_t m_t, for one slice of each of the step's first `count` tokens.
void CodesEmitter::emitWeights(Codes &codes, Value slice, Value count) {
  VectorType vector = b.vec(lanes, b.f32()), ints = b.vec(lanes, b.i32());
  Value limit = b.broadcast(arith::IndexCastOp::create(b, b.i32(), count), lanes);
  b.forLoop(0, tile.tile.rows, 1, [&](Value row) {
    Value sum = b.zero(vector);
    for (int64_t t = 0; t < AttentionTile::kStep; t += lanes) {
      Value at = codes.page.valueSlice(slice, b.add(codes.i, t));
      SmallVector<int32_t> tokens(lanes);
      std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(t));
      Value number = arith::ConstantOp::create(b, DenseElementsAttr::get(ints, ArrayRef(tokens)));
      Value counts = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, limit);
      Value to = b.add(b.mul(row, AttentionTile::kStep), t);
      Value weight = b.loadVector(lanes, step.at.scores, {to});
      auto masked = [&](Value x) { return b.select(counts, x, b.zero(vector)); };
      Value minimum = load(lanes, cache.elements, at);
      Value scale = load(lanes, cache.elements, b.add(at, layout.tokenScales()));
      sum = b.addf(sum, masked(b.mulf(weight, minimum)));
      scale = b.mulf(scale, fieldFactors(t % layout.fields, lanes));
      b.storeVector(masked(b.mulf(weight, scale)), weights, {to});
    }
    b.store(b.sumLanes(sum), bias, {row});
  });
}

/// O = O 2^(m - m') + P V^ for some rows, and columns of one slice in vectors of these widths.
void CodesEmitter::emitValueBlock(Codes &codes, Value count, Value row, Value column,
                                  ArrayRef<int64_t> widths) {
  int64_t vectors = widths.size(), rows = tile.tile.microRows;
  Value outputStart = b.add(b.mul(row, columns), column);
  auto outputAt = [&](int64_t r, int64_t v) { return b.add(outputStart, r * columns + v * lanes); };
  Values sums;
  for (int64_t r = 0; r < rows; ++r) {
    Value decay = b.load(step.at.decays, {b.add(row, r)}), base = b.load(bias, {b.add(row, r)});
    for (int64_t v = 0; v < vectors; ++v) {
      Value before = b.loadVector(widths[v], step.at.output, {outputAt(r, v)});
      sums.push_back(b.fma(before, b.broadcast(decay, widths[v]), b.broadcast(base, widths[v])));
    }
  }
  Value values = codes.page.valueRow(codes.i), start = b.add(values, column);
  Value ahead = b.sub(codes.nextKeys, values);
  Value words = b.div(b.add(count, layout.fields - 1), layout.fields);
  sums = b.forLoop(0, words, 1, sums, [&](Value word, ValueRange carried) {
    SmallVector<Value> loaded;
    for (int64_t v = 0; v < vectors; ++v) {
      Value at = b.add(b.add(start, b.mul(word, columns)), v * lanes);
      if (v * lanes % kCacheBlock == 0)
        b.prefetch(cache.words, {b.add(at, ahead)});
      loaded.push_back(b.loadVector(widths[v], cache.words, {at}));
    }
    Value weight = b.add(b.mul(row, AttentionTile::kStep), b.mul(word, layout.fields));
    Values sums(carried);
    for (int64_t k = 0; k < layout.fields; ++k)
      sums = step.emitOuterProduct(
          sums, vectors,
          [&](int64_t r) { return b.load(weights, {b.add(weight, r * AttentionTile::kStep + k)}); },
          [&](int64_t v) { return field(loaded[v], k); });
    return sums;
  });
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      b.storeVector(sums[r * vectors + v], step.at.output, {outputAt(r, v)});
}

void CodesEmitter::emitDirectValues(Codes &codes, Value count) {
  int64_t width = tile.codeVectors * lanes, full = layout.width / width * width;
  SmallVector<int64_t> whole(tile.codeVectors, lanes), rest;
  for (int64_t left = layout.width - full; left > 0; left -= lanes)
    rest.push_back(std::min(left, lanes));
  b.forLoop(0, layout.slices, 1, [&](Value slice) {
    emitWeights(codes, slice, count);
    Value first = b.mul(slice, layout.width);
    auto emitColumns = [&](Value column, ArrayRef<int64_t> widths) {
      b.forLoop(0, tile.tile.rows, tile.tile.microRows,
                [&](Value row) { emitValueBlock(codes, count, row, column, widths); });
    };
    b.forLoop(0, full, width, [&](Value column) { emitColumns(b.add(first, column), whole); });
    if (!rest.empty())
      emitColumns(b.add(first, full), rest);
  });
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

static void emitPart(KernelBuilder &b, ModuleOp module, const CodesTile &tile, const char *part,
                     ValueRange operands,
                     llvm::function_ref<void(CodesEmitter &, ValueRange)> build) {
  std::string name =
      llvm::formatv("{0}_{1}{2}", symbolName(tile.layout.spec), part, tile.tile.tokens);
  func::FuncOp function = getOrEmitFunction(module, name, b.target, operands.getTypes(),
                                            [&](KernelBuilder &b, ValueRange args) {
                                              CodesEmitter emitter(b, tile, args);
                                              build(emitter, args.take_back(2));
                                            });
  func::CallOp::create(b, function, operands);
}

void emitStartTile(KernelBuilder &b, ModuleOp module, const CodesTile &tile, ValueRange operands) {
  emitPart(b, module, tile, "start", operands,
           [&](CodesEmitter &emitter, ValueRange) { emitter.emitStart(); });
}

void emitAttendRows(KernelBuilder &b, ModuleOp module, const CodesTile &tile, bool ofCall,
                    ValueRange operands) {
  emitPart(b, module, tile, ofCall ? "call" : "rows", operands,
           [&](CodesEmitter &emitter, ValueRange range) {
             emitter.emitRows(ofCall, range[0], range[1]);
           });
}

void emitAttendCodes(KernelBuilder &b, ModuleOp module, const CodesTile &tile,
                     ValueRange operands) {
  emitPart(b, module, tile, "codes", operands,
           [&](CodesEmitter &emitter, ValueRange range) { emitter.emitCodes(range[0], range[1]); });
}

} // namespace easyquant::cpu
