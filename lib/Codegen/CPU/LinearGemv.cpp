//===- LinearGemv.cpp - One row of x against a streamed panel -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One row of x is bound by the bytes of the weights: a packed panel is one contiguous stream, read
// in order and unpacked in registers. The sums of all 32 columns stay in registers.
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

  void quantized() {
    bool narrowRange = !k.spec.zeroPoints && !k.spec.fullRange && !k.wMinima;
    int64_t offset = k.tiling.dot == Dot::Widened && narrowRange ? 0 : k.offset();
    Values sums = emitGroupSums(k, 1, row, panel, 0, kPanelRows / b.target.lanes(), offset,
                                [&](Value firstStep, int64_t steps, ArrayRef<Value> starts) {
                                  if (k.tiling.dot == Dot::Widened)
                                    return narrowRange ? signedBytes(firstStep, steps, starts)
                                                       : wideBytes(firstStep, steps, starts);
                                  if (k.tiling.dot == Dot::Saturated)
                                    return narrow(firstStep, steps, starts);
                                  return vnni(firstStep, steps, starts);
                                });
    emitStore(k, 1, row, b.mul(panel, kPanelRows), sums);
  }

  /// acc += x[column + i] * (code - zero point) for the first `count` columns of a block of 8.
  void codesBlock(Value column, int64_t count, ArrayRef<Value> wZeros, MutableArrayRef<Value> acc) {
    Value offset = b.mul(column, PackedBlock::bytesOf(k.spec.weights) / 8);
    PackedBlock block = blockAt(offset);
    prefetch(offset);
    for (int64_t i = 0; i < count; ++i) {
      if (i % 4 == 0)
        block.loadCodes(i / 4);
      Value x = b.broadcast(b.load(k.x, {row, b.add(column, i)}), b.target.lanes());
      for (int64_t v = 0; v < block.vectors(); ++v) {
        Value &sum = acc[i % 2 * block.vectors() + v];
        sum = b.fma(block.code(i, v, wZeros), x, sum);
      }
    }
  }

  /// Sums of x * (code - zero point) over a group of `count` columns.
  Values codesGroup(Value firstColumn, int64_t count, ArrayRef<Value> wZeros) {
    int64_t lanes = b.target.lanes(), vectors = kPanelRows / lanes;
    Values acc(2 * vectors, b.zero(b.vec(lanes, b.f32())));
    if (count >= 8)
      acc = b.forLoop(0, count / 8 * 8, 8, acc, [&](Value i, ValueRange carried) {
        Values next(carried);
        codesBlock(b.add(firstColumn, i), 8, wZeros, next);
        return next;
      });
    if (count % 8)
      codesBlock(b.add(firstColumn, count / 8 * 8), count % 8, wZeros, acc);
    Values sums;
    for (int64_t v = 0; v < vectors; ++v)
      sums.push_back(b.addf(acc[v], acc[vectors + v]));
    return sums;
  }

  /// The sum of `count` columns of x, in every lane.
  Value columnSum(Value firstColumn, int64_t count) {
    const int64_t lanes = b.target.lanes(), whole = count / lanes * lanes;
    Value sum = b.zero(b.vec(lanes, b.f32()));
    if (whole)
      sum = b.forLoop(0, whole, lanes, Values{sum}, [&](Value i, ValueRange carried) -> Values {
        return {b.addf(carried[0], b.loadVector(lanes, k.x, {row, b.add(firstColumn, i)}))};
      })[0];
    if (count > whole)
      sum = b.addf(sum, b.loadFirst(count - whole, lanes, k.x, {row, b.add(firstColumn, whole)}));
    return b.broadcast(b.sumLanes(sum), lanes);
  }

  void codes() {
    int64_t lanes = b.target.lanes(), vectors = kPanelRows / lanes;
    int64_t size = k.spec.groupSize ? k.spec.groupSize : k.spec.k;
    auto group = [&](Value g, int64_t count, ValueRange sums) {
      Values result, wZeros;
      for (int64_t v = 0; k.wZeros && v < vectors; ++v)
        wZeros.push_back(b.toFloat(loadZeroPoints(k, panel, g, v * lanes, lanes)));
      Value ones;
      if (k.wMinima) {
        wZeros.assign(vectors, b.constant(b.vec(lanes, b.f32()), double(k.commonZero())));
        ones = columnSum(b.mul(g, size), count);
      }
      for (auto [v, sum] : llvm::enumerate(codesGroup(b.mul(g, size), count, wZeros))) {
        Value scale = loadScales(k, panel, g, v * lanes, lanes);
        result.push_back(b.fma(scale, sum, sums[v]));
        if (k.wMinima)
          result[v] = b.fma(loadMinima(k, panel, g, v * lanes, lanes), ones, result[v]);
      }
      return result;
    };
    Values sums(vectors, b.zero(b.vec(lanes, b.f32())));
    int64_t full = k.spec.k / size, rest = k.spec.k % size;
    if (full)
      sums = b.forLoop(0, full, 1, sums,
                       [&](Value g, ValueRange carried) { return group(g, size, carried); });
    if (rest)
      sums = group(b.index(full), rest, sums);
    emitStore(k, 1, row, b.mul(panel, kPanelRows), sums);
  }

  /// 8 rows of float weights a time, one accumulator each.
  void floats() {
    int64_t lanes = b.target.lanes(), n = k.spec.n, whole = k.spec.k / lanes * lanes;
    Value columns = n % kPanelRows ? b.min(b.sub(n, b.mul(panel, kPanelRows)), kPanelRows)
                                   : b.index(kPanelRows);
    b.forLoop(0, columns, 8, [&](Value c) {
      Value firstColumn = b.add(b.mul(panel, kPanelRows), c);
      Values rows;
      for (int64_t r = 0; r < 8; ++r) {
        Value wRow = b.add(firstColumn, r);
        rows.push_back(n % kPanelRows ? b.min(wRow, n - 1) : wRow);
      }
      Values acc(8, b.zero(b.vec(lanes, b.f32())));
      if (whole)
        acc = b.forLoop(0, whole, lanes, acc, [&](Value i, ValueRange carried) {
          Value x = b.loadVector(lanes, k.x, {row, i});
          Values next;
          for (int64_t r = 0; r < 8; ++r)
            next.push_back(b.fma(b.loadVector(lanes, k.weights, {rows[r], i}), x, carried[r]));
          return next;
        });
      if (int64_t rest = k.spec.k - whole) {
        Value x = b.loadFirst(rest, lanes, k.x, {row, whole});
        for (int64_t r = 0; r < 8; ++r)
          acc[r] = b.fma(b.loadFirst(rest, lanes, k.weights, {rows[r], whole}), x, acc[r]);
      }
      if (lanes == 16)
        for (Value &sum : acc)
          sum = b.addf(b.slice(sum, 0, 8), b.slice(sum, 8, 8));
      Values parts = b.transpose8(acc);
      for (int64_t width = 4; width > 0; width /= 2)
        for (int64_t i = 0; i < width; ++i)
          parts[i] = b.addf(parts[i], parts[width + i]);
      emitStore(k, 1, row, firstColumn, parts[0]);
    });
  }
};
} // namespace

void emitGemv(LinearKernel &k, Value panel, Value row) {
  Gemv gemv{k, panel, row};
  if (k.spec.quantizedInput)
    return gemv.quantized();
  if (k.spec.weights == WeightFormat::F32)
    return gemv.floats();
  return gemv.codes();
}

} // namespace easyquant::cpu
