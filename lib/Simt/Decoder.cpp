//===- Decoder.cpp - Statements of PTX to decoded instructions ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelDecoder.h"

#include <algorithm>
#include <bit>

using namespace easyquant;
using namespace easyquant::simt;

// ---- modifiers ---------------------------------------------------------------------------------

bool Decoder::accept(std::string_view modifier) {
  if (peekModifier() != modifier)
    return false;
  ++next;
  return true;
}

int Decoder::acceptAny(std::initializer_list<std::string_view> modifiers) {
  int index = 0;
  for (std::string_view modifier : modifiers) {
    if (accept(modifier))
      return index;
    ++index;
  }
  return -1;
}

int Decoder::expectAny(std::initializer_list<std::string_view> modifiers) {
  int index = acceptAny(modifiers);
  if (index < 0)
    unknown();
  return index;
}

std::optional<Type> Decoder::acceptType() {
  auto type = parseType(peekModifier());
  if (type)
    ++next;
  return type;
}

Type Decoder::type() {
  auto found = acceptType();
  if (!found)
    unknown();
  return *found;
}

std::string_view Decoder::takeModifier() {
  if (next >= parts.size())
    unknown();
  return parts[next++];
}

void Decoder::skipCacheHints() {
  while (next < parts.size()) {
    std::string_view part = parts[next];
    bool hint = part.starts_with("L1::") || part.starts_with("L2::") || part == "ca" ||
                part == "cg" || part == "cs" || part == "lu" || part == "cv" || part == "wb" ||
                part == "wt";
    if (!hint)
      return;
    ++next;
  }
}

// ---- operands ----------------------------------------------------------------------------------

const ast::Operand &Decoder::operand() {
  if (!hasOperand())
    fail("an operand is missing");
  return statement->operands[nextOperand++];
}

bool Decoder::isRegister(const ast::Operand &operand) const {
  auto symbol = const_cast<Decoder *>(this)->find(operand.name);
  return operand.kind == ast::Operand::Name && symbol && symbol->kind == Symbol::Register;
}

Slot Decoder::constant(uint64_t bits, unsigned bytes) {
  if (bytes < 8)
    bits &= (1ull << 8 * bytes) - 1;
  auto [known, isNew] = owner.constants.try_emplace({bits, bytes}, 0);
  if (isNew) {
    known->second = decoded.constants.size() | kConstantSlot;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      auto *data = reinterpret_cast<const std::byte *>(&bits);
      decoded.constants.insert(decoded.constants.end(), data, data + std::min(bytes, 8u));
    }
  }
  return known->second;
}

Slot Decoder::scratch(unsigned bytes) { return allocate(bytes, 1); }

uint64_t Decoder::immediate(const ast::Operand &operand) {
  if (operand.kind == ast::Operand::Name && operand.name == "WARP_SZ")
    return kLanes;
  if (operand.kind != ast::Operand::Integer)
    fail("an integer constant is expected where '{}' stands", operand.name);
  return operand.bits;
}

/// The bits of an immediate as an operand of `type`.
static std::optional<uint64_t> immediateBits(const ast::Operand &operand, Type type) {
  using Kind = ast::Operand::Kind;
  switch (operand.kind) {
  case Kind::Integer:
    if (type == Type::F32)
      return std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(operand.bits)));
    if (type == Type::F64)
      return std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(operand.bits)));
    return operand.bits;
  case Kind::Float32:
    if (type == Type::F64)
      return std::bit_cast<uint64_t>(
          static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(operand.bits))));
    return operand.bits;
  case Kind::Float64:
    if (sizeOf(type) == 4)
      return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(operand.bits)));
    return operand.bits;
  default:
    return std::nullopt;
  }
}

Slot Decoder::read(const ast::Operand &operand, Type type) {
  unsigned bytes = 0;
  Slot slot = readWide(operand, type, bytes);
  checkSize(operand, type, bytes, bytes == sizeOf(type));
  return slot;
}

void Decoder::checkSize(const ast::Operand &operand, Type type, unsigned bytes,
                        bool isEnough) const {
  if (!isEnough)
    fail("'{}' has {} bits where {} are needed", operand.name, 8 * bytes, 8 * sizeOf(type));
}

