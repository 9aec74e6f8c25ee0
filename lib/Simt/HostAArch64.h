//===- HostAArch64.h - What the simulator takes of 64-bit Arm ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_HOSTAARCH64_H
#define EASYQUANT_LIB_SIMT_HOSTAARCH64_H

#include "SoftFloat.h"

#include <cstdint>

namespace easyquant::simt {

/// The register that says how this CPU rounds.
using RoundingControl = uint64_t;

inline RoundingControl roundingControl() {
  RoundingControl control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
inline void setRoundingControl(RoundingControl control) {
  asm volatile("msr fpcr, %0" : : "r"(control));
}
inline RoundingControl withMode(RoundingControl control, Rounding rounding) {
  // FPCR.RMode, bits 22 and 23: nearest, up, down, zero.
  const RoundingControl mode = rounding == Rounding::Zero   ? 3
                               : rounding == Rounding::Down ? 2
                               : rounding == Rounding::Up   ? 1
                                                            : 0;
  return (control & ~(RoundingControl(3) << 22)) | mode << 22;
}
inline const char *missingOnHost() { return nullptr; }

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_HOSTAARCH64_H
