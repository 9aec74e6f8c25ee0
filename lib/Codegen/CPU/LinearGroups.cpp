//===- LinearGroups.cpp - Sums over groups --------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What tiles and GEMVs of quantized input share: a group's products are exact in i32, whatever
// instruction makes them; its scales, zero points and minima make floats of them.
//
//===----------------------------------------------------------------------===//

#include "Linear.h"

using namespace mlir;

namespace easyquant::cpu {

using Values = SmallVector<Value>;

Value loadScales(LinearKernel &k, Value panel, Index group, Index column, int64_t lanes) {
  return loadScales(k.b, k.spec.numbers.scales, lanes, k.wScales, panel, group, column);
}

Value loadMinima(LinearKernel &k, Value panel, Index group, Index column, int64_t lanes) {
  return loadScales(k.b, k.spec.numbers.scales, lanes, k.wMinima, panel, group, column);
}

Value loadZeroPoints(LinearKernel &k, Value panel, Index group, Index column, int64_t lanes) {
  return loadZeroPoints(k.b, bitsOf(k.spec.weights), lanes, k.wZeros, panel, group, column);
}

namespace {
/// Sums over groups of what a tile or a GEMV multiplies.
struct GroupSums {
  LinearKernel &k;
  int64_t rows;
  Value firstRow, panel;
  Index firstColumn;
  int64_t vectors, correctedOffset;
  llvm::function_ref<Values(Value firstStep, int64_t steps, ArrayRef<Value> starts)> body;
  KernelBuilder &b = k.b;
  const int64_t lanes = b.target.lanes();
  const VectorType type = b.vec(lanes, b.i32());

  Value columnOf(int64_t v) { return b.add(firstColumn, v * lanes); }
  Values scalesOf(Value g) {
    Values scales;
    for (int64_t v = 0; k.wScales && v < vectors; ++v)
      scales.push_back(loadScales(k, panel, g, columnOf(v), lanes));
    return scales;
  }
  Values minimaOf(Value g) {
    Values minima;
    for (int64_t v = 0; k.wMinima && v < vectors; ++v)
      minima.push_back(loadMinima(k, panel, g, columnOf(v), lanes));
    return minima;
  }
  /// The sums of codes fit i16, those of at most 256 of -128 .. 127, and products of pairs of words
  /// are cheaper than those of i32.
  bool sumsAreWords() { return k.groupSteps() <= 64 && !b.target.isArm(); }
  /// What a group of the weight takes the sums of codes times: the codes that the scale belongs to
  /// less the multiplied ones. As pairs of i16 (difference, 0) if sums are words.
  Values differencesOf(Value g) {
    Values differences;
    const int64_t common = -(correctedOffset + k.commonZero());
    if (!k.wZeros && common)
      differences.assign(vectors, b.constant(type, sumsAreWords() ? common & 0xffff : common));
    for (int64_t v = 0; k.wZeros && v < vectors; ++v) {
      Value excess = b.addi(loadZeroPoints(k, panel, g, columnOf(v), lanes),
                            b.constant(type, correctedOffset));
      if (sumsAreWords())
        excess = b.bitcast(b.andi(excess, 0xffff), b.vec(2 * lanes, b.i16()));
      differences.push_back(b.bitcast(b.subi(b.zero(excess.getType()), excess), type));
    }
    return differences;
  }
  /// What the accumulators of group g start from so that they end exact: differences * sums - zero
  /// points * sums of the weight's codes. Nothing if that is 0.
  Values startsOf(Value g, ArrayRef<Value> differences) {
    Values starts, wSums;
    for (int64_t v = 0; k.xZeros && v < vectors; ++v)
      wSums.push_back(b.loadVector(lanes, k.wSums, {k.wSumsAt, g, columnOf(v)}));
    if (differences.empty() && wSums.empty())
      return starts;
    for (int64_t r = 0; r < rows; ++r) {
      Value row = b.add(firstRow, r), sum, zero, start;
      if (!differences.empty())
        sum = b.broadcast(b.load(k.xSums, {row, g}), lanes);
      if (k.xZeros)
        zero = b.broadcast(zeroOf(row, g), lanes);
      for (int64_t v = 0; v < vectors; ++v) {
        // The upper half of a sum, its sign, meets 0.
        if (sum && (v == 0 || k.wZeros))
          start = sumsAreWords() ? b.dotPairs(differences[v], sum) : b.muli(differences[v], sum);
        Value correction = zero ? b.muli(zero, wSums[v]) : Value();
        starts.push_back(!zero   ? start
                         : start ? b.subi(start, correction)
                                 : b.subi(b.zero(type), correction));
      }
    }
    return starts;
  }

