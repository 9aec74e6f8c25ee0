//===- FakeQuantize.cpp - Rows rounded to values of a format --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"
#include "VectorMath.h"

#include "easyquant/Numerics/Scheme.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

using numerics::FloatFormat;

std::string symbolName(const FakeQuantizeSpec &spec) {
  std::string name =
      llvm::formatv("fake_quantize_{0}_{1}", spec.columns, numerics::toString(spec.codes));
  if (spec.groupSize)
    name += "_g" + llvm::utostr(spec.groupSize);
  return name + (spec.isStatic ? "_static" : "");
}

/// The nearest value of the format, ties to even; what is too large becomes the largest.
static Value roundTo(KernelBuilder &b, const FloatFormat &format, Value x) {
  auto floats = cast<VectorType>(x.getType());
  VectorType words = floats.clone(b.i32());
  const int64_t dropped = 23 - format.mantissaBits;
  Value bits = b.bitcast(x, words);
  Value magnitude = b.bitcast(b.andi(bits, 0x7fffffff), floats);
  Value largest = b.constant(floats, format.largest);
  Value tooLarge = b.compare(arith::CmpFPredicate::OGT, magnitude, largest);
  magnitude = b.select(tooLarge, largest, magnitude);
  // Below normal numbers the last bit of the sum weighs a step, and so the sum rounds.
  Value magic = b.constant(floats, 0x1.8p23 * format.step());
  Value small = b.subf(b.addf(magnitude, magic), magic);
  // Normal ones are rounded by adding half of the last bit kept, a little less where that is even.
  Value wide = b.bitcast(magnitude, words);
  Value odd = b.andi(b.shrLogical(wide, dropped), 1);
  Value half = b.constant(words, (int64_t(1) << (dropped - 1)) - 1);
  Value normal = b.andi(b.addi(b.addi(wide, half), odd), -(int64_t(1) << dropped));
  Value isSmall =
      b.compare(arith::CmpFPredicate::OLT, magnitude, b.constant(floats, format.leastNormal));
  Value rounded = b.select(isSmall, small, b.bitcast(normal, floats));
  Value sign = b.andi(bits, -(int64_t(1) << 31));
  return b.bitcast(b.ori(b.bitcast(rounded, words), sign), floats);
}

Description describe(const FakeQuantizeSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  d.reads("x", d.rows(spec.columns));
  d.reads("scale", d.getF32Type(), spec.isStatic);
  d.writes("y", d.rows(spec.columns));
  return std::move(d.kernel);
}

func::FuncOp getOrEmitFakeQuantize(ModuleOp module, const FakeQuantizeSpec &spec,
                                   const Target &target) {
  const FloatFormat &format = *numerics::floatFormat(spec.codes);
  const int64_t wide = 4 * target.lanes();
  auto absMaxOf = [&](KernelBuilder &b, Value x, Value row, Index begin, int64_t count) {
    return reduceColumns(b, begin, count, wide, b.f32(), Combine::Max,
                         [&](Value column, int64_t lanes) -> Value {
                           return math::AbsFOp::create(b, b.loadVector(lanes, x, {row, column}));
                         });
  };
  // Numerics/Quantize.h: below 2^-119 all values count as zero.
  auto unlessZero = [&](KernelBuilder &b, Value absMax, Value zero, Value scale) -> Value {
    Value tiny = b.compare(arith::CmpFPredicate::OLT, absMax, b.constant(b.f32(), 0x1p-119));
    return b.select(tiny, zero, scale);
  };
  auto roundColumns = [&](KernelBuilder &b, Value x, Value y, Value row, Index begin, int64_t count,
                          Value scale) {
    forColumns(b, begin, count, wide, [&](Value column, int64_t lanes) {
      Value scales = b.broadcast(scale, lanes);
      Value steps = b.divf(b.loadVector(lanes, x, {row, column}), scales);
      b.storeVector(b.mulf(scales, roundTo(b, format, steps)), y, {row, column});
    });
  };
  auto ownScale = [&](KernelBuilder &b, Value absMax) {
    return unlessZero(b, absMax, b.constant(b.f32(), 1.0),
                      b.divf(absMax, b.constant(b.f32(), format.largest)));
  };
  auto roundGroup = [&](KernelBuilder &b, Value x, Value y, Value row, Value outer, Value group,
                        int64_t count) {
    Value begin = b.mul(group, spec.groupSize), absMax = absMaxOf(b, x, row, begin, count);
    if (!outer)
      return roundColumns(b, x, y, row, begin, count, ownScale(b, absMax));
    Value steps = b.divf(b.divf(absMax, b.constant(b.f32(), format.largest)), outer);
    const FloatFormat &scales = *numerics::floatFormat(CodeFormat::F8E4M3FN);
    Value rounded = b.extract(roundTo(b, scales, b.broadcast(steps, target.lanes())), 0);
    // A scale of 0 would make values of codes.
    Value least = b.constant(b.f32(), scales.step());
    Value isLess = b.compare(arith::CmpFPredicate::OLT, rounded, least);
    rounded = b.select(isLess, least, rounded);
    roundColumns(b, x, y, row, begin, count, unlessZero(b, absMax, outer, b.mulf(rounded, outer)));
  };
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        Value x = in["x"], y = in["y"], given = in.find("scale");
        b.forLoop(begin, end, 1, [&](Value row) {
          if (!spec.groupSize)
            return roundColumns(b, x, y, row, 0, spec.columns,
                                given ? given : ownScale(b, absMaxOf(b, x, row, 0, spec.columns)));
          const int64_t full = spec.columns / spec.groupSize, rest = spec.columns % spec.groupSize;
          b.forLoop(0, full, 1,
                    [&](Value group) { roundGroup(b, x, y, row, given, group, spec.groupSize); });
          if (rest)
            roundGroup(b, x, y, row, given, b.index(full), rest);
        });
      });
}

} // namespace easyquant::cpu
