//===- RowQuantization.cpp - Codes of rows --------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Scales of rows, or of groups of their columns, codes and their sums, to the bit those of
// Numerics/Quantize.h. Rows are in registers, as RowOps.cpp has them.
//
//===----------------------------------------------------------------------===//

#include "FloatCodes.h"
#include "RowEmitter.h"

#include "../RowCodes.h"

#include <algorithm>

using namespace mlir;

namespace easyquant::gpu {

Value RowEmitter::storeCodes(const Piece &piece, const Values &codes) {
  Values bytes;
  for (Value code : codes)
    bytes.push_back(arith::TruncIOp::create(b, b.i8(), b.bitcast(code, b.i32())));
  // Columns beyond the end pad the codes with zeros, as far as rows go.
  Value packed = b.join(bytes);
  if (piece.inside)
    packed = b.select(piece.inside, packed, b.zero(packed.getType()));
  Value first = b.rowOf(arguments["codes"], row, paddedColumns(spec.columns), b.i8());
  Value beforeEnd = b.less(piece.column, paddedColumns(spec.columns));
  b.ifThen(beforeEnd, [&] { b.store(packed, b.advance(first, piece.column, b.i8())); });
  if (!spec.sums)
    return Value();
  Value sum = b.i32(0);
  if (shape.vector < 4) {
    for (int64_t i = 0; i < shape.vector; ++i)
      sum = b.add(sum, arith::ExtSIOp::create(b, b.i32(), b.extract(packed, i)).getResult());
    return sum;
  }
  Value ones = b.i32(0x01010101);
  for (int64_t i = 0; i < shape.vector; i += 4) {
    Values four;
    for (int64_t j = i; j < i + 4; ++j)
      four.push_back(b.extract(packed, j));
    sum = b.dp4a(b.bitcast(b.join(four), b.i32()), ones, sum);
  }
  return sum;
}

void RowEmitter::addToGroup(const Piece &piece, Value sum) {
  Value group = b.div(piece.column, spec.groupSize);
  Value words = b.advance(groupSums, group, b.i32());
  if (spec.groupSize % (32 * shape.vector) != 0)
    return b.ifThen(piece.inside, [&] { b.atomicAddShared(sum, words); });
  // All of the warp is in one group, if the first lane is inside at all.
  sum = b.warpSum(sum);
  Value first = b.equal(b.rem(lane, 32), 0);
  b.ifThen(b.both(first, piece.inside), [&] { b.atomicAddShared(sum, words); });
}

void RowEmitter::writeGroups() {
  auto synchronize = [&] { shape.threads == 32 ? b.warpBarrier() : b.barrier(); };
  synchronize();
  Value sums = b.rowOf(arguments["sums"], row, groups, b.i32());
  b.forLoop(lane, groups, shape.threads, [&](Value group) {
    b.store(b.load(b.advance(groupSums, group, b.i32()), b.i32()), b.advance(sums, group, b.i32()));
  });
}

void RowEmitter::emitCodes(llvm::function_ref<Value(Value)> codeOf) {
  bool grouped = spec.sums && groups > 1;
  if (grouped) {
    b.forLoop(lane, groups, shape.threads,
              [&](Value group) { b.store(b.i32(0), b.advance(groupSums, group, b.i32())); });
    shape.threads == 32 ? b.warpBarrier() : b.barrier();
  }
  Value init = spec.sums && !grouped ? b.i32(0) : Value();
  Value total = forPieces(init, [&](int64_t vector, const Piece &piece, Value carried) {
    Value sum = storeCodes(piece, llvm::map_to_vector(results(vector), codeOf));
    if (grouped)
      addToGroup(piece, sum);
    return init ? b.add(carried, sum) : Value();
  });
  if (grouped)
    return writeGroups();
  if (!spec.sums)
    return;
  total = blockSum(total);
  once([&] { b.store(total, b.advance(arguments["sums"], row, b.i32())); });
}

/// Added to |x| < 2^22 this rounds to the nearest integer, ties to even, whose low byte is then
/// that of the sum; a conversion to integer would be slower, and undefined on infinities and NaNs.
static constexpr double kRound = 0x1.8p23;

Value RowEmitter::absMaxOf(llvm::function_ref<Value(Value)> term) {
  // Magnitudes compare like the integers of their bits.
  Value most =
      blockMaxUnsigned(forPieces(b.i32(0), [&](int64_t vector, const Piece &piece, Value carried) {
        for (Value y : results(vector)) {
          Value bits = b.bitcast(b.magnitude(term(y)), b.i32());
          carried = b.createOrFold<arith::MaxUIOp>(carried, bits);
        }
        return carried;
      }));
  return b.bitcast(most, b.f32());
}

Value RowEmitter::absMaxOfRow() {
  if (spec.absMax == RowSpec::OfRow::Given)
    return b.load(b.advance(arguments["absmax"], row, b.f32()), b.f32(), true);
  if (absMax)
    return absMax;
  return absMaxOf([](Value y) { return y; });
}

void RowEmitter::emitOwnGroups() {
  // A group is in the lanes that have a vector of it, or in several vectors of all lanes.
  const int64_t inWarp = kWarp * shape.vector;
  const int64_t lanes = std::min(kWarp, spec.scaleGroup / shape.vector);
  const int64_t vectors = std::max<int64_t>(1, spec.scaleGroup / inWarp);
  auto acrossLanes = [&](Value value, llvm::function_ref<Value(Value, Value)> combine) {
    for (int64_t mask = 1; mask < lanes; mask *= 2)
      value = combine(value, b.shuffleXor(value, mask));
    return value;
  };
  auto larger = [&](Value x, Value y) -> Value { return b.createOrFold<arith::MaxUIOp>(x, y); };
  forPieces(Value(), [&](int64_t vector, const Piece &, Value) {
    if ((vector + 1) % vectors != 0)
      return Value();
    const int64_t first = vector + 1 - vectors;
    auto reduce = [&](llvm::function_ref<Value(Value)> term,
                      llvm::function_ref<Value(Value, Value)> combine, Value init) {
      for (int64_t v = first; v <= vector; ++v)
        for (Value y : results(v))
          init = combine(init, term(y));
      return acrossLanes(init, combine);
    };
    Value scale, inverse, zero, round = b.constant(b.f32(), kRound);
    if (spec.zeroPoints) {
      auto greater = [&](Value x, Value y) { return b.maxf(x, y); };
      Value none = b.constant(b.f32(), 0.0); // which every range has
      OwnRange own(b, reduce([](Value y) { return y; }, greater, none),
                   reduce([&](Value y) { return b.negate(y); }, greater, none));
      scale = own.scale;
      inverse = own.inverse;
      zero = b.sub(b.bitcast(b.addf(own.zeroPoint, round), b.i32()), b.bitcast(round, b.i32()));
    } else {
      Value most =
          reduce([&](Value y) { return b.bitcast(b.magnitude(y), b.i32()); }, larger, b.i32(0));
      OwnScale own(b, b.bitcast(most, b.f32()));
      scale = own.scale;
      inverse = own.inverse;
    }
    auto codeOf = [&](Value y) -> Value {
      Value steps = b.mulf(y, inverse);
      if (!zero)
        return b.addf(steps, round);
      auto end = [&](double code) { return b.subf(b.constant(b.f32(), code), b.toFloat(zero)); };
      Value inside = b.minf(b.maxf(steps, end(-128)), end(127));
      return b.add(b.bitcast(b.addf(inside, round), b.i32()), zero);
    };
    Value sum = b.i32(0);
    for (int64_t v = first; v <= vector; ++v) {
      Value added = storeCodes(kept[v], llvm::map_to_vector(results(v), codeOf));
      sum = spec.sums ? b.add(sum, added) : sum;
    }
    if (spec.sums)
      sum = acrossLanes(sum, [&](Value x, Value y) { return b.add(x, y); });
    const Piece &begin = kept[first];
    Value leads = b.equal(b.rem(lane, lanes), 0);
    b.ifThen(b.both(leads, begin.inside), [&] {
      Value group = b.div(begin.column, spec.scaleGroup);
      auto store = [&](Value value, StringRef name) {
        Value row = b.rowOf(arguments[name], this->row, groupCount(spec.columns, spec.scaleGroup),
                            value.getType());
        b.store(value, b.advance(row, group, value.getType()));
      };
      store(scale, "scales");
      if (zero)
        store(zero, "zeros");
      if (spec.sums)
        store(sum, "sums");
    });
    return Value();
  });
}

void RowEmitter::emitFloatCodes(Value scale) {
  once([&] { b.store(scale, b.advance(arguments["scales"], row, b.f32())); });
  const numerics::FloatFormat &format = *numerics::floatFormat(spec.codes);
  emitCodes([&](Value y) { return fp8CodeOf(b, roundTo(b, format, b.divf(y, scale))); });
}

void RowEmitter::emitDynamicCodes() {
  if (spec.scaleGroup)
    return emitOwnGroups();
  Value absMax = absMaxOfRow();
  if (spec.absMax == RowSpec::OfRow::Result)
    return once([&] { b.store(absMax, b.advance(arguments["absmax"], row, b.f32())); });
  if (const numerics::FloatFormat *format = numerics::floatFormat(spec.codes))
    return emitFloatCodes(ownScale(b, *format, absMax));
  OwnScale own(b, absMax);
  once([&] { b.store(own.scale, b.advance(arguments["scales"], row, b.f32())); });
  emitCodes([&](Value y) { return b.addf(b.mulf(y, own.inverse), b.constant(b.f32(), kRound)); });
}

Value RowEmitter::onlineScale() {
  Type f64 = b.getF64Type();
  Value place = b.load(b.advance(arguments["row_states"], row, b.i64()), b.i64(), true);
  Value site = b.advance(b.advance(arguments["states"], place, b.i8()), arguments["first"], f64);
  return arith::TruncFOp::create(b, b.f32(), b.load(b.advance(site, 1, f64), f64, true));
}

Value RowEmitter::largestOf(llvm::function_ref<Value(Value)> term) {
  constexpr int64_t kSign = int64_t(1) << 31;
  // With its sign turned, or all bits of what is negative, a float compares like an integer. What
  // lies beyond the end is below all numbers.
  Value most =
      blockMaxUnsigned(forPieces(b.i32(0), [&](int64_t vector, const Piece &piece, Value carried) {
        for (Value y : results(vector)) {
          Value bits = b.bitcast(term(y), b.i32());
          Value key = b.xori(bits, b.ori(b.shrArithmetic(bits, 31), kSign));
          if (piece.inside)
            key = b.select(piece.inside, key, b.i32(0));
          carried = b.createOrFold<arith::MaxUIOp>(carried, key);
        }
        return carried;
      }));
  Value isNegative = b.xori(b.shrArithmetic(most, 31), -1);
  return b.bitcast(b.xori(most, b.ori(isNegative, kSign)), b.f32());
}

void RowEmitter::noteExtrema(Value scale) {
  auto negated = [&](Value y) -> Value { return b.negate(y); };
  Value ends[] = {largestOf(negated), largestOf([](Value y) { return y; })};
  absMax = b.maxf(ends[0], ends[1]);
  if (spec.sinks)
    for (Value &end : ends)
      end = withoutSinks(b, end, scale);
  once([&] {
    Value to = b.rowOf(arguments["extrema"], row, arguments["extrema_stride"], b.f32());
    b.store(ends[0], to);
    b.store(ends[1], b.advance(to, 1, b.f32()));
  });
}

void RowEmitter::emitStaticCodes() {
  Value given;
  if (quantization == RowQuantization::Online)
    noteExtrema(given = onlineScale());
  else
    given = b.load(arguments["scale"], b.f32(), true);
  if (numerics::floatFormat(spec.codes))
    return emitFloatCodes(given);
  StaticParams params(b, numerics::codeRange(8, !spec.zeroPoints && !spec.fullRange), given);
  if (spec.zeroPoints)
    params.setZero(b, b.load(arguments["zero"], b.i32(), true));
  // Columns beyond the end are 0, which every range holds.
  if (spec.sinks)
    params.chooseOwn(b, absMaxOfRow(), [&](Value centre) {
      return absMaxOf([&](Value y) { return b.subf(b.mulf(y, params.inverse), centre); });
    });
  once([&] {
    b.store(params.scale, b.advance(arguments["scales"], row, b.f32()));
    if (params.zero)
      b.store(params.zero, b.advance(arguments["zeros"], row, b.i32()));
  });
  Value round = b.constant(b.f32(), kRound);
  emitCodes([&](Value y) -> Value {
    Value inside = b.minf(b.maxf(b.mulf(y, params.inverse), params.lo), params.hi);
    Value code = b.addf(inside, round);
    return params.zero ? b.add(b.bitcast(code, b.i32()), params.zero) : code;
  });
}

} // namespace easyquant::gpu
