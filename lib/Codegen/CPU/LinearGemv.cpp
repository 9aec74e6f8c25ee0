//===- LinearGemv.cpp - Few rows of x against streamed panels -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A few rows of x are bound by the bytes of the weights: a packed panel is one contiguous stream,
// read in order and unpacked in registers. The sums of all 32 columns stay in registers.
//
//===----------------------------------------------------------------------===//

#include "Linear.h"

using namespace mlir;

namespace easyquant::cpu {

using Values = SmallVector<Value>;

/// So far ahead of float products, and of those of tables on AVX2, packed weights are prefetched:
/// these keep more instructions in flight than a byte, so that the loads of too few lines are among
/// them. Other products of int8 read at the bandwidth of memory without that, or lose by it.
static constexpr int64_t kPrefetchBytes = 2048;

namespace {
struct Gemv {
  LinearKernel &k;
  Value panel, row;
  KernelBuilder &b = k.b;

  /// The block of 8 columns whose bytes begin at `offset`.
  PackedBlock blockAt(Value offset) { return k.block(panel, offset, b.target.lanes()); }

  /// The bytes of a block, kPrefetchBytes ahead.
  void prefetch(Value offset) {
    for (int64_t line = 0; line < PackedBlock::bytesOf(k.spec.weights); line += 64)
      b.prefetch(k.weights, {panel, b.add(offset, kPrefetchBytes + line)});
  }

  /// int8 above -128 on AVX2, tables among that. vpmaddubsw takes |x| as its unsigned and w *
  /// sign(x) as its signed operand: no pair exceeds 2 * 128 * 127 < 2^15.
  Values signedBytes(Value firstStep, int64_t steps, ArrayRef<Value> starts) {
    constexpr int64_t vectors = 4;
    VectorType bytes = b.vec(32, b.i8()), type = b.vec(8, b.i32());
    Values zeros(vectors, b.zero(type));
    Value ones = b.constant(b.vec(16, b.i16()), int64_t(1));
    return b.forLoop(
        0, steps, 2, starts.empty() ? zeros : Values(starts), [&](Value i, ValueRange carried) {
          Values acc(carried);
          Value first = b.add(firstStep, i);
          Value offset = b.mul(b.div(first, 2), PackedBlock::bytesOf(k.spec.weights));
          PackedBlock block = blockAt(offset);
          if (k.isTable())
            prefetch(offset);
          for (int64_t u = 0; u < 2; ++u) {
            block.load(u);
            Value x = broadcastCodes(k, row, b.mul(b.add(first, u), 4), 32);
            Value negative = b.subi(b.zero(bytes), x);
            Value magnitude = b.createOrFold<arith::MaxSIOp>(x, negative);
            for (int64_t v = 0; v < vectors; ++v) {
              Value w =
                  b.intrinsic("llvm.x86.avx2.psign.b", bytes, {k.signedBytes(block, u, v), x});
              Value pairs =
                  b.intrinsic("llvm.x86.avx2.pmadd.ub.sw", b.vec(16, b.i16()), {magnitude, w});
              acc[v] = b.addi(acc[v], b.intrinsic("llvm.x86.avx2.pmadd.wd", type, {pairs, ones}));
            }
          }
          return acc;
        });
  }

  /// int8 of the full range on AVX2, for which -w may not be a code: as u8 and x as i16 to
  /// vpmaddwd.
  Values wideBytes(Value firstStep, int64_t steps, ArrayRef<Value> starts) {
    constexpr int64_t halves = 8; // 4 columns of the panel each
    VectorType type = b.vec(8, b.i32());
    Values zeros(halves, b.zero(type));
    Values sums = b.forLoop(0, steps, 1, zeros, [&](Value i, ValueRange carried) {
      Values acc(carried);
      Value step = b.add(firstStep, i);
      Value four = b.signExtend(b.loadVector(4, k.x, {row, b.mul(step, 4)}), b.i16());
      Value word = b.extract(b.bitcast(four, b.vec(1, b.i64())), 0);
      Value x = b.bitcast(b.broadcast(word, 4), b.vec(16, b.i16()));
      for (int64_t h = 0; h < halves; ++h) {
        Value packed = b.loadVector(16, k.weights, {panel, b.add(b.mul(step, 128), h * 16)});
        Value products =
            b.intrinsic("llvm.x86.avx2.pmadd.wd", type, {b.zeroExtend(packed, b.i16()), x});
        acc[h] = b.addi(acc[h], products);
      }
      return acc;
    });
    Values result;
    for (int64_t h = 0; h < halves; h += 2)
      result.push_back(addPairs(b, sums[h], sums[h + 1]));
    for (auto [sum, start] : llvm::zip(result, starts))
      sum = b.addi(sum, start);
    return result;
  }

