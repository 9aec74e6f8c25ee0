//===- Executor.h - What runs the steps of a session ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A session keeps count of tokens and logits; its executor has the buffers of a step and runs it,
// on the CPU or on a device. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_EXECUTOR_H
#define EASYQUANT_LIB_RUNTIME_EXECUTOR_H

#include "GpuModel.h"

#include "easyquant/Runtime/Artifact.h"
#include "easyquant/Runtime/Program.h"
#include "easyquant/Runtime/Session.h"

namespace easyquant::runtime {

/// Of a call that appends tokens, while it runs.
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

class Executor {
public:
  virtual ~Executor() = default;

  /// Tokens that one step takes at most; `allLogits`: where the logits of all of them are wanted.
  virtual int64_t rowsPerStep(bool allLogits) const = 0;
  /// Appends tokens at `position` and writes the logits of tokens firstLogit .. to `logits`.
  virtual Result<void> step(std::span<const int32_t> tokens, int64_t position, int64_t firstLogit,
                            float *logits, const Watch &watch) = 0;
  virtual int64_t bytes() const = 0;
  virtual Result<PhaseCosts> costs() = 0;
  virtual Result<std::vector<SiteCost>> siteCosts() = 0;
};

/// `context`: tokens that the session may come to hold. `measure`: costs() and siteCosts() will be
/// asked for.
Result<std::unique_ptr<Executor>> createCpuExecutor(const Artifact &artifact,
                                                    const Program &program, int64_t context,
                                                    int32_t threads, bool measure);
Result<std::unique_ptr<Executor>> createGpuExecutor(const GpuModel &model, int64_t context,
                                                    int64_t vocabulary, bool measure);

/// What costs() says of a session that does not measure.
Unexpected notMeasured();

/// For sessions. Errors: OutOfRange, naming `what`.
Result<Buffer> allocateMemory(std::string_view what, int64_t bytes);

/// count * size + base bytes, or OutOfRange if that is more than can be addressed.
Result<int64_t> sizeOf(std::string_view what, int64_t count, int64_t size, int64_t base);

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_EXECUTOR_H
