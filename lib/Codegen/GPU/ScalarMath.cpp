//===- ScalarMath.cpp - Elementary functions on f32 -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScalarMath.h"

#include "../NormalCdf.h"
#include "../TanhSeries.h"

#include <limits>

using namespace mlir;

namespace easyquant::gpu {

Value exp(KernelBuilder &b, Value x) {
  return b.exp2Approximate(b.mulf(x, b.constant(b.f32(), 0x1.715476p+0)));
}

Value logistic(KernelBuilder &b, Value x) {
  Value decay = b.exp2Approximate(b.mulf(x, b.constant(b.f32(), -0x1.715476p+0)));
  return b.reciprocalApproximate(b.addf(decay, b.constant(b.f32(), 1.0)));
}

Value clampedGate(KernelBuilder &b, Value gate, Value up) {
  // Numbers that are none stay so, as sums of them would.
  auto clamp = [&](Value v, arith::CmpFPredicate beyond, double bound) {
    Value limit = b.constant(b.f32(), bound);
    return b.select(b.compare(beyond, v, limit), limit, v);
  };
  gate = clamp(gate, arith::CmpFPredicate::OGT, kGateClamp);
  up = clamp(up, arith::CmpFPredicate::OGT, kGateClamp);
  up = clamp(up, arith::CmpFPredicate::OLT, -kGateClamp);
  Value slope = b.constant(b.f32(), kGateSlope), one = b.constant(b.f32(), 1.0);
  return b.mulf(b.mulf(gate, logistic(b, b.mulf(gate, slope))), b.addf(up, one));
}

/// e^x = 2^n e^r, |r| <= log(2) / 2, by a polynomial of r, its highest power first.
static Value expByPolynomial(KernelBuilder &b, Value x, ArrayRef<double> polynomial) {
  auto constant = [&](double value) { return b.constant(b.f32(), value); };
  // To the nearest integer n: behind the sum the mantissa ends with it.
  Value magic = constant(0x1.8p23), rounded = b.fma(x, constant(0x1.715476p+0), magic);
  Value n = b.subf(rounded, magic);
  Value r = b.fma(n, constant(-0x1.62e4p-1), x);
  r = b.fma(n, constant(-0x1.7f7d1cp-20), r);
  Value p = constant(polynomial.front());
  for (double c : polynomial.drop_front())
    p = b.fma(p, r, constant(c));
  Value exponent = b.shl(b.bitcast(rounded, b.i32()), 23);
  return b.bitcast(b.add(b.bitcast(p, b.i32()), exponent), b.f32());
}

Value preciseExp(KernelBuilder &b, Value x) {
  Value least = b.constant(b.f32(), -87.0);
  Value bounded = b.select(b.compare(arith::CmpFPredicate::OLT, x, least), least, x);
  Value result = expByPolynomial(
      b, bounded, {1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0});
  return b.select(b.compare(arith::CmpFPredicate::UNO, x, x), x, result);
}

Value logisticOfCPUs(KernelBuilder &b, Value x) {
  // Operation by operation what cpu::exp and cpu::logistic are.
  auto constant = [&](double value) { return b.constant(b.f32(), value); };
  Value minus = b.negate(x);
  Value decay = expByPolynomial(
      b, minus,
      {0x1.6a2440p-10, 0x1.1239d4p-7, 0x1.5558f2p-5, 0x1.555492p-3, 0x1.fffffcp-2, 1.0, 1.0});
  auto unless = [&](arith::CmpFPredicate predicate, double bound, double other) {
    decay = b.select(b.compare(predicate, minus, constant(bound)), constant(other), decay);
  };
  unless(arith::CmpFPredicate::OLT, -0x1.5d589ep+6, 0.0);
  unless(arith::CmpFPredicate::OGT, 0x1.62e42ep+6, std::numeric_limits<float>::infinity());
  return b.divf(constant(1.0), b.addf(constant(1.0), decay));
}

Value softCap(KernelBuilder &b, Value x, double bound) {
  // tanh(u) = 2 logistic(2u) - 1, which cancels where u is small: there by its series.
  Value u = b.mulf(x, b.constant(b.f32(), 1 / bound));
  Value s = logistic(b, b.mulf(u, b.constant(b.f32(), 2.0)));
  Value far = b.fma(s, b.constant(b.f32(), 2 * bound), b.constant(b.f32(), -bound));
  Value square = b.mulf(u, u), series = b.constant(b.f32(), std::end(kTanhSeries)[-1]);
  for (double c : llvm::reverse(ArrayRef(kTanhSeries).drop_back()))
    series = b.fma(series, square, b.constant(b.f32(), c));
  Value isNear = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, b.magnitude(u),
                                       b.constant(b.f32(), kTanhSeriesEnd));
  return b.select(isNear, b.mulf(x, series), far);
}

Value normalCdf(KernelBuilder &b, Value x) {
  Value one = b.constant(b.f32(), 1.0);
  Value magnitude = b.magnitude(x);
  Value t = b.reciprocalApproximate(b.fma(magnitude, b.constant(b.f32(), kNormalTailShrink), one));
  Value q = b.constant(b.f32(), std::end(kNormalTail)[-1]);
  for (double c : llvm::reverse(ArrayRef(kNormalTail).drop_back()))
    q = b.fma(q, t, b.constant(b.f32(), c));
  Value square = b.mulf(x, b.mulf(x, b.constant(b.f32(), -0.5)));
  Value tail = b.mulf(b.mulf(q, t), exp(b, square));
  Value negative = b.compare(arith::CmpFPredicate::OLT, x, b.constant(b.f32(), 0.0));
  return b.select(negative, tail, b.subf(one, tail));
}

} // namespace easyquant::gpu
