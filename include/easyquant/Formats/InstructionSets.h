//===- InstructionSets.h - Processors and their code ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The instruction sets that an artifact's programs may be compiled for, by name, and in which file
// the code of a processor is. What an instruction set consists of, the compiler says in
// Codegen/CPU/Kernels.cpp and the runtime in CpuFeatures.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_INSTRUCTIONSETS_H
#define EASYQUANT_FORMATS_INSTRUCTIONSETS_H

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::formats {

struct Processor {
  std::string_view name;   ///< as `uname -m` prints it
  std::string_view target; ///< what compiles for it: of `--target`, and in manifests
  const char *programFile; ///< of an artifact
};
inline constexpr Processor kProcessors[] = {{"x86_64", "cpu", "model.so"},
                                            {"aarch64", "aarch64", "model.aarch64.so"}};

struct InstructionSet {
  std::string_view name; ///< in manifests; the suffix of symbols is `symbol()`
  const Processor *processor;

  /// The name as a part of C identifiers.
  std::string symbol() const;
};
/// Of each processor the plainest first.
inline constexpr std::array kInstructionSets = {InstructionSet{"avx2", &kProcessors[0]},
                                                InstructionSet{"avx512vnni", &kProcessors[0]},
                                                InstructionSet{"neon-dot", &kProcessors[1]}};

/// The processor that this is compiled for.
const Processor &hostProcessor();
/// null where there is none of this name.
const InstructionSet *findInstructionSet(std::string_view name);
/// By name, of a processor, the plainest first.
std::vector<std::string> instructionSetsOf(const Processor &processor);
/// Where the code of an instruction set is; of one that is not known, where that of x86-64 is.
const char *programFileOf(std::string_view instructionSet);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_INSTRUCTIONSETS_H
