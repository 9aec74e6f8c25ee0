//===- HiddenPlaces.h - Where hidden states are kept ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A head that drafts reads what the model has made of tokens. An executor keeps these rows in
// places, in memory of its device; here is who has which. Forks share them. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_HIDDENPLACES_H
#define EASYQUANT_LIB_RUNTIME_HIDDENPLACES_H

#include <cstdint>
#include <span>
#include <vector>

namespace easyquant::runtime {

/// Tokens of a sequence of which it is kept what the model made of them, so that as many may be
/// taken back. Twice as many at most are there behind a call.
inline constexpr int64_t kKeptHidden = 64;

/// Numbers of places from 0 on, each of which several owners may have.
class HiddenPlaces {
public:
  /// Adds the first free ones, for one owner. May throw std::bad_alloc, and has then changed
  /// nothing.
  void take(int64_t count, std::vector<int32_t> &places);
  /// One owner more, respectively less, of each.
  void share(std::span<const int32_t> places) noexcept;
  void release(std::span<const int32_t> places) noexcept;

private:
  std::vector<int32_t> owners; ///< by place
  size_t firstFree = 0;        ///< none before it is
};

/// Calls `run` with the first index and the length of each longest run of places, none of which is
/// negative, that lie one behind the other; until it fails.
template <typename Function>
auto forEachRun(std::span<const int32_t> places, const Function &run) -> decltype(run(0, 0)) {
  for (size_t first = 0; first < places.size();) {
    size_t end = first + 1;
    while (end < places.size() && places[end] == places[end - 1] + 1 && places[first] >= 0)
      ++end;
    if (places[first] >= 0)
      if (auto done = run(static_cast<int64_t>(first), static_cast<int64_t>(end - first)); !done)
        return done;
    first = end;
  }
  return {};
}

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_HIDDENPLACES_H
