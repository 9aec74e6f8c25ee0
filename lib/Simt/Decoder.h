//===- Decoder.h - Statements of PTX to decoded instructions ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_DECODER_H
#define EASYQUANT_LIB_SIMT_DECODER_H

#include "Memory.h"

#include <fmt/core.h>
#include <initializer_list>
#include <unordered_map>

namespace easyquant::simt {

/// Decodes a kernel and all that it calls. Errors quote the line that is not understood.
Result<std::unique_ptr<DecodedKernel>> decodeKernel(const ModuleImage &image,
                                                    std::string_view kernel);

class Decoder;
using DecodeFunction = void (*)(Decoder &);
using OpcodeTable = std::unordered_map<std::string_view, DecodeFunction>;

// One function a family of instructions; each is one file of handlers.
void addIntegerOps(OpcodeTable &);
void addBitOps(OpcodeTable &);
void addFloatOps(OpcodeTable &);
void addCompareOps(OpcodeTable &);
void addConvertOps(OpcodeTable &);
void addMoveOps(OpcodeTable &);
void addLoadStoreOps(OpcodeTable &);
void addAtomicOps(OpcodeTable &);
void addWarpOps(OpcodeTable &);
void addControlOps(OpcodeTable &);
void addBarrierOps(OpcodeTable &);
void addMatrixOps(OpcodeTable &);
void addWmmaOps(OpcodeTable &);
void addMatrixMoveOps(OpcodeTable &);
void addAsyncOps(OpcodeTable &);
void addMBarrierOps(OpcodeTable &);

// The integer half of opcodes that integers and floats share. FloatOps.cpp owns the opcodes.
void decodeIntegerAdd(Decoder &); ///< add, sub
void decodeIntegerMul(Decoder &);
void decodeIntegerMad(Decoder &);
void decodeIntegerDiv(Decoder &);
void decodeIntegerMinMax(Decoder &);
void decodeIntegerUnary(Decoder &); ///< abs, neg

// The half-precision side of the same: f16, f16x2, bf16, bf16x2.
void decodeHalfBinary(Decoder &); ///< add, sub, mul, min, max
void decodeHalfFma(Decoder &);
void decodeMixed(Decoder &);     ///< add, sub, fma of halves in f32
void decodeHalfUnary(Decoder &); ///< abs, neg, ex2, tanh

/// What the statement being decoded says, and the instruction that it becomes. A decode function
/// takes modifiers in their order with accept() and type(), operands with read() and write(), sets
/// `i.run`, and leaves: what it did not take is an error.
class Decoder {
public:
  // -- modifiers
  bool accept(std::string_view modifier);
  /// Index of the first of `modifiers` that comes next; -1: none of them.
  int acceptAny(std::initializer_list<std::string_view> modifiers);
  /// All of `modifiers` come next, or it is an error.
  template <typename... Modifiers> void expect(Modifiers... modifiers) {
    if (!(accept(modifiers) && ...))
      unknown();
  }
  /// One of `modifiers` comes next, whose index is returned.
  int expectAny(std::initializer_list<std::string_view> modifiers);
  std::optional<Type> acceptType();
  Type type();
  std::string_view peekModifier() const { return next < parts.size() ? parts[next] : ""; }
  std::string_view takeModifier();
  /// The last modifier as a type, by which families share opcodes; Pred if it is none.
  Type lastType() const { return parseType(parts.back()).value_or(Type::Pred); }
  /// Skips cache operators, eviction priorities, L2 hints: they have no meaning here.
  void skipCacheHints();
  /// .volatile, .relaxed.gpu, .acquire.cta, ...: bits of Instruction::flags, see Execution.h.
  uint32_t acceptSemantics();
  /// .global, .shared::cta, ...; Generic if none comes.
  Space acceptSpace();

  // -- operands
  size_t operands() const { return statement->operands.size(); }
  /// The next operand; an error if there is none.
  const ast::Operand &operand();
  bool hasOperand() const { return nextOperand < operands(); }
  Slot read(Type type) { return read(operand(), type); }
  Slot read(const ast::Operand &, Type);
  Slot write(Type type) { return write(operand(), type); }
  Slot write(const ast::Operand &, Type);
  /// A register of at least the size of `type`, whose size in bytes is returned; or an immediate.
  Slot readWide(const ast::Operand &, Type, unsigned &bytes);
  Slot writeWide(const ast::Operand &, Type, unsigned &bytes);
  /// `to` or, where two predicates or a register and a predicate may stand, `to|predicate`, which
  /// `predicate` is set for.
  Slot writePair(Type type, Slot &predicate);
  /// A predicate source; sets `negated`.
  Slot readPredicate(const ast::Operand &, bool &negated);
  /// dst and as many of a, b, c and d as `sources` has types.
  void operate(OpClass opClass, Type type, std::initializer_list<Type> sources);
  /// The same where all are of one type.
  void arithmetic(Type type, OpClass opClass, unsigned sources);
  /// Operands of a vector in DecodedKernel::slots; returns the index of the first.
  uint32_t readVector(const ast::Operand &operand, Type type, unsigned count) {
    return vectorOf(operand, type, count, &Decoder::read);
  }
  uint32_t writeVector(const ast::Operand &operand, Type type, unsigned count) {
    return vectorOf(operand, type, count, &Decoder::write);
  }
  uint64_t immediate(const ast::Operand &);
  uint64_t immediate() { return immediate(operand()); }
  /// `[base + offset]`: sets a, offset, wideAddress, space.
  void address(const ast::Operand &, Space space);
  /// The same for a second address (cp.async): sets b, offset2, wideAddress2.
  void secondAddress(const ast::Operand &, Space space);
  bool isRegister(const ast::Operand &) const;
  /// A constant slot of any value.
  Slot constant(uint64_t bits, unsigned bytes);
  /// A register that only the simulator sees.
  Slot scratch(unsigned bytes);

