//===- Ast.h - What a PTX file says, before decoding ---------- -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_AST_H
#define EASYQUANT_LIB_SIMT_AST_H

#include "Types.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace easyquant::simt::ast {

struct Operand {
  enum Kind : uint8_t {
    Name,    ///< Register, variable, label or function.
    Integer, ///< `bits`, two's complement.
    Float32,
    Float64,
    Vector,  ///< `{a, b}`: items.
    Address, ///< `[base + offset]`: items[0] is the base, further items follow (tensor maps).
    List,    ///< `(a, b)` of a call: items.
    Pair,    ///< `a|b`: items.
    Sink,    ///< `_`
  };
  Kind kind = Name;
  bool negated = false; ///< `!%p`
  uint32_t line = 0;
  std::string_view name;
  uint64_t bits = 0;
  int64_t offset = 0; ///< The offset in an address or in `symbol+offset`.
  std::vector<Operand> items;
};

/// One number or address of an initializer.
struct InitialValue {
  enum Kind : uint8_t { Integer, Float32, Float64, Symbol } kind = Integer;
  uint64_t bits = 0;
  std::string_view symbol = {};
  int64_t offset = 0;
  bool generic = false; ///< `generic(symbol)`
};

struct Variable {
  Space space;
  Type type;
  std::string_view name;
  uint32_t line = 0;
  uint32_t align = 0;  ///< 0: the type's own.
  uint32_t vector = 1; ///< `.v2`, `.v4`
  bool isArray = false;
  uint64_t elements = 1; ///< 0: `name[]`, whose size the launch says.
  uint32_t range = 0;    ///< `%r<10>`: ten registers %r0 ... %r9.
  bool isPointer = false;
  uint32_t pointeeAlign = 1; ///< `.ptr .align`
  bool isExtern = false;
  std::vector<InitialValue> initializer;

  uint64_t bytes() const { return elements * vector * sizeOf(type); }
  uint32_t alignment() const { return align ? align : sizeOf(type) * vector; }
};

struct Statement {
  enum Kind : uint8_t { Instruction, Label, Declaration, ScopeBegin, ScopeEnd, Targets };
  Kind kind;
  uint32_t line = 0;
  std::string_view name = {};  ///< Opcode with modifiers, or label.
  std::string_view guard = {}; ///< Empty: none.
  bool guardNegated = false;
  std::vector<Operand> operands = {}; ///< For Targets the labels of `.branchtargets`.
  uint32_t variable = 0;              ///< For a declaration the index into Function::variables.
};

struct Function {
  std::string_view name;
  uint32_t line = 0;
  bool isEntry = false;
  bool hasBody = false;
  std::vector<Variable> results, parameters, variables;
  std::vector<Statement> body;
  std::array<uint32_t, 3> maxThreads = {0, 0, 0};      ///< `.maxntid`
  std::array<uint32_t, 3> requiredThreads = {0, 0, 0}; ///< `.reqntid`
};

struct Module {
  std::string name;                    ///< The file's name, for messages.
  std::string text;                    ///< All views above point into it.
  std::vector<std::string_view> lines; ///< Without blanks around them.
  std::string_view version, target;
  std::vector<Variable> variables;
  std::vector<std::unique_ptr<Function>> functions;
  std::unordered_map<std::string_view, Function *> functionByName;

  std::string_view line(uint32_t number) const {
    return number && number <= lines.size() ? lines[number - 1] : std::string_view();
  }
};

} // namespace easyquant::simt::ast

#endif // EASYQUANT_LIB_SIMT_AST_H
