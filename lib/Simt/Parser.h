//===- Parser.h - PTX text to its syntax tree ----------------- -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_PARSER_H
#define EASYQUANT_LIB_SIMT_PARSER_H

#include "Ast.h"

#include "easyquant/Support/Result.h"

namespace easyquant::simt {

/// Reads PTX 8.x or 9.x. Opcodes and operands are taken as they are; the decoder judges them.
/// Errors name file and line and quote the line.
Result<std::unique_ptr<ast::Module>> parseModule(std::string text, std::string name);

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_PARSER_H
