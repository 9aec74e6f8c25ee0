//===- LoadStoreOps.cpp - Loads and stores in all spaces ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checks.h"
#include "Decoder.h"
#include "Lanes.h"

using namespace easyquant;
using namespace easyquant::simt;

uint32_t Decoder::acceptSemantics() {
  uint32_t flags = 0;
  int semantics =
      acceptAny({"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "mmio"});
  if (semantics >= 1)
    flags |= kStrongAccess;
  if (semantics == 3 || semantics == 5 || semantics == 6)
    flags |= kAcquire;
  if (semantics == 4 || semantics == 5 || semantics == 6)
    flags |= kRelease;
  if (semantics == 7 && !accept("relaxed"))
    unknown();
  if (acceptAny({"cta", "cluster", "gpu", "sys"}) == 1)
    fail("thread block clusters are not simulated");
  return flags;
}

Space Decoder::acceptSpace() {
  static constexpr Space spaces[] = {Space::Global, Space::Const, Space::Shared, Space::Shared,
                                     Space::Local,  Space::Param, Space::Param,  Space::Param};
  int found = acceptAny({"global", "const", "shared", "shared::cta", "local", "param",
                         "param::entry", "param::func"});
  return found < 0 ? Space::Generic : spaces[found];
}

namespace {

/// i.width bytes an element in memory, i.flags & 0xff in the register.
template <typename Memory, typename Register> void load(Warp &w, const Instruction &i, Mask m) {
  std::byte *at[kLanes];
  w.resolve(i, m, AccessKind::Read, i.count * sizeof(Memory), at);
  const Slot *slots = w.launch.decoded.slots.data() + i.extra;
  for (unsigned k = 0; k < i.count; ++k) {
    Register *d = w.reg<Register>(slots[k]);
    if (m == kAllLanes) {
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        Memory v;
        std::memcpy(&v, at[lane] + k * sizeof(Memory), sizeof(Memory));
        d[lane] = static_cast<Register>(v);
      }
    } else {
      forEachLane(m, [&](unsigned lane) {
        Memory v;
        std::memcpy(&v, at[lane] + k * sizeof(Memory), sizeof(Memory));
        d[lane] = static_cast<Register>(v);
      });
    }
  }
}

template <typename Memory, typename Register> void store(Warp &w, const Instruction &i, Mask m) {
  const Slot *slots = w.launch.decoded.slots.data() + i.extra;
  Memory values[kLanes][8];
  for (unsigned k = 0; k < i.count; ++k) {
    const Register *v = w.reg<Register>(slots[k]);
    for (unsigned lane = 0; lane < kLanes; ++lane)
      values[lane][k] = static_cast<Memory>(v[lane]);
  }
  std::byte *at[kLanes];
  unsigned bytes = i.count * sizeof(Memory);
  w.resolve(i, m, AccessKind::Write, bytes, at);
  if (w.launch.checker)
    w.launch.checker->sameAddressStores(w, i, m, bytes, at, reinterpret_cast<std::byte *>(values),
                                        sizeof(values[0]));
  forEachLane(m, [&](unsigned lane) { std::memcpy(at[lane], values[lane], bytes); });
}

/// Loads extend elements in memory to their registers, which are no smaller; stores cut them off.
Handler accessHandler(const Decoder &d, Type type, bool isLoad, unsigned registerBytes) {
  Type memory = isLoad && isSigned(type) ? type : bitsOf(sizeOf(type));
  return handlerFor<Type::B8, Type::S8, Type::B16, Type::S16, Type::B32, Type::S32, Type::B64,
                    Type::S64>(d, memory, [&]<typename M>(M) {
    return handlerFor<Type::B8, Type::B16, Type::B32, Type::B64>(
        d, bitsOf(registerBytes), [&]<typename R>(R) -> Handler {
          if constexpr (sizeof(M) <= sizeof(R))
            return isLoad ? load<M, R> : store<M, R>;
          return nullptr;
        });
  });
}

/// An element of a parameter, with its sign.
uint64_t parameterElement(const Instruction &i, const std::byte *at) {
  uint64_t value = 0;
  std::memcpy(&value, at, i.width);
  if (!isSigned(i.type) || i.width == 8)
    return value;
  unsigned shift = 64 - 8 * i.width;
  return static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
}

/// A kernel's parameter: the same for all lanes.
void loadUniform(Warp &w, const Instruction &i, Mask m) {
  const Slot *slots = w.launch.decoded.slots.data() + i.extra;
  for (size_t k = 0; k < i.count; ++k) {
    uint64_t value = parameterElement(i, w.launch.parameters.data() + i.offset + k * i.width);
    unsigned bytes = i.flags & 0xff;
    std::byte *d = w.reg<std::byte>(slots[k]);
    forEachLane(m, [&](size_t lane) { std::memcpy(d + lane * bytes, &value, bytes); });
  }
}

/// Parameters of calls live in the frame, lane after lane.
std::byte *frameParameter(Warp &w, const Instruction &i, size_t lane) {
  return w.frame->parameters.data() + lane * w.frame->function->parameterBytes + i.offset;
}
void loadFrame(Warp &w, const Instruction &i, Mask m) {
  const Slot *slots = w.launch.decoded.slots.data() + i.extra;
  unsigned bytes = i.flags & 0xff;
  forEachLane(m, [&](size_t lane) {
    for (size_t k = 0; k < i.count; ++k) {
      uint64_t value = parameterElement(i, frameParameter(w, i, lane) + k * i.width);
      std::memcpy(w.reg<std::byte>(slots[k]) + lane * bytes, &value, bytes);
    }
  });
}
void storeFrame(Warp &w, const Instruction &i, Mask m) {
  const Slot *slots = w.launch.decoded.slots.data() + i.extra;
  unsigned bytes = i.flags & 0xff;
  forEachLane(m, [&](size_t lane) {
    for (size_t k = 0; k < i.count; ++k)
      std::memcpy(frameParameter(w, i, lane) + k * i.width,
                  w.reg<std::byte>(slots[k]) + lane * bytes, i.width);
  });
}

void load128(Warp &w, const Instruction &i, Mask m) {
  std::byte *at[kLanes];
  w.resolve(i, m, AccessKind::Read, 16, at);
  std::byte *d = w.reg<std::byte>(w.launch.decoded.slots[i.extra]);
  forEachLane(m, [&](size_t lane) { std::memcpy(d + 16 * lane, at[lane], 16); });
}
void store128(Warp &w, const Instruction &i, Mask m) {
  std::byte *at[kLanes];
  w.resolve(i, m, AccessKind::Write, 16, at);
  const std::byte *s = w.reg<std::byte>(w.launch.decoded.slots[i.extra]);
  forEachLane(m, [&](size_t lane) { std::memcpy(at[lane], s + 16 * lane, 16); });
}

/// Where the address operand names a parameter: sets offset, and tells which.
std::optional<Decoder::Symbol> parameterOf(Decoder &d, const ast::Operand &address) {
  if (address.kind != ast::Operand::Address || address.items.size() != 1)
    return std::nullopt;
  auto symbol = d.find(address.items[0].name);
  if (!symbol || (symbol->kind != Decoder::Symbol::FrameParameter &&
                  symbol->kind != Decoder::Symbol::KernelParameter))
    return std::nullopt;
  d.i.offset = static_cast<int64_t>(symbol->address) + address.offset;
  uint64_t bytes = uint64_t(d.i.width) * d.i.count;
  if (address.offset < 0 || address.offset + bytes > symbol->bytes)
    d.fail("'{}' has {} bytes, and {} at {} are asked for", address.items[0].name, symbol->bytes,
           bytes, address.offset);
  return symbol;
}

void decodeAccess(Decoder &d) {
  bool isLoad = d.opcode != "st";
  Instruction &i = d.i;
  uint32_t flags = d.acceptSemantics();
  Space space = d.acceptSpace();
  // Non-coherent loads, cache operators and eviction hints, in any order that assemblers take.
  bool hasPolicy = false;
  for (;;) {
    std::string_view before = d.peekModifier();
    hasPolicy |= before == "L2::cache_hint";
    d.skipCacheHints();
    if (isLoad)
      d.accept("nc");
    if (d.peekModifier() == before)
      break;
  }
  int vector = d.acceptAny({"v2", "v4", "v8"});
  i.count = vector < 0 ? 1 : 2 << vector;
  Type type = i.type = d.type();
  i.width = sizeOf(type);
  i.opClass = isLoad ? OpClass::Load : OpClass::Store;
  if (type == Type::Pred || i.count * i.width > 32)
    d.unknown();

  const ast::Operand *data = nullptr, *address = nullptr;
  if (isLoad)
    data = &d.operand(), address = &d.operand();
  else
    address = &d.operand(), data = &d.operand();
  auto symbol = parameterOf(d, *address);
  if (!symbol)
    d.address(*address, space);
  else if (space != Space::Param)
    d.fail("a parameter lies in .param");
  i.space = space;
  if (hasPolicy)
    d.read(Type::B64);

  bool isVector = data->kind == ast::Operand::Vector;
  if ((isVector ? data->items.size() : 1) != i.count)
    d.fail("a vector of {} is needed", i.count);
  std::vector<Slot> slots;
  unsigned registerBytes = 0;
  for (unsigned k = 0; k < i.count; ++k) {
    const ast::Operand &element = isVector ? data->items[k] : *data;
    unsigned bytes = 0;
    slots.push_back(isLoad ? d.writeWide(element, type, bytes) : d.readWide(element, type, bytes));
    if (element.kind == ast::Operand::Sink && k)
      slots.back() = d.scratch(bytes = registerBytes);
    if (k && bytes != registerBytes)
      d.fail("the registers of a vector differ in size");
    registerBytes = bytes;
  }
  i.extra = d.decoded.slots.size();
  d.decoded.slots.insert(d.decoded.slots.end(), slots.begin(), slots.end());
  i.flags = flags | registerBytes;
  if (symbol) {
    if (symbol->kind == Decoder::Symbol::KernelParameter) {
      if (!isLoad)
        d.fail("parameters of a kernel are constant");
      i.run = loadUniform;
    } else {
      i.run = isLoad ? loadFrame : storeFrame;
    }
    i.opClass = OpClass::Move;
    if (i.width > 8)
      d.unknown();
    return;
  }
  if (type != Type::B128)
    i.run = accessHandler(d, type, isLoad, registerBytes);
  else if (i.count == 1)
    i.run = isLoad ? load128 : store128;
  else
    d.unknown();
}

/// Hints: their operands are looked at, and nothing is done.
void decodeHint(Decoder &d) {
  while (!d.peekModifier().empty())
    d.takeModifier();
  while (d.hasOperand())
    d.operand();
}

} // namespace

void simt::addLoadStoreOps(OpcodeTable &table) {
  table["ld"] = decodeAccess;
  table["ldu"] = decodeAccess;
  table["st"] = decodeAccess;
  for (const char *hint : {"prefetch", "prefetchu", "applypriority"})
    table[hint] = decodeHint;
  table["createpolicy"] = [](Decoder &d) {
    // A cache policy is a number that only hints carry; all of them are zero here.
    while (!d.peekModifier().empty())
      d.takeModifier();
    d.i.dst = d.write(Type::B64);
    d.i.a = d.constant(0, 8);
    while (d.hasOperand())
      d.operand();
    d.i.run = [](Warp &w, const Instruction &i, Mask m) {
      storeLanes(w.reg<uint64_t>(i.dst), m, [](unsigned) { return uint64_t(0); });
    };
  };
}
