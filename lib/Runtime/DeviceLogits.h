//===- DeviceLogits.h - Rows of logits that stay on a device ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The logits of sequences' last tokens. A step's rows are copied to places of their own, which
// sequences that are forks of each other share; the greatest logit of each comes to the host with
// the step, in eight bytes that also say whether all are finite. Where more is wanted, a token is
// chosen there (TokenChoice.h), or the row is read. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_DEVICELOGITS_H
#define EASYQUANT_LIB_RUNTIME_DEVICELOGITS_H

#include "Sampling.h"

#include "easyquant/Formats/TokenChoice.h"
#include "easyquant/Runtime/Device.h"

#include <optional>
#include <span>
#include <vector>

namespace easyquant::runtime {

/// What a device does of a choice: std::nullopt where the host chooses by the row. That is where
/// `allowed` says what may be chosen, where log-probabilities are asked for, where top_k is above
/// what a kernel looks at, where a token has several biases, and where penalties and biases might
/// be more bytes than the row. A greedy choice by an unchanged row is known without asking.
std::optional<formats::ChoiceSetting> settingOnDevice(const eq_choice &choice, int64_t vocabulary);

class DeviceLogits {
public:
  /// A row that is kept.
  struct Row {
    int64_t slot;
    formats::GreatestLogit greatest;
  };
  struct Request {
    int64_t slot;
    double draw; ///< uniformAt
    formats::ChoiceSetting setting;
    const eq_choice *choice; ///< of which more is read where it changes the row
  };

  /// For steps of the program, in which each of so many sequences has a row at most. Errors: those
  /// of the device's memory.
  Result<void> allocate(std::shared_ptr<Device> device, Queue &queue, const LaunchList &program,
                        int64_t vocabulary, int64_t sequences);
  /// What that takes in the end for the rows.
  static int64_t mostBytes(int64_t vocabulary, int64_t sequences);
  int64_t bytes() const {
    return kept.size() + greatest.size() + tops.size() + sums.size() + choices.size() +
           settingTable.size() + tokens.size() + changed.size() + changeTable.size();
  }

  /// Finds places for so many rows more, before the step that makes them.
  Result<void> makeRoom(int64_t rows);
  /// Waits for the step, and keeps rows from the first one of `logits` on. Each has an owner.
  Result<void> keep(uint64_t logits, int64_t rows);
  /// The rows of the last step.
  std::span<const Row> lastStep() const { return rows; }

  /// One owner more, respectively less.
  void share(int64_t slot) noexcept { ++owners[static_cast<size_t>(slot)]; }
  void release(int64_t slot) noexcept { --owners[static_cast<size_t>(slot)]; }

  Result<void> read(int64_t slot, float *to);
  /// The token of each request; formats::kLeftToHost where the host is to choose.
  Result<void> choose(std::span<const Request> requests, std::span<int32_t> chosen);

private:
  Result<void> launch(size_t kernel, std::string_view site, int64_t rows,
                      std::initializer_list<uint64_t> arguments);
  /// The first of `count` free places that are one behind the other, or of as many as there are.
  int64_t freeRun(int64_t count, int64_t &found) const;
  /// The number of a setting in the table on the device.
  Result<int64_t> numberOf(const formats::ChoiceSetting &setting);
  /// The first requests that are seen to together.
  size_t countAtOnce(std::span<const Request> requests) const;
  Result<void> chooseSome(std::span<const Request> requests, std::span<int32_t> chosen);
  /// Makes the rows that choices change, which are `lastStep()` then.
  Result<void> changeRows(std::span<const Request> requests);
  Result<void> draw(std::span<const Request> requests, std::span<int32_t> chosen);
  Result<void> allocateRows(int64_t count);
  int64_t freeSlots() const;

  std::shared_ptr<Device> device;
  Queue *queue = nullptr;
  const LaunchList *program = nullptr;
  int64_t vocabulary = 0, mostSlots = 0, choicesAtOnce = 0;
  DeviceMemory kept, greatest;              ///< by slot
  DeviceMemory tops, sums, choices, tokens; ///< of choices under way
  DeviceMemory settingTable;
  DeviceMemory changed, changeTable; ///< rows with penalties and biases, and these
  std::vector<int32_t> owners;       ///< by slot
  std::vector<Row> rows;
  std::vector<formats::GreatestLogit> found;    ///< of the rows
  std::vector<formats::ChoiceSetting> settings; ///< on the device
  std::vector<formats::TokenChoice> staged;
  std::vector<formats::LogitChange> changes;
  std::vector<int32_t> counts; ///< of tokens, all 0
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_DEVICELOGITS_H
