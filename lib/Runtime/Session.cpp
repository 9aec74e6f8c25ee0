//===- Session.cpp - Running a compiled model -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Session.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <sched.h>
#include <sys/mman.h>
#include <thread>

using namespace easyquant;
using namespace easyquant::runtime;

//===----------------------------------------------------------------------===//
// Model
//===----------------------------------------------------------------------===//

Result<std::shared_ptr<const Model>> Model::load(const std::string &folder, std::string_view isa,
                                                 bool skipChecksums) {
  auto model = std::make_shared<Model>();
  Result<Artifact> artifact = Artifact::open(folder, skipChecksums);
  if (!artifact)
    return Unexpected(artifact.error());
  model->artifact = std::move(*artifact);

  const auto &entries = model->manifest().program.entries;
  Result<std::string> selected = selectIsa(isa, entries, CpuFeatures::host(), folder);
  if (!selected)
    return Unexpected(selected.error());
  model->selected = std::move(*selected);

  Result<Program> program =
      Program::load(model->artifact.programPath(), entries.at(model->selected));
  if (!program)
    return Unexpected(program.error());
  model->code = std::move(*program);
  return model;
}

//===----------------------------------------------------------------------===//
// Memory and threads
//===----------------------------------------------------------------------===//

static constexpr int64_t kPage = 4096;
/// What a transparent huge page is worth asking for.
static constexpr int64_t kHugePage = int64_t(2) << 20;

void Buffer::Unmap::operator()(void *pages) const { ::munmap(pages, length); }

Result<Buffer> Buffer::allocate(int64_t bytes, std::string_view what) {
  Buffer buffer;
  buffer.bytes = bytes;
  // mmap takes no empty mapping, and a program may be given the address of an empty buffer.
  int64_t length = (std::max(bytes, int64_t(1)) + (kPage - 1)) / kPage * kPage;
  void *pages = ::mmap(nullptr, static_cast<size_t>(length), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    return makeError(ErrorCode::OutOfRange,
                     "{}: the system has not got the {} bytes that it needs ({}); ask for a "
                     "shorter context or fewer threads",
                     what, bytes, std::strerror(errno));
  if (length >= kHugePage)
    ::madvise(pages, static_cast<size_t>(length), MADV_HUGEPAGE); // a hint: may be refused
  buffer.pages = {pages, Unmap{static_cast<size_t>(length)}};
  return buffer;
}

int32_t easyquant::runtime::availableThreads() {
  cpu_set_t set;
  int count = 0;
  // Fails on machines with more CPUs than a cpu_set_t holds.
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    count = CPU_COUNT(&set);
  else
    count = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(count, 1, kMaxThreads);
}

//===----------------------------------------------------------------------===//
// Session
//===----------------------------------------------------------------------===//

/// count * size + base bytes, or OutOfRange if that is more than can be addressed.
static Result<int64_t> sizeOf(std::string_view what, int64_t count, int64_t size, int64_t base) {
  int64_t bytes;
  // The page that Buffer may add must fit, too.
  if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, base, &bytes) ||
      bytes > std::numeric_limits<int64_t>::max() - kPage)
    return makeError(ErrorCode::OutOfRange,
                     "{}: {} x {} + {} bytes are more than can be addressed; ask for a shorter "
                     "context or fewer threads",
                     what, count, size, base);
  return bytes;
}

static Result<Buffer> allocate(std::string_view what, int64_t count, int64_t size, int64_t base) {
  return sizeOf(what, count, size, base).and_then([&](int64_t bytes) {
    return Buffer::allocate(bytes, what);
  });
}

Result<Session> Session::create(std::shared_ptr<const Model> model, int64_t context,
                                int32_t threads) {
  const Manifest &manifest = model->manifest();
  const Manifest::Program &program = manifest.program;
  if (context < 0)
    return makeError(ErrorCode::InvalidArgument,
                     "context: found {}, expected tokens, or 0 for the model's longest", context);
  if (context > manifest.model.maxContext)
    return makeError(ErrorCode::OutOfRange,
                     "context: found {} tokens, but the model was made for at most {}", context,
                     manifest.model.maxContext);
  if (threads < 0 || threads > kMaxThreads)
    return makeError(ErrorCode::InvalidArgument,
                     "threads: found {}, expected 1..{}, or 0 for all CPUs of the process", threads,
                     kMaxThreads);

  Session session;
  session.limit = context == 0 ? manifest.model.maxContext : context;
  session.threadCount = threads == 0 ? availableThreads() : threads;
  int64_t capacity = (session.limit + kCacheBlock - 1) / kCacheBlock * kCacheBlock;

  Result<Buffer> arena =
      allocate("activations", session.threadCount, program.arenaBytesPerThread, program.arenaBytes);
  if (!arena)
    return Unexpected(arena.error());
  std::string what = fmt::format("KV cache of {} tokens", capacity);
  Result<Buffer> cache = allocate(what, capacity, program.cacheBytesPerToken, program.cacheBytes);
  if (!cache)
    return Unexpected(cache.error());
  session.arena = std::move(*arena);
  session.cache = std::move(*cache);
  for (Buffer *logits : {&session.current, &session.next}) {
    Result<Buffer> buffer = allocate("logits", manifest.model.vocabSize, sizeof(float), 0);
    if (!buffer)
      return Unexpected(buffer.error());
    *logits = std::move(*buffer);
  }
  session.owner = std::move(model);
  return session;
}

