//===- LinearTile.cpp - Register tiles ------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A tile keeps rows x columns accumulators in registers while it walks along K. A vector of
// weights is loaded once a step and meets every row; a row's part is broadcast from memory, which
// costs a load and no arithmetic port. Vnni unpacks its weights on the way, which takes ports that
// vpdpbusd does not.
//
//===----------------------------------------------------------------------===//

#include "Instructions.h"
#include "Linear.h"

using namespace mlir;

namespace easyquant::cpu {

using Values = SmallVector<Value>;

//===- Integer tiles ------------------------------------------------------===//

Value broadcastCodes(LinearKernel &k, Index row, Index column, int64_t bytes) {
  KernelBuilder &b = k.b;
  Value four = b.bitcast(b.loadVector(4, k.x, {row, column}), b.vec(1, b.i32()));
  Value word = b.broadcast(b.extract(four, 0), bytes / 4);
  return b.bitcast(word, b.vec(bytes, b.i8()));
}

Value codesOfSteps(LinearKernel &k, Index row, Index column, int64_t steps) {
  KernelBuilder &b = k.b;
  return b.bitcast(b.loadVector(4 * steps, k.x, {row, column}), b.vec(steps, b.i32()));
}

Value broadcastStep(KernelBuilder &b, Value codes, int64_t step) {
  return b.bitcast(b.shuffle(codes, codes, SmallVector<int64_t>(8, step)), b.vec(32, b.i8()));
}

Value addPairs(KernelBuilder &b, Value a, Value c) {
  Value even = b.shuffle(a, c, {0, 2, 4, 6, 8, 10, 12, 14});
  Value odd = b.shuffle(a, c, {1, 3, 5, 7, 9, 11, 13, 15});
  return b.addi(even, odd);
}

namespace {
struct IntegerTile {
  LinearKernel &k;
  int64_t rows;
  Value firstRow, panel, slot, tile;
  KernelBuilder &b = k.b;

  /// Eight columns of x at a time, which a block of packed weights has.
  Values vnni(Value firstStep, int64_t steps, ArrayRef<Value> starts) {
    constexpr int64_t vectors = 2;
    Values zeros(rows * vectors, b.zero(b.vec(16, b.i32())));
    return b.forLoop(
        0, steps / 2, 1, starts.empty() ? zeros : Values(starts), [&](Value i, ValueRange carried) {
          Value index = b.add(b.div(firstStep, 2), i), column = b.mul(index, 8);
          PackedBlock block =
              k.block(panel, b.mul(index, PackedBlock::bytesOf(k.spec.weights)), b.target.lanes());
          Values acc(carried);
          for (int64_t half = 0; half < 2; ++half) {
            block.load(half);
            Value weights[vectors] = {block.bytes(half, 0), block.bytes(half, 1)};
            for (int64_t r = 0; r < rows; ++r) {
              Value codes = broadcastCodes(k, b.add(firstRow, r), b.add(column, 4 * half), 64);
              for (int64_t v = 0; v < vectors; ++v)
                acc[r * vectors + v] = b.dotU8S8(acc[r * vectors + v], weights[v], codes);
            }
          }
          return acc;
        });
  }

  /// Steps a time: those whose codes fill a register, or two, which is what groups are multiples
  /// of.
  static int64_t stepsAtATime(int64_t steps) { return steps % 4 ? 2 : 4; }

  /// The instruction takes four of a row's codes by their place in the register.
  Values signedBytes(Value firstStep, int64_t steps, ArrayRef<Value> starts) {
    const int64_t vectors = k.tiling.tileColumns / 8, some = stepsAtATime(steps);
    Values zeros(rows * vectors, b.zero(b.vec(8, b.i32())));
    return b.forLoop(
        0, steps, some, starts.empty() ? zeros : Values(starts), [&](Value i, ValueRange carried) {
          Values acc(carried), codes;
          Value step = b.add(firstStep, i);
          for (int64_t r = 0; r < rows; ++r)
            codes.push_back(codesOfSteps(k, b.add(firstRow, r), b.mul(step, 4), some));
          for (int64_t s = 0; s < some; ++s)
            for (int64_t v = 0; v < vectors; ++v) {
              Value weights = b.loadVector(32, k.unpacked, {slot, tile, b.add(step, s), v * 32});
              for (int64_t r = 0; r < rows; ++r) {
                Value &sum = acc[r * vectors + v];
                sum = b.dotS8S8(sum, weights, broadcastStep(b, codes[r], s));
              }
            }
          return acc;
        });
  }

