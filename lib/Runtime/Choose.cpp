//===- Choose.cpp - Rows of a batch's logits, read in its threads ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceLogits.h"
#include "Executor.h"

#include "easyquant/Runtime/Batch.h"
#include "easyquant/Support/Parallel.h"

#include <atomic>

using namespace easyquant;
using namespace easyquant::runtime;

Result<void> Executor::inThreads(int32_t threads, ThreadWork work) {
  parallelFor(threads, static_cast<unsigned>(threads),
              [&](int64_t slot) { work.function(work.context, static_cast<int32_t>(slot)); });
  return {};
}

/// Calls read(reader, i) for each of `count` rows.
template <typename Read> Result<void> Batch::readRows(int64_t count, const Read &read) {
  if (count == 0)
    return {};
  const auto needed = static_cast<size_t>(std::min<int64_t>(count, threadCount));
  while (readers.size() < needed)
    readers.emplace_back(owner->manifest().model.vocabSize);
  if (count == 1) {
    read(readers.front(), 0);
    return {};
  }
  // What threads tell each other goes through these counts, which make their writes known. A
  // checker of races sees nothing of how libomp does that.
  struct Shared {
    std::vector<RowReader> &readers;
    const Read &read;
    int64_t count;
    std::atomic<int64_t> next, ended;
  } shared{readers, read, count, 0, 0};
  auto run = [](void *context, int32_t slot) {
    auto &[readers, read, count, next, ended] = *static_cast<Shared *>(context);
    if (slot >= std::ssize(readers))
      return;
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_acq_rel)) < count;)
      read(readers[static_cast<size_t>(slot)], i);
    ended.fetch_add(1, std::memory_order_acq_rel);
  };
  Result<void> ran = executor->inThreads(threadCount, {run, &shared});
  shared.ended.load(std::memory_order_acquire);
  return ran;
}

Result<void> Batch::describe(std::span<const RowRequest> rows) {
  return readRows(std::ssize(rows), [&](RowReader &reader, int64_t i) noexcept {
    const RowRequest &row = rows[static_cast<size_t>(i)];
    reader.describe(row.logits, row.token, row.logprob, row.best);
  });
}

Result<void> Batch::chooseOnDevice(std::vector<ChoiceRow> &rows,
                                   std::span<const eq_choice> choices) {
  std::vector<DeviceLogits::Request> requests;
  std::vector<size_t> places;
  for (size_t i = 0; i < rows.size(); ++i) {
    ChoiceRow &row = rows[i];
    if (row.logits)
      continue;
    const eq_choice &choice = choices[row.choice];
    const int64_t vocabulary = owner->manifest().model.vocabSize;
    const auto setting = settingOnDevice(choice, vocabulary);
    if (!setting)
      continue;
    const KeptLogits &kept = row.sequence->onDevice;
    if (Draw(choice, vocabulary).isGreedy && !changesLogits(choice)) {
      row.chosen.token = formats::GreatestLogit{kept.greatest}.token();
      continue;
    }
    requests.push_back({kept.slot, uniformAt(choice.seed, static_cast<uint64_t>(row.position)),
                        *setting, &choice});
    places.push_back(i);
  }
  std::vector<int32_t> tokens(requests.size());
  if (!requests.empty())
    if (auto done = executor->deviceLogits()->choose(requests, tokens); !done)
      return done;
  for (size_t i = 0; i < places.size(); ++i)
    if (tokens[i] != formats::kLeftToHost)
      rows[places[i]].chosen.token = tokens[i];
  return {};
}

Result<void> Batch::choose(std::span<const eq_choice> choices,
                           std::span<Result<eq_logprob>> results) {
  std::vector<ChoiceRow> rows;
  rows.reserve(choices.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    Result<Sequence *> found = find(choices[i].sequence);
    Result<void> checked = found ? checkChoice(choices[i], owner->manifest().model.vocabSize)
                                 : Unexpected(found.error());
    if (!checked)
      results[i] = Unexpected(checked.error());
    else if (const float *given = choices[i].logits)
      rows.push_back({i, *found, choices[i].position, given});
    else if (const Sequence &own = **found; own.logits >= 0)
      rows.push_back({i, *found, own.position,
                      own.onDevice.isHere() ? logitsRow(current, own.logits) : nullptr});
    else
      results[i] = makeError(ErrorCode::InvalidArgument,
                             "sequence: {} has no logits, expected a token behind which another is "
                             "chosen; append one",
                             choices[i].sequence);
  }
  if (Result<void> chosen = chooseOnDevice(rows, choices); !chosen)
    return chosen;
  std::vector<ChoiceRow *> left;
  for (ChoiceRow &row : rows) {
    if (row.chosen.token >= 0)
      continue;
    if (!row.logits) {
      Result<const float *> read = readLogits(*row.sequence);
      if (!read)
        return Unexpected(read.error());
      row.logits = *read;
    }
    left.push_back(&row);
  }
  Result<void> ran = readRows(std::ssize(left), [&](RowReader &reader, int64_t i) noexcept {
    ChoiceRow &row = *left[static_cast<size_t>(i)];
    const eq_choice &choice = choices[row.choice];
    row.chosen.token = reader.choose(row.logits, choice, row.position);
    if (row.chosen.token >= 0 && (choice.with_logprob != 0 || choice.best_count > 0))
      reader.describe(row.logits, row.chosen.token,
                      choice.with_logprob != 0 ? &row.chosen.logprob : nullptr,
                      {choice.best, choice.best_count});
  });
  if (!ran)
    return ran;
  for (const ChoiceRow &row : rows)
    if (row.chosen.token >= 0)
      results[row.choice] = row.chosen;
    else
      results[row.choice] = makeError(ErrorCode::InvalidArgument,
                                      "allowed: found no token that may be chosen for sequence {}, "
                                      "expected the bit of at least one",
                                      choices[row.choice].sequence);
  return {};
}
