//===- WarpMemory.cpp - From a warp's addresses to host memory ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checks.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::simt;

void Warp::addresses(Slot address, bool wide, int64_t offset, uint64_t (&out)[kLanes]) const {
  if (address == kNoSlot) {
    std::fill_n(out, kLanes, static_cast<uint64_t>(offset));
  } else if (wide) {
    const uint64_t *base = reg<uint64_t>(address);
    for (unsigned lane = 0; lane < kLanes; ++lane)
      out[lane] = base[lane] + offset;
  } else {
    const uint32_t *base = reg<uint32_t>(address);
    for (unsigned lane = 0; lane < kLanes; ++lane)
      out[lane] = static_cast<uint32_t>(base[lane] + offset);
  }
}

static Space spaceOfGeneric(uint64_t address) {
  for (Space space : {Space::Shared, Space::Local, Space::Param})
    if (address / kSharedWindow == windowOf(space) / kSharedWindow)
      return space;
  return Space::Global;
}

static const char *verbOf(AccessKind kind) {
  return kind == AccessKind::Read ? "reads" : kind == AccessKind::Write ? "writes" : "updates";
}

namespace {

/// One access of a warp, all of it in one space.
struct Request {
  Warp &warp;
  const Instruction &i;
  Mask mask;
  AccessKind kind;
  unsigned bytes;
  uint64_t (&addresses)[kLanes];
  std::byte *(&pointers)[kLanes];

  [[noreturn]] void outOfBounds(unsigned lane, const std::string &where) {
    warp.stop(Finding::OutOfBounds, i, 1u << lane,
              fmt::format("{} {} bytes at {:#x}: {}", verbOf(kind), bytes, addresses[lane], where));
  }

  void shared(uint64_t window) {
    Block &block = warp.block;
    forEachLane(mask, [&](unsigned lane) {
      uint64_t offset = addresses[lane] - window - kFirstSharedAddress;
      if (offset + bytes > block.sharedBytes || offset > block.sharedBytes)
        outOfBounds(lane,
                    fmt::format("shared memory of the block has {} bytes, and this is offset {}",
                                block.sharedBytes, static_cast<int64_t>(offset)));
      pointers[lane] = block.shared + offset;
    });
    if (Checker *checker = warp.launch.checker.get())
      forEachLane(mask, [&](unsigned lane) {
        checker->shared(warp, i, lane, pointers[lane] - block.shared, bytes, kind);
      });
  }

  void local(uint64_t window) {
    uint64_t limit = warp.frame->localBase + warp.frame->function->localBytes - kFirstLocalAddress;
    forEachLane(mask, [&](unsigned lane) {
      uint64_t offset = addresses[lane] - window - kFirstLocalAddress;
      if (offset + bytes > limit || offset > limit)
        outOfBounds(lane,
                    fmt::format("local memory of the thread has {} bytes, and this is offset {}",
                                limit, static_cast<int64_t>(offset)));
      pointers[lane] = warp.local.data() + size_t(lane) * warp.localStride + offset;
      if (Checker *checker = warp.launch.checker.get())
        checker->local(warp, i, lane, offset, bytes, kind);
    });
  }

  void parameter(uint64_t window) {
    forEachLane(mask, [&](unsigned lane) {
      uint64_t offset = addresses[lane] - window, size = warp.launch.parameters.size();
      if (offset + bytes > size || offset > size)
        outOfBounds(lane, fmt::format("the parameters of the kernel have {} bytes", size));
      if (kind != AccessKind::Read)
        warp.stop(Finding::ReadOnly, i, 1u << lane, "writes a parameter of the kernel");
      pointers[lane] = warp.launch.parameters.data() + offset;
    });
  }

  Allocation &allocationOf(unsigned lane) {
    Device::State &memory = warp.launch.memory;
    Allocation *found = memory.find(addresses[lane]);
    if (found && found->contains(addresses[lane], bytes))
      return *found;
    Allocation *near = memory.nearest(addresses[lane]);
    if (!near)
      outOfBounds(lane, "nothing is allocated");
    int64_t past = static_cast<int64_t>(addresses[lane] - near->address);
    if (std::abs(past) > 1ll << 36)
      outOfBounds(lane, "no buffer is anywhere near");
    outOfBounds(lane, fmt::format("'{}' has {} bytes, and this is offset {}", near->name,
                                  near->size, past));
  }

