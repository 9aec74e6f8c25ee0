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
#include "easyquant/Runtime/Program.h"
#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace easyquant::runtime {

/// Cache capacities are multiples of this many tokens (the attention kernels' block).
constexpr int64_t kCacheBlock = 16;
/// More threads than this are surely a mistake.
constexpr int32_t kMaxThreads = 1024;

/// A loaded artifact: immutable, shared by its sessions.
class Model {
public:
  /// `isa` is "", "auto", "avx2" or "avx512vnni". Errors: those of Artifact::open, selectIsa and
  /// Program::load.
  static Result<std::shared_ptr<const Model>> load(const std::string &folder, std::string_view isa,
                                                   bool skipChecksums);

  const Manifest &manifest() const { return artifact.manifest(); }
  const std::string &isa() const { return selected; }
  const Program &program() const { return code; }
  std::span<const std::byte> weights() const { return artifact.weights(); }

private:
  Artifact artifact;
  std::string selected;
  Program code;
};

/// Anonymous zeroed pages, aligned to at least 64 bytes. Pages that are never touched cost nothing,
/// so that a long context is paid for only as far as it is used.
class Buffer {
public:
  /// `what` is named in the error: OutOfRange, stating the bytes that the system has not got.
  static Result<Buffer> allocate(int64_t bytes, std::string_view what);

  template <typename T> T *as() const { return static_cast<T *>(pages.get()); }
  int64_t size() const { return bytes; }

private:
  struct Unmap {
    size_t length;
    void operator()(void *pages) const;
  };
  std::unique_ptr<void, Unmap> pages{nullptr, Unmap{0}};
  int64_t bytes = 0;
};

/// CPUs that this process may run on, at least 1.
int32_t availableThreads();

class Session {
public:
  /// `context` tokens (0: the model's), `threads` (0: availableThreads()). Errors: InvalidArgument
  /// (a negative argument, too many threads), OutOfRange (longer than the model's context, or more
  /// memory than there is).
  static Result<Session> create(std::shared_ptr<const Model> model, int64_t context,
                                int32_t threads);

  /// Appends the tokens, in chunks of at most max_rows, and keeps the logits of the last one.
  /// Errors: InvalidArgument (no token, or one outside the vocabulary), OutOfRange (the context is
  /// full), Corrupt (a logit that is not finite). The session is then as it was.
  Result<void> prefill(std::span<const int32_t> tokens) { return append(tokens, nullptr); }

  /// prefill, and writes tokens.size() x vocab_size logits, row-major, to `logits`.
  Result<void> score(std::span<const int32_t> tokens, float *logits) {
    return append(tokens, logits);
  }

  /// Forgets all but the first `position` tokens. Error: InvalidArgument (beyond position()).
  Result<void> truncate(int64_t position);

  /// vocab_size logits of the last token, or null.
  const float *logits() const { return hasLogits ? current.as<float>() : nullptr; }
  int64_t position() const { return held; }
  /// Tokens that the session can hold.
  int64_t context() const { return limit; }
  int32_t threads() const { return threadCount; }
  int64_t bytes() const { return arena.size() + cache.size() + current.size() + next.size(); }
  const Model &model() const { return *owner; }

private:
  Session() = default;
  Result<void> append(std::span<const int32_t> tokens, float *allLogits);
  Result<void> check(std::span<const int32_t> tokens) const;

  std::shared_ptr<const Model> owner;
  int64_t limit = 0;
  int32_t threadCount = 0;
  int64_t held = 0;
  bool hasLogits = false;
  Buffer arena, cache;
  /// Steps write `next`, which becomes `current` when all of them have succeeded.
  Buffer current, next;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_RUNTIME_SESSION_H
