//===- Lexer.h - Tokens of PTX text --------------------------- -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_LEXER_H
#define EASYQUANT_LIB_SIMT_LEXER_H

#include "easyquant/Support/Result.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace easyquant::simt {

struct Token {
  enum Kind : uint8_t {
    Identifier,  ///< Also opcodes with their modifiers, registers and directives: `ld.global.u32`.
    Integer,     ///< `bits` holds the value.
    Float32,     ///< `0fXXXXXXXX`; `bits` holds the binary32.
    Float64,     ///< `0dX...` or a decimal fraction; `bits` holds the binary64.
    String,      ///< Without its quotes.
    Punctuation, ///< One character.
    End,
  };
  Kind kind;
  std::string_view text;
  uint32_t line;
  uint64_t bits = 0;

  bool is(char c) const { return kind == Punctuation && text[0] == c; }
  bool is(std::string_view word) const { return kind == Identifier && text == word; }
};

/// Splits `text`; comments are dropped. `name` is named in errors.
Result<std::vector<Token>> tokenize(std::string_view text, std::string_view name);

/// Line number `line` (from 1) of `text` without blanks around it, for messages.
std::string_view lineOf(std::string_view text, uint32_t line);

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_LEXER_H
