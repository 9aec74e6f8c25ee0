//===- FloatLanes.h - Single and double precision as PTX rounds them - -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_FLOATLANES_H
#define EASYQUANT_LIB_SIMT_FLOATLANES_H

#include "Host.h"
#include "Lanes.h"
#include "SoftFloat.h"

#include <bit>
#include <cmath>

namespace easyquant::simt {

/// Subnormal numbers become zeros of their sign.
inline float flush(float x) {
  auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>(bits & (bits & 0x7f800000u ? ~0u : 0x80000000u));
}

/// The last step of every float32 result: the one NaN that the machine makes, .ftz, .sat (NaN: 0).
template <bool ftz, bool sat> float finish(float r) {
  if (ftz)
    r = flush(r);
  if (sat) {
    r = r > 0.0f ? r : 0.0f;
    return r < 1.0f ? r : 1.0f;
  }
  return r == r ? r : std::bit_cast<float>(0x7fffffffu);
}

/// The host rounds this way while it lives. Loads and stores do not move across its ends, and with
/// them the arithmetic between.
class RoundingScope {
public:
  explicit RoundingScope(Rounding rounding) : before(roundingControl()) {
    asm volatile("" ::: "memory");
    setRoundingControl(withMode(before, rounding));
    asm volatile("" ::: "memory");
  }
  ~RoundingScope() {
    asm volatile("" ::: "memory");
    setRoundingControl(before);
    asm volatile("" ::: "memory");
  }

private:
  RoundingControl before;
};

template <Handler handler, Rounding rounding> void rounded(Warp &w, const Instruction &i, Mask m) {
  RoundingScope scope(rounding);
  handler(w, i, m);
}

/// `handler` under a rounding mode of arithmetic, chosen when decoding.
template <Handler handler> Handler withRounding(Rounding rounding) {
  static constexpr Handler handlers[] = {handler, rounded<handler, Rounding::Zero>,
                                         rounded<handler, Rounding::Down>,
                                         rounded<handler, Rounding::Up>};
  return handlers[static_cast<unsigned>(rounding)];
}

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_FLOATLANES_H
