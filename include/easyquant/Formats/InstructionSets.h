//===- InstructionSets.h - Processors and their code ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The instruction sets that an artifact's programs may be compiled for, by name, and in which file
// the code of a processor is. What LLVM is told of an instruction set is in
// lib/Codegen/CPU/Kernels.cpp, and how the runtime looks for features in HostFeatures*.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_INSTRUCTIONSETS_H
#define EASYQUANT_FORMATS_INSTRUCTIONSETS_H

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::formats {

struct Processor {
  std::string_view name;     ///< as `uname -m` prints it, and of `--target`
  std::string_view target;   ///< in manifests
  const char *programFile;   ///< of an artifact
  std::string_view plainest; ///< CPU that runs one of its instruction sets, in messages
};
inline constexpr Processor kProcessors[] = {
    {"x86_64", "cpu", "model.so", "x86-64 CPU with AVX2, FMA and F16C"},
    {"aarch64", "aarch64", "model.aarch64.so",
     "Armv8.2 CPU with the dot product, such as a Cortex-A76"}};

/// Features of CPUs as messages name them.
inline constexpr std::string_view kAvx2Features[] = {"AVX2", "FMA", "F16C"};
inline constexpr std::string_view kAvx512VnniFeatures[] = {
    "AVX2", "FMA", "F16C", "AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL", "AVX512VNNI"};
inline constexpr std::string_view kNeonDotFeatures[] = {"LSE", "DotProd"};
inline constexpr std::string_view kNeonI8mmFeatures[] = {"LSE", "DotProd", "I8MM"};

struct InstructionSet {
  std::string_view name; ///< in manifests; the suffix of symbols is `symbol()`
  const Processor *processor;
  std::span<const std::string_view> features; ///< that a CPU needs

  /// The name as a part of C identifiers.
  std::string symbol() const;
};
/// The plainest of each processor first.
inline constexpr std::array kInstructionSets = {
    InstructionSet{"avx2", &kProcessors[0], kAvx2Features},
    InstructionSet{"avx512vnni", &kProcessors[0], kAvx512VnniFeatures},
    InstructionSet{"neon-dot", &kProcessors[1], kNeonDotFeatures},
    InstructionSet{"neon-i8mm", &kProcessors[1], kNeonI8mmFeatures}};

/// The processor that this is compiled for.
const Processor &hostProcessor();
/// null where there is none of this name.
const InstructionSet *findInstructionSet(std::string_view name);
/// By name, of a processor, the plainest first.
std::vector<std::string> instructionSetsOf(const Processor &processor);
/// The file of an instruction set's code; an unknown one has that of x86-64.
const char *programFileOf(std::string_view instructionSet);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_INSTRUCTIONSETS_H
