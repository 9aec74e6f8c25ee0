//===- CpuFeatures.cpp - Choosing an instruction set ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Program.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

using namespace easyquant;
using namespace easyquant::runtime;
using formats::InstructionSet;
using formats::Processor;

static std::vector<std::string_view> missingFeatures(std::string_view isa,
                                                     const CpuFeatures &features) {
  std::vector<std::string_view> missing;
  for (std::string_view feature : formats::findInstructionSet(isa)->features)
    if (!features.present.contains(feature))
      missing.push_back(feature);
  return missing;
}

/// What the plainest instruction set of a processor takes.
static std::string_view plainestCpu(const Processor &processor) {
  return processor.name == "aarch64" ? "Armv8.2 CPU with the dot product, such as a Cortex-A76"
                                     : "x86-64 CPU with AVX2, FMA and F16C";
}

/// "avx2 or avx512vnni"
static std::string choices(const Processor &processor) {
  return fmt::format("{}", fmt::join(formats::instructionSetsOf(processor), " or "));
}

/// What there is code for where there is none for the processor; empty if an instruction set is
/// unknown.
static std::string otherProcessors(const std::map<std::string, std::string> &entries) {
  std::set<std::string_view> names;
  for (const auto &[isa, symbol] : entries) {
    const InstructionSet *set = formats::findInstructionSet(isa);
    if (!set)
      return {};
    names.insert(set->processor->name);
  }
  return fmt::format("{}", fmt::join(names, " and "));
}

static Result<std::string> selectBest(const std::map<std::string, std::string> &entries,
                                      const CpuFeatures &features, std::string_view path,
                                      const std::vector<std::string_view> &compiled) {
  const Processor &processor = *features.processor;
  std::vector<std::string> known = formats::instructionSetsOf(processor);
  std::ranges::reverse(known);
  std::string reasons;
  for (const std::string &isa : known) {
    if (!entries.count(isa))
      continue;
    std::vector<std::string_view> missing = missingFeatures(isa, features);
    if (missing.empty())
      return isa;
    reasons +=
        fmt::format("{}{} needs {}", reasons.empty() ? "" : "; ", isa, fmt::join(missing, ", "));
  }
  if (!reasons.empty())
    return makeError(ErrorCode::Unsupported,
                     "{}: this CPU cannot run it: {} that the CPU does not have; run it on an {}",
                     path, reasons, plainestCpu(processor));
  if (std::string others = otherProcessors(entries); !others.empty())
    return makeError(ErrorCode::Unsupported,
                     "{}: has code for {} ({}), and this machine is {}; compile the model with "
                     "`easyquant compile … --target {}`",
                     path, others, fmt::join(compiled, ", "), processor.name, processor.name);
  return makeError(ErrorCode::Unsupported, "{}: program.entries: found {}, expected {}", path,
                   fmt::join(compiled, ", "), choices(processor));
}

Result<std::string> easyquant::runtime::selectIsa(std::string_view requested,
                                                  const std::map<std::string, std::string> &entries,
                                                  const CpuFeatures &features,
                                                  std::string_view path) {
  std::vector<std::string_view> compiled;
  compiled.reserve(entries.size());
  for (auto &[isa, symbol] : entries)
    compiled.push_back(isa);
  if (requested.empty() || requested == "auto")
    return selectBest(entries, features, path, compiled);

  const InstructionSet *set = formats::findInstructionSet(requested);
  if (!set)
    return makeError(ErrorCode::InvalidArgument, "isa: found \"{}\", expected auto, {}", requested,
                     choices(*features.processor));
  if (!entries.count(std::string(requested)))
    return makeError(ErrorCode::Unsupported,
                     "{}: not compiled for {} but for {}; choose one of those, or recompile", path,
                     requested, fmt::join(compiled, ", "));
  if (set->processor != features.processor)
    return makeError(ErrorCode::Unsupported,
                     "isa: {} is code for {}, and this machine is {}; choose auto", requested,
                     set->processor->name, features.processor->name);
  std::vector<std::string_view> missing = missingFeatures(requested, features);
  if (!missing.empty())
    return makeError(ErrorCode::Unsupported,
                     "isa: {} needs {}, which this CPU does not have; choose auto", requested,
                     fmt::join(missing, ", "));
  return std::string(requested);
}