  Value zeroOf(Value row, Value g) {
    return k.spec.inputGroup ? b.load(k.xZeros, {row, g}) : b.load(k.xZeros, {row});
  }
  /// What minima are multiplied by: the sum of the codes less zero points of `columns` columns, of
  /// row r and group g of the sums, in every lane.
  Value centredSum(int64_t r, Value g, int64_t columns) {
    Value row = b.add(firstRow, r), sum = b.load(k.xSums, {row, g});
    if (k.xZeros)
      sum = b.subi(sum, b.muli(zeroOf(row, g), b.constant(b.i32(), columns)));
    return b.toFloat(b.broadcast(sum, lanes));
  }

  /// scale * value, or added to `sum`.
  Value scaled(Value scale, Value value, Value sum) {
    return sum ? b.fma(scale, value, sum) : b.mulf(scale, value);
  }
  static Value at(ValueRange sums, int64_t i) { return sums.empty() ? Value() : sums[i]; }

  /// One group, of `columns` columns, of a weight whose input has no groups.
  Values group(Value g, int64_t columns, ValueRange sums) {
    Values exact = body(b.mul(g, k.groupSteps()), paddedColumns(columns) / 4,
                        startsOf(g, differencesOf(g))),
           result;
    if (k.spec.sums)
      return exact;
    Values scales = scalesOf(g), minima = minimaOf(g), ones;
    for (int64_t r = 0; k.wMinima && r < rows; ++r)
      ones.push_back(centredSum(r, g, columns));
    for (int64_t i = 0; i < rows * vectors; ++i) {
      result.push_back(scaled(scales[i % vectors], b.toFloat(exact[i]), at(sums, i)));
      if (k.wMinima)
        result[i] = b.fma(minima[i % vectors], ones[i / vectors], result[i]);
    }
    return result;
  }

  /// Groups of the input that lie in `columns` columns of group g of the weight, of which `first`
  /// is the first.
  Values groupOfGroups(Value g, Value first, int64_t columns, ValueRange sums) {
    const int64_t size = k.spec.inputGroup;
    Values scales = scalesOf(g), minima = minimaOf(g), differences = differencesOf(g);
    // Behind the sums of products those that minima are multiplied by, one a row.
    auto inner = [&](Value i, int64_t count, ValueRange carried) {
      const int64_t steps = paddedColumns(count) / 4;
      Values exact = body(b.mul(i, k.groupSteps()), steps, startsOf(i, differences)), result, ones;
      for (int64_t r = 0; r < rows; ++r) {
        Value scale = b.broadcast(b.load(k.xScales, {b.add(firstRow, r), i}), lanes);
        for (int64_t v = r * vectors; v < (r + 1) * vectors; ++v)
          result.push_back(scaled(scale, b.toFloat(exact[v]), at(carried, v)));
        if (k.wMinima)
          ones.push_back(scaled(scale, centredSum(r, i, count), at(carried, rows * vectors + r)));
      }
      result.append(ones);
      return result;
    };
    const int64_t full = columns / size, rest = columns % size;
    Values parts;
    if (full == 1)
      parts = inner(first, size, {});
    else if (full > 1)
      parts = b.forLoop(
          0, full, 1, zeros(rows * vectors + (k.wMinima ? rows : 0)),
          [&](Value i, ValueRange carried) { return inner(b.add(first, i), size, carried); });
    if (rest)
      parts = inner(b.add(first, full), rest, parts);
    Values result;
    for (int64_t i = 0; i < rows * vectors; ++i) {
      result.push_back(scaled(scales[i % vectors], parts[i], at(sums, i)));
      if (k.wMinima)
        result[i] = b.fma(minima[i % vectors], parts[rows * vectors + i / vectors], result[i]);
    }
    return result;
  }

  Values zeros(int64_t count) { return Values(count, b.zero(b.vec(lanes, b.f32()))); }

  /// `full` groups, then a last one if there is a `rest`.
  Values over(int64_t full, int64_t rest,
              llvm::function_ref<Values(Value g, bool isLast, ValueRange sums)> one) {
    if (full + (rest != 0) == 1)
      return one(b.index(0), rest != 0, {});
    Values sums = b.forLoop(0, full, 1, zeros(rows * vectors),
                            [&](Value g, ValueRange carried) { return one(g, false, carried); });
    return rest ? one(b.index(full), true, sums) : sums;
  }

  Values all() {
    const int64_t size = k.spec.groupSize ? k.spec.groupSize : k.spec.k, rest = k.spec.k % size;
    return over(k.spec.k / size, rest, [&](Value g, bool isLast, ValueRange sums) {
      const int64_t columns = isLast ? rest : size;
      if (!k.spec.inputGroup)
        return group(g, columns, sums);
      return groupOfGroups(g, b.mul(g, size / k.spec.inputGroup), columns, sums);
    });
  }
};
} // namespace

SmallVector<Value> emitGroupSums(
    LinearKernel &k, int64_t rows, Value firstRow, Value panel, Index firstColumn, int64_t vectors,
    int64_t correctedOffset,
    llvm::function_ref<Values(Value firstStep, int64_t steps, ArrayRef<Value> starts)> body) {
  return GroupSums{k, rows, firstRow, panel, firstColumn, vectors, correctedOffset, body}.all();
}

} // namespace easyquant::cpu