  /// Two rows and four outputs a vector, as dotMatrix has them. The last one of an odd number of
  /// rows is there twice.
  Values matrix(Value firstStep, int64_t steps, ArrayRef<Value> starts) {
    const int64_t vectors = k.tiling.tileColumns / 8, quads = 2 * vectors, pairs = (rows + 1) / 2;
    auto rowOf = [&](int64_t pair, int64_t i) { return std::min(2 * pair + i, rows - 1); };
    Values first(pairs * quads, b.zero(b.vec(8, b.i32())));
    for (int64_t pair = 0; !starts.empty() && pair < pairs; ++pair)
      for (int64_t v = 0; v < vectors; ++v) {
        Value one = starts[rowOf(pair, 0) * vectors + v],
              two = starts[rowOf(pair, 1) * vectors + v];
        first[pair * quads + 2 * v] = b.shuffle(one, two, {0, 1, 8, 9, 2, 3, 10, 11});
        first[pair * quads + 2 * v + 1] = b.shuffle(one, two, {4, 5, 12, 13, 6, 7, 14, 15});
      }
    const int64_t some = stepsAtATime(steps);
    Values sums = b.forLoop(0, steps, some, first, [&](Value i, ValueRange carried) {
      Values acc(carried), one, two;
      Value step = b.add(firstStep, i);
      for (int64_t row = 0; row < 2 * pairs; ++row)
        (row % 2 ? two : one)
            .push_back(b.loadVector(4 * some, k.x,
                                    {b.add(firstRow, rowOf(row / 2, row % 2)), b.mul(step, 4)}));
      for (int64_t s = 0; s < some; s += 2) {
        Values codes;
        for (int64_t pair = 0; pair < pairs; ++pair)
          codes.push_back(b.join(b.slice(one[pair], 4 * s, 8), b.slice(two[pair], 4 * s, 8)));
        for (int64_t quad = 0; quad < quads; ++quad) {
          Value weights =
              b.loadVector(32, k.unpacked, {slot, tile, b.add(step, s + quad % 2), quad / 2 * 32});
          for (int64_t pair = 0; pair < pairs; ++pair)
            acc[pair * quads + quad] =
                arm::dotMatrix(b, acc[pair * quads + quad], codes[pair], weights);
        }
      }
      return acc;
    });
    Values result;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t v = 0; v < vectors; ++v) {
        Value *both = &sums[r / 2 * quads + 2 * v];
        result.push_back(r % 2 ? b.shuffle(both[0], both[1], {2, 3, 6, 7, 10, 11, 14, 15})
                               : b.shuffle(both[0], both[1], {0, 1, 4, 5, 8, 9, 12, 13}));
      }
    return result;
  }

  Values widened(Value firstStep, int64_t steps, ArrayRef<Value> starts) {
    constexpr int64_t vectors = 2, unroll = 2; // steps are even: K is padded to 8, groups are 8s
    VectorType type = b.vec(8, b.i32());
    Values zeros(rows * vectors, b.zero(type));
    Values sums = b.forLoop(0, steps, unroll, zeros, [&](Value i, ValueRange carried) {
      Values acc(carried);
      for (int64_t u = 0; u < unroll; ++u) {
        Value step = b.add(b.add(firstStep, i), u);
        Value weights[vectors];
        for (int64_t v = 0; v < vectors; ++v)
          weights[v] = b.loadVector(16, k.unpacked, {slot, tile, step, v * 16});
        for (int64_t r = 0; r < rows; ++r) {
          Value four = b.broadcast(b.load(k.widened, {r, step}), 4);
          Value codes = b.bitcast(four, b.vec(16, b.i16()));
          for (int64_t v = 0; v < vectors; ++v) {
            Value products = b.intrinsic("llvm.x86.avx2.pmadd.wd", type, {weights[v], codes});
            acc[r * vectors + v] = b.addi(acc[r * vectors + v], products);
          }
        }
      }
      return acc;
    });
    Values result;
    for (int64_t r = 0; r < rows; ++r)
      result.push_back(addPairs(b, sums[2 * r], sums[2 * r + 1]));
    for (auto [sum, start] : llvm::zip(result, starts))
      sum = b.addi(sum, start);
    return result;
  }

