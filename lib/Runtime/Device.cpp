//===- Device.cpp - What all devices share --------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Device.h"

#include <charconv>
#include <utility>

using namespace easyquant;
using namespace easyquant::runtime;

static Unexpected cannotRecord() {
  return makeError(ErrorCode::Unsupported, "this device records no launches");
}
Result<void> Queue::beginRecording() { return cannotRecord(); }
Result<std::unique_ptr<Recording>> Queue::endRecording() { return cannotRecord(); }
Result<void> Queue::replay(Recording &) { return cannotRecord(); }

Result<void> DeviceMemory::allocate(std::shared_ptr<Device> from, int64_t size,
                                    std::string_view what) {
  *this = DeviceMemory();
  if (size > 0) {
    Result<uint64_t> address = from->allocate(size, what);
    if (!address)
      return Unexpected(address.error());
    begin = *address;
  }
  bytes = size;
  device = std::move(from);
  return {};
}

DeviceMemory &DeviceMemory::operator=(DeviceMemory &&other) noexcept {
  if (this != &other) {
    release();
    device = std::move(other.device);
    begin = std::exchange(other.begin, 0);
    bytes = std::exchange(other.bytes, 0);
  }
  return *this;
}

void DeviceMemory::release() {
  if (begin != 0)
    device->free(begin);
  begin = 0;
}

namespace {
/// "sm_90a": 90, and that it is for no other chip.
struct Architecture {
  int number = 0;
  bool exact = false;

  explicit Architecture(std::string_view name) {
    if (!name.starts_with("sm_"))
      return;
    const char *digits = name.data() + 3, *last = name.data() + name.size();
    auto [end, error] = std::from_chars(digits, last, number);
    exact = end != last;
    if (error != std::errc())
      number = 0;
  }
  /// The GPU of Jetson takes no other GPU's machine code, and none of them takes that of Jetson.
  static bool isJetson(int number) { return number == 87; }
};
} // namespace

int easyquant::runtime::numberOf(std::string_view chip) { return Architecture(chip).number; }

ChipChoice easyquant::runtime::chooseChip(CudaCapability capability,
                                          std::span<const ChipChoice> chips) {
  ChipChoice best;
  int bestRank = -1;
  for (const ChipChoice &chip : chips) {
    Architecture architecture(chip.name);
    if (architecture.number == 0 || architecture.number > capability.number)
      continue;
    bool same = architecture.number == capability.number;
    if (architecture.exact && !same)
      continue;
    bool compatible = same || (architecture.number / 10 == capability.number / 10 &&
                               !Architecture::isJetson(architecture.number) &&
                               !Architecture::isJetson(capability.number));
    bool runs = chip.machineCode && compatible;
    // Machine code before PTX, then the newest, then what is for this chip alone.
    int rank = (runs ? 10000 : 0) + 2 * architecture.number + (architecture.exact ? 1 : 0);
    if (rank > bestRank) {
      bestRank = rank;
      best = {chip.name, runs};
    }
  }
  return best;
}
