//===- Block.cpp - Thread blocks and their barriers -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checks.h"
#include "MBarrier.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::simt;

Block::Block(Launch &launch, std::array<uint32_t, 3> id, uint32_t linear)
    : launch(launch), id(id), linear(linear),
      sharedBytes(launch.decoded.staticSharedBytes + launch.options.dynamicSharedBytes),
      mbarriers(std::make_unique<MBarrierTable>()) {
  sharedStorage.resize(sharedBytes + 1024);
  auto address = reinterpret_cast<uintptr_t>(sharedStorage.data());
  shared = sharedStorage.data() + ((address + 1023) / 1024 * 1024 - address);
  if (launch.checker) {
    sharedState.assign(sharedBytes, 0);
    sharedShadow = std::make_unique<ShadowMemory>(sharedBytes);
  }
  unsigned threads = launch.threadsOfBlock();
  for (unsigned first = 0; first < threads; first += kLanes) {
    unsigned lanes = std::min(kLanes, threads - first);
    warps.push_back(std::make_unique<Warp>(*this, first / kLanes,
                                           lanes == kLanes ? kAllLanes : (1u << lanes) - 1));
  }
}

Block::~Block() = default;

unsigned Block::aliveThreads() const {
  unsigned count = 0;
  for (const auto &warp : warps)
    count += std::popcount(warp->alive);
  return count;
}

bool Block::run(uint64_t quantum) {
  bool ran = false, all = true;
  for (auto &warp : warps) {
    if (warp->done())
      continue;
    all = false;
    if (!warp->runnable())
      continue;
    warp->run(quantum);
    ran = true;
  }
  if (all || ran)
    return all;
  std::string what = "these warps wait for each other for ever:";
  const Warp *first = nullptr;
  uint32_t pc = 0;
  for (const auto &warp : warps)
    for (const Group &group : warp->pending) {
      what += fmt::format("\n    {} at barrier {}, {}", describeLanes(*warp, group.mask),
                          group.barrier, launch.quote(group.pc - 1));
      if (!first)
        first = warp.get(), pc = group.pc - 1;
    }
  launch.report(Finding::Deadlock, pc, *this, first ? first->thread(0) : 0, what);
  throw Stop();
}

void Block::arrive(Warp &warp, const Instruction &i, Mask mask, unsigned number, unsigned expected,
                   bool waits, bool aligned) {
  Barrier &barrier = barriers[number];
  uint32_t pc = launch.pcOf(i);
  if (!barrier.arrived) {
    barrier.expected = expected;
    barrier.pc = pc;
  } else if (barrier.expected != expected) {
    warp.stop(Finding::DivergentBarrier, i, mask,
              fmt::format("asks for {} threads at barrier {}, where {} asked for {}", expected,
                          number, launch.quote(barrier.pc), barrier.expected));
  } else if (launch.checker && aligned && !expected && barrier.pc != pc) {
    launch.report(Finding::DivergentBarrier, pc, *this, warp.thread(std::countr_zero(mask)),
                  fmt::format("{} meet other threads of the block that wait at a different "
                              "instruction, {}",
                              describeLanes(warp, mask), launch.quote(barrier.pc)));
  }
  // With a count, a barrier counts whole warps.
  barrier.arrived += aligned && expected ? kLanes : std::popcount(mask);
  if (launch.checker)
    launch.checker->barrierArrive(barrier, warp);
  if (waits) {
    if (std::find(barrier.warps.begin(), barrier.warps.end(), &warp) == barrier.warps.end())
      barrier.warps.push_back(&warp);
    warp.waitAt(number);
  }
  if (expected && barrier.arrived > expected)
    warp.stop(Finding::DivergentBarrier, i, mask,
              fmt::format("makes {} threads at barrier {}, which expects {}", barrier.arrived,
                          number, expected));
  if (barrier.arrived == (expected ? expected : aliveThreads()))
    complete(number);
}

void Block::complete(unsigned number) {
  Barrier &barrier = barriers[number];
  ++launch.barriersCompleted;
  deliverReduction(barrier);
  for (Warp *warp : barrier.warps) {
    if (launch.checker)
      launch.checker->barrierLeave(barrier, *warp);
    warp->release(number);
  }
  barrier.arrived = barrier.expected = barrier.reduction = barrier.voters = 0;
  barrier.receivers.clear();
  barrier.clocks.clear();
  barrier.warps.clear();
}

void Block::checkBarriers() {
  unsigned alive = aliveThreads();
  for (unsigned number = 0; number < barriers.size(); ++number)
    if (barriers[number].arrived && !barriers[number].expected && barriers[number].arrived == alive)
      complete(number);
}
