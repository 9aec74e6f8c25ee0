//===- HostX86.h - What the simulator takes of x86-64 -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_HOSTX86_H
#define EASYQUANT_LIB_SIMT_HOSTX86_H

#include "SoftFloat.h"

#include <cstdint>
#include <immintrin.h>

namespace easyquant::simt {

/// The register that says how this CPU rounds.
using RoundingControl = uint64_t;

inline RoundingControl roundingControl() { return _mm_getcsr(); }
inline void setRoundingControl(RoundingControl control) {
  _mm_setcsr(static_cast<unsigned>(control));
}
/// `control` with another rounding mode.
inline RoundingControl withMode(RoundingControl control, Rounding rounding) {
  const unsigned mode = rounding == Rounding::Zero   ? _MM_ROUND_TOWARD_ZERO
                        : rounding == Rounding::Down ? _MM_ROUND_DOWN
                        : rounding == Rounding::Up   ? _MM_ROUND_UP
                                                     : _MM_ROUND_NEAREST;
  return (control & ~RoundingControl(_MM_ROUND_MASK)) | mode;
}
/// What this CPU lacks that the simulator is compiled for, as words behind "needs"; or null.
inline const char *missingOnHost() {
  const bool isFit = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                     __builtin_cpu_supports("f16c");
  return isFit ? nullptr : "a CPU with AVX2, FMA and F16C";
}

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_HOSTX86_H
