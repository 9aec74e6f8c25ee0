//===- FloatCodes.cpp - Values of FP8 and FP4 -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FloatCodes.h"

#include <limits>

using namespace mlir;

namespace easyquant {

Value gpu::roundTo(KernelBuilder &b, const numerics::FloatFormat &format, Value x) {
  auto constant = [&](double value) { return b.constant(b.f32(), value); };
  const int64_t dropped = 23 - format.mantissaBits, sign = int64_t{1} << 31;
  Value magnitude = b.magnitude(x), largest = constant(format.largest);
  magnitude =
      b.select(b.compare(arith::CmpFPredicate::OGT, magnitude, largest), largest, magnitude);
  // Below normal numbers the last bit of the sum weighs a step, and so the sum rounds.
  Value magic = constant(0x1.8p23 * static_cast<double>(format.step()));
  Value small = b.subf(b.addf(magnitude, magic), magic);
  // Normal ones are rounded by adding half of the last bit kept, a little less where that is even.
  Value wide = b.bitcast(magnitude, b.i32());
  Value odd = b.andi(b.shr(wide, dropped), 1);
  Value sum = b.add(b.add(wide, (int64_t{1} << (dropped - 1)) - 1), odd);
  Value normal = b.bitcast(b.andi(sum, -(int64_t{1} << dropped)), b.f32());
  Value isSmall = b.compare(arith::CmpFPredicate::OLT, magnitude, constant(format.leastNormal));
  Value rounded = b.bitcast(b.select(isSmall, small, normal), b.i32());
  Value signs = b.andi(b.bitcast(x, b.i32()), -sign);
  return b.bitcast(b.ori(rounded, signs), b.f32());
}

Value gpu::fp8CodeOf(KernelBuilder &b, Value value) {
  // With the exponent's bias of 7 in the place of 127, subnormals of f32 are those of the code.
  Value bits = b.bitcast(b.mulf(value, b.constant(b.f32(), 0x1p-120)), b.i32());
  return b.ori(b.andi(b.shr(bits, 20), 0x7f), b.andi(b.shr(bits, 24), 0x80));
}

Value gpu::fp4CodeOf(KernelBuilder &b, Value value) {
  // Likewise with a bias of 1.
  Value bits = b.bitcast(b.mulf(value, b.constant(b.f32(), 0x1p-126)), b.i32());
  return b.ori(b.andi(b.shr(bits, 22), 7), b.andi(b.shr(bits, 28), 8));
}

Value gpu::unlessZero(KernelBuilder &b, Value absMax, Value zero, Value scale) {
  return b.select(b.compare(arith::CmpFPredicate::OLT, absMax, b.constant(b.f32(), 0x1p-119)), zero,
                  scale);
}

Value gpu::ownScale(KernelBuilder &b, const numerics::FloatFormat &format, Value absMax) {
  return unlessZero(b, absMax, b.constant(b.f32(), 1.0),
                    b.divf(absMax, b.constant(b.f32(), format.largest)));
}

gpu::BlockScale gpu::blockScale(KernelBuilder &b, const numerics::FloatFormat &format, Value absMax,
                                Value outer) {
  const numerics::FloatFormat &scales = *numerics::floatFormat(CodeFormat::F8E4M3FN);
  Value rounded =
      roundTo(b, scales, b.divf(b.divf(absMax, b.constant(b.f32(), format.largest)), outer));
  // A scale of 0 would make values of codes.
  Value least = b.constant(b.f32(), scales.step());
  rounded = b.select(b.compare(arith::CmpFPredicate::OLT, rounded, least), least, rounded);
  // Codes have no NaN: where a value is none or infinite the scale is, so that products tell.
  Value isFinite = b.compare(arith::CmpFPredicate::OLT, absMax,
                             b.constant(b.f32(), std::numeric_limits<double>::infinity()));
  Value nan = b.bitcast(b.i32(0x7fffffff), b.f32());
  auto unlessNaN = [&](Value scale) { return b.select(isFinite, scale, nan); };
  return {unlessNaN(unlessZero(b, absMax, b.constant(b.f32(), 1.0), rounded)),
          unlessNaN(unlessZero(b, absMax, outer, b.mulf(rounded, outer)))};
}

} // namespace easyquant
