//===- Checks.cpp - What a launch checks beyond bounds and alignment ------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checks.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::simt;

// ---- undefined registers -----------------------------------------------------------------------
//
// A value that depends on an undefined register is undefined. That is reported where it decides
// something: an address, a branch, a guard. A store of it leaves the memory uninitialised.

static Mask definedLanes(const Warp &warp, const Frame &frame, RegisterList list) {
  Mask defined = kAllLanes;
  for (uint32_t k = 0; k < list.count; ++k)
    defined &= frame.defined[warp.launch.decoded.registerLists[list.begin + k]];
  return defined;
}

void Checker::before(Warp &warp, const Instruction &i, Mask executing) {
  // The guard is the last of the address uses, and is read by every lane of the group.
  RegisterList addresses = i.addressUses, guard;
  if (i.guard != kNoSlot) {
    --addresses.count;
    guard = {addresses.begin + addresses.count, 1};
  }
  judge(warp, i, guard, warp.mask, "a guard");
  judge(warp, i, addresses, executing, "an address");
  warp.undefinedStore = ~definedLanes(warp, *warp.frame, i.uses);
}

void Checker::judge(Warp &warp, const Instruction &i, RegisterList list, Mask reading,
                    const char *role) {
  Mask bad = reading & ~definedLanes(warp, *warp.frame, list);
  if (!bad)
    return;
  warp.report(Finding::Uninitialised, i, std::countr_zero(bad),
              fmt::format("uses a register that was never written as {}: {}", role,
                          describeLanes(warp, bad)),
              std::popcount(bad));
  // Once is enough: further uses are not new mistakes.
  for (uint32_t k = 0; k < list.count; ++k)
    warp.frame->defined[launch.decoded.registerLists[list.begin + k]] |= bad;
}

void Checker::after(Warp &warp, const Instruction &i, Mask executing, Frame &frame) {
  if (!i.defines.count)
    return;
  bool loads = i.opClass == OpClass::Load || i.opClass == OpClass::Atomic;
  Mask defined = loads ? kAllLanes : ~warp.undefinedStore;
  // Lanes of an exchange see each other.
  if (i.opClass == OpClass::Shuffle || i.opClass == OpClass::Matrix)
    defined = (warp.undefinedStore & executing) ? 0 : kAllLanes;
  for (uint32_t k = 0; k < i.defines.count; ++k) {
    Mask &mask = frame.defined[launch.decoded.registerLists[i.defines.begin + k]];
    mask = (mask & ~executing) | (defined & executing);
  }
}

// ---- memory ------------------------------------------------------------------------------------

static std::string describe(const Launch &launch, const AccessRecord &record) {
  auto block = placeIn(launch.options.grid, record.block);
  auto thread = placeIn(launch.options.block, record.thread);
  return fmt::format("block ({},{},{}) thread ({},{},{}), {}", block[0], block[1], block[2],
                     thread[0], thread[1], thread[2], launch.quote(record.pc));
}

bool Checker::happenedBefore(const Warp &warp, unsigned lane, const AccessRecord &earlier) const {
  if (earlier.block != warp.block.linear)
    return std::binary_search(warp.block.knownBlocks.begin(), warp.block.knownBlocks.end(),
                              earlier.block);
  unsigned other = earlier.thread / kLanes;
  if (other != warp.index)
    return warp.known[other] > earlier.clock;
  unsigned otherLane = earlier.thread % kLanes;
  return otherLane == lane ||
         (warp.laneSync[otherLane] > earlier.clock && warp.laneSync[lane] > earlier.clock);
}

void Checker::order(Warp &warp, const Instruction &i, unsigned lane, AccessHistory &history,
                    AccessKind kind, bool isShared, bool isAtomic) {
  AccessRecord now{warp.block.linear, static_cast<uint16_t>(warp.thread(lane)), isAtomic,
                   warp.clock, launch.pcOf(i)};
  auto conflict = [&](const AccessRecord &earlier, const char *what) {
    if (earlier.block == ~0u || (earlier.atomic && isAtomic) || happenedBefore(warp, lane, earlier))
      return;
    // Lanes of one instruction are judged by sameAddressStores.
    if (earlier.pc == now.pc && earlier.block == now.block && earlier.clock == now.clock &&
        earlier.thread / kLanes == warp.index)
      return;
    launch.report(Finding::Race, now.pc, warp.block, now.thread,
                  fmt::format("{} {} memory that {} without a barrier between:\n    {}",
                              kind == AccessKind::Read ? "reads" : "writes",
                              isShared ? "shared" : "global", what, describe(launch, earlier)));
  };
  conflict(history.write, "was written");
  if (kind == AccessKind::Read) {
    bool same = history.read.block == now.block && history.read.thread == now.thread;
    if (!same && history.read.block != ~0u)
      history.otherRead = history.read;
    history.read = now;
    return;
  }
  conflict(history.read, "was read");
  conflict(history.otherRead, "was read");
  history.write = now;
  history.read = history.otherRead = AccessRecord();
}