Slot Decoder::registerSlot(const ast::Operand &operand, const Symbol &symbol, Type type,
                           unsigned &bytes, std::vector<uint32_t> &indices) const {
  if ((symbol.type == Type::Pred) != (type == Type::Pred))
    fail("'{}' is {} predicate", operand.name, type == Type::Pred ? "no" : "a");
  bytes = sizeOf(symbol.type);
  checkSize(operand, type, bytes, bytes >= sizeOf(type));
  indices.push_back(symbol.index);
  return symbol.slot;
}

Slot Decoder::readWide(const ast::Operand &operand, Type type, unsigned &bytes) {
  bytes = sizeOf(type);
  if (operand.negated)
    fail("'!' stands before an operand that is no predicate");
  if (auto bits = immediateBits(operand, type))
    return constant(*bits, bytes);
  if (operand.kind != ast::Operand::Name)
    fail("a register or a constant is expected as operand {}", nextOperand);
  if (operand.name == "WARP_SZ")
    return constant(kLanes, bytes);
  if (operand.name[0] == '%')
    if (Slot slot = special(operand.name, bytes); slot != kNoSlot)
      return slot;
  auto symbol = find(operand.name);
  if (!symbol)
    fail("'{}' is not declared", operand.name);
  switch (symbol->kind) {
  case Symbol::Register:
    if (operand.offset)
      fail("'{}' is a register, to which nothing can be added here", operand.name);
    return registerSlot(operand, *symbol, type, bytes, uses);
  case Symbol::Function:
    functionCode(*symbol->function);
    return constant(kFunctionWindow + owner.functionIndex(*symbol->function), bytes);
  case Symbol::FrameParameter:
    fail("the address of '{}' is taken; only kernels' parameters have one", operand.name);
  default:
    if (symbol->space == Space::Local)
      return localAddress(symbol->address + operand.offset, bytes);
    return constant(symbol->address + operand.offset, bytes);
  }
}

Slot Decoder::write(const ast::Operand &operand, Type type) {
  unsigned bytes = 0;
  Slot slot = writeWide(operand, type, bytes);
  checkSize(operand, type, bytes, bytes == sizeOf(type));
  return slot;
}

Slot Decoder::writeWide(const ast::Operand &operand, Type type, unsigned &bytes) {
  bytes = sizeOf(type);
  if (operand.kind == ast::Operand::Sink)
    return scratch(bytes);
  auto symbol = operand.kind == ast::Operand::Name ? find(operand.name) : std::nullopt;
  if (!symbol || symbol->kind != Symbol::Register)
    fail("'{}' is no register that could be written", operand.name);
  return registerSlot(operand, *symbol, type, bytes, defines);
}

Slot Decoder::writePair(Type type, Slot &predicate) {
  const ast::Operand &to = operand();
  if (to.kind != ast::Operand::Pair)
    return write(to, type);
  Slot slot = write(to.items[0], type);
  predicate = write(to.items[1], Type::Pred);
  return slot;
}

Slot Decoder::readPredicate(const ast::Operand &operand, bool &negated) {
  negated = operand.negated;
  if (operand.kind == ast::Operand::Integer)
    return constant(operand.bits ? ~0u : 0u, 4);
  ast::Operand plain = operand;
  plain.negated = false;
  return read(plain, Type::Pred);
}

void Decoder::operate(OpClass opClass, Type type, std::initializer_list<Type> sources) {
  i.type = type;
  i.opClass = opClass;
  i.dst = write(type);
  Slot *place[] = {&i.a, &i.b, &i.c, &i.d}, **next = place;
  for (Type source : sources)
    **next++ = read(source);
}

void Decoder::arithmetic(Type type, OpClass opClass, unsigned sources) {
  operate(opClass, type, {});
  Slot *places[] = {&i.a, &i.b, &i.c};
  for (unsigned k = 0; k < sources; ++k)
    *places[k] = read(type);
}