  /// Up to correctedSteps steps in 16-bit lanes, then added to `sums` in 32 bits. The lanes start
  /// from the corrections and may wrap on the way: they end within 16 bits.
  Values saturatedChunk(Value chunk, Value firstStep, int64_t steps, ValueRange sums) {
    constexpr int64_t vectors = 2;
    VectorType type16 = b.vec(16, b.i16()), type32 = b.vec(8, b.i32());
    auto products = [&](Value step, Values acc) {
      Value weights[vectors];
      for (int64_t v = 0; v < vectors; ++v)
        weights[v] = b.loadVector(32, k.unpacked, {slot, tile, step, v * 32});
      for (int64_t r = 0; r < rows; ++r) {
        Value codes = broadcastCodes(k, b.add(firstRow, r), b.mul(step, 4), 32);
        for (int64_t v = 0; v < vectors; ++v) {
          Value pairs = b.intrinsic("llvm.x86.avx2.pmadd.ub.sw", type16, {weights[v], codes});
          acc[r * vectors + v] = b.addi(acc[r * vectors + v], pairs);
        }
      }
      return acc;
    };
    Values starts;
    for (int64_t r = 0; r < rows; ++r) {
      Value start = b.bitcast(b.broadcast(b.load(k.corrections, {r, chunk}), 8), type16);
      starts.append(vectors, start);
    }
    // Steps are even.
    Values pairs = b.forLoop(0, steps, 2, starts, [&](Value i, ValueRange carried) {
      Value step = b.add(firstStep, i);
      return products(b.add(step, 1), products(step, Values(carried)));
    });
    Value ones = b.constant(type16, int64_t(1));
    Values result;
    for (auto [i, pair] : llvm::enumerate(pairs))
      result.push_back(
          b.addi(sums[i], b.intrinsic("llvm.x86.avx2.pmadd.wd", type32, {pair, ones})));
    return result;
  }

  Values saturated(Value firstStep, int64_t steps, ArrayRef<Value> starts) {
    const int64_t perChunk = k.correctedSteps();
    int64_t whole = steps / perChunk, rest = steps % perChunk;
    Value firstChunk = b.mul(b.div(firstStep, k.groupSteps()), k.groupChunks());
    // Each chunk lacks 1 in either lane.
    Value lacking = b.constant(b.vec(8, b.i32()), 2 * (whole + (rest != 0)));
    Values sums(rows * 2, lacking);
    for (auto [sum, start] : llvm::zip(sums, starts))
      sum = b.addi(start, lacking);
    auto chunk = [&](Index c, int64_t count, ValueRange carried) {
      return saturatedChunk(b.add(firstChunk, c), b.add(firstStep, b.mul(c, perChunk)), count,
                            carried);
    };
    if (whole == 1)
      sums = chunk(0, perChunk, sums);
    else if (whole)
      sums = b.forLoop(0, whole, 1, sums,
                       [&](Value c, ValueRange carried) { return chunk(c, perChunk, carried); });
    return rest ? chunk(whole, rest, sums) : sums;
  }
};
} // namespace

void emitIntegerTile(LinearKernel &k, int64_t rows, Value firstRow, Value panel, Value slot,
                     Value tile) {
  KernelBuilder &b = k.b;
  IntegerTile t{k, rows, firstRow, panel, slot, tile};
  int64_t vectors = k.tiling.tileColumns / b.target.lanes();
  // Widened weights are signed, and 16-bit accumulators start from their correction.
  int64_t offset = k.isForArm() ? k.tileOffset() : k.tiling.dot == Dot::Vnni ? k.dotOffset() : 0;
  Value column = b.mul(tile, k.tiling.tileColumns);
  Values sums = emitGroupSums(k, rows, firstRow, panel, column, vectors, offset,
                              [&](Value firstStep, int64_t steps, ArrayRef<Value> starts) {
                                if (k.tiling.dot == Dot::Widened)
                                  return t.widened(firstStep, steps, starts);
                                if (k.tiling.dot == Dot::Saturated)
                                  return t.saturated(firstStep, steps, starts);
                                if (k.tiling.dot == Dot::Signed)
                                  return t.signedBytes(firstStep, steps, starts);
                                if (k.tiling.dot == Dot::Matrix)
                                  return t.matrix(firstStep, steps, starts);
                                return t.vnni(firstStep, steps, starts);
                              });
  emitStore(k, rows, firstRow, b.add(b.mul(panel, kPanelRows), column), sums);
}

