//===- GpuStepInput.cpp - What the kernels of a step are told -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GpuStepInput.h"

#include <algorithm>
#include <cstring>

using namespace easyquant;
using namespace easyquant::runtime;

Result<void> GpuStepInput::allocate(const std::shared_ptr<Device> &device, const PoolSize &pool,
                                    int64_t maxRows) {
  const auto inputBytes = sizeOf("positions and tokens", pool.sequences, sizeof(Record),
                                 maxRows * int64_t(sizeof(int64_t) + 2 * sizeof(int32_t)));
  const auto perSequence = sizeOf("pages of a sequence", pool.pages, sizeof(int64_t), 0);
  if (!inputBytes || !perSequence)
    return Unexpected(inputBytes ? perSequence.error() : inputBytes.error());
  const auto pageBytes = sizeOf("pages", pool.sequences, *perSequence, 0);
  if (!pageBytes)
    return Unexpected(pageBytes.error());
  for (auto [memory, bytes, what] :
       {std::tuple(&input, *inputBytes, "positions and tokens"), {&pages, *pageBytes, "pages"}})
    if (auto done = memory->allocate(device, bytes, what); !done)
      return done;
  tableBytes = static_cast<uint64_t>(*perSequence);
  tables.resize(static_cast<size_t>(pool.sequences));
  return {};
}

Result<void> GpuStepInput::upload(Queue &queue, std::span<const SequenceStep> sequences,
                                  std::span<const int32_t> logitRows, int64_t windowBytes,
                                  int64_t slotBytes) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::span<const int64_t> given = sequences[i].pages;
    std::vector<int64_t> &table = tables[i];
    const size_t common = std::min(given.size(), table.size());
    if (given.size() <= table.size() && std::equal(given.begin(), given.end(), table.begin()))
      continue;
    // Only the pages from the first one that differs are uploaded.
    const auto first = static_cast<size_t>(
        std::mismatch(given.begin(), given.begin() + common, table.begin()).first - given.begin());
    table.assign(given.begin(), given.end());
    const std::span<const int64_t> changed = std::span(table).subspan(first);
    if (auto done = queue.upload(pagesOf(i) + first * sizeof(int64_t), changed.data(),
                                 static_cast<int64_t>(changed.size_bytes()));
        !done) {
      table.clear();
      return done;
    }
  }

  staging.clear();
  auto put = [&](const void *from, size_t bytes) {
    const auto *data = static_cast<const std::byte *>(from);
    staging.insert(staging.end(), data, data + bytes);
  };
  for (const SequenceStep &sequence : sequences) {
    const Record record = {static_cast<int32_t>(sequence.position),
                           static_cast<int32_t>(std::max(sequence.held, sequence.position)),
                           sequence.window * windowBytes, sequence.slot * slotBytes,
                           sequence.nextSlot * slotBytes};
    put(&record, sizeof(record));
  }
  rowStatesOffset = staging.size();
  if (slotBytes > 0)
    for (const SequenceStep &sequence : sequences) {
      const std::vector<int64_t> places(sequence.tokens.size(), sequence.slot * slotBytes);
      put(places.data(), places.size() * sizeof(int64_t));
    }
  tokensOffset = staging.size();
  for (const SequenceStep &sequence : sequences)
    put(sequence.tokens.data(), sequence.tokens.size_bytes());
  logitRowsOffset = staging.size();
  put(logitRows.data(), logitRows.size_bytes());
  return queue.upload(input.address(), staging.data(), std::ssize(staging));
}
