//===- ProgramDecoder.h - Functions and variables of a kernel being decoded - -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_PROGRAMDECODER_H
#define EASYQUANT_LIB_SIMT_PROGRAMDECODER_H

#include "Decoder.h"

namespace easyquant::simt {

const OpcodeTable &opcodeTable();

class ProgramDecoder {
public:
  ProgramDecoder(const ModuleImage &image, Program &program, uint32_t dynamicBase)
      : image(image), program(program), dynamicBase(dynamicBase) {}

  /// Throws Decoder::DecodeError.
  void decode(const ast::Function &kernel);

  FunctionCode *functionCode(const ast::Function &function);
  uint32_t functionIndex(const ast::Function &function);
  /// Address of a shared variable; dynamic ones lie behind all others.
  uint32_t sharedAddress(const ast::Variable &variable);

  const ModuleImage &image;
  Program &program;
  std::map<std::pair<uint64_t, unsigned>, Slot> constants;

private:
  const uint32_t dynamicBase;
  std::map<const ast::Variable *, uint32_t> sharedOffsets;
  std::vector<const ast::Function *> worklist;
};

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_PROGRAMDECODER_H
