//===- Kernels.cpp - Instruction sets and formats of weights --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/CPU/Kernels.h"

namespace easyquant::cpu {

llvm::StringRef nameOf(Isa isa) {
  switch (isa) {
  case Isa::AVX2:
    return "avx2";
  case Isa::AVX512VNNI:
    return "avx512vnni";
  }
  llvm_unreachable("every instruction set is named");
}

Isa isaOf(llvm::StringRef name) {
  for (Isa isa : kIsas)
    if (nameOf(isa) == name)
      return isa;
  llvm_unreachable("checked names of instruction sets");
}

std::string Target::features() const {
  std::string features = "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,+movbe";
  if (isa == Isa::AVX512VNNI && !emulateDot)
    features += ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,+avx512vnni";
  return features;
}

int64_t Target::lanes() const { return isa == Isa::AVX2 ? 8 : 16; }

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
