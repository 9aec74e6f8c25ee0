//===- DeviceHidden.h - Hidden states that stay on a device -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a head that drafts reads: the rows that a step has left, those that sequences keep, by their
// places (HiddenPlaces.h), and the rows of a step of the head. None comes to the host. Private to
// the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_DEVICEHIDDEN_H
#define EASYQUANT_LIB_RUNTIME_DEVICEHIDDEN_H

#include "easyquant/Runtime/Device.h"

#include <span>
#include <vector>

namespace easyquant::runtime {

class DeviceHidden {
public:
  /// For rows of `columns` f32 numbers. `list` and `by` live longer.
  void open(std::shared_ptr<Device> on, Queue &by, const LaunchList &list, int64_t columns);
  /// What the rows of the largest step take, and those that so many sequences keep behind a call:
  /// while it runs a call keeps those of all its tokens.
  int64_t mostBytes(int64_t kept) const { return (2 * program->maxRows + kept) * rowBytes(); }
  /// Makes room for the rows of a step, once it is open. Whether next() and before() have moved,
  /// which recorded steps know. Error: what the device says.
  Result<bool> makeRoom(int64_t rows);
  /// What a step leaves, and what one of the head reads; a row each.
  uint64_t next() const { return nextRows.address(); }
  uint64_t before() const { return beforeRows.address(); }

  /// Keeps what the last step has left behind its rows, each in its place; -1: not this one.
  Result<void> keep(std::span<const int32_t> places);
  /// Brings the rows of these places together, for a step of the head. The queue is to be waited
  /// for before the next ones are.
  Result<void> gather(std::span<const int32_t> places);
  int64_t bytes() const {
    return nextRows.size() + beforeRows.size() + kept.size() + numbers.size();
  }

private:
  uint64_t placeOf(const DeviceMemory &rows, int64_t row) const {
    return rows.address() + static_cast<uint64_t>(row * rowBytes());
  }
  int64_t rowBytes() const { return width * int64_t(sizeof(float)); }
  Result<void> makeRoomToKeep(int64_t rows);
  Result<void> wait(const DeviceMemory &memory);

  std::shared_ptr<Device> device;
  Queue *queue = nullptr;
  const LaunchList *program = nullptr;
  int64_t width = 0;
  DeviceMemory nextRows, beforeRows, kept, numbers;
  std::vector<int32_t> staged; ///< numbers, on their way
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_DEVICEHIDDEN_H
