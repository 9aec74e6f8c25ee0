//===- GpuStepInput.h - What the kernels of a step are told -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In device memory, of each sequence of a step in their order: position, tokens that its cache has
// seen, where its window begins; behind these the tokens, then the rows whose logits are asked for.
// Apart from them each sequence's pages. The places depend on the numbers of sequences and of rows
// alone, so that a recorded step finds them again. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_GPUSTEPINPUT_H
#define EASYQUANT_LIB_RUNTIME_GPUSTEPINPUT_H

#include "Executor.h"

#include <vector>

namespace easyquant::runtime {

class GpuStepInput {
public:
  /// For steps of up to `maxRows` rows, and as many sequences and pages as the pool has.
  Result<void> allocate(const std::shared_ptr<Device> &device, const PoolSize &pool,
                        int64_t maxRows);
  int64_t bytes() const { return input.size() + pages.size(); }

  /// The arguments may be gone when this returns; the queue is to be waited for before the next
  /// call. `slotBytes`: bytes of the state of a sequence.
  Result<void> upload(Queue &queue, std::span<const SequenceStep> sequences,
                      std::span<const int32_t> logitRows, int64_t windowBytes, int64_t slotBytes);

  // Addresses, of the step that was uploaded; `sequence` counts those of the step.
  uint64_t tokens() const { return input.address() + tokensOffset; }
  uint64_t logitRows() const { return input.address() + logitRowsOffset; }
  uint64_t position(size_t sequence) const { return record(sequence); }
  uint64_t held(size_t sequence) const { return record(sequence) + offsetof(Record, held); }
  uint64_t window(size_t sequence) const { return record(sequence) + offsetof(Record, window); }
  uint64_t slots(size_t sequence) const { return record(sequence) + offsetof(Record, slot); }
  uint64_t rowStates() const { return input.address() + rowStatesOffset; }
  uint64_t pagesOf(size_t sequence) const { return pages.address() + sequence * tableBytes; }

private:
  struct Record {
    int32_t position, held;
    int64_t window;
    int64_t slot, nextSlot;
  };
  uint64_t record(size_t sequence) const { return input.address() + sequence * sizeof(Record); }

  DeviceMemory input, pages;
  uint64_t rowStatesOffset = 0, tokensOffset = 0, logitRowsOffset = 0;
  uint64_t tableBytes = 0; ///< from one sequence's pages to the next one's
  /// What is on the device, or on its way there.
  std::vector<std::byte> staging;
  std::vector<std::vector<int64_t>> tables;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_GPUSTEPINPUT_H
