//===- DecodedKernel.h - One kernel, decoded for execution ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A DecodedKernel is a kernel with every function that it reaches, as one array of decoded
// instructions. Each of them carries the function that executes it for a whole warp. Registers live
// in frames as arrays over the 32 lanes, so that the loop of a plain instruction is vector code;
// predicates are one mask.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_DECODEDKERNEL_H
#define EASYQUANT_LIB_SIMT_DECODEDKERNEL_H

#include "Ast.h"

#include <cstddef>
#include <map>

namespace easyquant::simt {

class Warp;
struct Frame;
struct Instruction;

using Mask = uint32_t;
constexpr unsigned kLanes = 32;
constexpr Mask kAllLanes = ~0u;

/// Executes an instruction for the lanes of the mask, which is not empty.
using Handler = void (*)(Warp &, const Instruction &, Mask);

/// Where an operand is: a byte offset into the frame's registers, or with the top bit set into the
/// constants of the kernel.
using Slot = uint32_t;
constexpr Slot kConstantSlot = 1u << 31;
constexpr Slot kNoSlot = ~0u;

/// How instructions are counted.
enum class OpClass : uint8_t {
  Integer,
  Float,
  Half,
  Double,
  Convert,
  Compare,
  Move,
  Control,
  Load,
  Store,
  Atomic,
  Barrier,
  Fence,
  Shuffle,
  Dot,
  Matrix,
  MatrixMove,
  Async,
  Special
};
const char *nameOf(OpClass opClass);

/// Register indices of an instruction, for the check of undefined values.
struct RegisterList {
  uint32_t begin = 0, count = 0;
};

struct Instruction {
  Handler run = nullptr;
  Slot dst = kNoSlot, a = kNoSlot, b = kNoSlot, c = kNoSlot, d = kNoSlot;
  Slot guard = kNoSlot;
  Mask guardFlip = 0; ///< All ones for `@!p`.
  uint32_t line = 0;
  int64_t offset = 0;  ///< The offset of an address, the target of a branch, or an immediate.
  int64_t offset2 = 0; ///< The offset of a second address, in b.
  uint32_t extra = 0;  ///< Index into DecodedKernel::slots, ::calls or ::branchTables.
  uint32_t flags = 0;  ///< Meaning belongs to the handler.
  Space space = Space::Register;
  Type type = Type::B32;
  uint8_t width = 0;                              ///< Bytes of one memory element.
  uint8_t count = 1;                              ///< Elements of a vector.
  bool wideAddress = false, wideAddress2 = false; ///< The address register has 64 bits.
  OpClass opClass = OpClass::Special;
  RegisterList uses, addressUses, defines;
};

/// A parameter or result of a function that is no kernel, or an argument at a call.
struct ParameterPlace {
  bool inRegister = false;
  Slot slot = kNoSlot; ///< inRegister
  uint32_t registerIndex = ~0u;
  uint32_t offset = 0; ///< Otherwise: in the frame's parameter bytes of each lane.
  uint32_t bytes = 0;
};

/// A lane of a frame that begins, and which of several registers or variables is meant.
struct SpecialLane {
  const Warp &warp;
  const Frame &frame;
  unsigned lane;
  uint32_t index; ///< 0, 1 or 2 for .x, .y or .z; the offset of a local variable.
};
/// What a special register, or the address of a local variable, is in a lane.
using SpecialValue = uint64_t (*)(const SpecialLane &);

struct FunctionCode {
  const ast::Function *source = nullptr;
  uint32_t entry = 0;
  uint32_t frameBytes = 0; ///< Bytes of the registers of all lanes.
  uint32_t registers = 0;
  uint32_t parameterBytes = 0; ///< Per lane.
  uint32_t localBytes = 0;     ///< Per lane.
  std::vector<ParameterPlace> results, parameters;
  struct Special {
    SpecialValue value;
    uint32_t index;
    Slot slot;
    unsigned bytes;
    uint32_t registerIndex;
  };
  std::vector<Special> specials;
};

struct CallSite {
  const FunctionCode *callee = nullptr; ///< Null: indirect or built in.
  std::vector<ParameterPlace> results, arguments;
};

struct KernelParameter {
  uint32_t offset, bytes;
};

struct MatrixProduct;

struct DecodedKernel {
  const ast::Module *module = nullptr;
  const FunctionCode *kernel = nullptr;
  std::vector<Instruction> code;
  std::vector<std::byte> constants; ///< Each broadcast over the lanes.
  std::vector<Slot> slots;
  std::vector<uint32_t> registerLists;
  std::vector<CallSite> calls;
  std::vector<std::vector<uint32_t>> branchTables;
  std::vector<std::shared_ptr<const MatrixProduct>> products; ///< See MatrixCore.h.
  std::vector<std::unique_ptr<FunctionCode>> functions;
  uint32_t staticSharedBytes = 0; ///< Dynamic shared memory begins here.
  bool usesDynamicShared = false;
  std::vector<KernelParameter> parameters;
  uint32_t parameterBytes = 0;
};

// ---- addresses ---------------------------------------------------------------------------------
// Generic addresses. Global and constant variables and allocations keep theirs in every space.
constexpr uint64_t kSharedWindow = 0x0100'0000'0000;
constexpr uint64_t kLocalWindow = 0x0200'0000'0000;
constexpr uint64_t kParameterWindow = 0x0300'0000'0000;
constexpr uint64_t kFunctionWindow = 0x0400'0000'0000; ///< Function pointers.
/// Where the addresses of a space begin among them.
constexpr uint64_t windowOf(Space space) {
  return space == Space::Shared  ? kSharedWindow
         : space == Space::Local ? kLocalWindow
         : space == Space::Param ? kParameterWindow
                                 : 0;
}
constexpr uint64_t kWindowBytes = 1ull << 32;
constexpr uint64_t kGlobalBase = 0x7000'0000'0000;
/// Shared and local addresses begin here, so that a null pointer is out of bounds.
constexpr uint32_t kFirstSharedAddress = 1024;
constexpr uint32_t kFirstLocalAddress = 1024;

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_DECODEDKERNEL_H
