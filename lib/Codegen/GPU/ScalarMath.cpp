//===- ScalarMath.cpp - Elementary functions on f32 -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScalarMath.h"

#include "../NormalCdf.h"

using namespace mlir;

namespace easyquant::gpu {

Value exp(KernelBuilder &b, Value x) {
  return b.exp2Approximate(b.mulf(x, b.constant(b.f32(), 0x1.715476p+0)));
}

Value logistic(KernelBuilder &b, Value x) {
  Value decay = b.exp2Approximate(b.mulf(x, b.constant(b.f32(), -0x1.715476p+0)));
  return b.reciprocalApproximate(b.addf(decay, b.constant(b.f32(), 1.0)));
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
