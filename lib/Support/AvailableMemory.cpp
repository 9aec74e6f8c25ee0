//===- AvailableMemory.cpp - What a process can still get -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/AvailableMemory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

using namespace easyquant;

/// The number behind `field` in a file of the system, or the one that it is; nothing where there is
/// none.
static std::optional<int64_t> readNumber(const char *path, const std::string &field = "") {
  std::ifstream file(path);
  int64_t number = 0;
  if (field.empty())
    return file >> number ? std::optional(number) : std::nullopt;
  for (std::string word; file >> word;)
    if (word == field)
      return file >> number ? std::optional(number) : std::nullopt;
  return std::nullopt;
}

int64_t easyquant::availableMemory() {
  int64_t available = readNumber("/proc/meminfo", "MemAvailable:").value_or(0) * 1024;
  const auto most = readNumber("/sys/fs/cgroup/memory.max"),
             used = readNumber("/sys/fs/cgroup/memory.current");
  if (most && used) // pages of files go when memory is asked for
    available =
        std::min(available,
                 std::max<int64_t>(
                     0, *most - *used +
                            readNumber("/sys/fs/cgroup/memory.stat", "inactive_file").value_or(0)));
  return available;
}