  /// Below int8 on AVX2: `blocks` (at most saturationSteps / 2) blocks of 8 columns in 16-bit
  /// lanes.
  Values narrowChunk(Value firstBlock, int64_t blocks, ValueRange sums) {
    VectorType type16 = b.vec(16, b.i16());
    Values pairs;
    for (int64_t i = 0; i < blocks; ++i) {
      Value index = b.add(firstBlock, i), column = b.mul(index, 8);
      Value x[2] = {broadcastCodes(k, row, column, 32),
                    broadcastCodes(k, row, b.add(column, 4), 32)};
      PackedBlock block = blockAt(b.mul(index, PackedBlock::bytesOf(k.spec.weights)));
      block.load(0);
      for (int64_t v = 0; v < block.vectors(); ++v) {
        Value low = b.intrinsic("llvm.x86.avx2.pmadd.ub.sw", type16, {block.bytes(0, v), x[0]});
        Value high = b.intrinsic("llvm.x86.avx2.pmadd.ub.sw", type16, {block.bytes(1, v), x[1]});
        Value both = b.addi(low, high);
        if (i == 0)
          pairs.push_back(both);
        else
          pairs[v] = b.addi(pairs[v], both);
      }
    }
    Value ones = b.constant(type16, int64_t(1));
    Values result;
    for (auto [v, pair] : llvm::enumerate(pairs)) {
      Value words = b.intrinsic("llvm.x86.avx2.pmadd.wd", b.vec(8, b.i32()), {pair, ones});
      result.push_back(sums.empty() ? words : b.addi(sums[v], words));
    }
    return result;
  }

  Values narrow(Value firstStep, int64_t steps, ArrayRef<Value> starts) {
    const int64_t chunkBlocks = k.saturationSteps() / 2;
    int64_t blocks = steps / 2, whole = blocks / chunkBlocks, rest = blocks % chunkBlocks;
    Value firstBlock = b.div(firstStep, 2);
    Values sums(starts);
    if (whole == 1)
      sums = narrowChunk(firstBlock, chunkBlocks, sums);
    else if (whole)
      sums = b.forLoop(0, whole, 1, sums.empty() ? Values(4, b.zero(b.vec(8, b.i32()))) : sums,
                       [&](Value chunk, ValueRange carried) {
                         return narrowChunk(b.add(firstBlock, b.mul(chunk, chunkBlocks)),
                                            chunkBlocks, carried);
                       });
    if (rest)
      sums = narrowChunk(b.add(firstBlock, whole * chunkBlocks), rest, sums);
    return sums;
  }

  /// All formats with vpdpbusd, 8 columns of x a time. Two accumulators a vector of columns hide
  /// its latency.
  Values vnni(Value firstStep, int64_t steps, ArrayRef<Value> starts) {
    constexpr int64_t vectors = 2;
    Values zeros(2 * vectors, b.zero(b.vec(16, b.i32())));
    Values sums = b.forLoop(0, steps / 2, 1, zeros, [&](Value i, ValueRange carried) {
      Value index = b.add(b.div(firstStep, 2), i), column = b.mul(index, 8);
      PackedBlock block = blockAt(b.mul(index, PackedBlock::bytesOf(k.spec.weights)));
      Values weights;
      for (int64_t half = 0; half < 2; ++half) {
        block.load(half);
        for (int64_t v = 0; v < vectors; ++v)
          weights.push_back(block.bytes(half, v));
      }
      Values acc(carried);
      for (int64_t half = 0; half < 2; ++half) {
        Value x = broadcastCodes(k, row, b.add(column, 4 * half), 64);
        for (int64_t v = half * vectors; v < (half + 1) * vectors; ++v)
          acc[v] = b.dotU8S8(acc[v], weights[v], x);
      }
      return acc;
    });
    // Products need not wait for zero points.
    Values result = {b.addi(sums[0], sums[2]), b.addi(sums[1], sums[3])};
    for (auto [sum, start] : llvm::zip(result, starts))
      sum = b.addi(sum, start);
    return result;
  }

