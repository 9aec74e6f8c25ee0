//===- KernelDecoder.cpp - Functions and variables of a kernel ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelDecoder.h"

#include "Execution.h"

#include <algorithm>
#include <charconv>

using namespace easyquant;
using namespace easyquant::simt;

const OpcodeTable &simt::opcodeTable() {
  static const OpcodeTable table = [] {
    OpcodeTable made;
    for (auto add :
         {addIntegerOps, addBitOps, addFloatOps, addCompareOps, addConvertOps, addMoveOps,
          addLoadStoreOps, addAtomicOps, addWarpOps, addControlOps, addBarrierOps, addMatrixOps,
          addWmmaOps, addMatrixMoveOps, addAsyncOps, addMBarrierOps})
      add(made);
    return made;
  }();
  return table;
}

// ---- symbols -----------------------------------------------------------------------------------

/// A predicate is one mask, in the place of 32 bytes.
Slot Decoder::allocate(unsigned bytes, uint32_t count) {
  unsigned each = bytes * kLanes;
  function.frameBytes = (function.frameBytes + 31) / 32 * 32;
  Slot slot = function.frameBytes;
  uint64_t end = uint64_t(slot) + uint64_t(each) * count;
  if (end >= kConstantSlot)
    fail("the function has more registers than the simulator takes");
  function.frameBytes = end;
  return slot;
}

uint32_t Decoder::reserve(uint32_t &used, const ast::Variable &variable) {
  constexpr uint64_t most = 512 * 1024; // of local memory, where parameters lie as well
  const uint64_t align = variable.alignment(), begin = (used + align - 1) / align * align;
  if (begin + variable.bytes() > most)
    throw DecodeError{
        variable.line,
        fmt::format("'{}' has {} bytes, behind {} others; a thread has 512 KiB of local memory",
                    variable.name, variable.bytes(), begin)};
  used = static_cast<uint32_t>(begin + variable.bytes());
  return static_cast<uint32_t>(begin);
}

void Decoder::declare(const ast::Variable &variable) {
  Scope &scope = scopes.back();
  Symbol symbol{Symbol::Address, variable.type};
  symbol.space = variable.space;
  symbol.bytes = variable.bytes();
  switch (variable.space) {
  case Space::Register: {
    if (variable.vector != 1 || variable.isArray)
      fail("registers that are vectors or arrays are not simulated; name their elements");
    uint32_t count = std::max(variable.range, 1u);
    if (variable.elements == 0)
      count = 0;
    Slot slot = allocate(sizeOf(variable.type), count); // a predicate's mask fits in 32 bytes too
    if (variable.range || !count) {
      scope.ranges[variable.name] = {variable.type, count, function.registers, slot};
    } else {
      symbol.kind = Symbol::Register;
      symbol.slot = slot;
      symbol.index = function.registers;
      scope.symbols[variable.name] = symbol;
    }
    function.registers += count;
    return;
  }
  case Space::Param:
    symbol.kind = Symbol::FrameParameter;
    symbol.address = reserve(function.parameterBytes, variable);
    break;
  case Space::Local:
    // The address in the function's part; where that begins depends on the caller.
    symbol.address = reserve(function.localBytes, variable);
    break;
  case Space::Shared:
    symbol.address = owner.sharedAddress(variable);
    break;
  default:
    fail("'{}': variables of this space are declared outside of functions", variable.name);
  }
  scope.symbols[variable.name] = symbol;
}

std::optional<Decoder::Symbol> Decoder::find(std::string_view name) {
  size_t digits = name.size();
  while (digits && name[digits - 1] >= '0' && name[digits - 1] <= '9')
    --digits;
  uint32_t number = 0;
  bool numbered =
      digits < name.size() && (name[digits] != '0' || digits + 1 == name.size()) &&
      std::from_chars(name.data() + digits, name.data() + name.size(), number).ec == std::errc();
  for (size_t k = scopes.size(); k--;) {
    if (auto found = scopes[k].symbols.find(name); found != scopes[k].symbols.end())
      return found->second;
    if (!numbered)
      continue;
    auto range = scopes[k].ranges.find(name.substr(0, digits));
    if (range != scopes[k].ranges.end() && number < range->second.count) {
      const Scope::Range &all = range->second;
      return Symbol{.kind = Symbol::Register,
                    .type = all.type,
                    .slot = all.firstSlot + number * sizeOf(all.type) * kLanes,
                    .index = all.firstIndex + number};
    }
  }
  if (auto stored = owner.image.variables.find(name); stored != owner.image.variables.end())
    return Symbol{.kind = Symbol::Address,
                  .space = stored->second->readOnly ? Space::Const : Space::Global,
                  .address = stored->second->address,
                  .bytes = static_cast<uint32_t>(stored->second->size)};
  const ast::Module &tree = owner.image.module->syntax();
  if (auto known = tree.functionByName.find(name); known != tree.functionByName.end())
    return Symbol{.kind = Symbol::Function, .function = known->second};
  for (const ast::Variable &variable : tree.variables)
    if (variable.name == name && variable.space == Space::Shared)
      return Symbol{.kind = Symbol::Address,
                    .type = variable.type,
                    .space = Space::Shared,
                    .address = owner.sharedAddress(variable),
                    .bytes = static_cast<uint32_t>(variable.bytes())};
  return std::nullopt;
}

