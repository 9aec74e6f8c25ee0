//===- Executor.h - What runs the steps of a batch --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A batch keeps count of sequences, tokens, pages and logits; its executor has the buffers of a
// step and runs it, on the CPU or on a device. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_EXECUTOR_H
#define EASYQUANT_LIB_RUNTIME_EXECUTOR_H

#include "GpuModel.h"
#include "PagePool.h"

#include "easyquant/Comm/Communicator.h"
#include "easyquant/Runtime/Artifact.h"
#include "easyquant/Runtime/Batch.h"
#include "easyquant/Runtime/Program.h"

#include <algorithm>

namespace easyquant::runtime {

class DeviceLogits;

/// Watches a call that appends tokens, while it runs.
struct Watch {
  Progress progress;
  int64_t done, total;

  /// To be asked before each kernel.
  bool stops() const {
    return progress.function && progress.function(progress.context, done, total);
  }
  Unexpected interrupted() const {
    return makeError(ErrorCode::Interrupted, "interrupted after {} of {} tokens", done, total);
  }
};

/// What a step does for one of its sequences.
struct SequenceStep {
  std::span<const int32_t> tokens; ///< its rows, at least one
  int64_t position = 0;            ///< of the first of them
  int64_t held = 0; ///< tokens that its cache has seen: more than position after truncation
  /// Byte of the cache where each of its pages begins: for position + tokens.size() tokens at
  /// least.
  std::span<const int64_t> pages;
  /// The same for layers with a window, as many; any number where it has none. Empty where no layer
  /// has a window.
  std::span<const int64_t> slidingPages;
  int64_t window = 0;             ///< number of its window
  int64_t slot = 0, nextSlot = 0; ///< of state, if any: read, and written
};

/// Where the pages of a step's sequences begin, one sequence behind the other.
struct PagePlaces {
  std::vector<int64_t> pages, slidingPages; ///< as of SequenceStep

  void clear() {
    pages.clear();
    slidingPages.clear();
  }
  /// Gives a step those of its sequence.
  void giveTo(SequenceStep &step, size_t first, size_t count) const {
    step.pages = std::span(pages).subspan(first, count);
    if (!slidingPages.empty())
      step.slidingPages = std::span(slidingPages).subspan(first, count);
  }
};

/// What several threads do: each calls the function with a slot of its own. It must not throw.
struct ThreadWork {
  void (*function)(void *context, int32_t slot) = nullptr;
  void *context = nullptr;
};

class Executor {
public:
  virtual ~Executor() = default;

  /// Calls `work` for slot 0, and for those up to threads - 1 as far as there are threads: those of
  /// steps, where steps have any on this machine. Error: OutOfRange (a thread that makes its first
  /// call is not granted its helpers).
  virtual Result<void> inThreads(int32_t threads, ThreadWork work);

  /// Rows that one step takes at most, all sequences together; `allLogits`: where the logits of all
  /// of them are wanted.
  virtual int64_t rowsPerStep(bool allLogits) const = 0;
  /// Where logits may stay behind a step; null where they always come to this machine.
  virtual DeviceLogits *deviceLogits() { return nullptr; }
  /// Appends to each of the sequences, at least one, and writes logitRows.size() x vocabulary
  /// logits; null: they are kept in deviceLogits(), a row of each sequence at most. `logitRows`, at
  /// least one, ascending, count the rows of all sequences one behind the other. On an error
  /// (Interrupted among them) the windows of all sequences are as they were.
  virtual Result<void> step(std::span<const SequenceStep> sequences,
                            std::span<const int32_t> logitRows, float *logits,
                            const Watch &watch) = 0;
  /// Does a step again, of one sequence, or of its pieces, and finds the site whose results are the
  /// first that are not finite; empty where nobody looks at results one by one.
  virtual Result<std::string> siteOfNotFinite(std::span<const SequenceStep> /*sequence*/) {
    return std::string();
  }
  /// Keeps what the last step, of the model or the head that drafts, has left behind each of its
  /// rows, hidden_size numbers, in a place of it; -1: not this one. Places count from 0 on, and
  /// there is memory up to the greatest that was ever named. Errors: OutOfRange (no memory), and
  /// what the device says.
  virtual Result<void> keepHidden(std::span<const int32_t> /*places*/) { return withoutHead(); }
  /// A step of the head that drafts: each row reads what is kept in its place of `before`, too.
  /// Sequences have no slots. The token of the greatest logit behind each of `logitRows`, the first
  /// of several, is `likeliest`.
  virtual Result<void> draft(std::span<const SequenceStep> /*sequences*/,
                             std::span<const int32_t> /*before*/,
                             std::span<const int32_t> /*logitRows*/,
                             std::span<int32_t> /*likeliest*/) {
    return withoutHead();
  }
  /// Copies bytes of the cache: pages that two sequences are to have apart, a window that a fork
  /// takes along. The two ranges do not overlap.
  virtual Result<void> copyInCache(int64_t from, int64_t to, int64_t bytes) = 0;
  /// Bytes of the cache from a place on. Error: what the device says.
  virtual Result<void> readCache(int64_t from, std::span<std::byte> to) = 0;
  virtual Result<void> writeCache(int64_t to, std::span<const std::byte> from) = 0;
  /// The contents of a slot of state, as doubles of the manifest's `online`. A model without state
  /// has no slots.
  virtual Result<void> readState(int64_t slot, std::span<double> state) = 0;
  virtual Result<void> writeState(int64_t slot, std::span<const double> state) = 0;
  /// What layers with a recurrent state have in a slot, `recurrent_values` of the manifest.
  /// Nobody asks where there are no such layers.
  virtual Result<void> readRecurrent(int64_t slot, std::span<float> state) = 0;
  virtual Result<void> writeRecurrent(int64_t slot, std::span<const float> state) = 0;
  /// Copies it to another slot, on all ranks.
  virtual Result<void> copyRecurrent(int64_t from, int64_t to) = 0;
  virtual int64_t bytes() const = 0;
  virtual Result<PhaseCosts> costs() = 0;
  virtual Result<std::vector<SiteCost>> siteCosts() = 0;

private:
  static Unexpected withoutHead() {
    return makeError(ErrorCode::Unsupported, "the program has no head that drafts");
  }
};

/// `measure`: costs() and siteCosts() will be asked for. `communicator` joins the ranks that share
/// the model, if there are several.
Result<std::unique_ptr<Executor>> createCpuExecutor(const Artifact &artifact,
                                                    const Program &program, const PoolSize &pool,
                                                    int32_t threads, bool measure,
                                                    comm::Communicator *communicator = nullptr);
Result<std::unique_ptr<Executor>> createGpuExecutor(const GpuModel &model, const PoolSize &pool,
                                                    const Manifest &manifest, bool measure,
                                                    comm::Communicator *communicator = nullptr);

/// What costs() says where nothing is measured.
Unexpected notMeasured();

/// For batches. Errors: OutOfRange, naming `what`.
Result<Buffer> allocateMemory(std::string_view what, int64_t bytes);

/// count * size + base bytes, or OutOfRange if that is more than can be addressed.
Result<int64_t> sizeOf(std::string_view what, int64_t count, int64_t size, int64_t base);

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_EXECUTOR_H