//===- Float tiles --------------------------------------------------------===//

Values emitChains(
    LinearKernel &k, Value slab, Value columns, int64_t sums,
    llvm::function_ref<Values(Value chain, Value first, Value count, ValueRange sums)> body) {
  KernelBuilder &b = k.b;
  Values zeros(sums, b.zero(b.vec(b.target.lanes(), b.f32())));
  const int64_t size = k.tiling.chainColumns;
  if (size == k.tiling.slabColumns)
    return body(b.index(0), slab, columns, zeros);
  return b.forLoop(0, columns, size, zeros, [&](Value at, ValueRange carried) {
    return body(b.div(at, size), b.add(slab, at), b.min(b.sub(columns, at), size), carried);
  });
}

Value columnSum(LinearKernel &k, Value row, Value firstColumn, Value count) {
  KernelBuilder &b = k.b;
  const int64_t lanes = b.target.lanes();
  Value whole = b.mul(b.div(count, lanes), lanes);
  auto add = [&](ValueRange sum, Value x) { return Values{b.addf(sum[0], x)}; };
  Values sum = b.forLoop(0, whole, lanes, Values{b.zero(b.vec(lanes, b.f32()))},
                         [&](Value i, ValueRange carried) {
                           Value column = b.add(firstColumn, i);
                           return add(carried, b.loadVector(lanes, k.x, {row, column}));
                         });
  sum = b.forLoop(whole, count, lanes, sum, [&](Value i, ValueRange carried) {
    return add(carried, b.loadFirst(b.sub(count, i), lanes, k.x, {row, b.add(firstColumn, i)}));
  });
  return b.sumLanes(sum[0]);
}

void emitFloatTile(LinearKernel &k, int64_t rows, Value firstRow, Value panel, Value tile,
                   Value slab, Value count) {
  KernelBuilder &b = k.b;
  const int64_t lanes = b.target.lanes(), vectors = k.tiling.tileColumns / lanes;
  Value firstColumn = b.mul(tile, k.tiling.tileColumns);
  auto products = [&](Value chain, Value first, Value count, ValueRange before) {
    Value from = b.sub(first, slab);
    /// acc += the products of column i of the chain.
    auto column = [&](Value i, Values acc) {
      Values weights;
      for (int64_t v = 0; v < vectors; ++v)
        weights.push_back(b.loadVector(lanes, k.unpacked, {0, tile, b.add(from, i), v * lanes}));
      Value own = b.add(first, i);
      for (int64_t r = 0; r < rows; ++r) {
        Value x = b.broadcast(b.load(k.x, {b.add(firstRow, r), own}), lanes);
        for (int64_t v = 0; v < vectors; ++v)
          acc[r * vectors + v] = b.fma(x, weights[v], acc[r * vectors + v]);
      }
      return acc;
    };
    Values zeros(rows * vectors, b.zero(b.vec(lanes, b.f32())));
    auto columns = [&](Value begin, Value end, int64_t step, Values sums, int64_t together) {
      return b.forLoop(begin, end, step, sums, [&](Value i, ValueRange carried) {
        Values acc(carried);
        for (int64_t more = 0; more < together; ++more)
          acc = column(b.add(i, more), std::move(acc));
        return acc;
      });
    };
    if (k.spec.weights == WeightFormat::F32) {
      // The two chains of a slab, one behind the other. What is added to -0 is itself.
      Value whole = b.mul(b.div(count, 8), 8);
      Values nothing(rows * vectors, b.constant(b.vec(lanes, b.f32()), -0.0));
      return b.forLoop(0, 8, 4, nothing, [&](Value at, ValueRange carried) {
        Values sums = columns(at, whole, 8, zeros, 4);
        if (k.spec.k % 8) {
          Value rest = b.add(whole, at);
          sums = columns(rest, b.min(count, b.add(rest, 4)), 1, sums, 1);
        }
        for (auto [sum, before] : llvm::zip(sums, carried))
          sum = b.addf(before, sum);
        return sums;
      });
    }
    Values sums = columns(b.index(0), count, 1, zeros, 1);
    auto paramAt = [&](Value params, int64_t v) {
      return b.loadVector(lanes, params, {chain, b.add(firstColumn, v * lanes)});
    };
    for (int64_t v = 0; k.slabScales && v < vectors; ++v) {
      Value scale = paramAt(k.slabScales, v);
      Value minimum = k.slabMinima ? paramAt(k.slabMinima, v) : Value();
      for (int64_t r = 0; r < rows; ++r) {
        Value &sum = sums[r * vectors + v];
        sum = b.fma(scale, sum, before[r * vectors + v]);
        if (minimum)
          sum = b.fma(minimum, b.broadcast(b.load(k.rowSums, {r, chain}), lanes), sum);
      }
    }
    return sums;
  };
  Values sums = emitChains(k, slab, count, rows * vectors, products);
  Value output = b.add(b.mul(panel, kPanelRows), firstColumn);
  Value later = k.tiling.slabColumns < k.spec.k ? b.less(0, slab) : Value();
  emitStore(k, rows, firstRow, output, sums, later);
}

