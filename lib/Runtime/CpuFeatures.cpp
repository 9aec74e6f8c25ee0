//===- CpuFeatures.cpp - Choosing an instruction set ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Program.h"

#include <fmt/ranges.h>

#include <vector>

using namespace easyquant;
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

/// Instruction sets from best to least.
static constexpr std::string_view kIsas[] = {"avx512vnni", "avx2"};

static std::vector<std::string_view> missingFeatures(std::string_view isa,
                                                     const CpuFeatures &features) {
  std::vector<std::string_view> missing;
  auto need = [&](bool present, std::string_view name) {
    if (!present)
      missing.push_back(name);
  };
  need(features.avx2, "AVX2");
  need(features.fma, "FMA");
  need(features.f16c, "F16C");
  if (isa == "avx512vnni") {
    need(features.avx512f, "AVX512F");
    need(features.avx512bw, "AVX512BW");
    need(features.avx512dq, "AVX512DQ");
    need(features.avx512vl, "AVX512VL");
    need(features.avx512vnni, "AVX512VNNI");
  }
  return missing;
}

Result<std::string> easyquant::runtime::selectIsa(std::string_view requested,
                                                  const std::map<std::string, std::string> &entries,
                                                  const CpuFeatures &features,
                                                  std::string_view path) {
  std::vector<std::string_view> compiled;
  compiled.reserve(entries.size());
  for (auto &[isa, symbol] : entries)
    compiled.push_back(isa);

  if (requested.empty() || requested == "auto") {
    std::string reasons;
    for (std::string_view isa : kIsas) {
      if (!entries.count(std::string(isa)))
        continue;
      std::vector<std::string_view> missing = missingFeatures(isa, features);
      if (missing.empty())
        return std::string(isa);
      reasons +=
          fmt::format("{}{} needs {}", reasons.empty() ? "" : "; ", isa, fmt::join(missing, ", "));
    }
    if (reasons.empty())
      return makeError(ErrorCode::Unsupported,
                       "{}: program.entries: found {}, expected avx2 or avx512vnni", path,
                       fmt::join(compiled, ", "));
    return makeError(ErrorCode::Unsupported,
                     "{}: this CPU cannot run it: {} that the CPU does not have; run it on an "
                     "x86-64 CPU with AVX2, FMA and F16C",
                     path, reasons);
  }

  bool known = requested == kIsas[0] || requested == kIsas[1];
  if (!known)
    return makeError(ErrorCode::InvalidArgument,
                     "isa: found \"{}\", expected auto, avx2 or avx512vnni", requested);
  if (!entries.count(std::string(requested)))
    return makeError(ErrorCode::Unsupported,
                     "{}: not compiled for {} but for {}; choose one of those, or recompile", path,
                     requested, fmt::join(compiled, ", "));
  std::vector<std::string_view> missing = missingFeatures(requested, features);
  if (!missing.empty())
    return makeError(ErrorCode::Unsupported,
                     "isa: {} needs {}, which this CPU does not have; choose auto", requested,
                     fmt::join(missing, ", "));
  return std::string(requested);
}
