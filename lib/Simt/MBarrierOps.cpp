//===- MBarrierOps.cpp - mbarrier objects and bulk copies -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The 64 bits of an mbarrier object: phase (bit 63), transaction bytes (bits 40-60, signed),
// expected and pending arrivals (20 bits each). PTX leaves them open.
//
//===----------------------------------------------------------------------===//

#include "Checks.h"
#include "Decoder.h"
#include "Lanes.h"
#include "MBarrier.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

struct State {
  uint32_t phase = 0;
  int32_t transactions = 0;
  uint32_t expected = 0, pending = 0;

  static State of(uint64_t bits) {
    State s;
    s.phase = bits >> 63;
    s.transactions = static_cast<int32_t>(static_cast<int64_t>(bits << 3) >> 43);
    s.expected = bits >> 20 & 0xfffff;
    s.pending = bits & 0xfffff;
    return s;
  }
  uint64_t bits() const {
    return uint64_t(phase) << 63 | uint64_t(transactions & 0x1fffff) << 40 |
           uint64_t(expected) << 20 | pending;
  }
  void completeIfDone() {
    if (pending == 0 && transactions == 0) {
      phase ^= 1;
      pending = expected;
    }
  }
};

/// The object that a lane addresses, with bounds and alignment checked.
class Object {
public:
  Object(Warp &w, const Instruction &i, unsigned lane, uint64_t address) : w(w), i(i), lane(lane) {
    offset = address - (address >= kSharedWindow ? kSharedWindow : 0) - kFirstSharedAddress;
    if (offset > w.block.sharedBytes || offset + 8 > w.block.sharedBytes)
      w.stop(Finding::OutOfBounds, i, 1u << lane,
             fmt::format("uses an mbarrier at offset {} of {} bytes of shared memory",
                         static_cast<int64_t>(offset), w.block.sharedBytes));
    if (offset % 8)
      w.stop(Finding::Misaligned, i, 1u << lane,
             fmt::format("uses an mbarrier at offset {}", offset));
  }
  State load() const {
    uint64_t bits;
    std::memcpy(&bits, w.block.shared + offset, 8);
    return State::of(bits);
  }
  void store(const State &s) const {
    uint64_t bits = s.bits();
    std::memcpy(w.block.shared + offset, &bits, 8);
  }
  void mustBeInitialised() const {
    if (w.launch.checker && !(w.block.sharedState[offset] & kWritten))
      w.stop(Finding::Uninitialised, i, 1u << lane, "uses an mbarrier that was never initialised");
  }
  void release() const {
    if (w.launch.checker)
      w.launch.checker->releaseAt(w, kSharedWindow + offset);
  }
  void acquire() const {
    if (w.launch.checker)
      w.launch.checker->acquireAt(w, kSharedWindow + offset);
  }
  void arrive(State &s, uint32_t count) const {
    if (count > s.pending)
      w.stop(Finding::BadOperand, i, 1u << lane,
             fmt::format("arrives {} times at an mbarrier that expects {} more", count, s.pending));
    s.pending -= count;
    s.completeIfDone();
  }
  /// Does the actions that were held back for this object.
  void settle() const {
    auto found = w.block.mbarriers->deferred.find(offset);
    if (found == w.block.mbarriers->deferred.end())
      return;
    auto work = std::move(found->second);
    w.block.mbarriers->deferred.erase(found);
    for (MBarrierTable::Deferred &one : work) {
      for (const PendingCopy &copy : one.copies)
        one.warp->finishCopy(copy);
      if (w.launch.checker)
        w.launch.checker->releaseAt(*one.warp, kSharedWindow + offset);
      State s = load();
      s.transactions -= static_cast<int32_t>(one.bytes);
      s.pending -= std::min(s.pending, one.arrivals);
      s.completeIfDone();
      store(s);
    }
  }

  Warp &w;
  const Instruction &i;
  unsigned lane;
  uint64_t offset;
};

/// In the order of decodeMBarrier's names.
enum Operation { Init, Inval, Arrive, Drop, ExpectTx, CompleteTx, ArriveExpectTx };

