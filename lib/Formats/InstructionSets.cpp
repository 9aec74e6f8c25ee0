//===- InstructionSets.cpp - Processors and their code --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/InstructionSets.h"

#include <algorithm>

namespace easyquant::formats {

std::string InstructionSet::symbol() const {
  std::string symbol(name);
  std::ranges::replace(symbol, '-', '_');
  return symbol;
}

const Processor &hostProcessor() {
#if defined(__x86_64__)
  return kProcessors[0];
#elif defined(__aarch64__)
  return kProcessors[1];
#else
#error "CMakeLists.txt refuses other processors"
#endif
}

const InstructionSet *findInstructionSet(std::string_view name) {
  const auto *found = std::ranges::find(kInstructionSets, name, &InstructionSet::name);
  return found == kInstructionSets.end() ? nullptr : found;
}

std::vector<std::string> instructionSetsOf(const Processor &processor) {
  std::vector<std::string> names;
  for (const InstructionSet &set : kInstructionSets)
    if (set.processor == &processor)
      names.emplace_back(set.name);
  return names;
}

const char *programFileOf(std::string_view instructionSet) {
  const InstructionSet *set = findInstructionSet(instructionSet);
  return (set ? *set->processor : kProcessors[0]).programFile;
}

} // namespace easyquant::formats
