//===- ChainsAArch64.cpp - Chains of instructions of 64-bit Arm -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Chains.h"

#include <arm_neon.h>
#include <cstdlib>

namespace easyquant::bench {

// The roofs of instructions are named after those of x86-64, which no Arm CPU has.
bool isHere(Roof roof) { return roof == Roof::Read; }

Chain chainOf(Roof) { std::abort(); }

void readBytes(const char *begin, const char *end) {
  uint8x16_t a = vdupq_n_u8(0), b = a;
  for (; begin + 128 <= end; begin += 128) {
    const auto *at = reinterpret_cast<const uint8_t *>(begin);
    __builtin_prefetch(begin + 4096);
    __builtin_prefetch(begin + 4096 + 64);
    for (int i = 0; i < 128; i += 32) {
      a = veorq_u8(a, vld1q_u8(at + i));
      b = veorq_u8(b, vld1q_u8(at + i + 16));
    }
  }
  asm volatile("" ::"w"(a), "w"(b));
}

} // namespace easyquant::bench