//===- Results ------------------------------------------------------------===//

void emitStore(LinearKernel &k, int64_t rows, Value firstRow, Value firstColumn,
               ArrayRef<Value> values, Value later) {
  KernelBuilder &b = k.b;
  int64_t lanes = cast<VectorType>(values[0].getType()).getNumElements();
  int64_t vectors = values.size() / rows;
  auto store = [&](bool edge, bool isLater) {
    bool addBias = k.bias && !isLater, addY = k.spec.accumulate || isLater;
    auto count = [&](Value column) { return b.sub(k.spec.n, column); };
    auto load = [&](Value memref, ArrayRef<Index> at, Value column) {
      return edge ? b.loadFirst(count(column), lanes, memref, at) : b.loadVector(lanes, memref, at);
    };
    Values columns, biases, outer;
    for (int64_t v = 0; v < vectors; ++v) {
      columns.push_back(b.add(firstColumn, v * lanes));
      if (k.wOuter)
        outer.push_back(b.loadVector(
            lanes, k.wOuter, {b.div(columns[v], kPanelRows), 0, b.rem(columns[v], kPanelRows)}));
      if (addBias)
        biases.push_back(load(k.bias, {columns[v]}, columns[v]));
    }
    for (int64_t r = 0; r < rows; ++r) {
      Value row = b.add(firstRow, r), scale;
      if (k.spec.inputGroup) {
        scale = k.unit ? b.broadcast(k.unit, lanes) : Value();
      } else if (k.xScales) {
        scale = b.load(k.xScales, {row});
        scale = b.broadcast(k.unit ? b.mulf(scale, k.unit) : scale, lanes);
      }
      for (int64_t v = 0; v < vectors; ++v) {
        Value result = values[r * vectors + v];
        if (k.wOuter)
          result = b.mulf(outer[v], result);
        if (scale)
          result = b.mulf(scale, result);
        if (addBias)
          result = b.addf(result, biases[v]);
        if (addY)
          result = b.addf(result, load(k.y, {row, columns[v]}, columns[v]));
        if (edge)
          b.storeFirst(count(columns[v]), result, k.y, {row, columns[v]});
        else
          b.storeVector(result, k.y, {row, columns[v]});
      }
    }
  };
  auto storeSlab = [&](bool edge) {
    // Without bias and accumulation on both sides the two forms may be one.
    if (!later || (!k.bias && k.spec.accumulate))
      return store(edge, false);
    b.ifThenElse(later, [&] { store(edge, true); }, [&] { store(edge, false); });
  };
  if (k.spec.n % (vectors * lanes) == 0)
    return storeSlab(false);
  Value inside = b.less(b.add(firstColumn, vectors * lanes - 1), k.spec.n);
  b.ifThenElse(inside, [&] { storeSlab(false); }, [&] { storeSlab(true); });
}

} // namespace easyquant::cpu