  // -- symbols
  struct Symbol {
    enum Kind { Register, Address, FrameParameter, KernelParameter, Function } kind;
    Type type = Type::B32;
    Slot slot = kNoSlot;
    uint32_t index = 0; ///< The register's index.
    Space space = Space::Generic;
    uint64_t address = 0; ///< The address in its space; for a parameter its offset.
    uint32_t bytes = 0;
    const ast::Function *function = nullptr;
  };
  std::optional<Symbol> find(std::string_view name);
  FunctionCode *functionCode(const ast::Function &);
  /// The label becomes i.offset once it is known.
  void branchTarget(std::string_view label);
  const std::vector<ast::Operand> *branchTargets(std::string_view label) const;
  /// A fix-up of entry `entry` of branch table `table`.
  void tableTarget(uint32_t table, uint32_t entry, std::string_view label);
  ParameterPlace place(const ast::Operand &, bool isResult);

  /// Appends `i` now, so that the statement can become several instructions.
  void emit();
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args &&...args) const {
    throw DecodeError{statement ? statement->line : 0,
                      fmt::format(format, std::forward<Args>(args)...)};
  }
  [[noreturn]] void unknown() const { fail("the simulator does not know this instruction"); }

  struct DecodeError {
    uint32_t line;
    std::string message;
  };

  Instruction i;
  std::string_view opcode; ///< Without modifiers.
  const ast::Statement *statement = nullptr;
  DecodedKernel &decoded;

private:
  friend class KernelDecoder;
  struct Fixup {
    uint32_t pc; ///< The place of the instruction, or of the table.
    uint32_t entry = ~0u;
    std::string_view label;
    std::vector<uint32_t> scopes;
    uint32_t line;
  };
  struct Scope {
    uint32_t id;
    std::unordered_map<std::string_view, Symbol> symbols;
    struct Range {
      Type type;
      uint32_t count, firstIndex;
      Slot firstSlot;
    };
    std::unordered_map<std::string_view, Range> ranges;
  };

  Decoder(DecodedKernel &decoded, class KernelDecoder &owner, FunctionCode &function)
      : decoded(decoded), owner(owner), function(function) {}
  void decodeFunction();
  void declare(const ast::Variable &variable);
  void decodeStatement(const ast::Statement &statement, const OpcodeTable &table);
  Slot allocate(unsigned bytes, uint32_t count);
  /// The scopes around the statement, from the outermost on.
  std::vector<uint32_t> scopeChain() const;
  /// Where `variable` begins in a thread's memory, of which `used` bytes are taken before and
  /// after.
  static uint32_t reserve(uint32_t &used, const ast::Variable &variable);
  Slot special(std::string_view name, unsigned bytes);
  Slot special(SpecialValue value, uint32_t index, unsigned bytes);
  /// The address of a local variable, whose offset lies in the part of the function.
  Slot localAddress(uint64_t offset, unsigned bytes);
  Slot resolveAddress(const ast::Operand &, Space &space, int64_t &offset, bool &wide);
  /// The place of a register of at least the size of `type`, which `indices` gets.
  Slot registerSlot(const ast::Operand &, const Symbol &, Type, unsigned &bytes,
                    std::vector<uint32_t> &indices) const;
  void checkSize(const ast::Operand &, Type, unsigned bytes, bool isEnough) const;
  uint32_t vectorOf(const ast::Operand &, Type, unsigned count,
                    Slot (Decoder::*slotOf)(const ast::Operand &, Type));
  RegisterList list(std::vector<uint32_t> &indices);

  class KernelDecoder &owner;
  FunctionCode &function;
  std::vector<Scope> scopes;
  uint32_t nextScope = 0;
  std::map<std::pair<uint32_t, std::string_view>, uint32_t> labels; ///< (scope, name) -> pc
  std::map<std::string_view, const ast::Statement *> targetLists;
  std::vector<Fixup> fixups;
  std::vector<std::string_view> parts;
  size_t next = 0, nextOperand = 0;
  std::vector<uint32_t> uses, addressUses, defines;
};

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_DECODER_H