template <typename Visit> void eachObject(Warp &w, const Instruction &i, Mask m, Visit &&visit) {
  uint64_t at[kLanes];
  w.addresses(i.a, i.wideAddress, i.offset, at);
  forEachLane(m, [&](unsigned lane) { visit(lane, Object(w, i, lane, at[lane])); });
}

/// b: the count or the bytes; dst: the state before, if it is wanted.
void operate(Warp &w, const Instruction &i, Mask m) {
  eachObject(w, i, m, [&](unsigned lane, const Object &object) {
    uint32_t operand = i.b == kNoSlot ? 1 : w.reg<uint32_t>(i.b)[lane];
    auto operation = static_cast<Operation>(i.flags);
    if (operation == Init) {
      State s;
      if (operand == 0 || operand > 0xfffff)
        w.stop(Finding::BadOperand, i, 1u << lane,
               fmt::format("initialises an mbarrier with a count of {}", operand));
      s.expected = s.pending = operand;
      object.store(s);
      if (w.launch.checker)
        std::fill_n(w.block.sharedState.begin() + object.offset, 8, kWritten);
      w.fenced = true;
      object.release();
      return;
    }
    object.mustBeInitialised();
    if (operation == Inval) {
      if (w.launch.checker)
        std::fill_n(w.block.sharedState.begin() + object.offset, 8, 0);
      return;
    }
    State s = object.load();
    uint64_t before = s.bits();
    object.release();
    switch (operation) {
    case Arrive:
      object.arrive(s, operand);
      break;
    case Drop:
      s.expected -= std::min(operand, s.expected);
      object.arrive(s, operand);
      break;
    case ExpectTx:
      s.transactions += static_cast<int32_t>(operand);
      break;
    case CompleteTx:
      s.transactions -= static_cast<int32_t>(operand);
      s.completeIfDone();
      break;
    default:
      s.transactions += static_cast<int32_t>(operand);
      object.arrive(s, 1);
    }
    object.store(s);
    if (i.dst != kNoSlot)
      w.reg<uint64_t>(i.dst)[lane] = before;
  });
}

/// True once the phase of the state (or the parity) in b is over.
template <bool parity> void waitFor(Warp &w, const Instruction &i, Mask m) {
  Mask done = 0;
  eachObject(w, i, m, [&](unsigned lane, const Object &object) {
    object.mustBeInitialised();
    uint32_t phase = parity ? w.reg<uint32_t>(i.b)[lane] & 1 : w.reg<uint64_t>(i.b)[lane] >> 63;
    object.settle();
    if (object.load().phase != phase) {
      done |= 1u << lane;
      object.acquire();
    }
  });
  w.setPredicate(i.dst, m, done);
  if (done != m)
    w.yield();
}

void acceptScope(Decoder &d) {
  d.acceptSemantics();
  if (d.peekModifier() == "shared::cluster")
    d.fail("thread block clusters are not simulated");
  d.acceptAny({"shared", "shared::cta"});
  d.expect("b64");
}

void decodeWait(Decoder &d) {
  bool parity = d.accept("parity");
  acceptScope(d);
  d.i.dst = d.write(Type::Pred);
  d.address(d.operand(), Space::Shared);
  d.i.b = d.read(parity ? Type::U32 : Type::B64);
  if (d.hasOperand())
    d.read(Type::U32); // how long to suspend
  d.i.run = parity ? waitFor<true> : waitFor<false>;
}

