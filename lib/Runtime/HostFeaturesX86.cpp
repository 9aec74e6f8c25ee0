//===- HostFeaturesX86.cpp - What an x86-64 CPU has -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Program.h"

using namespace easyquant::runtime;

CpuFeatures CpuFeatures::host() {
  // clang's builtin wants literals. It also asks the operating system (XGETBV) whether the wider
  // registers are saved.
  __builtin_cpu_init();
  CpuFeatures features;
  features.avx2 = __builtin_cpu_supports("avx2");
  features.fma = __builtin_cpu_supports("fma");
  features.f16c = __builtin_cpu_supports("f16c");
  features.avx512f = __builtin_cpu_supports("avx512f");
  features.avx512bw = __builtin_cpu_supports("avx512bw");
  features.avx512dq = __builtin_cpu_supports("avx512dq");
  features.avx512vl = __builtin_cpu_supports("avx512vl");
  features.avx512vnni = __builtin_cpu_supports("avx512vnni");
  return features;
}