Result<void> Session::check(std::span<const int32_t> tokens) const {
  const Manifest::Model &model = owner->manifest().model;
  if (tokens.empty())
    return makeError(ErrorCode::InvalidArgument, "tokens: found none, expected at least one");
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= model.vocabSize)
      return makeError(ErrorCode::InvalidArgument,
                       "tokens[{}]: found {}, expected a token id in 0..{}", i, tokens[i],
                       model.vocabSize - 1);
  if (tokens.size() > static_cast<size_t>(limit - held)) {
    std::string remedy = limit < model.maxContext
                             ? fmt::format("or create a session with a longer context (the model "
                                           "was made for at most {})",
                                           model.maxContext)
                             : std::string("the model was made for no longer one");
    return makeError(ErrorCode::OutOfRange,
                     "context overflow: {} tokens at position {} do not fit the session's context "
                     "of {} tokens; append fewer, truncate or reset the session; {}",
                     tokens.size(), held, limit, remedy);
  }
  return {};
}

/// Whether all of them are numbers: an infinity or NaN is what has all exponent bits set.
static bool allFinite(const float *values, int64_t count) {
  uint32_t found = 0;
  for (int64_t i = 0; i < count; ++i)
    found |=
        static_cast<uint32_t>((std::bit_cast<uint32_t>(values[i]) & 0x7f800000u) == 0x7f800000u);
  return found == 0;
}

Result<void> Session::append(std::span<const int32_t> tokens, float *allLogits) {
  if (Result<void> checked = check(tokens); !checked)
    return checked;

  const Manifest &manifest = owner->manifest();
  const int64_t vocab = manifest.model.vocabSize;
  const int64_t count = static_cast<int64_t>(tokens.size());
  // The ABI's descriptors are not const; programs only read weights and tokens.
  auto *weights = reinterpret_cast<int8_t *>(const_cast<std::byte *>(owner->weights().data()));
  auto *ids = const_cast<int32_t *>(tokens.data());
  float *lastRow = next.as<float>();

  // `held` moves only at the end: what a failed call wrote into the cache lies beyond it.
  for (int64_t begin = 0; begin < count; begin += manifest.program.maxRows) {
    int64_t rows = std::min(count - begin, manifest.program.maxRows);
    int64_t firstLogit = allLogits ? 0 : rows - 1;
    int64_t logitRows = rows - firstLogit;
    float *logits = allLogits ? allLogits + begin * vocab : lastRow;
    owner->program().run(memRef1D(weights, static_cast<int64_t>(owner->weights().size())),
                         memRef1D(arena.as<int8_t>(), arena.size()),
                         memRef1D(cache.as<int8_t>(), cache.size()), memRef1D(ids + begin, rows),
                         held + begin, firstLogit, threadCount, memRef2D(logits, logitRows, vocab));
    for (int64_t row = 0; row < logitRows; ++row)
      if (!allFinite(logits + row * vocab, vocab))
        return makeError(ErrorCode::Corrupt,
                         "the logits after the token at position {} (id {}) are not finite: the "
                         "model's weights or activations overflow; compile it with another scheme, "
                         "or leave its outlier sites float with --ignore",
                         held + begin + firstLogit + row, tokens[begin + firstLogit + row]);
  }

  if (allLogits)
    std::memcpy(lastRow, allLogits + (count - 1) * vocab, sizeof(float) * vocab);
  std::swap(current, next);
  hasLogits = true;
  held += count;
  return {};
}

Result<void> Session::truncate(int64_t position) {
  if (position < 0 || position > held)
    return makeError(ErrorCode::InvalidArgument,
                     "position: found {}, expected 0..{} (the tokens held)", position, held);
  held = position;
  hasLogits = false;
  return {};
}
