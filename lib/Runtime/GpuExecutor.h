//===- GpuExecutor.h - Steps of a list of launches --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_GPUEXECUTOR_H
#define EASYQUANT_LIB_RUNTIME_GPUEXECUTOR_H

#include "DeviceHidden.h"
#include "DeviceLogits.h"
#include "Executor.h"
#include "GpuStepInput.h"
#include "SequenceState.h"

#include <algorithm>
#include <map>

namespace easyquant::runtime {

/// Logits that are on the device at a time where those of all tokens are wanted.
inline constexpr int64_t kMostLogitBytes = int64_t(64) << 20;
/// Rows of the decode steps that are recorded; others are filled up with rows of nobody. A
/// recording takes some megabytes of the driver's memory.
inline constexpr int64_t kRecordedRows[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};

/// A step, once what it takes is on the device.
struct GpuStep {
  std::span<const SequenceStep> sequences;
  int64_t rows, logitRows; ///< with those of nobody
  bool isRecorded;
  const Watch *watch; ///< null: it is not left before its end
};

class GpuExecutor final : public Executor {
public:
  GpuExecutor(const GpuModel &model, const PoolSize &pool, const Manifest &manifest,
              comm::Communicator *ranks)
      : model(model), program(model.program), pool(pool), vocabulary(manifest.model.vocabSize),
        maxContext(manifest.model.maxContext), hiddenSize(manifest.model.hiddenSize),
        slotBytes(manifest.online ? stateFields(*manifest.online) * int64_t(sizeof(double)) : 0),
        recurrentBytes(manifest.program.recurrentValues.value_or(0) * int64_t(sizeof(float))),
        ranks(ranks),
        gathersLogits(ranks && std::any_of(program.collectives.begin(), program.collectives.end(),
                                           [](const formats::Collective &collective) {
                                             return collective.call ==
                                                    formats::CollectiveCall::AllGather;
                                           })) {}
  Result<void> allocate(bool measure);

  int64_t rowsPerStep(bool allLogits) const override {
    return allLogits ? std::min(program.maxRows, mostLogitRows()) : program.maxRows;
  }
  int64_t bytes() const override {
    return arena.size() + cache.size() + state.size() + states.size() + recurrents.size() +
           input.bytes() + logitsMemory.size() + keptLogits.bytes() + windowsBefore.size() +
           partials.size() + partialCounters.size() + hidden.bytes();
  }
  DeviceLogits *deviceLogits() override { return keepsLogits() ? &keptLogits : nullptr; }
  Result<void> step(std::span<const SequenceStep> sequences, std::span<const int32_t> logitRows,
                    float *logits, const Watch &watch) override;
  Result<void> keepHidden(std::span<const int32_t> places) override { return hidden.keep(places); }
  Result<void> draft(std::span<const SequenceStep> sequences, std::span<const int32_t> before,
                     std::span<const int32_t> logitRows, std::span<int32_t> likeliest) override;
  Result<std::string> siteOfNotFinite(std::span<const SequenceStep> sequence) override;
  Result<void> copyInCache(int64_t from, int64_t to, int64_t bytes) override {
    return queue->copy(cache.address() + static_cast<uint64_t>(to),
                       cache.address() + static_cast<uint64_t>(from), bytes);
  }
  Result<void> readCache(int64_t from, std::span<std::byte> to) override {
    if (to.empty())
      return {};
    return queue->download(to.data(), cache.address() + static_cast<uint64_t>(from),
                           std::ssize(to));
  }
  Result<void> writeCache(int64_t to, std::span<const std::byte> from) override {
    if (from.empty())
      return {};
    return uploadNow(cache.address() + static_cast<uint64_t>(to), from.data(), std::ssize(from));
  }
  Result<void> readState(int64_t slot, std::span<double> to) override {
    return queue->download(to.data(), addressOfSlot(slot), slotBytes);
  }
  Result<void> writeState(int64_t slot, std::span<const double> from) override {
    return uploadNow(addressOfSlot(slot), from.data(), slotBytes);
  }
  Result<void> readRecurrent(int64_t slot, std::span<float> to) override {
    return queue->download(to.data(), addressOfRecurrent(slot), recurrentBytes);
  }
  Result<void> writeRecurrent(int64_t slot, std::span<const float> from) override {
    return uploadNow(addressOfRecurrent(slot), from.data(), recurrentBytes);
  }
  Result<void> copyRecurrent(int64_t from, int64_t to) override {
    return queue->copy(addressOfRecurrent(to), addressOfRecurrent(from), recurrentBytes);
  }
  Result<PhaseCosts> costs() override;
  Result<std::vector<SiteCost>> siteCosts() override;

private:
  /// Waits: what is passed may be gone when the queue would copy it.
  Result<void> uploadNow(uint64_t to, const void *from, int64_t bytes) {
    std::byte first;
    return queue->upload(to, from, bytes).and_then([&] { return queue->download(&first, to, 1); });
  }
  uint64_t addressOfSlot(int64_t slot) const {
    return states.address() + static_cast<uint64_t>(slot * slotBytes);
  }
  uint64_t addressOfRecurrent(int64_t slot) const {
    return recurrents.address() + static_cast<uint64_t>(slot * recurrentBytes);
  }
  int64_t mostLogitRows() const {
    return std::max<int64_t>(1, kMostLogitBytes / (vocabulary * int64_t(sizeof(float))));
  }
  Result<void> checkMemory(int64_t cacheBytes, int64_t stateBytes) const;
  /// Places for partial sums if each sequence has a token, and no two the same pages: a step whose
  /// sequences share pages, or have several rows, may need more.
  int64_t partialPlaces() const;
  Result<void> makeRoomForPartials(int64_t places);
  Result<void> allocatePartials(int64_t places);
  Result<void> makeRoomForLogits(int64_t rows);
  /// Brings to the device what a step takes, behind whose rows are so many of nobody.
  Result<void> describe(std::span<const SequenceStep> sequences, std::span<const int32_t> logitRows,
                        int64_t rowsOfNobody, bool seesBefore = false);
  /// Ranks have them all, or their part, and answer for each other.
  bool keepsLogits() const { return program.choosing && !ranks; }
  /// Copies the windows of the step's sequences, so that it can be left in its midst.
  Result<void> keepWindows(std::span<const SequenceStep> sequences);
  /// Copies them there, or back.
  Result<void> copyWindows(std::span<const SequenceStep> sequences, bool back);
  uint64_t addressOfWindow(const SequenceStep &sequence) const {
    return cache.address() + static_cast<uint64_t>(sequence.window * program.cache.windowBytes);
  }

