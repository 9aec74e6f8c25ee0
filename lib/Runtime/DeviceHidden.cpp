//===- DeviceHidden.cpp - Hidden states that stay on a device -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceHidden.h"

#include "HiddenPlaces.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::runtime;

/// Rows that there is room for in the beginning: those of steps that are recorded.
static constexpr int64_t kLeastRows = 256;
static constexpr const char *kWhat = "hidden states of a step", *kKept = "hidden states";

void DeviceHidden::open(std::shared_ptr<Device> on, Queue &by, const LaunchList &list,
                        int64_t columns) {
  device = std::move(on);
  queue = &by;
  program = &list;
  width = columns;
}

Result<bool> DeviceHidden::makeRoom(int64_t rows) {
  if (!queue)
    return false;
  const int64_t known = std::min({nextRows.size() / rowBytes(), beforeRows.size() / rowBytes(),
                                  numbers.size() / int64_t(sizeof(int32_t))});
  if (rows <= known)
    return false;
  if (nextRows.size() > 0) // what is copied stays until it is
    if (auto done = wait(nextRows); !done)
      return Unexpected(done.error());
  rows = std::max(rows, std::min(program->maxRows, std::max(kLeastRows, 2 * known)));
  const int64_t bytes = rows * rowBytes();
  for (auto [memory, size] : {std::pair(&nextRows, bytes), std::pair(&beforeRows, bytes),
                              std::pair(&numbers, rows * int64_t(sizeof(int32_t)))})
    if (auto done = memory->allocate(device, size, kWhat); !done)
      return Unexpected(done.error());
  return true;
}

Result<void> DeviceHidden::wait(const DeviceMemory &memory) {
  std::byte first;
  return queue->download(&first, memory.address(), 1);
}

/// What is kept already moves.
Result<void> DeviceHidden::makeRoomToKeep(int64_t rows) {
  if (rows * rowBytes() <= kept.size())
    return {};
  DeviceMemory larger;
  if (!larger.allocate(device, 2 * rows * rowBytes(), kKept))
    if (auto done = larger.allocate(device, rows * rowBytes(), kKept); !done)
      return done;
  if (kept.size() > 0) {
    if (auto done = queue->copy(larger.address(), kept.address(), kept.size()); !done)
      return done;
    if (auto done = wait(larger); !done) // as above
      return done;
  }
  kept = std::move(larger);
  return {};
}

Result<void> DeviceHidden::keep(std::span<const int32_t> places) {
  if (auto done = makeRoomToKeep(1 + std::ranges::max(places)); !done)
    return done;
  return forEachRun(places, [&](int64_t first, int64_t count) {
    return queue->copy(placeOf(kept, places[static_cast<size_t>(first)]), placeOf(nextRows, first),
                       count * rowBytes());
  });
}

Result<void> DeviceHidden::gather(std::span<const int32_t> places) {
  staged.assign(places.begin(), places.end());
  const auto rows = static_cast<uint64_t>(places.size());
  if (auto done = queue->upload(numbers.address(), staged.data(),
                                std::ssize(staged) * int64_t(sizeof(int32_t)));
      !done)
    return done;
  const size_t kernel = program->drafting->gather;
  const uint64_t arguments[] = {
      kept.address(),       static_cast<uint64_t>(width), numbers.address(),
      beforeRows.address(), static_cast<uint64_t>(width), rows};
  return queue->launch({kernel, program->kernels[kernel].gridFor(static_cast<int64_t>(rows)),
                        arguments, "hidden", Phase::Other});
}