  /// All formats with sdot, 8 columns of x a time.
  Values dotSigned(Value firstStep, int64_t steps, ArrayRef<Value> starts) {
    const int64_t vectors = kPanelRows / 8;
    Values zeros(vectors, b.zero(b.vec(8, b.i32())));
    return b.forLoop(
        0, steps / 2, 1, starts.empty() ? zeros : Values(starts), [&](Value i, ValueRange carried) {
          Value index = b.add(b.div(firstStep, 2), i);
          Value offset = b.mul(index, PackedBlock::bytesOf(k.spec.weights));
          PackedBlock block = blockAt(offset);
          prefetch(offset);
          Value codes = codesOfSteps(k, row, b.mul(index, 8), 2);
          Values acc(carried);
          for (int64_t half = 0; half < 2; ++half) {
            block.load(half);
            for (int64_t v = 0; v < vectors; ++v)
              acc[v] = b.dotS8S8(acc[v], k.dotBytes(block, half, v), broadcastStep(b, codes, half));
          }
          return acc;
        });
  }

  void quantized() {
    bool narrowRange = !k.spec.zeroPoints && !k.spec.fullRange && !k.wMinima;
    int64_t offset = k.tiling.dot == Dot::Widened && narrowRange ? 0 : k.dotOffset();
    Values sums = emitGroupSums(k, 1, row, panel, 0, kPanelRows / b.target.lanes(), offset,
                                [&](Value firstStep, int64_t steps, ArrayRef<Value> starts) {
                                  if (k.tiling.dot == Dot::Widened)
                                    return narrowRange ? signedBytes(firstStep, steps, starts)
                                                       : wideBytes(firstStep, steps, starts);
                                  if (k.tiling.dot == Dot::Saturated)
                                    return narrow(firstStep, steps, starts);
                                  if (k.isForArm())
                                    return dotSigned(firstStep, steps, starts);
                                  return vnni(firstStep, steps, starts);
                                });
    emitStore(k, 1, row, b.mul(panel, kPanelRows), sums);
  }
};

/// The same of float input.
struct FloatGemv {
  LinearKernel &k;
  int64_t panels, rows;
  Value panel, row; ///< the first ones
  KernelBuilder &b = k.b;
  const int64_t lanes = b.target.lanes(), panelVectors = kPanelRows / lanes,
                vectors = panels * panelVectors;

  Value rowAt(int64_t r) { return b.add(row, r); }
  Value panelAt(int64_t p) { return b.add(panel, p); }
  /// Columns behind the last whole block of 8.
  int64_t rest() const { return k.spec.k % 8; }

  /// body(slab, columns, later), which stores what it has.
  void forSlabs(llvm::function_ref<void(Value slab, Value columns, Value later)> body) {
    const int64_t size = k.tiling.slabColumns;
    if (size >= k.spec.k)
      return body(b.index(0), b.index(k.spec.k), Value());
    b.forLoop(0, k.spec.k, size,
              [&](Value slab) { body(slab, b.min(b.sub(k.spec.k, slab), size), b.less(0, slab)); });
  }

  /// block(column, count, sums) for the blocks of 8 columns of a chain, the last of which may be
  /// short.
  Values forBlocks(Value first, Value count, Values sums,
                   llvm::function_ref<Values(Value column, int64_t count, Values sums)> block) {
    Value whole = rest() ? b.mul(b.div(count, 8), 8) : count;
    sums = b.forLoop(0, whole, 8, sums, [&](Value i, ValueRange carried) {
      return block(b.add(first, i), 8, Values(carried));
    });
    if (!rest())
      return sums;
    return b.forLoop(whole, count, 8, sums, [&](Value i, ValueRange carried) {
      return block(b.add(first, i), rest(), Values(carried));
    });
  }