void decodeMBarrier(Decoder &d) {
  Instruction &i = d.i;
  i.opClass = OpClass::Barrier;
  int what = d.expectAny({"init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx",
                          "test_wait", "try_wait", "pending_count"});
  if (what == 6 || what == 7)
    return decodeWait(d);
  if (what == 8) {
    d.expect("b64");
    d.operate(OpClass::Barrier, Type::B32, {Type::B64});
    i.run = mapUnary<[](uint64_t state) { return state & 0xfffff; }, uint32_t, uint64_t>;
    return;
  }
  auto operation = static_cast<Operation>(what);
  if (what == Arrive && d.accept("expect_tx"))
    operation = ArriveExpectTx;
  d.accept("noComplete");
  acceptScope(d);
  if (what == Arrive || what == Drop) {
    const ast::Operand &state = d.operand();
    if (state.kind != ast::Operand::Sink)
      i.dst = d.write(state, Type::B64);
  }
  d.address(d.operand(), Space::Shared);
  if (d.hasOperand())
    i.b = d.read(Type::U32);
  else if (operation == Init || operation == ExpectTx || operation == CompleteTx ||
           operation == ArriveExpectTx)
    d.fail("a count is missing");
  i.flags = operation;
  i.run = operate;
}

// ---- bulk copies -------------------------------------------------------------------------------

/// c: bytes; d: the mbarrier. The pieces are 16 bytes.
void copyBulkIn(Warp &w, const Instruction &i, Mask m) {
  uint64_t source[kLanes], destination[kLanes];
  w.addresses(i.b, i.wideAddress2, i.offset2, source);
  w.addresses(i.a, i.wideAddress, i.offset, destination);
  forEachLane(m, [&](unsigned lane) {
    uint32_t bytes = w.reg<uint32_t>(i.c)[lane];
    if (bytes % 16)
      w.stop(Finding::BadOperand, i, 1u << lane,
             fmt::format("copies {} bytes, no multiple of 16", bytes));
    std::vector<PendingCopy> pieces;
    for (uint32_t k = 0; k < bytes; k += 16) {
      uint64_t from[kLanes], to[kLanes];
      uint32_t sizes[kLanes];
      std::byte *at[kLanes] = {};
      std::fill_n(from, kLanes, source[lane] + k);
      std::fill_n(to, kLanes, destination[lane] + k);
      std::fill_n(sizes, kLanes, 16);
      w.resolve(i, 1u << lane, AccessKind::Read, 16, from, Space::Global, at);
      w.startCopies(i, 1u << lane, to, at, sizes, 16, pieces);
    }
    uint64_t barrier = i.wideAddress ? w.reg<uint64_t>(i.d)[lane] : w.reg<uint32_t>(i.d)[lane];
    deferOnMBarrier(w, i, lane, barrier + i.extra, std::move(pieces), bytes, 0, false);
  });
}

} // namespace

void simt::deferOnMBarrier(Warp &w, const Instruction &i, unsigned lane, uint64_t address,
                           std::vector<PendingCopy> copies, uint32_t bytes, uint32_t arrivals,
                           bool raises) {
  Object object(w, i, lane, address);
  object.mustBeInitialised();
  if (raises) {
    State s = object.load();
    s.pending += arrivals;
    object.store(s);
  }
  w.block.mbarriers->deferred[object.offset].push_back({&w, std::move(copies), bytes, arrivals});
}

void simt::decodeBulkCopy(Decoder &d) {
  Instruction &i = d.i;
  if (d.acceptAny({"shared::cta", "shared::cluster"}) < 0 || !d.accept("global") ||
      !d.accept("mbarrier::complete_tx::bytes"))
    d.unknown(); // tensor copies, and copies out of shared memory
  bool hasPolicy = d.accept("L2::cache_hint");
  d.address(d.operand(), Space::Shared);
  d.secondAddress(d.operand(), Space::Global);
  i.c = d.read(Type::U32);
  const ast::Operand &barrier = d.operand();
  if (barrier.kind != ast::Operand::Address || !d.isRegister(barrier.items[0]) ||
      barrier.offset < 0)
    d.fail("the mbarrier is given by a register");
  i.d = d.read(barrier.items[0], i.wideAddress ? Type::B64 : Type::B32);
  i.extra = static_cast<uint32_t>(barrier.offset);
  if (hasPolicy)
    d.read(Type::B64);
  i.space = Space::Global;
  i.run = copyBulkIn;
}

void simt::addMBarrierOps(OpcodeTable &table) { table["mbarrier"] = decodeMBarrier; }
