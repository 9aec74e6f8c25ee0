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
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

namespace {
/// How f32 is rounded to a format: its mantissa, its least normal number, and its largest one.
struct Precision {
  int64_t mantissaBits;
  float leastNormal, largest;
  float step() const { return leastNormal / static_cast<float>(int64_t(1) << mantissaBits); }
};
} // namespace

static Precision precisionOf(CodeFormat codes) {
  return codes == CodeFormat::F8E4M3FN ? Precision{3, 0x1p-6f, 448} : Precision{1, 1, 6};
}

std::string symbolName(const FakeQuantizeSpec &spec) {
  return llvm::formatv("fake_quantize_{0}_{1}{2}", spec.columns, numerics::toString(spec.codes),
                       spec.isStatic ? "_static" : "");
}

/// The nearest value of the format, ties to even; what is too large becomes the largest.
static Value roundTo(KernelBuilder &b, Precision precision, Value x) {
  auto floats = cast<VectorType>(x.getType());
  VectorType words = floats.clone(b.i32());
  const int64_t dropped = 23 - precision.mantissaBits;
  Value bits = b.bitcast(x, words);
  Value magnitude = b.bitcast(b.andi(bits, 0x7fffffff), floats);
  Value largest = b.constant(floats, precision.largest);
  Value tooLarge = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, magnitude, largest);
  magnitude = arith::SelectOp::create(b, tooLarge, largest, magnitude);
  // Below normal numbers the last bit of the sum weighs a step, and so the sum rounds.
  Value magic = b.constant(floats, 0x1.8p23 * precision.step());
  Value small = b.subf(b.addf(magnitude, magic), magic);
  // Of normal ones, half of the last bit kept is added, a little less where that is even.
  Value wide = b.bitcast(magnitude, words);
  Value odd = b.andi(b.shrLogical(wide, dropped), 1);
  Value half = b.constant(words, (int64_t(1) << (dropped - 1)) - 1);
  Value normal = b.andi(b.addi(b.addi(wide, half), odd), -(int64_t(1) << dropped));
  Value isSmall = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, magnitude,
                                        b.constant(floats, precision.leastNormal));
  Value rounded = arith::SelectOp::create(b, isSmall, small, b.bitcast(normal, floats));
  Value sign = b.andi(bits, -(int64_t(1) << 31));
  return b.bitcast(b.ori(b.bitcast(rounded, words), sign), floats);
}

func::FuncOp getOrEmitFakeQuantize(ModuleOp module, const FakeQuantizeSpec &spec,
                                   const Target &target) {
  const Precision precision = precisionOf(spec.codes);
  const int64_t wide = 4 * target.lanes();
  auto inputs = [&](KernelBuilder &b) {
    SmallVector<Type> types = {b.rows(spec.columns)};
    if (spec.isStatic)
      types.push_back(b.f32());
    types.push_back(b.rows(spec.columns));
    return types;
  };
  auto scaleOf = [&](KernelBuilder &b, Value x, Value row) -> Value {
    Value absMax = reduceColumns(
        b, 0, spec.columns, wide, b.f32(), Combine::Max, [&](Value column, int64_t lanes) -> Value {
          return math::AbsFOp::create(b, b.loadVector(lanes, x, {row, column}));
        });
    // Numerics/Quantize.h: below 2^-119 all values count as zero.
    Value tiny =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, absMax, b.constant(b.f32(), 0x1p-119));
    Value scale = b.divf(absMax, b.constant(b.f32(), precision.largest));
    return arith::SelectOp::create(b, tiny, b.constant(b.f32(), 1.0), scale);
  };
  return getOrEmitRowKernel(
      module, symbolName(spec), target, inputs,
      [&](KernelBuilder &b, ValueRange args, Value begin, Value end) {
        Value x = args.front(), y = args.back();
        b.forLoop(begin, end, 1, [&](Value row) {
          Value scale = spec.isStatic ? args[1] : scaleOf(b, x, row);
          forColumns(b, 0, spec.columns, wide, [&](Value column, int64_t lanes) {
            Value scales = b.broadcast(scale, lanes);
            Value steps = b.divf(b.loadVector(lanes, x, {row, column}), scales);
            b.storeVector(b.mulf(scales, roundTo(b, precision, steps)), y, {row, column});
          });
        });
      });
}

} // namespace easyquant::cpu
