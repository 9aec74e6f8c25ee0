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

#include "Decoder.h"
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

/// d = f(a)
template <auto f, typename D, typename A = D> void mapUnary(Warp &w, const Instruction &i, Mask m) {
  const A *a = w.reg<A>(i.a);
  storeLanes(w.reg<D>(i.dst), m, [&](unsigned lane) -> D { return f(a[lane]); });
}

/// d = f(a, b)
template <auto f, typename D, typename A = D, typename B = A>
void mapBinary(Warp &w, const Instruction &i, Mask m) {
  const A *a = w.reg<A>(i.a);
  const B *b = w.reg<B>(i.b);
  storeLanes(w.reg<D>(i.dst), m, [&](unsigned lane) -> D { return f(a[lane], b[lane]); });
}

/// d = f(a, b, c)
template <auto f, typename D, typename A = D, typename B = A, typename C = D>
void mapTernary(Warp &w, const Instruction &i, Mask m) {
  const A *a = w.reg<A>(i.a);
  const B *b = w.reg<B>(i.b);
  const C *c = w.reg<C>(i.c);
  storeLanes(w.reg<D>(i.dst), m, [&](unsigned lane) -> D { return f(a[lane], b[lane], c[lane]); });
}

/// d = f(a), f(a, b) or f(a, b, c), all of one type.
template <auto f, typename T, unsigned sources>
constexpr Handler mapAll = [] {
  if constexpr (sources == 1)
    return mapUnary<f, T>;
  else if constexpr (sources == 2)
    return mapBinary<f, T>;
  else
    return mapTernary<f, T>;
}();

/// Calls `visit` with a value of the C++ type of `type`; false where it is none of `types`.
template <Type... types, typename Visit> bool visitType(Type type, Visit &&visit) {
  return ((type == types && (visit(ValueOf<types>()), true)) || ...);
}

/// The handler that `make` gives for a value of the C++ type of `type`, which is one of `types`.
template <Type... types, typename Make>
Handler handlerFor(const Decoder &d, Type type, Make &&make) {
  Handler handler = nullptr;
  visitType<types...>(type, [&](auto value) { handler = make(value); });
  if (!handler)
    d.unknown();
  return handler;
}

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_LANES_H
