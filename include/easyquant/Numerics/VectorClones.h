//===- VectorClones.h - Loops compiled for several CPUs ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A function marked EASYQUANT_VECTOR_CLONES is compiled for x86-64 as
// such, with AVX2 and with AVX-512; the loader takes what the CPU has. All compute the same bits:
// their files are built with -ffp-contract=off. What such a function calls is only vectorized with
// it if it is inlined into it, hence EASYQUANT_INLINE.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_VECTORCLONES_H
#define EASYQUANT_NUMERICS_VECTORCLONES_H

#if defined(__x86_64__)
#define EASYQUANT_VECTOR_CLONES                                                                    \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else // NEON is in all 64-bit Arm CPUs
#define EASYQUANT_VECTOR_CLONES
#endif
#define EASYQUANT_INLINE inline __attribute__((always_inline))

#endif // EASYQUANT_NUMERICS_VECTORCLONES_H
