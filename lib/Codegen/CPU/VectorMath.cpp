//===- VectorMath.cpp - Elementary functions as vector IR -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The polynomials were fitted for the least largest relative error (Lawson's iteratively reweighted
// least squares on Chebyshev nodes, in double precision).
//
//===----------------------------------------------------------------------===//

#include "VectorMath.h"

#include "../NormalCdf.h"
#include "../TanhSeries.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace easyquant::cpu {

/// coefficients[0] + x (coefficients[1] + x (...)), by Horner's rule.
static Value polynomial(KernelBuilder &b, Value x, ArrayRef<double> coefficients) {
  auto type = cast<VectorType>(x.getType());
  Value sum = b.constant(type, coefficients.back());
  for (double c : llvm::reverse(coefficients.drop_back()))
    sum = b.fma(sum, x, b.constant(type, c));
  return sum;
}

/// Added to |n| < 2^22 this rounds to the nearest integer, ties to even, and leaves that integer in
/// the low bits of the sum; a conversion to integer would be undefined on infinities and NaNs.
static constexpr double kRound = 0x1.8p23;

/// x * 2^n, n in the low bits of `rounded`, by adding n to the exponent of x.
static Value scaleByPowerOfTwo(KernelBuilder &b, Value x, Value rounded) {
  auto type = cast<VectorType>(x.getType());
  VectorType bits = b.vec(type.getNumElements(), b.i32());
  Value exponent = b.shl(b.bitcast(rounded, bits), 23);
  return b.bitcast(b.addi(b.bitcast(x, bits), exponent), type);
}

/// `value`, but `other` where x `predicate` bound.
static Value unless(KernelBuilder &b, arith::CmpFPredicate predicate, Value x, double bound,
                    double other, Value value) {
  auto type = cast<VectorType>(x.getType());
  Value condition = b.compare(predicate, x, b.constant(type, bound));
  return b.select(condition, b.constant(type, other), value);
}

Value exp(KernelBuilder &b, Value x) {
  auto type = cast<VectorType>(x.getType());
  // Cody and Waite: x = n ln 2 + r, ln 2 in two parts, the first so short that n times it is exact.
  Value magic = b.constant(type, kRound);
  Value rounded = b.fma(x, b.constant(type, 0x1.715476p+0), magic);
  Value n = b.subf(rounded, magic);
  Value r = b.fma(n, b.constant(type, -0x1.62e4p-1), x);
  r = b.fma(n, b.constant(type, -0x1.7f7d1cp-20), r);
  // e^r on |r| <= ln 2 / 2, relative error 3.1e-9.
  Value p = polynomial(
      b, r, {1.0, 1.0, 0x1.fffffcp-2, 0x1.555492p-3, 0x1.5558f2p-5, 0x1.1239d4p-7, 0x1.6a2440p-10});
  Value result = scaleByPowerOfTwo(b, p, rounded);
  result = unless(b, arith::CmpFPredicate::OLT, x, -0x1.5d589ep+6, 0.0, result);
  return unless(b, arith::CmpFPredicate::OGT, x, 0x1.62e42ep+6,
                std::numeric_limits<float>::infinity(), result);
}

Value exp2NonPositive(KernelBuilder &b, Value x) {
  auto type = cast<VectorType>(x.getType());
  Value magic = b.constant(type, kRound);
  Value rounded = b.addf(x, magic);
  Value r = b.subf(x, b.subf(rounded, magic));
  // 2^r on |r| <= 1/2, relative error 2.0e-9.
  Value p = polynomial(b, r,
                       {1.0, 0x1.62e430p-1, 0x1.ebfbdcp-3, 0x1.c6aee8p-5, 0x1.3b2d4cp-7,
                        0x1.5f3e52p-10, 0x1.41fbcap-13});
  return unless(b, arith::CmpFPredicate::OLT, x, -126.0, 0.0, scaleByPowerOfTwo(b, p, rounded));
}

Value logistic(KernelBuilder &b, Value x) {
  auto type = cast<VectorType>(x.getType());
  Value one = b.constant(type, 1.0);
  Value decay = exp(b, b.negate(x));
  return b.divf(one, b.addf(one, decay));
}

Value log1p(KernelBuilder &b, Value x) {
  // 2 atanh(s), s = x / (2 + x) <= 1/3, relative error of the series below 2^-29.
  Value s = b.divf(x, b.addf(x, b.constant(x.getType(), 2.0)));
  Value p = polynomial(b, b.mulf(s, s),
                       {2.0, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15});
  return b.mulf(s, p);
}

Value softCap(KernelBuilder &b, Value x, double bound) {
  // tanh(u) = 2 logistic(2u) - 1, which cancels where u is small: there by its series.
  Type type = x.getType();
  Value u = b.mulf(x, b.constant(type, 1 / bound));
  Value s = logistic(b, b.mulf(u, b.constant(type, 2.0)));
  Value far = b.fma(s, b.constant(type, 2 * bound), b.constant(type, -bound));
  Value near = b.mulf(x, polynomial(b, b.mulf(u, u), kTanhSeries));
  Value magnitude = math::AbsFOp::create(b, u);
  return b.select(arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, magnitude,
                                        b.constant(type, kTanhSeriesEnd)),
                  near, far);
}

Value normalCdf(KernelBuilder &b, Value x) {
  auto type = cast<VectorType>(x.getType());
  Value one = b.constant(type, 1.0);
  Value magnitude = math::AbsFOp::create(b, x);
  Value t = b.divf(one, b.fma(magnitude, b.constant(type, kNormalTailShrink), one));
  Value q = polynomial(b, t, kNormalTail);
  q = b.mulf(q, t);
  Value square = b.mulf(x, b.mulf(x, b.constant(type, -0.5)));
  Value tail = b.mulf(q, exp(b, square));
  Value negative = b.compare(arith::CmpFPredicate::OLT, x, b.constant(type, 0.0));
  return b.select(negative, tail, b.subf(one, tail));
}

} // namespace easyquant::cpu