/// Whether it is an access that others may synchronize on.
static bool isStrong(const Instruction &i) {
  return i.flags & kStrongAccess && (i.opClass == OpClass::Atomic || i.opClass == OpClass::Load ||
                                     i.opClass == OpClass::Store);
}

void Checker::shared(Warp &warp, const Instruction &i, unsigned lane, uint64_t offset,
                     unsigned bytes, AccessKind kind) {
  Block &block = warp.block;
  uint8_t *state = block.sharedState.data() + offset;
  uint8_t all = kWritten, any = 0;
  for (unsigned k = 0; k < bytes; ++k)
    all &= state[k], any |= state[k];
  if (any & kInFlight)
    warp.report(
        Finding::AsyncRead, i, lane,
        fmt::format("{} shared memory that an asynchronous copy still writes (offset {}): it "
                    "has not been waited for",
                    kind == AccessKind::Read ? "reads" : "writes", offset));
  else if (kind != AccessKind::Write && !(all & kWritten))
    warp.report(Finding::Uninitialised, i, lane,
                fmt::format("reads shared memory that nobody has written (offset {})", offset));
  const bool strong = isStrong(i);
  if (strong)
    synchronize(warp, i, kind, kSharedWindow + offset);
  if (kind != AccessKind::Read) {
    bool undefined = kind == AccessKind::Write && warp.undefinedStore >> lane & 1;
    for (unsigned k = 0; k < bytes; ++k)
      state[k] = undefined ? state[k] & ~kWritten : state[k] | kWritten;
  }
  block.sharedShadow->visit(offset, bytes, [&](AccessHistory &history) {
    order(warp, i, lane, history, kind, true, strong);
  });
}

void Checker::global(Warp &warp, const Instruction &i, unsigned lane, Allocation &allocation,
                     uint64_t offset, unsigned bytes, AccessKind kind) {
  if (kind != AccessKind::Write && !allocation.isWritten(offset, bytes)) {
    warp.report(
        Finding::Uninitialised, i, lane,
        fmt::format("reads '{}' at offset {}, which nobody has written", allocation.name, offset));
    allocation.markWritten(offset, bytes);
  }
  const bool strong = isStrong(i);
  if (strong)
    synchronize(warp, i, kind, allocation.address + offset);
  if (kind != AccessKind::Read) {
    if (kind == AccessKind::Write && warp.undefinedStore >> lane & 1 && !allocation.written.empty())
      for (uint64_t k = offset; k < offset + bytes; ++k)
        allocation.written[k / 64] &= ~(1ull << k % 64);
    else
      allocation.markWritten(offset, bytes);
  }
  if (allocation.readOnly)
    return;
  if (!allocation.shadow)
    allocation.shadow = std::make_unique<ShadowMemory>(allocation.size);
  allocation.shadow->visit(offset, bytes, [&](AccessHistory &history) {
    order(warp, i, lane, history, kind, false, strong);
  });
}

void Checker::local(Warp &warp, const Instruction &i, unsigned lane, uint64_t offset,
                    unsigned bytes, AccessKind kind) {
  uint8_t *state = warp.localState.data() + size_t(lane) * warp.localStride + offset;
  if (kind != AccessKind::Read) {
    bool undefined = warp.undefinedStore >> lane & 1;
    std::fill_n(state, bytes, undefined ? 0 : kWritten);
    return;
  }
  if (!std::all_of(state, state + bytes, [](uint8_t s) { return s & kWritten; }))
    warp.report(
        Finding::Uninitialised, i, lane,
        fmt::format("reads local memory that the thread has not written (offset {})", offset));
}

void Checker::sameAddressStores(Warp &warp, const Instruction &i, Mask mask, unsigned bytes,
                                std::byte *const (&pointers)[kLanes], const std::byte *values,
                                size_t stride) {
  std::array<uint8_t, kLanes> lanes{};
  unsigned count = 0;
  forEachLane(mask, [&](unsigned lane) { lanes[count++] = lane; });
  std::sort(lanes.begin(), lanes.begin() + count,
            [&](unsigned a, unsigned b) { return pointers[a] < pointers[b]; });
  for (unsigned k = 1; k < count; ++k) {
    unsigned a = lanes[k - 1], b = lanes[k];
    if (pointers[a] != pointers[b] ||
        std::memcmp(values + a * stride, values + b * stride, bytes) == 0)
      continue;
    warp.report(Finding::Race, i, std::min(a, b),
                fmt::format("and thread {} write different values to one place in one instruction",
                            warp.thread(std::max(a, b))));
    return;
  }
}

