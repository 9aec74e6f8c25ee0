//===- BarrierOps.cpp - Barriers and fences -------------------------------===//
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

namespace {

enum BarrierFlags : uint32_t { kAligned = 1, kWaits = 2, kReduces = 4 };
enum Reduction { PopCount, And, Or };

unsigned uniform(Warp &w, const Instruction &i, Mask m, Slot slot, const char *what) {
  const uint32_t *values = w.reg<uint32_t>(slot);
  uint32_t value = values[std::countr_zero(m)];
  forEachLane(m, [&](unsigned lane) {
    if (values[lane] != value)
      w.stop(Finding::BadOperand, i, m, fmt::format("has {} that differs between lanes", what));
  });
  return value;
}

void barrier(Warp &w, const Instruction &i, Mask m) {
  bool aligned = i.flags & kAligned;
  if (aligned && !w.converge(i, w.alive, m))
    return;
  unsigned number = uniform(w, i, m, i.a, "a barrier number");
  unsigned count = i.b == kNoSlot ? 0 : uniform(w, i, m, i.b, "a thread count");
  if (number > 15)
    w.stop(Finding::BadOperand, i, m, fmt::format("names barrier {}; there are 16", number));
  if (i.b != kNoSlot && (count == 0 || count % kLanes))
    w.stop(Finding::BadOperand, i, m,
           fmt::format("asks for {} threads; a barrier takes whole warps of {}", count, kLanes));
  if (i.flags & kReduces) {
    Barrier &b = w.block.barriers[number];
    Mask value = (w.predicate(i.c) ^ (i.extra ? kAllLanes : 0)) & m;
    b.reduction += std::popcount(value);
    b.voters += std::popcount(m);
    b.receivers.push_back({&w, w.frame->registers, &i, m});
  }
  w.block.arrive(w, i, m, number, count, i.flags & kWaits, aligned);
}

void decodeBarrier(Decoder &d) {
  bool isBar = d.opcode == "bar";
  Instruction &i = d.i;
  d.accept("cta");
  if (d.accept("cluster"))
    d.fail("thread block clusters are not simulated");
  if (isBar && d.accept("warp")) {
    d.expect("sync");
    i.opClass = OpClass::Barrier;
    i.a = d.read(Type::B32);
    i.run = [](Warp &w, const Instruction &i, Mask m) {
      const uint32_t *members = w.reg<uint32_t>(i.a);
      if (!w.converge(i, members[std::countr_zero(m)], m))
        return;
      if (w.launch.checker)
        w.launch.checker->warpSync(w, m);
    };
    return;
  }
  int kind = d.acceptAny({"sync", "arrive", "red"});
  if (kind < 0)
    d.unknown();
  int op = kind == 2 ? d.acceptAny({"popc", "and", "or"}) : -1;
  bool aligned = d.accept("aligned") || isBar;
  if (kind == 2) {
    Type type = d.type();
    if (op < 0 || type != (op == PopCount ? Type::U32 : Type::Pred))
      d.unknown();
    i.dst = d.write(type);
    i.type = type;
    i.width = op;
  }
  i.opClass = OpClass::Barrier;
  i.a = d.read(Type::U32);
  size_t left = d.operands() - (kind == 2 ? 2 : 1);
  if (left > (kind == 2 ? 1u : 0u))
    i.b = d.read(Type::U32);
  if (kind == 2) {
    bool negated = false;
    i.c = d.readPredicate(d.operand(), negated);
    i.extra = negated;
  }
  if (kind == 1 && i.b == kNoSlot)
    d.fail("an arrival names a thread count");
  i.flags = (aligned ? kAligned : 0) | (kind != 1 ? kWaits : 0) | (kind == 2 ? kReduces : 0);
  i.run = barrier;
}

void decodeFence(Decoder &d) {
  // Whatever the scope: it orders everything before with everything after.
  static constexpr std::initializer_list<std::string_view> scopes = {
      "sc", "acq_rel", "acquire", "release", "cta", "gpu", "gl", "sys", "cluster"};
  static constexpr std::initializer_list<std::string_view> proxies = {
      "proxy",
      "alias",
      "async",
      "global",
      "shared::cta",
      "shared::cluster",
      "generic",
      "async::generic",
      "tensormap::generic",
      "mbarrier_init",
      "sync_restrict::shared::cta",
      "sync_restrict::shared::cluster"};
  while (!d.peekModifier().empty())
    if (d.acceptAny(scopes) < 0 && d.acceptAny(proxies) < 0)
      d.unknown();
  d.i.opClass = OpClass::Fence;
  d.i.run = [](Warp &w, const Instruction &, Mask) { w.fenced = true; };
}

} // namespace

void simt::deliverReduction(const Barrier &barrier) {
  for (const Barrier::Receiver &receiver : barrier.receivers) {
    const Instruction &i = *receiver.instruction;
    auto *at = receiver.registers + i.dst;
    if (i.width == PopCount) {
      auto *d = reinterpret_cast<uint32_t *>(at);
      forEachLane(receiver.lanes, [&](unsigned lane) { d[lane] = barrier.reduction; });
    } else {
      bool yes = i.width == And ? barrier.reduction == barrier.voters : barrier.reduction != 0;
      auto *d = reinterpret_cast<Mask *>(at);
      *d = yes ? *d | receiver.lanes : *d & ~receiver.lanes;
    }
  }
}

void simt::addBarrierOps(OpcodeTable &table) {
  table["bar"] = decodeBarrier;
  table["barrier"] = decodeBarrier;
  table["fence"] = decodeFence;
  table["membar"] = decodeFence;
}
