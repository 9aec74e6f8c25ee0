//===- AsyncOps.cpp - cp.async and its groups -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A copy reads its source when it is issued and writes shared memory when it is waited for: the
// latest moment that the manual allows, so that a kernel that reads too early reads old data.
//
//===----------------------------------------------------------------------===//

#include "Checks.h"
#include "Decoder.h"
#include "MBarrier.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

enum AsyncFlags : uint32_t { kIgnorePredicate = 1, kIgnoreNegated = 2 };

/// i.width bytes; i.c: bytes of the source, if it is said; the rest is filled with zeros.
void copyAsync(Warp &w, const Instruction &i, Mask m) {
  uint32_t sizes[kLanes];
  std::fill_n(sizes, kLanes, i.width);
  if (i.flags & kIgnorePredicate) {
    Mask ignored = w.predicate(i.c) ^ (i.flags & kIgnoreNegated ? kAllLanes : 0);
    forEachLane(ignored & m, [&](unsigned lane) { sizes[lane] = 0; });
  } else if (i.c != kNoSlot) {
    forEachLane(m, [&](unsigned lane) {
      sizes[lane] = w.reg<uint32_t>(i.c)[lane];
      if (sizes[lane] > i.width)
        w.stop(Finding::BadOperand, i, 1u << lane,
               fmt::format("has a source of {} bytes for a copy of {}", sizes[lane], i.width));
    });
  }
  Mask whole = 0, partial = 0;
  forEachLane(m, [&](unsigned lane) {
    if (sizes[lane])
      (sizes[lane] == i.width ? whole : partial) |= 1u << lane;
  });
  std::byte *source[kLanes] = {};
  uint64_t at[kLanes];
  w.addresses(i.b, i.wideAddress2, i.offset2, at);
  if (whole) {
    uint64_t wholeAt[kLanes]; // resolve() fills in the lanes that do not take part
    std::copy_n(at, kLanes, wholeAt);
    w.resolve(i, whole, AccessKind::Read, i.width, wholeAt, Space::Global, source);
  }
  // A copy of part reads no more than that part.
  forEachLane(partial, [&](unsigned lane) {
    std::byte *one[kLanes] = {};
    for (unsigned k = 0; k < sizes[lane]; ++k) {
      uint64_t address[kLanes];
      std::fill_n(address, kLanes, at[lane] + k);
      w.resolve(i, 1u << lane, AccessKind::Read, 1, address, Space::Global, one);
      if (k == 0)
        source[lane] = one[lane];
    }
  });
  static const std::byte nothing{};
  forEachLane(m & ~whole & ~partial,
              [&](unsigned lane) { source[lane] = const_cast<std::byte *>(&nothing); });
  uint64_t destination[kLanes];
  w.addresses(i.a, i.wideAddress, i.offset, destination);
  w.startCopies(i, m, destination, source, sizes, i.width, w.copies);
}

void commitGroup(Warp &w, const Instruction &, Mask m) {
  forEachLane(m, [&](unsigned lane) { ++w.groups[lane]; });
}

/// All groups but the last i.offset have arrived.
void waitGroup(Warp &w, const Instruction &i, Mask m) {
  w.takeCopies(
      [&](const PendingCopy &copy) {
        return m >> copy.lane & 1 && w.groups[copy.lane] > copy.group + i.offset;
      },
      [&](const PendingCopy &copy) { w.finishCopy(copy); });
}

void waitAll(Warp &w, const Instruction &i, Mask m) {
  commitGroup(w, i, m);
  waitGroup(w, i, m);
}

/// An arrival on an mbarrier once all copies of the lane so far have arrived.
void arriveAfterCopies(Warp &w, const Instruction &i, Mask m) {
  uint64_t at[kLanes];
  w.addresses(i.a, i.wideAddress, i.offset, at);
  forEachLane(m, [&](unsigned lane) {
    std::vector<PendingCopy> all;
    w.takeCopies([&](const PendingCopy &copy) { return copy.lane == lane; },
                 [&](const PendingCopy &copy) { all.push_back(copy); });
    deferOnMBarrier(w, i, lane, at[lane], std::move(all), 0, 1, !i.flags);
  });
}

void decodeCopy(Decoder &d) {
  Instruction &i = d.i;
  i.opClass = OpClass::Async;
  if (d.accept("commit_group")) {
    i.run = commitGroup;
    return;
  }
  if (d.accept("wait_group")) {
    i.offset = static_cast<int64_t>(d.immediate());
    i.run = waitGroup;
    return;
  }
  if (d.accept("wait_all")) {
    i.run = waitAll;
    return;
  }
  if (d.accept("mbarrier")) {
    d.expect("arrive");
    i.flags = d.accept("noinc");
    d.acceptAny({"shared", "shared::cta"});
    d.expect("b64");
    d.address(d.operand(), Space::Shared);
    i.run = arriveAfterCopies;
    return;
  }
  if (d.accept("bulk"))
    return decodeBulkCopy(d);
  int cache = d.acceptAny({"ca", "cg"});
  if (cache < 0 || d.acceptAny({"shared", "shared::cta"}) < 0 || !d.accept("global"))
    d.unknown();
  bool hasPolicy = d.peekModifier() == "L2::cache_hint";
  d.skipCacheHints();
  d.address(d.operand(), Space::Shared);
  d.secondAddress(d.operand(), Space::Global);
  uint64_t bytes = d.immediate();
  if (cache == 1 ? bytes != 16 : bytes != 4 && bytes != 8 && bytes != 16)
    d.fail("cp.async.{} does not copy {} bytes", cache ? "cg" : "ca", bytes);
  i.width = bytes;
  i.space = Space::Global;
  size_t left = d.operands() - 3 - hasPolicy;
  if (left == 1) {
    const ast::Operand &operand = d.operand();
    auto symbol = d.find(operand.name);
    if (operand.negated ||
        (symbol && symbol->kind == Decoder::Symbol::Register && symbol->type == Type::Pred)) {
      bool negated = false;
      i.c = d.readPredicate(operand, negated);
      i.flags = kIgnorePredicate | (negated ? kIgnoreNegated : 0);
    } else {
      i.c = d.read(operand, Type::U32);
    }
  }
  if (hasPolicy)
    d.read(Type::B64);
  i.run = copyAsync;
}

} // namespace

void simt::addAsyncOps(OpcodeTable &table) {
  table["cp"] = [](Decoder &d) {
    d.expect("async");
    decodeCopy(d);
  };
}
