//===- Lanes.h - Loops over the lanes of a warp --------------- -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Handlers of instructions that do the same in every lane. The loops are written for the
// vectorizer: registers are arrays over the lanes, which overlap wholly (add %r1, %r1, %r2) or not
// at all, and lanes that do not take part are computed too and dropped by a blend. Functions must
// therefore be defined for all operands, also garbage.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_LANES_H
#define EASYQUANT_LIB_SIMT_LANES_H

#include "Execution.h"

namespace easyquant::simt {

#define EASYQUANT_SIMT_LANES                                                                       \
  _Pragma("clang loop vectorize(assume_safety) interleave(enable)") for (unsigned lane = 0;        \
                                                                         lane < kLanes; ++lane)

template <typename D, typename Value> inline void storeLanes(D *d, Mask m, Value &&value) {
  if (m == kAllLanes) {
    EASYQUANT_SIMT_LANES d[lane] = value(lane);
  } else {
    EASYQUANT_SIMT_LANES {
      D v = value(lane);
      d[lane] = m >> lane & 1 ? v : d[lane];
    }
  }
}

/// d = F()(a)
template <typename D, typename A, typename F> void mapUnary(Warp &w, const Instruction &i, Mask m) {
  const A *a = w.reg<A>(i.a);
  storeLanes(w.reg<D>(i.dst), m, [&](unsigned lane) -> D { return F()(a[lane]); });
}

/// d = F()(a, b)
template <typename D, typename A, typename B, typename F>
void mapBinary(Warp &w, const Instruction &i, Mask m) {
  const A *a = w.reg<A>(i.a);
  const B *b = w.reg<B>(i.b);
  storeLanes(w.reg<D>(i.dst), m, [&](unsigned lane) -> D { return F()(a[lane], b[lane]); });
}

/// d = F()(a, b, c)
template <typename D, typename A, typename B, typename C, typename F>
void mapTernary(Warp &w, const Instruction &i, Mask m) {
  const A *a = w.reg<A>(i.a);
  const B *b = w.reg<B>(i.b);
  const C *c = w.reg<C>(i.c);
  storeLanes(w.reg<D>(i.dst), m,
             [&](unsigned lane) -> D { return F()(a[lane], b[lane], c[lane]); });
}

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_LANES_H
