//===- ExpertItems.h - Choices in the order of experts ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_GPU_EXPERTITEMS_H
#define EASYQUANT_TEST_CODEGEN_GPU_EXPERTITEMS_H

#include "easyquant/Codegen/GPU/Experts.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace easyquant::gpu {

/// Choices of rows in the order of experts, as lm.route says it.
struct Sorted {
  Sorted(const std::vector<int32_t> &choices, int64_t experts, int64_t chosen)
      : places(choices.size()), order(choices.size()), counts(experts) {
    std::vector<int32_t> sorted(choices.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    std::ranges::sort(sorted, {},
                      [&](int32_t choice) { return std::pair(choices[choice], choice); });
    for (int32_t place = 0; place < std::ssize(sorted); ++place) {
      places[sorted[place]] = place;
      order[place] = sorted[place] / static_cast<int32_t>(chosen);
      ++counts[choices[sorted[place]]];
    }
  }
  /// The choices of experts with so many rows each.
  explicit Sorted(std::vector<int64_t> counts) : counts(std::move(counts)) {}

  int64_t rows() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  /// The lists; what nobody reads is -1.
  std::vector<int32_t> items() const {
    std::vector<int32_t> items((rows() + 1) * kItemStride, -1);
    for (int64_t list = 0; list < std::ssize(kItemRows); ++list) {
      int64_t number = 0, first = 0;
      auto put = [&](int64_t row, std::array<int64_t, 4> fields) {
        std::ranges::copy(fields, items.begin() + row * kItemStride + kItemFields * list);
      };
      for (int64_t expert = 0; expert < std::ssize(counts); ++expert) {
        for (int64_t done = 0; done < counts[expert]; done += kItemRows[list])
          put(++number,
              {expert, first + done, std::min(kItemRows[list], counts[expert] - done), 0});
        first += counts[expert];
      }
      put(0, {number, 0, 0, 0});
    }
    return items;
  }

  std::vector<int32_t> places, order;
  std::vector<int64_t> counts;
};

} // namespace easyquant::gpu

#endif // EASYQUANT_TEST_CODEGEN_GPU_EXPERTITEMS_H
