//===- ChainsX86.cpp - Chains of instructions of x86-64 -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Chains.h"

#include <immintrin.h>

namespace easyquant::bench {

bool isHere(Roof roof) {
  switch (roof) {
  case Roof::Fma512:
    return __builtin_cpu_supports("avx512f");
  case Roof::DpBusd512:
    return __builtin_cpu_supports("avx512vnni");
  case Roof::DpBf16:
    return __builtin_cpu_supports("avx512bf16");
  default:
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  }
}

// One block is 10 (20 with 512 bits) independent accumulators, each used once: longer than any
// latency times the number of ports.
#define YMM_CLOBBERS                                                                               \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",         \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define ZMM_CLOBBERS                                                                               \
  YMM_CLOBBERS, "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24",   \
      "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31"

// clang-format would break these lines anew each time it runs.
// clang-format off

// Products go round robin through three registers, as a compiler would write them.
#define PAIR(MUL, ADD, T, A)                                                                       \
  MUL " %%ymm15, %%ymm14, %%ymm" #T "\n" ADD " %%ymm" #T ", %%ymm" #A ", %%ymm" #A "\n"
#define PAIRS(MUL, ADD)                                                                            \
  PAIR(MUL, ADD, 11, 0)                                                                            \
  PAIR(MUL, ADD, 12, 1)                                                                            \
  PAIR(MUL, ADD, 13, 2)                                                                            \
  PAIR(MUL, ADD, 11, 3)                                                                            \
  PAIR(MUL, ADD, 12, 4)                                                                            \
  PAIR(MUL, ADD, 13, 5) PAIR(MUL, ADD, 11, 6) PAIR(MUL, ADD, 12, 7) PAIR(MUL, ADD, 13, 8)          \
      PAIR(MUL, ADD, 11, 9)

#define ONE(OP, R, B, C, A) OP " %%" R #B ", %%" R #C ", %%" R #A "\n"
#define TEN(OP, R, B, C)                                                                           \
  ONE(OP, R, B, C, 0)                                                                              \
  ONE(OP, R, B, C, 1)                                                                              \
  ONE(OP, R, B, C, 2)                                                                              \
  ONE(OP, R, B, C, 3)                                                                              \
  ONE(OP, R, B, C, 4)                                                                              \
  ONE(OP, R, B, C, 5) ONE(OP, R, B, C, 6) ONE(OP, R, B, C, 7) ONE(OP, R, B, C, 8)                  \
      ONE(OP, R, B, C, 9)
#define TEN_MORE(OP, R, B, C)                                                                      \
  ONE(OP, R, B, C, 10)                                                                             \
  ONE(OP, R, B, C, 11)                                                                             \
  ONE(OP, R, B, C, 12)                                                                             \
  ONE(OP, R, B, C, 13)                                                                             \
  ONE(OP, R, B, C, 14)                                                                             \
  ONE(OP, R, B, C, 15) ONE(OP, R, B, C, 16) ONE(OP, R, B, C, 17) ONE(OP, R, B, C, 18)              \
      ONE(OP, R, B, C, 19)
// clang-format on

__attribute__((target("avx2,fma"))) static void fmaAvx2(int64_t turns) {
  asm volatile("vzeroall\n");
  for (; turns > 0; --turns)
    asm volatile(TEN("vfmadd231ps", "ymm", 15, 14)::: YMM_CLOBBERS);
}
__attribute__((target("avx2"))) static void maddWd(int64_t turns) {
  asm volatile("vzeroall\n");
  for (; turns > 0; --turns)
    asm volatile(PAIRS("vpmaddwd", "vpaddd")::: YMM_CLOBBERS);
}
__attribute__((target("avx2"))) static void maddUbs(int64_t turns) {
  asm volatile("vzeroall\n");
  for (; turns > 0; --turns)
    asm volatile(PAIRS("vpmaddubsw", "vpaddw")::: YMM_CLOBBERS);
}
/// Twenty independent operations of 512 bits a turn.
#define ZMM_CHAIN(NAME, FEATURE, OP)                                                               \
  __attribute__((target(FEATURE))) static void NAME(int64_t turns) {                               \
    asm volatile(                                                                                  \
        "vzeroall\nvpxord %%zmm30, %%zmm30, %%zmm30\nvpxord %%zmm31, %%zmm31, %%zmm31\n" ::        \
            : "xmm30", "xmm31");                                                                   \
    for (; turns > 0; --turns)                                                                     \
      asm volatile(TEN(OP, "zmm", 31, 30) TEN_MORE(OP, "zmm", 31, 30)::: ZMM_CLOBBERS);            \
  }
ZMM_CHAIN(fma512, "avx512f", "vfmadd231ps")
ZMM_CHAIN(dpBusd512, "avx512vnni", "vpdpbusd")
ZMM_CHAIN(dpBf16, "avx512bf16", "vdpbf16ps")
#undef ZMM_CHAIN

Chain chainOf(Roof roof) {
  switch (roof) {
  case Roof::FmaAvx2:
    return {fmaAvx2, 10 * 8 * 2};
  case Roof::Fma512:
    return {fma512, 20 * 16 * 2};
  case Roof::MaddWd:
    return {maddWd, 10 * 16 * 2};
  case Roof::MaddUbs:
    return {maddUbs, 10 * 32 * 2};
  case Roof::DpBf16:
    return {dpBf16, 20 * 32 * 2};
  default:
    return {dpBusd512, 20 * 64 * 2};
  }
}

__attribute__((target("avx2"))) void readBytes(const char *begin, const char *end) {
  __m256i a = _mm256_setzero_si256(), b = a;
  for (; begin + 128 <= end; begin += 128) {
    const auto *at = reinterpret_cast<const __m256i *>(begin);
    _mm_prefetch(begin + 4096, _MM_HINT_T0);
    _mm_prefetch(begin + 4096 + 64, _MM_HINT_T0);
    a = _mm256_xor_si256(a,
                         _mm256_xor_si256(_mm256_loadu_si256(at + 0), _mm256_loadu_si256(at + 1)));
    b = _mm256_xor_si256(b,
                         _mm256_xor_si256(_mm256_loadu_si256(at + 2), _mm256_loadu_si256(at + 3)));
  }
  asm volatile("" ::"x"(a), "x"(b));
}

} // namespace easyquant::bench
