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
  auto note = [&](bool isPresent, std::string_view name) {
    if (isPresent)
      features.present.insert(name);
  };
  note(__builtin_cpu_supports("avx2"), "AVX2");
  note(__builtin_cpu_supports("fma"), "FMA");
  note(__builtin_cpu_supports("f16c"), "F16C");
  note(__builtin_cpu_supports("avx512f"), "AVX512F");
  note(__builtin_cpu_supports("avx512bw"), "AVX512BW");
  note(__builtin_cpu_supports("avx512dq"), "AVX512DQ");
  note(__builtin_cpu_supports("avx512vl"), "AVX512VL");
  note(__builtin_cpu_supports("avx512vnni"), "AVX512VNNI");
  return features;
}