// ---- special registers -------------------------------------------------------------------------

static void readClock(Warp &warp, const Instruction &i, Mask mask);

namespace {
using Lane = const SpecialLane &;
struct SpecialRegister {
  unsigned bytes;
  SpecialValue value; ///< Null: a clock, which changes while the kernel runs.
};
} // namespace

/// By name; a name that ends in a dot has three registers, .x, .y and .z.
static const std::unordered_map<std::string_view, SpecialRegister> &specialRegisters() {
  static constexpr SpecialRegister zero = {4, [](Lane) -> uint64_t { return 0; }},
                                   one = {4, [](Lane) -> uint64_t { return 1; }},
                                   block = {4, [](Lane l) -> uint64_t {
                                              return l.warp.block.id[l.index];
                                            }};
  static const std::unordered_map<std::string_view, SpecialRegister> table = {
      {"%tid.",
       {4,
        [](Lane l) -> uint64_t {
          return placeIn(l.warp.launch.options.block, l.warp.thread(l.lane))[l.index];
        }}},
      {"%ntid.", {4, [](Lane l) -> uint64_t { return l.warp.launch.options.block[l.index]; }}},
      {"%ctaid.", block},
      {"%nctaid.", {4, [](Lane l) -> uint64_t { return l.warp.launch.options.grid[l.index]; }}},
      {"%laneid", {4, [](Lane l) -> uint64_t { return l.lane; }}},
      {"%warpid", {4, [](Lane l) -> uint64_t { return l.warp.index; }}},
      {"%nwarpid", {4, [](Lane l) -> uint64_t { return l.warp.launch.warpsOfBlock(); }}},
      {"%smid", zero},
      {"%nsmid", one},
      {"%gridid", {8, zero.value}},
      {"%lanemask_eq", {4, [](Lane l) -> uint64_t { return 1u << l.lane; }}},
      {"%lanemask_le", {4, [](Lane l) -> uint64_t { return (2ull << l.lane) - 1; }}},
      {"%lanemask_lt", {4, [](Lane l) -> uint64_t { return (1ull << l.lane) - 1; }}},
      {"%lanemask_ge", {4, [](Lane l) -> uint64_t { return uint32_t(~0ull << l.lane); }}},
      {"%lanemask_gt", {4, [](Lane l) -> uint64_t { return uint32_t(~1ull << l.lane); }}},
      {"%dynamic_smem_size",
       {4, [](Lane l) -> uint64_t { return l.warp.launch.options.dynamicSharedBytes; }}},
      {"%total_smem_size", {4, [](Lane l) -> uint64_t { return l.warp.block.sharedBytes; }}},
      {"%clusterid.", block},
      {"%cluster_ctarank", zero},
      {"%cluster_nctarank", one},
      {"%cluster_ctaid.", zero},
      {"%cluster_nctaid.", one},
      {"%clock", {4, nullptr}},
      {"%clock_hi", {4, nullptr}},
      {"%clock64", {8, nullptr}},
      {"%globaltimer", {8, nullptr}},
      {"%globaltimer_lo", {4, nullptr}},
      {"%globaltimer_hi", {4, nullptr}},
  };
  return table;
}

Slot Decoder::special(std::string_view name, unsigned bytes) {
  size_t dot = name.find('.');
  uint32_t axis = 0;
  if (dot != std::string_view::npos) {
    if (dot + 2 != name.size() || name.back() < 'x' || name.back() > 'z')
      return kNoSlot;
    axis = name.back() - 'x';
  }
  auto found =
      specialRegisters().find(name.substr(0, dot == std::string_view::npos ? dot : dot + 1));
  if (found == specialRegisters().end())
    return kNoSlot;
  unsigned width = found->second.bytes;
  if (bytes > 8 || (bytes != width && name != "%gridid" && bytes < width))
    fail("{} has {} bits", name, 8 * width);
  if (!found->second.value) {
    Slot slot = scratch(bytes);
    Instruction outer = i;
    i = Instruction();
    i.run = readClock;
    i.dst = slot;
    i.width = bytes;
    i.flags = name == "%clock_hi" || name == "%globaltimer_hi";
    i.line = statement->line;
    decoded.code.push_back(i);
    i = outer;
    return slot;
  }
  return special(found->second.value, axis, bytes);
}

Slot Decoder::special(SpecialValue value, uint32_t index, unsigned bytes) {
  for (const FunctionCode::Special &known : function.specials)
    if (known.value == value && known.index == index && known.bytes == bytes)
      return known.slot;
  Slot slot = allocate(bytes, 1);
  function.specials.push_back({value, index, slot, bytes, function.registers++});
  return slot;
}

