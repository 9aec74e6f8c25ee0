//===- RecurrentSteps.h - Steps of kernels that keep a state ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The tables of a step whose sequences have three slots each. Two entries of a sequence one behind
// the other are a run: the first leaves its state in a slot of its own, those between leave none.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_GPU_RECURRENTSTEPS_H
#define EASYQUANT_TEST_CODEGEN_GPU_RECURRENTSTEPS_H

#include "SimtRunner.h"

#include "easyquant/Formats/SequenceRuns.h"

#include <utility>
#include <vector>

namespace easyquant::gpu {

constexpr int32_t kSlotsOfSequence = 3;

struct RecurrentSteps {
  explicit RecurrentSteps(int64_t sequences) : at(sequences) {
    for (int32_t n = 0; n < sequences; ++n)
      slot.push_back(kSlotsOfSequence * n);
  }

  /// The next step, so many rows of each of these sequences; lists whose its rows are.
  std::vector<eq_sequence> next(const std::vector<std::pair<int64_t, int64_t>> &entries) {
    std::vector<eq_sequence> step;
    tokens.clear();
    for (size_t i = 0; i < entries.size(); ++i) {
      auto [n, count] = entries[i];
      auto isOf = [&, n = n](size_t other) {
        return other < entries.size() && entries[other].first == n;
      };
      const int32_t first = kSlotsOfSequence * static_cast<int32_t>(n), own = slot[n] - first;
      auto behind = [&](int32_t slots) { return first + (own + slots) % kSlotsOfSequence; };
      const bool again = i > 0 && isOf(i - 1);
      eq_sequence &sequence = step.emplace_back(sequenceOf(count, at[n], std::ssize(tokens)));
      sequence.slot = again ? formats::kGoesOn : slot[n];
      sequence.next_slot = !isOf(i + 1) ? behind(1) : again ? formats::kNobodyReads : behind(2);
      for (int64_t token = 0; token < count; ++token)
        tokens.emplace_back(n, at[n]++);
      if (!isOf(i + 1))
        slot[n] = behind(1);
    }
    return step;
  }

  std::vector<int64_t> at;                         ///< tokens of each sequence
  std::vector<int32_t> slot;                       ///< where its state is
  std::vector<std::pair<int64_t, int64_t>> tokens; ///< of each row: sequence and token
};

} // namespace easyquant::gpu

#endif // EASYQUANT_TEST_CODEGEN_GPU_RECURRENTSTEPS_H