  /// Waits where a step has failed.
  Result<void> leave(Result<void> done);
  Result<void> tryStep(std::span<const SequenceStep> sequences, std::span<const int32_t> logitRows,
                       float *logits, const Watch &watch);
  Result<void> run(const GpuStep &step);
  Result<void> replay(const GpuStep &step);
  Result<void> launchRun(std::span<const Launch> launches, const GpuStep &step);
  int64_t rowsOf(const Launch &launch, const GpuStep &step) const {
    return (launch.over == Launch::Over::LogitRows ? step.logitRows : step.rows) * launch.multiple;
  }
  bool happens(const Launch &launch, const GpuStep &step) const;
  Result<void> launch(const Launch &launch, const GpuStep &step);
  Result<void> exchange(const Launch &launch, int64_t rows);
  /// Waits for the step, of whose `rows` rows of logits it downloads the first `wanted`.
  Result<void> downloadLogits(int64_t rows, int64_t wanted, float *logits);
  /// Rows of nobody to fill up a step with that is recorded.
  int64_t rowsOfNobody(int64_t rows) const {
    const int64_t *filled =
        std::lower_bound(std::begin(kRecordedRows), std::end(kRecordedRows), rows);
    return std::min(*filled, program.maxRows) - rows;
  }
  uint64_t valueOf(const LaunchArgument &argument, int64_t rows) const;

  const GpuModel &model;
  const LaunchList &program;
  const PoolSize pool;
  const int64_t vocabulary, maxContext, hiddenSize;
  const int64_t slotBytes;         ///< of what a sequence keeps of scales; 0: nothing
  const int64_t recurrentBytes;    ///< of what layers keep of it; 0: nothing
  comm::Communicator *const ranks; ///< who share the model; null: there is one
  const bool gathersLogits;        ///< each rank makes those of its share of the vocabulary
  DeviceMemory arena, cache, state, states, recurrents, logitsMemory;
  DeviceMemory windowsBefore;             ///< a step that may be left
  DeviceMemory partials, partialCounters; ///< of attention
  GpuStepInput input;
  DeviceHidden hidden;             ///< where there is a head that drafts
  DeviceLogits keptLogits;         ///< where keepsLogits()
  std::vector<uint64_t> arguments; ///< of a launch
  std::vector<float> logitParts;   ///< of one rank behind those of another
  std::unique_ptr<Queue> queue;
  std::map<int64_t, std::unique_ptr<Recording>> recordings; ///< decode steps by their rows
  bool measuring = false;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_GPUEXECUTOR_H