  /// acc += x[column + i] * (code - zero point) for the first `count` columns of a block of 8.
  Values codesBlock(Value column, int64_t count, ArrayRef<Value> wZeros, Values acc) {
    Value offset = b.mul(column, PackedBlock::bytesOf(k.spec.weights) / 8);
    SmallVector<PackedBlock, 2> blocks;
    for (int64_t p = 0; p < panels; ++p) {
      blocks.push_back(k.block(panelAt(p), offset, lanes));
      for (int64_t line = 0; line < PackedBlock::bytesOf(k.spec.weights); line += 64)
        b.prefetch(k.weights, {panelAt(p), b.add(offset, kPrefetchBytes + line)});
    }
    for (int64_t i = 0; i < count; ++i) {
      if (i % 4 == 0)
        for (PackedBlock &block : blocks)
          block.loadCodes(i / 4);
      Values x;
      for (int64_t r = 0; r < rows; ++r)
        x.push_back(b.broadcast(b.load(k.x, {rowAt(r), b.add(column, i)}), lanes));
      for (int64_t v = 0; v < vectors; ++v) {
        const int64_t p = v / panelVectors;
        ArrayRef<Value> zeros = wZeros;
        if (!zeros.empty())
          zeros = zeros.slice(p * panelVectors, panelVectors);
        Value code = blocks[p].code(i, v % panelVectors, zeros);
        for (int64_t r = 0; r < rows; ++r) {
          Value &sum = acc[r * vectors + v];
          sum = b.fma(x[r], code, sum);
        }
      }
    }
    return acc;
  }

  void codes() {
    auto chain = [&](Value, Value first, Value count, ValueRange before) {
      Value g = k.spec.groupSize ? b.div(first, k.spec.groupSize) : b.index(0);
      using Load = Value(LinearKernel &, Value, Index, Index, int64_t);
      auto paramAt = [&](Load &load, int64_t v) {
        return load(k, panelAt(v / panelVectors), g, v % panelVectors * lanes, lanes);
      };
      Values wZeros;
      for (int64_t v = 0; k.wZeros && v < vectors; ++v)
        wZeros.push_back(b.toFloat(paramAt(loadZeroPoints, v)));
      if (k.wMinima)
        wZeros.assign(vectors, b.constant(b.vec(lanes, b.f32()), double(k.commonZero())));
      Values sums = forBlocks(first, count, Values(rows * vectors, b.zero(b.vec(lanes, b.f32()))),
                              [&](Value column, int64_t count, Values acc) {
                                return codesBlock(column, count, wZeros, std::move(acc));
                              });
      Values ofX;
      for (int64_t r = 0; k.wMinima && r < rows; ++r)
        ofX.push_back(b.broadcast(columnSum(k, rowAt(r), first, count), lanes));
      for (int64_t v = 0; v < vectors; ++v) {
        Value scale = paramAt(loadScales, v);
        Value minimum = k.wMinima ? paramAt(loadMinima, v) : Value();
        for (int64_t r = 0; r < rows; ++r) {
          Value &sum = sums[r * vectors + v];
          sum = b.fma(scale, sum, before[r * vectors + v]);
          if (minimum)
            sum = b.fma(minimum, ofX[r], sum);
        }
      }
      return sums;
    };
    forSlabs([&](Value slab, Value columns, Value later) {
      emitStore(k, rows, row, b.mul(panel, kPanelRows),
                emitChains(k, slab, columns, rows * vectors, chain), later);
    });
  }

  /// The x of a block that meets column i of four transposed rows: x[i] in the lanes of the first
  /// chain, x[i + 4] in those of the second.
  Value inChains(Value x, int64_t i) {
    return b.shuffle(x, x, {i, i, i, i, i + 4, i + 4, i + 4, i + 4});
  }

  /// Four rows of a block transposed: vector i has column i of each, then column i + 4.
  Values transpose4(ArrayRef<Value> in) {
    Values pairs, out;
    for (int64_t r = 0; r < 4; r += 2) {
      pairs.push_back(b.shuffle(in[r], in[r + 1], {0, 8, 1, 9, 4, 12, 5, 13}));
      pairs.push_back(b.shuffle(in[r], in[r + 1], {2, 10, 3, 11, 6, 14, 7, 15}));
    }
    for (int64_t i = 0; i < 2; ++i) {
      out.push_back(b.shuffle(pairs[i], pairs[i + 2], {0, 1, 8, 9, 4, 5, 12, 13}));
      out.push_back(b.shuffle(pairs[i], pairs[i + 2], {2, 3, 10, 11, 6, 7, 14, 15}));
    }
    return out;
  }

