//===- KernelDecoder.h - Functions and variables of a kernel ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_KERNELDECODER_H
#define EASYQUANT_LIB_SIMT_KERNELDECODER_H

#include "Decoder.h"

namespace easyquant::simt {

const OpcodeTable &opcodeTable();

class KernelDecoder {
public:
  KernelDecoder(const ModuleImage &image, DecodedKernel &decoded, uint32_t dynamicBase)
      : image(image), decoded(decoded), dynamicBase(dynamicBase) {}

  /// Throws Decoder::DecodeError.
  void decode(const ast::Function &kernel);

  FunctionCode *functionCode(const ast::Function &function);
  uint32_t functionIndex(const ast::Function &function);
  /// Address of a shared variable; dynamic ones lie behind all others.
  uint32_t sharedAddress(const ast::Variable &variable);

  const ModuleImage &image;
  DecodedKernel &decoded;
  std::map<std::pair<uint64_t, unsigned>, Slot> constants;

private:
  const uint32_t dynamicBase;
  std::map<const ast::Variable *, uint32_t> sharedOffsets;
  std::vector<const ast::Function *> worklist;
};

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_KERNELDECODER_H