// ---- asynchronous copies -----------------------------------------------------------------------

void Checker::startCopy(Warp &warp, const Instruction &i, const PendingCopy &copy) {
  Block &block = warp.block;
  uint8_t *state = block.sharedState.data() + copy.destination;
  uint8_t any = 0;
  for (unsigned k = 0; k < copy.bytes; ++k)
    any |= state[k], state[k] |= kInFlight;
  if (any & kInFlight)
    warp.report(Finding::AsyncRead, i, copy.lane,
                "copies to where another asynchronous copy still writes");
  block.sharedShadow->visit(copy.destination, copy.bytes, [&](AccessHistory &history) {
    order(warp, i, copy.lane, history, AccessKind::Write, true, false);
  });
}

void Checker::finishCopy(Warp &warp, const PendingCopy &copy) {
  uint8_t *state = warp.block.sharedState.data() + copy.destination;
  std::fill_n(state, copy.bytes, kWritten);
  // The data is written now, by this thread.
  AccessRecord now{warp.block.linear, static_cast<uint16_t>(warp.thread(copy.lane)), 0, warp.clock,
                   copy.pc};
  warp.block.sharedShadow->visit(copy.destination, copy.bytes, [&](AccessHistory &history) {
    history.write = now;
    history.read = history.otherRead = AccessRecord();
  });
}

// ---- happens-before ----------------------------------------------------------------------------

void Checker::warpSync(Warp &warp, Mask lanes) {
  ++warp.clock;
  forEachLane(lanes, [&](unsigned lane) { warp.laneSync[lane] = warp.clock; });
}

static void join(std::vector<uint32_t> &into, const std::vector<uint32_t> &from) {
  into.resize(std::max(into.size(), from.size()));
  for (size_t k = 0; k < from.size(); ++k)
    into[k] = std::max(into[k], from[k]);
}

void Checker::barrierArrive(Barrier &barrier, Warp &warp) {
  // The warp did its work up to now at clocks below the next one.
  ++warp.clock;
  warp.known[warp.index] = warp.clock;
  join(barrier.clocks, warp.known);
}

void Checker::barrierLeave(Barrier &barrier, Warp &warp) {
  join(warp.known, barrier.clocks);
  std::fill(warp.laneSync.begin(), warp.laneSync.end(), warp.clock);
  warp.fenced = true;
}

void Checker::synchronize(Warp &warp, const Instruction &i, AccessKind kind, uint64_t address) {
  if (kind != AccessKind::Write)
    acquireAt(warp, address);
  if (kind != AccessKind::Read && (warp.fenced || i.flags & kRelease))
    releaseAt(warp, address);
}

void Checker::releaseAt(Warp &warp, uint64_t address) {
  uint32_t block = address < kGlobalBase ? warp.block.linear : ~0u;
  SyncPoint &point = syncPoints[{block, address}];
  if (point.block != warp.block.linear) {
    point.block = warp.block.linear;
    point.clocks.clear();
  }
  ++warp.clock;
  warp.known[warp.index] = warp.clock;
  join(point.clocks, warp.known);
  if (block != ~0u)
    return;
  auto add = [&](uint32_t id) {
    auto at = std::lower_bound(point.blocks.begin(), point.blocks.end(), id);
    if (at == point.blocks.end() || *at != id)
      point.blocks.insert(at, id);
  };
  add(warp.block.linear);
  for (uint32_t id : warp.block.knownBlocks)
    add(id);
}

void Checker::acquireAt(Warp &warp, uint64_t address) {
  uint32_t block = address < kGlobalBase ? warp.block.linear : ~0u;
  auto found = syncPoints.find({block, address});
  if (found == syncPoints.end())
    return;
  const SyncPoint &point = found->second;
  if (point.block == warp.block.linear) {
    join(warp.known, point.clocks);
    warp.laneSync.fill(warp.clock);
  }
  std::vector<uint32_t> merged;
  std::set_union(point.blocks.begin(), point.blocks.end(), warp.block.knownBlocks.begin(),
                 warp.block.knownBlocks.end(), std::back_inserter(merged));
  warp.block.knownBlocks = std::move(merged);
}
