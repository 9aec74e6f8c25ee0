//===- RowCodes.h - What rows are quantized with ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Scales and ranges of int8 rows as IR of all targets. Numerics/Quantize.h and OnlineScales.h
// define them to the bit.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_ROWCODES_H
#define EASYQUANT_LIB_CODEGEN_ROWCODES_H

#include "ArithmeticBuilder.h"

#include "easyquant/Numerics/OnlineScales.h"
#include "easyquant/Numerics/Quantize.h"

#include <limits>

namespace easyquant {

/// The scale of a row by its own largest magnitude, and its reciprocal.
struct OwnScale {
  OwnScale(ArithmeticBuilder &b, mlir::Value absMax) {
    // Below 2^-119 the scale or its reciprocal would leave the normal range.
    mlir::Value tiny =
        b.compare(mlir::arith::CmpFPredicate::OLT, absMax, b.constant(b.f32(), 0x1p-119));
    mlir::Value limit = b.constant(b.f32(), 127.0);
    scale = b.select(tiny, b.constant(b.f32(), 1.0), b.divf(absMax, limit));
    inverse = b.select(tiny, b.constant(b.f32(), 0.0), b.divf(limit, absMax));
  }
  mlir::Value scale, inverse;
};

/// Scale and zero point of a group of a row by its own extrema: the greatest of x, and of -x.
struct OwnRange {
  OwnRange(ArithmeticBuilder &b, mlir::Value greatest, mlir::Value greatestNegated) {
    auto half = [&](mlir::Value end) { return b.mulf(end, b.constant(b.f32(), 0.5)); };
    mlir::Value zero32 = b.constant(b.f32(), 0.0);
    mlir::Value up = b.larger(greatest, zero32), down = b.larger(greatestNegated, zero32);
    mlir::Value range = b.addf(half(up), half(down));
    mlir::Value tiny =
        b.compare(mlir::arith::CmpFPredicate::OLT, range, b.constant(b.f32(), 0x1p-119));
    mlir::Value limit = b.constant(b.f32(), 127.5);
    scale = b.select(tiny, b.constant(b.f32(), 1.0), b.divf(range, limit));
    inverse = b.select(tiny, zero32, b.divf(limit, range));
    mlir::Value point = b.subf(b.mulf(down, inverse), b.constant(b.f32(), 128.0));
    // Rounded as codes are, of which it is one; a group of zeros has 0.
    zeroPoint = b.select(tiny, zero32, point);
  }
  mlir::Value scale, inverse;
  mlir::Value zeroPoint; ///< before it is rounded, an f32
};

/// What codes in a given range are made of.
struct StaticParams {
  StaticParams(ArithmeticBuilder &b, numerics::CodeRange range, mlir::Value scale)
      : range(range), scale(scale), inverse(b.divf(b.constant(b.f32(), 1.0), scale)),
        // Clamping to integers before rounding is the same as after it, and takes any number.
        lo(b.constant(b.f32(), static_cast<double>(range.min))),
        hi(b.constant(b.f32(), static_cast<double>(range.max))) {}

  void setZero(ArithmeticBuilder &b, mlir::Value point) {
    zero = point;
    mlir::Value shift = b.toFloat(zero);
    lo = b.subf(lo, shift);
    hi = b.subf(hi, shift);
  }
  /// The row's own parameters instead, from its largest magnitude, if it leaves the range.
  /// `farthestFrom` gives the largest distance of scaled values from a centre.
  void chooseOwn(ArithmeticBuilder &b, mlir::Value absMax,
                 llvm::function_ref<mlir::Value(mlir::Value centre)> farthestFrom) {
    const numerics::StaticReach reach(range, /*zeroPoint=*/0);
    // In a range around 0 the value of largest magnitude is the farthest from the centre.
    mlir::Value farthest = b.mulf(absMax, inverse);
    if (reach.centre != 0 || zero) {
      mlir::Value centre = b.constant(b.f32(), reach.centre);
      farthest = farthestFrom(zero ? b.subf(centre, b.toFloat(zero)) : centre);
    }
    mlir::Value leaves =
        b.compare(mlir::arith::CmpFPredicate::OGT, farthest, b.constant(b.f32(), reach.reach));
    OwnScale own(b, absMax);
    scale = b.select(leaves, own.scale, scale);
    inverse = b.select(leaves, own.inverse, inverse);
    lo = b.select(leaves, b.constant(b.f32(), -127.0), lo);
    hi = b.select(leaves, b.constant(b.f32(), 127.0), hi);
    if (zero)
      zero = b.select(leaves, b.zero(b.i32()), zero);
  }

  numerics::CodeRange range;
  mlir::Value scale, inverse;
  mlir::Value zero;   ///< null: 0
  mlir::Value lo, hi; ///< the ends that x / scale is clamped to
};

/// What is noted of the greatest value of a row whose sinks stand apart: no more than twice the
/// range of the online scale. Values that are not finite stay so, since such a step is no update.
inline mlir::Value withoutSinks(ArithmeticBuilder &b, mlir::Value value, mlir::Value scale) {
  using Predicate = mlir::arith::CmpFPredicate;
  mlir::Value reach = b.mulf(scale, b.constant(b.f32(), numerics::kOnlineReach));
  mlir::Value infinity = b.constant(b.f32(), std::numeric_limits<double>::infinity());
  return b.select(
      b.both(b.compare(Predicate::OGT, value, reach), b.compare(Predicate::OLT, value, infinity)),
      reach, value);
}

} // namespace easyquant

#endif // EASYQUANT_LIB_CODEGEN_ROWCODES_H