uint32_t Decoder::vectorOf(const ast::Operand &operand, Type type, unsigned count,
                           Slot (Decoder::*slotOf)(const ast::Operand &, Type)) {
  auto first = static_cast<uint32_t>(decoded.slots.size());
  bool isVector = operand.kind == ast::Operand::Vector;
  if ((isVector ? operand.items.size() : 1) != count)
    fail("a vector of {} is needed", count);
  for (unsigned k = 0; k < count; ++k)
    decoded.slots.push_back((this->*slotOf)(isVector ? operand.items[k] : operand, type));
  return first;
}

Slot Decoder::resolveAddress(const ast::Operand &operand, Space &space, int64_t &offset,
                             bool &wide) {
  if (operand.kind != ast::Operand::Address || operand.items.size() != 1)
    fail("an address in [ ] is expected as operand {}", nextOperand);
  const ast::Operand &base = operand.items[0];
  offset = operand.offset;
  wide = true;
  if (base.kind == ast::Operand::Integer) {
    offset = static_cast<int64_t>(base.bits);
    return kNoSlot;
  }
  auto symbol = base.kind == ast::Operand::Name ? find(base.name) : std::nullopt;
  if (!symbol)
    fail("'{}' is not declared", base.name);
  if (symbol->kind == Symbol::Register) {
    if (sizeOf(symbol->type) != 4 && sizeOf(symbol->type) != 8)
      fail("'{}' has no 32 or 64 bits, so it holds no address", base.name);
    wide = sizeOf(symbol->type) == 8;
    addressUses.push_back(symbol->index);
    return symbol->slot;
  }
  if (symbol->kind != Symbol::Address && symbol->kind != Symbol::KernelParameter)
    fail("'{}' has no address in this space", base.name);
  if (symbol->space == Space::Local && (space == Space::Local || space == Space::Generic)) {
    offset += space == Space::Generic ? kLocalWindow : 0;
    return localAddress(symbol->address, 8);
  }
  bool globalLike = symbol->space == Space::Global || symbol->space == Space::Const;
  if (space == Space::Generic)
    offset += windowOf(symbol->space);
  else if (space != symbol->space &&
           !(globalLike && (space == Space::Global || space == Space::Const)))
    fail("'{}' lies in another space", base.name);
  offset += static_cast<int64_t>(symbol->address);
  return kNoSlot;
}

void Decoder::address(const ast::Operand &operand, Space space) {
  i.a = resolveAddress(operand, space, i.offset, i.wideAddress);
  i.space = space;
}

void Decoder::secondAddress(const ast::Operand &operand, Space space) {
  i.b = resolveAddress(operand, space, i.offset2, i.wideAddress2);
}

// ---- branches ----------------------------------------------------------------------------------

std::vector<uint32_t> Decoder::scopeChain() const {
  std::vector<uint32_t> chain;
  chain.reserve(scopes.size());
  for (const Scope &scope : scopes)
    chain.push_back(scope.id);
  return chain;
}

void Decoder::branchTarget(std::string_view label) {
  fixups.push_back(
      {static_cast<uint32_t>(decoded.code.size()), ~0u, label, scopeChain(), statement->line});
}

void Decoder::tableTarget(uint32_t table, uint32_t entry, std::string_view label) {
  fixups.push_back({table, entry, label, scopeChain(), statement->line});
}

const std::vector<ast::Operand> *Decoder::branchTargets(std::string_view label) const {
  auto found = targetLists.find(label);
  return found == targetLists.end() ? nullptr : &found->second->operands;
}

void Decoder::emit() {
  i.uses = list(uses);
  i.addressUses = list(addressUses);
  i.defines = list(defines);
  i.line = statement->line;
  decoded.code.push_back(i);
}

RegisterList Decoder::list(std::vector<uint32_t> &indices) {
  RegisterList result{static_cast<uint32_t>(decoded.registerLists.size()),
                      static_cast<uint32_t>(indices.size())};
  decoded.registerLists.insert(decoded.registerLists.end(), indices.begin(), indices.end());
  indices.clear();
  return result;
}

// ---- statements --------------------------------------------------------------------------------

