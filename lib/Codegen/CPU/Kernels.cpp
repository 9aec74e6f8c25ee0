//===- Kernels.cpp - Instruction sets and formats of weights --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/CPU/Kernels.h"

namespace easyquant::cpu {

llvm::StringRef nameOf(Isa isa) {
  std::string_view name = instructionSetOf(isa).name;
  return {name.data(), name.size()};
}

Isa isaOf(llvm::StringRef name) {
  for (Isa isa : kIsas)
    if (nameOf(isa) == name)
      return isa;
  llvm_unreachable("checked names of instruction sets");
}

namespace {
/// What LLVM is told of an instruction set, and what kernels are to know of it.
struct Facts {
  llvm::StringLiteral triple, cpu, features;
  int64_t lanes, registers;
};
} // namespace

#define EASYQUANT_AVX2 "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,+movbe"

static constexpr Facts kFacts[] = {
    {"x86_64-unknown-linux-gnu", "x86-64-v3", EASYQUANT_AVX2, 8, 16},
    {"x86_64-unknown-linux-gnu", "x86-64-v3",
     EASYQUANT_AVX2 ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,+avx512vnni", 16, 32},
    // 32 registers of 4 lanes, taken by twos: as many bits as AVX2 has.
    {"aarch64-unknown-linux-gnu", "generic", "+neon,+lse,+dotprod", 8, 16},
    {"aarch64-unknown-linux-gnu", "generic", "+neon,+lse,+dotprod,+i8mm", 8, 16},
};
static_assert(std::size(kFacts) == kIsas.size());

static const Facts &factsOf(Isa isa) { return kFacts[static_cast<size_t>(isa)]; }

llvm::StringRef Target::triple() const { return factsOf(isa).triple; }
llvm::StringRef Target::cpu() const { return factsOf(isa).cpu; }
std::string Target::features() const {
  return factsOf(emulateDot ? Isa::AVX2 : isa).features.str();
}
int64_t Target::lanes() const { return factsOf(isa).lanes; }
int64_t Target::registers() const { return factsOf(isa).registers; }

std::string nameOf(WeightFormat format) {
  return (format == WeightFormat::F32 ? "f" : "i") + std::to_string(bitsOf(format));
}

std::string nameOf(const WeightNumbers &numbers) {
  std::string name;
  if (numbers.codes != CodeFormat::Integer)
    name = std::string("_") + numerics::toString(numbers.codes);
  if (numbers.scales != ScaleFormat::F32)
    name += std::string("_s") + numerics::toString(numbers.scales);
  if (numbers.outer)
    name += "_outer";
  if (numbers.minima)
    name += "_min";
  return name;
}

std::array<int64_t, 4> packedShape(WeightFormat format, int64_t n, int64_t k) {
  int64_t panels = panelCount(n), padded = paddedColumns(k), bits = bitsOf(format);
  if (format == WeightFormat::I8)
    return {panels, padded / 4, kPanelRows, 4};
  return {panels, padded / 8, kPanelRows * bits / 4, 4};
}

} // namespace easyquant::cpu
