//===- HiddenPlaces.cpp - Where hidden states are kept --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HiddenPlaces.h"

#include <algorithm>

using namespace easyquant::runtime;

/// Room for as many more, doubled so that taking many costs little.
static void makeRoom(std::vector<int32_t> &numbers, size_t count) {
  if (numbers.capacity() - numbers.size() < count)
    numbers.reserve(2 * numbers.size() + count);
}

void HiddenPlaces::take(int64_t count, std::vector<int32_t> &places) {
  makeRoom(places, static_cast<size_t>(count));
  makeRoom(owners, static_cast<size_t>(count));
  for (; count > 0; ++firstFree) {
    if (firstFree == owners.size())
      owners.push_back(0);
    if (owners[firstFree] > 0)
      continue;
    owners[firstFree] = 1;
    places.push_back(static_cast<int32_t>(firstFree));
    --count;
  }
}

void HiddenPlaces::share(std::span<const int32_t> places) noexcept {
  for (int32_t place : places)
    ++owners[static_cast<size_t>(place)];
}

void HiddenPlaces::release(std::span<const int32_t> places) noexcept {
  for (int32_t place : places)
    if (--owners[static_cast<size_t>(place)] == 0)
      firstFree = std::min(firstFree, static_cast<size_t>(place));
}