  void global() {
    Launch &launch = warp.launch;
    uint64_t low = addresses[0], high = addresses[0];
    for (unsigned lane = 1; lane < kLanes; ++lane) {
      low = std::min(low, addresses[lane]);
      high = std::max(high, addresses[lane]);
    }
    Allocation *one = launch.lastAllocation;
    bool inOne = one && one->contains(low, high - low + bytes);
    if (!inOne) {
      one = launch.memory.find(low);
      inOne = one && one->contains(low, high - low + bytes);
      if (inOne)
        launch.lastAllocation = one;
    }
    if (inOne && !launch.checker) {
      std::byte *base = one->data;
      for (unsigned lane = 0; lane < kLanes; ++lane)
        pointers[lane] = base + (addresses[lane] - one->address);
      if (kind != AccessKind::Read && (one->readOnly || !one->written.empty()))
        written(*one);
      return;
    }
    forEachLane(mask, [&](unsigned lane) {
      Allocation &allocation = inOne ? *one : allocationOf(lane);
      uint64_t offset = addresses[lane] - allocation.address;
      pointers[lane] = allocation.data + offset;
      if (kind != AccessKind::Read && allocation.readOnly)
        warp.stop(Finding::ReadOnly, i, 1u << lane,
                  fmt::format("writes '{}', which is constant", allocation.name));
      if (launch.checker)
        launch.checker->global(warp, i, lane, allocation, offset, bytes, kind);
      else if (kind != AccessKind::Read)
        allocation.written.clear();
    });
  }

  void written(Allocation &one) {
    if (one.readOnly)
      warp.stop(Finding::ReadOnly, i, mask,
                fmt::format("writes '{}', which is constant", one.name));
    one.written.clear(); // without checks, a buffer that is written counts as written
  }

  void run(Space space, uint64_t window) {
    uint64_t bits = 0;
    forEachLane(mask, [&](unsigned lane) { bits |= addresses[lane]; });
    if (bits & (bytes - 1)) {
      unsigned lane = 0;
      while (!(mask >> lane & 1) || !(addresses[lane] & (bytes - 1)))
        ++lane;
      warp.stop(Finding::Misaligned, i, 1u << lane,
                fmt::format("{} {} bytes at {:#x}, which is no multiple of {}", verbOf(kind), bytes,
                            addresses[lane], bytes));
    }
    switch (space) {
    case Space::Shared:
      shared(window);
      break;
    case Space::Local:
      local(window);
      break;
    case Space::Param:
      parameter(window);
      break;
    default:
      global();
    }
    if (warp.launch.options.memoryStatistics)
      warp.launch.count(i, space, mask, bytes, addresses);
  }
};

} // namespace

void Warp::resolve(const Instruction &i, Mask m, AccessKind kind, unsigned bytes,
                   uint64_t (&at)[kLanes], Space space, std::byte *(&pointers)[kLanes]) {
  unsigned first = std::countr_zero(m);
  if (m != kAllLanes)
    for (unsigned lane = 0; lane < kLanes; ++lane)
      at[lane] = m >> lane & 1 ? at[lane] : at[first];
  Request request{*this, i, m, kind, bytes, at, pointers};
  if (space != Space::Generic)
    return request.run(space, 0);
  // Lanes may point into different spaces: one request for each.
  for (Mask left = m; left;) {
    Space wanted = spaceOfGeneric(at[std::countr_zero(left)]);
    Mask same = 0;
    forEachLane(left,
                [&](unsigned lane) { same |= Mask(spaceOfGeneric(at[lane]) == wanted) << lane; });
    left &= ~same;
    if (same == m)
      return request.run(wanted, windowOf(wanted));
    uint64_t part[kLanes];
    for (unsigned lane = 0; lane < kLanes; ++lane)
      part[lane] = same >> lane & 1 ? at[lane] : at[std::countr_zero(same)];
    std::byte *found[kLanes] = {};
    Request{*this, i, same, kind, bytes, part, found}.run(wanted, windowOf(wanted));
    forEachLane(same, [&](unsigned lane) { pointers[lane] = found[lane]; });
  }
}