  /// Rows of float weights in fours: the lanes of a vector are the two chains of four columns of y.
  void floats() {
    // Short rows are read 16 a time, in one piece of memory. Long ones would be more streams than
    // hardware follows, and those of a large power of two more than a set of the first-level cache
    // holds (easyquant-kernel-bench).
    const bool isShort = k.spec.k < 1024 && rows == 1;
    constexpr int64_t kLanes = 8;
    const int64_t n = k.spec.n, quads = isShort ? 4 : 2, step = isShort ? kLanes : 2 * kLanes,
                  distance = 8 * step;
    Value columns = n % kPanelRows ? b.min(b.sub(n, b.mul(panel, kPanelRows)), kPanelRows)
                                   : b.index(kPanelRows);
    b.forLoop(0, columns, 4 * quads, [&](Value c) {
      Value firstColumn = b.add(b.mul(panel, kPanelRows), c);
      Values wRows;
      for (int64_t r = 0; r < 4 * quads; ++r) {
        Value wRow = b.add(firstColumn, r);
        wRows.push_back(n % kPanelRows ? b.min(wRow, n - 1) : wRow);
      }
      auto prefetch = [&](Value column) {
        // Behind the end of rows come the next ones.
        Value ahead = b.add(column, distance);
        Value behindEnd = b.index((4 * quads - 1) * k.spec.k);
        ahead = b.add(ahead, b.select(b.less(ahead, k.spec.k), b.index(0), behindEnd));
        for (Value wRow : wRows)
          b.prefetch(k.weights, {wRow, ahead});
      };
      auto block = [&](Value column, int64_t count, Values acc) {
        auto load = [&](Value memref, Value own) {
          return count == kLanes ? b.loadVector(kLanes, memref, {own, column})
                                 : b.loadFirst(count, kLanes, memref, {own, column});
        };
        Values weights, x;
        for (Value wRow : wRows)
          weights.push_back(load(k.weights, wRow));
        for (int64_t r = 0; r < rows; ++r)
          x.push_back(load(k.x, rowAt(r)));
        SmallVector<Values> transposed;
        for (int64_t q = 0; q < quads; ++q)
          transposed.push_back(transpose4(ArrayRef<Value>(weights).slice(4 * q, 4)));
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t i = 0; i < std::min<int64_t>(count, 4); ++i)
            for (int64_t q = 0; q < quads; ++q) {
              Value &sum = acc[r * quads + q];
              Value next = b.fma(inChains(x[r], i), transposed[q][i], sum);
              // The second chain ends before the first one.
              sum = i + 4 < count ? next : b.shuffle(next, sum, {0, 1, 2, 3, 12, 13, 14, 15});
            }
        return acc;
      };
      forSlabs([&](Value slab, Value columns, Value later) {
        Value wide = b.mul(b.div(columns, step), step);
        Values sums(rows * quads, b.zero(b.vec(kLanes, b.f32())));
        sums = b.forLoop(0, wide, step, sums, [&](Value i, ValueRange carried) {
          Value column = b.add(slab, i);
          prefetch(column);
          Values acc(carried);
          for (int64_t at = 0; at < step; at += kLanes)
            acc = block(b.add(column, at), kLanes, std::move(acc));
          return acc;
        });
        sums = forBlocks(b.add(slab, wide), b.sub(columns, wide), sums, block);
        Values y;
        for (size_t q = 0; q < sums.size(); q += 2)
          y.push_back(b.addf(b.shuffle(sums[q], sums[q + 1], {0, 1, 2, 3, 8, 9, 10, 11}),
                             b.shuffle(sums[q], sums[q + 1], {4, 5, 6, 7, 12, 13, 14, 15})));
        emitStore(k, rows, row, firstColumn, y, later);
      });
    });
  }
};
} // namespace

void emitGemv(LinearKernel &k, int64_t panels, int64_t rows, Value panel, Value row) {
  if (k.spec.quantizedInput)
    return Gemv{k, panel, row}.quantized();
  FloatGemv gemv{k, panels, rows, panel, row};
  if (k.spec.weights == WeightFormat::F32)
    return gemv.floats();
  gemv.codes();
}

} // namespace easyquant::cpu
