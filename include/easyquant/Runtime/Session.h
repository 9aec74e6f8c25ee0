//===- Session.h - Running a compiled model ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the C ABI (easyquant.h) is a thin skin of. The rules stated there hold here.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RUNTIME_SESSION_H
#define EASYQUANT_RUNTIME_SESSION_H

#include "easyquant/Runtime/Artifact.h"
#include "easyquant/Runtime/Device.h"
#include "easyquant/Runtime/Program.h"
#include "easyquant/Support/MappedMemory.h"
#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::runtime {

class Executor;
class GpuModel;

/// Where a model is to run.
struct DeviceRequest {
  /// "cpu"; "cuda", an NVIDIA GPU; "simt", a simulated one; "" or "auto": cuda if the artifact has
  /// code for GPUs and the machine one that can run it, else cpu.
  std::string device = "auto";
  std::string simtChip;    ///< the GPU to simulate, of those in the artifact; empty: the first
  bool simtChecks = false; ///< let the simulator look for mistakes of kernels, too
};

/// A loaded artifact: immutable, shared by its sessions.
class Model {
public:
  /// `isa` is "", "auto", "avx2" or "avx512vnni". Errors: those of Artifact::open, selectIsa and
  /// Program::load; InvalidArgument (no such device); Unsupported, NotFound, OutOfRange (a device
  /// that is not there, cannot run the artifact or has too little memory).
  static Result<std::shared_ptr<const Model>> load(const std::string &folder, std::string_view isa,
                                                   bool skipChecksums,
                                                   const DeviceRequest &request = {});

  const Manifest &manifest() const { return artifact.manifest(); }
  const std::string &manifestText() const { return artifact.manifestText(); }
  /// "cpu", "cuda" or "simt".
  std::string device() const;
  /// The instruction set, or the chip whose program a GPU runs.
  const std::string &isa() const { return selected; }
  /// For people: "cpu", "NVIDIA H200 (sm_90)".
  std::string describeDevice() const;
  const Program &program() const { return code; }
  std::span<const std::byte> weights() const { return artifact.weights(); }
  /// Of the weights, where they are used.
  int64_t weightsBytes() const;

private:
  friend class Session;
  Result<void> loadForCpu(std::string_view isa);

  Artifact artifact;
  std::string selected;
  Program code;
  std::shared_ptr<const GpuModel> gpu; ///< null on CPUs
};

/// What a session asks, in the thread of a call that appends tokens, before each step and before
/// each kernel of it (on an NVIDIA GPU, before each launch). It must not throw, nor use the
/// session.
struct Progress {
  /// `done` of the `total` tokens of the call; true: end it.
  bool (*function)(void *context, int64_t done, int64_t total) = nullptr; ///< null: nothing
  void *context = nullptr;
};

class Session {
public:
  /// `context` tokens (0: the model's), `threads` (0: availableThreads()). Errors: InvalidArgument
  /// (a negative argument), those of chooseThreads, OutOfRange (longer than the model's context, or
  /// more memory or threads than there are).
  /// `measure`: costs() and siteCosts() will be asked for.
  static Result<Session> create(std::shared_ptr<const Model> model, int64_t context,
                                int32_t threads, bool measure = false);
  Session(Session &&other) noexcept;
  Session &operator=(Session &&other) noexcept;
  ~Session();

  /// Appends the tokens, in chunks of at most max_rows, and keeps the logits of the last one.
  /// Errors: InvalidArgument (no token, or one outside the vocabulary), OutOfRange (the context is
  /// full, or a thread that makes its first call is not granted its helpers), Corrupt (a logit that
  /// is not finite), Interrupted (by the progress function). The session is then as it was.
  Result<void> prefill(std::span<const int32_t> tokens) { return append(tokens, nullptr); }

  /// prefill, and writes tokens.size() x vocab_size logits, row-major, to `logits`.
  Result<void> score(std::span<const int32_t> tokens, float *logits) {
    return append(tokens, logits);
  }

  /// Of the calls from here on.
  void setProgress(Progress function) { progress = function; }

  /// Forgets all but the first `position` tokens. Error: InvalidArgument (beyond position()).
  Result<void> truncate(int64_t position);

  /// vocab_size logits of the last token, or null.
  const float *logits() const { return hasLogits ? current.data<float>() : nullptr; }
  int64_t position() const { return held; }
  /// Tokens that the session can hold.
  int64_t context() const { return limit; }
  int32_t threads() const { return threadCount; }
  int64_t bytes() const;
  /// What each phase has cost since the session began, with what loading the model to a device
  /// cost. Error: InvalidArgument (the session does not measure).
  Result<PhaseCosts> costs() const;
  /// The same by sites, each in the phases that it has, in the order of the program. Errors:
  /// InvalidArgument, and Unsupported (on a GPU).
  Result<std::vector<SiteCost>> siteCosts() const;
  const Model &model() const { return *owner; }

private:
  Session();
  Result<void> append(std::span<const int32_t> tokens, float *allLogits);
  Result<void> check(std::span<const int32_t> tokens) const;

  std::shared_ptr<const Model> owner;
  int64_t limit = 0;
  int32_t threadCount = 0;
  int64_t held = 0;
  bool hasLogits = false;
  Progress progress;
  std::unique_ptr<Executor> executor;
  /// Steps write `next`, which becomes `current` when all of them have succeeded.
  Buffer current, next;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_RUNTIME_SESSION_H