void Decoder::decodeStatement(const ast::Statement &current, const OpcodeTable &table) {
  statement = &current;
  parts.clear();
  for (std::string_view rest = current.name; !rest.empty();) {
    size_t dot = rest.find('.');
    parts.push_back(rest.substr(0, dot));
    rest.remove_prefix(dot == std::string_view::npos ? rest.size() : dot + 1);
  }
  opcode = parts[0];
  next = 1;
  nextOperand = 0;
  i = Instruction();
  auto found = table.find(opcode);
  if (found == table.end())
    unknown();
  Slot guard = kNoSlot;
  uint32_t guardIndex = 0;
  if (!current.guard.empty()) {
    auto symbol = find(current.guard);
    if (!symbol || symbol->kind != Symbol::Register || symbol->type != Type::Pred)
      fail("'{}' is no predicate", current.guard);
    guard = symbol->slot;
    guardIndex = symbol->index;
  }
  size_t first = decoded.code.size();
  found->second(*this);
  if (next != parts.size())
    fail("the simulator does not know '.{}' of this instruction", parts[next]);
  if (hasOperand())
    fail("this instruction has too many operands");
  if (i.run)
    emit();
  for (size_t pc = first; pc < decoded.code.size(); ++pc) {
    Instruction &made = decoded.code[pc];
    if (guard == kNoSlot)
      continue;
    made.guard = guard;
    made.guardFlip = current.guardNegated ? kAllLanes : 0;
    std::vector<uint32_t> indices(decoded.registerLists.begin() + made.addressUses.begin,
                                  decoded.registerLists.begin() + made.addressUses.begin +
                                      made.addressUses.count);
    indices.push_back(guardIndex); // the last: Checker::before knows
    made.addressUses = list(indices);
  }
}

void Decoder::decodeFunction() {
  const ast::Function &source = *function.source;
  function.entry = decoded.code.size();
  // Labels belong to their scope; inline assembly repeats them.
  scopes.clear();
  scopes.push_back({nextScope++, {}, {}});
  auto parameters = [&](const std::vector<ast::Variable> &variables,
                        std::vector<ParameterPlace> &places) {
    for (const ast::Variable &variable : variables) {
      if (source.isEntry) {
        uint32_t offset = reserve(decoded.parameterBytes, variable);
        decoded.parameters.push_back({offset, static_cast<uint32_t>(variable.bytes())});
        scopes.back().symbols[variable.name] = {.kind = Symbol::KernelParameter,
                                                .type = variable.type,
                                                .space = Space::Param,
                                                .address = offset,
                                                .bytes = static_cast<uint32_t>(variable.bytes())};
      } else {
        declare(variable);
        ast::Operand name;
        name.name = variable.name;
        places.push_back(place(name, false));
      }
    }
  };
  parameters(source.results, function.results);
  parameters(source.parameters, function.parameters);
  for (const ast::Statement &s : source.body)
    if (s.kind == ast::Statement::Targets)
      targetLists[s.name] = &s;
  for (const ast::Statement &s : source.body) {
    statement = &s;
    switch (s.kind) {
    case ast::Statement::ScopeBegin:
      scopes.push_back({nextScope++, {}, {}});
      break;
    case ast::Statement::ScopeEnd:
      scopes.pop_back();
      break;
    case ast::Statement::Label:
      if (!labels.try_emplace({scopes.back().id, s.name}, decoded.code.size()).second)
        fail("label '{}' is there twice", s.name);
      break;
    case ast::Statement::Declaration:
      declare(source.variables[s.variable]);
      break;
    case ast::Statement::Targets:
      break;
    case ast::Statement::Instruction:
      decodeStatement(s, opcodeTable());
    }
  }
  // A body may end without `ret`.
  i = Instruction();
  const ast::Statement last{ast::Statement::Instruction,
                            source.body.empty() ? source.line : source.body.back().line, "ret"};
  decodeStatement(last, opcodeTable());
  for (const Fixup &fixup : fixups) {
    uint32_t target = ~0u;
    for (size_t k = fixup.scopes.size(); k-- && target == ~0u;)
      if (auto found = labels.find({fixup.scopes[k], fixup.label}); found != labels.end())
        target = found->second;
    if (target == ~0u)
      throw DecodeError{fixup.line, fmt::format("label '{}' is nowhere", fixup.label)};
    if (fixup.entry == ~0u)
      decoded.code[fixup.pc].offset = target;
    else
      decoded.branchTables[fixup.pc][fixup.entry] = target;
  }
}
