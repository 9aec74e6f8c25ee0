//===- Target.cpp - Instruction sets that kernels are generated for -------===//
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

} // namespace easyquant::cpu
