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

/// "avx2 or avx512vnni"; behind `first`, if any: "auto, avx2 or avx512vnni".
static std::string choices(const Processor &processor, std::string_view first = "") {
  std::vector<std::string> names = formats::instructionSetsOf(processor);
  std::string last = std::move(names.back());
  names.pop_back();
  if (!first.empty())
    names.emplace(names.begin(), first);
  return names.empty() ? last : fmt::format("{} or {}", fmt::join(names, ", "), last);
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
                     path, reasons, processor.plainest);
  if (std::string others = otherProcessors(entries); !others.empty())
    return makeError(ErrorCode::Unsupported,
                     "{}: has code for {} ({}), and this machine is {}; compile the model with "
                     "`easyquant compile … --target {}`",
                     path, others, fmt::join(compiled, ", "), processor.name, processor.name);
  return makeError(ErrorCode::Unsupported, "{}: program.entries: found {}, expected {}", path,
                   fmt::join(compiled, ", "), choices(processor));
}

bool easyquant::runtime::hasCodeFor(const Processor &processor,
                                    const std::map<std::string, std::string> &entries) {
  return std::ranges::any_of(entries, [&](const auto &entry) {
    const InstructionSet *set = formats::findInstructionSet(entry.first);
    return set && set->processor == &processor;
  });
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
    return makeError(ErrorCode::InvalidArgument, "isa: found \"{}\", expected {}", requested,
                     choices(*features.processor, "auto"));
  // Another name would not help where all code is for other processors.
  if (!hasCodeFor(*features.processor, entries))
    return selectBest(entries, features, path, compiled);
  if (set->processor != features.processor)
    return makeError(ErrorCode::Unsupported,
                     "isa: {} is code for {}, and this machine is {}; choose auto", requested,
                     set->processor->name, features.processor->name);
  if (!entries.count(std::string(requested))) {
    std::erase_if(compiled, [&](std::string_view isa) {
      const InstructionSet *other = formats::findInstructionSet(isa);
      return other && other->processor != features.processor;
    });
    return makeError(ErrorCode::Unsupported,
                     "{}: not compiled for {} but for {}; choose one of those, or recompile", path,
                     requested, fmt::join(compiled, ", "));
  }
  std::vector<std::string_view> missing = missingFeatures(requested, features);
  if (!missing.empty())
    return makeError(ErrorCode::Unsupported,
                     "isa: {} needs {}, which this CPU does not have; choose auto", requested,
                     fmt::join(missing, ", "));
  return std::string(requested);
}