void Warp::startCopies(const Instruction &i, Mask m, const uint64_t (&destination)[kLanes],
                       std::byte *const (&source)[kLanes], const uint32_t (&sourceBytes)[kLanes],
                       unsigned bytes, std::vector<PendingCopy> &into) {
  forEachLane(m, [&](unsigned lane) {
    uint64_t offset = destination[lane];
    if (offset - kSharedWindow < kWindowBytes)
      offset -= kSharedWindow;
    offset -= kFirstSharedAddress;
    if (offset > block.sharedBytes || offset + bytes > block.sharedBytes)
      stop(Finding::OutOfBounds, i, 1u << lane,
           fmt::format("copies {} bytes to offset {}; shared memory of the block has {} bytes",
                       bytes, static_cast<int64_t>(offset), block.sharedBytes));
    if (offset % bytes)
      stop(Finding::Misaligned, i, 1u << lane,
           fmt::format("copies {} bytes to offset {}, which is no multiple of {}", bytes, offset,
                       bytes));
    PendingCopy copy{{},
                     static_cast<uint32_t>(offset),
                     static_cast<uint8_t>(bytes),
                     static_cast<uint8_t>(lane),
                     launch.pcOf(i),
                     groups[lane]};
    std::memcpy(copy.data.data(), source[lane], sourceBytes[lane]); // the rest is zero
    if (launch.checker)
      launch.checker->startCopy(*this, i, copy);
    into.push_back(copy);
  });
  if (launch.options.memoryStatistics)
    launch.count(i, Space::Shared, m, bytes, destination);
}

void Warp::finishCopy(const PendingCopy &copy) {
  std::memcpy(block.shared + copy.destination, copy.data.data(), copy.bytes);
  if (launch.checker)
    launch.checker->finishCopy(*this, copy);
}

/// Passes that 32 banks of 4 bytes need for `lanes`, where lanes that want the same word share it.
static unsigned passes(const uint64_t (&addresses)[kLanes], Mask lanes, unsigned bytes) {
  uint64_t words[kLanes * 4];
  unsigned count = 0;
  forEachLane(lanes, [&](unsigned lane) {
    for (unsigned byte = 0; byte < bytes; byte += 4)
      words[count++] = addresses[lane] / 4 + byte / 4;
  });
  std::sort(words, words + count);
  count = std::unique(words, words + count) - words;
  uint8_t perBank[32] = {};
  unsigned most = 0;
  for (unsigned k = 0; k < count; ++k)
    most = std::max<unsigned>(most, ++perBank[words[k] % 32]);
  return most;
}

void Launch::count(const Instruction &i, Space space, Mask mask, unsigned bytes,
                   const uint64_t (&addresses)[kLanes]) {
  Counters &c = counters(i);
  if (i.opClass != OpClass::Async || space != Space::Shared) { // a copy's two sides are one request
    ++c.requests;
    c.bytes += uint64_t(bytes) * std::popcount(mask);
  }
  if (space == Space::Shared) {
    // A 16-byte access is served a quarter warp at a time, an 8-byte access half a warp.
    unsigned step = bytes >= 16 ? 8 : bytes == 8 ? 16 : 32;
    for (unsigned first = 0; first < kLanes; first += step) {
      Mask part = mask & (step == 32 ? kAllLanes : ((1u << step) - 1) << first);
      if (!part)
        continue;
      unsigned needed = passes(addresses, part, bytes);
      c.wavefronts += needed;
      c.conflicts += needed - 1;
    }
  } else if (space == Space::Global || space == Space::Const) {
    uint64_t sectors[kLanes];
    unsigned count = 0;
    bool sorted = true;
    uint64_t previous = 0;
    forEachLane(mask, [&](unsigned lane) {
      uint64_t sector = addresses[lane] / 32;
      if (count && sector == previous)
        return;
      sorted &= !count || sector > previous;
      sectors[count++] = previous = sector;
    });
    if (!sorted) {
      std::sort(sectors, sectors + count);
      count = std::unique(sectors, sectors + count) - sectors;
    }
    c.sectors += count;
  } else if (space == Space::Local) {
    c.sectors += std::popcount(mask) * std::max(bytes, 4u) / 32 + 1; // interleaved by words
  }
}