Slot Decoder::localAddress(uint64_t offset, unsigned bytes) {
  constexpr SpecialValue value = [](const SpecialLane &l) -> uint64_t {
    return l.frame.localBase + l.index;
  };
  return special(value, static_cast<uint32_t>(offset), bytes);
}

/// One tick a warp instruction.
static void readClock(Warp &warp, const Instruction &i, Mask mask) {
  uint64_t time = i.flags ? warp.launch.time >> 32 : warp.launch.time;
  ++warp.launch.time;
  forEachLane(mask, [&](unsigned lane) {
    if (i.width == 8)
      warp.reg<uint64_t>(i.dst)[lane] = time;
    else
      warp.reg<uint32_t>(i.dst)[lane] = static_cast<uint32_t>(time);
  });
}

// ---- calls and functions -----------------------------------------------------------------------

ParameterPlace Decoder::place(const ast::Operand &operand, bool isResult) {
  auto symbol = find(operand.name);
  if (operand.kind != ast::Operand::Name || !symbol)
    fail("arguments of calls are .param variables or registers");
  ParameterPlace result;
  if (symbol->kind == Symbol::Register) {
    if (symbol->type == Type::Pred)
      fail("predicates as parameters are not simulated");
    result.inRegister = true;
    result.slot = symbol->slot;
    result.registerIndex = symbol->index;
    result.bytes = sizeOf(symbol->type);
    (isResult ? defines : uses).push_back(symbol->index);
  } else if (symbol->kind == Symbol::FrameParameter) {
    result.offset = symbol->address;
    result.bytes = symbol->bytes;
  } else {
    fail("'{}' cannot be an argument", operand.name);
  }
  return result;
}

FunctionCode *Decoder::functionCode(const ast::Function &callee) {
  if (!callee.hasBody)
    fail("function '{}' is not in this file", callee.name);
  return owner.functionCode(callee);
}

FunctionCode *KernelDecoder::functionCode(const ast::Function &callee) {
  return decoded.functions[functionIndex(callee)].get();
}

uint32_t KernelDecoder::functionIndex(const ast::Function &callee) {
  for (uint32_t k = 0; k < decoded.functions.size(); ++k)
    if (decoded.functions[k]->source == &callee)
      return k;
  decoded.functions.push_back(std::make_unique<FunctionCode>());
  decoded.functions.back()->source = &callee;
  worklist.push_back(&callee);
  return decoded.functions.size() - 1;
}

uint32_t KernelDecoder::sharedAddress(const ast::Variable &variable) {
  if (variable.elements == 0) {
    decoded.usesDynamicShared = true;
    return kFirstSharedAddress + dynamicBase;
  }
  auto [known, isNew] = sharedOffsets.try_emplace(&variable, 0);
  if (isNew) {
    uint32_t align = variable.alignment();
    known->second = (decoded.staticSharedBytes + align - 1) / align * align;
    if (known->second + variable.bytes() > 1u << 20)
      throw Decoder::DecodeError{variable.line, "more shared memory than any GPU has"};
    decoded.staticSharedBytes = known->second + variable.bytes();
  }
  return kFirstSharedAddress + known->second;
}

void KernelDecoder::decode(const ast::Function &kernel) {
  decoded.module = &image.module->syntax();
  decoded.kernel = functionCode(kernel);
  while (!worklist.empty()) {
    const ast::Function *function = worklist.back();
    worklist.pop_back();
    Decoder(decoded, *this, *functionCode(*function)).decodeFunction();
  }
  // Dynamic shared memory begins aligned as nvcc's extern arrays ask for.
  uint32_t align = 16;
  for (const ast::Variable &variable : decoded.module->variables)
    if (variable.space == Space::Shared && variable.elements == 0)
      align = std::max(align, variable.alignment());
  if (decoded.usesDynamicShared)
    decoded.staticSharedBytes = (decoded.staticSharedBytes + align - 1) / align * align;
}

Result<std::unique_ptr<DecodedKernel>> simt::decodeKernel(const ModuleImage &image,
                                                          std::string_view kernel) {
  const ast::Module &tree = image.module->syntax();
  const ast::Function &function = *tree.functionByName.at(kernel);
  if (!function.hasBody)
    return makeError(ErrorCode::NotFound, "{}: kernel '{}' is declared only", tree.name, kernel);
  try {
    uint32_t dynamicBase = 0;
    for (;;) {
      auto decoded = std::make_unique<DecodedKernel>();
      KernelDecoder(image, *decoded, dynamicBase).decode(function);
      // Where dynamic shared memory begins is known after all else has been seen.
      if (!decoded->usesDynamicShared || decoded->staticSharedBytes == dynamicBase)
        return decoded;
      dynamicBase = decoded->staticSharedBytes;
    }
  } catch (const Decoder::DecodeError &error) {
    return makeError(ErrorCode::Unsupported, "{}:{}: {}\n  {}", tree.name, error.line,
                     error.message, tree.line(error.line));
  }
}
