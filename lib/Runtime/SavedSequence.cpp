//===- SavedSequence.cpp - Sequences of a batch as bytes ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The bytes are a Header, the window, the pages, those of layers with a window, the state as
// doubles, the recurrent state as floats, the tokens where some may be read again, and a row of
// logits where the sequence has any. The header has a
// checksum of what it says and of all behind it, so that damage is found, and one of the artifact;
// what it says is checked all the same.
//
//===----------------------------------------------------------------------===//

#include "Executor.h"
#include "Sampling.h"
#include "SequenceState.h"

#include "easyquant/Numerics/OnlineScales.h"
#include "easyquant/Support/Checksum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

using namespace easyquant;
using namespace easyquant::runtime;

namespace {

constexpr std::string_view kSequenceMagic = "EQSEQ003";

struct Header {
  char magic[8];
  char checksum[32]; ///< of the bytes behind it
  char artifact[32];
  int64_t position, held;
  int64_t resumes;   ///< where it goes on: at `position`, or before it
  int64_t hasLogits; ///< 0 or 1
};

struct Layout {
  int64_t window, pages, sliding, state, recurrent, tokens, logits; ///< where they begin
  int64_t bytes;
};

} // namespace

static Layout layOut(const PagePool &pool, const Manifest &manifest, int64_t position,
                     int64_t resumes, bool hasLogits) {
  const formats::CacheSizes &sizes = pool.sizes();
  Layout layout = {};
  layout.window = sizeof(Header);
  layout.pages = layout.window + sizes.windowBytes;
  layout.sliding = layout.pages + sizes.pagesOf(position) * sizes.pageBytes;
  layout.state = layout.sliding +
                 (sizes.pagesOf(resumes) - pool.firstRead(resumes)) * sizes.slidingPageBytes();
  const int64_t fields = manifest.online ? stateFields(*manifest.online) : 0;
  layout.recurrent = layout.state + fields * static_cast<int64_t>(sizeof(double));
  layout.tokens = layout.recurrent + manifest.program.recurrentValues.value_or(0) *
                                         static_cast<int64_t>(sizeof(float));
  const bool hasTokens = manifest.program.recurrentValues || sizes.sliding;
  layout.logits =
      layout.tokens + (hasTokens ? position : 0) * static_cast<int64_t>(sizeof(int32_t));
  layout.bytes = layout.logits +
                 (hasLogits ? manifest.model.vocabSize : 0) * static_cast<int64_t>(sizeof(float));
  return layout;
}

/// Identifies the artifact, and how a cache is cut where it runs.
static std::string identityOf(const Model &model) {
  Checksum checksum;
  const std::string &text = model.manifestText();
  checksum.update(text.data(), text.size());
  const std::string_view kind = model.device() == "cpu" ? "cpu" : "gpu";
  checksum.update(kind.data(), kind.size());
  return checksum.hex();
}

static std::string checksumBehind(std::span<const std::byte> bytes) {
  return checksumOf(bytes.subspan(offsetof(Header, artifact)));
}

Result<void> Batch::requireOneRank() const {
  if (owner->rankCount() == 1)
    return {};
  return makeError(ErrorCode::Unsupported,
                   "sequence: {} ranks have its keys and values, which no rank can save or restore "
                   "alone; append its tokens again",
                   owner->rankCount());
}

Result<int64_t> Batch::savedBytes(int64_t id) const {
  auto found = sequences.find(id);
  if (found == sequences.end())
    return Unexpected(position(id).error());
  const Sequence &sequence = found->second;
  return layOut(*pool, owner->manifest(), sequence.position, sequence.state.position,
                sequence.logits >= 0)
      .bytes;
}

Result<void> Batch::save(int64_t id, std::span<std::byte> to) const {
  Result<int64_t> bytes = savedBytes(id);
  if (!bytes)
    return Unexpected(bytes.error());
  if (Result<void> one = requireOneRank(); !one)
    return one;
  if (std::ssize(to) != *bytes)
    return makeError(ErrorCode::InvalidArgument,
                     "bytes: found room for {}, expected {}, as eq_batch_saved_size says",
                     to.size(), *bytes);
  const Sequence &sequence = sequences.at(id);
  const Manifest &manifest = owner->manifest();
  const formats::CacheSizes &sizes = pool->sizes();
  const bool hasLogits = sequence.logits >= 0;
  const Layout layout =
      layOut(*pool, manifest, sequence.position, sequence.state.position, hasLogits);
  auto part = [&](int64_t begin, int64_t count) {
    return to.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  };
  if (auto read = executor->readCache(pool->placeOfWindow(sequence.window),
                                      part(layout.window, sizes.windowBytes));
      !read)
    return read;
  int64_t place = layout.pages;
  for (int64_t page : sequence.pages) {
    if (auto read = executor->readCache(pool->placeOfPage(page), part(place, sizes.pageBytes));
        !read)
      return read;
    place += sizes.pageBytes;
  }
  for (int64_t i = pool->firstRead(sequence.state.position); i < std::ssize(sequence.slidingPages);
       ++i, place += sizes.slidingPageBytes()) {
    const int64_t page = sequence.slidingPages[static_cast<size_t>(i)];
    if (auto read = executor->readCache(pool->placeOfSlidingPage(page),
                                        part(place, sizes.slidingPageBytes()));
        !read)
      return read;
  }
  if (manifest.online) {
    std::vector<double> state(static_cast<size_t>(stateFields(*manifest.online)));
    if (auto read = executor->readState(sequence.state.slot, state); !read)
      return read;
    std::memcpy(to.data() + layout.state, state.data(), state.size() * sizeof(double));
  }
  if (const auto &values = manifest.program.recurrentValues) {
    std::vector<float> recurrent(static_cast<size_t>(*values));
    if (auto read = executor->readRecurrent(sequence.state.slot, recurrent); !read)
      return read;
    std::ranges::copy(std::as_bytes(std::span(recurrent)), to.begin() + layout.recurrent);
  }
  std::ranges::copy(std::as_bytes(std::span(sequence.tokens)), to.begin() + layout.tokens);
  if (hasLogits) {
    Result<const float *> row = readLogits(sequence);
    if (!row)
      return Unexpected(row.error());
    std::memcpy(to.data() + layout.logits, *row, static_cast<size_t>(layout.bytes - layout.logits));
  }
  Header header = {};
  std::memcpy(header.magic, kSequenceMagic.data(), sizeof(header.magic));
  std::memcpy(header.artifact, identityOf(*owner).data(), sizeof(header.artifact));
  header.position = sequence.position;
  header.held = sequence.held;
  header.resumes = sequence.state.position;
  header.hasLogits = hasLogits ? 1 : 0;
  std::memcpy(to.data(), &header, sizeof(header));
  std::memcpy(to.data() + offsetof(Header, checksum), checksumBehind(to).data(),
              sizeof(header.checksum));
  return {};
}

/// Errors: InvalidArgument, Corrupt.
static Result<Header> readHeader(std::span<const std::byte> from, const Model &model,
                                 const PagePool &pool, int64_t context) {
  Header header;
  if (from.size() < sizeof(header) ||
      std::memcmp(from.data(), kSequenceMagic.data(), sizeof(header.magic)) != 0)
    return makeError(ErrorCode::InvalidArgument,
                     "bytes: found {} that are no saved sequence, expected those of eq_batch_save",
                     from.size());
  std::memcpy(&header, from.data(), sizeof(header));
  auto isText = [](const char (&field)[32], const std::string &text) {
    return std::string_view(field, sizeof(field)) == text;
  };
  if (!isText(header.checksum, checksumBehind(from)))
    return makeError(ErrorCode::Corrupt,
                     "bytes: found {} whose checksum does not fit them, expected a saved sequence "
                     "as it was; append its tokens again",
                     from.size());
  if (!isText(header.artifact, identityOf(model)))
    return makeError(ErrorCode::InvalidArgument,
                     "bytes: found a sequence of another artifact or another kind of device, "
                     "expected one of {}; restore it where it was saved",
                     model.manifest().source.name);
  if (header.position > context)
    return makeError(
        ErrorCode::OutOfRange,
        "bytes: found a sequence of {} tokens, but the context is {}; create the batch "
        "for a longer one",
        header.position, context);
  const bool readsAgain =
      model.manifest().program.recurrentValues.has_value() || pool.sizes().sliding;
  if (header.position < 0 || header.held < header.position || header.resumes < 0 ||
      (readsAgain ? header.resumes > header.position : header.resumes != header.position) ||
      header.held > model.manifest().model.maxContext || (header.hasLogits & ~int64_t(1)) != 0 ||
      (header.hasLogits == 1 && header.position == 0) ||
      layOut(pool, model.manifest(), header.position, header.resumes, header.hasLogits == 1)
              .bytes != std::ssize(from))
    return makeError(ErrorCode::Corrupt,
                     "bytes: found {} for {} tokens, {} of which the cache has seen, expected a "
                     "saved sequence as it was; append its tokens again",
                     from.size(), header.position, header.held);
  return header;
}

/// The numbers that bytes of any alignment hold; there may be none.
template <typename T> static std::vector<T> numbersIn(std::span<const std::byte> bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(numbers)).begin());
  return numbers;
}

Result<int64_t> Batch::restore(std::span<const std::byte> from) {
  if (Result<void> one = requireOneRank(); !one)
    return Unexpected(one.error());
  const Manifest &manifest = owner->manifest();
  const formats::CacheSizes &sizes = pool->sizes();
  Result<Header> header = readHeader(from, *owner, *pool, limit);
  if (!header)
    return Unexpected(header.error());
  const Layout layout =
      layOut(*pool, manifest, header->position, header->resumes, header->hasLogits == 1);
  auto part = [&](int64_t begin, int64_t count) {
    return from.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  };
  const auto logits = numbersIn<float>(part(layout.logits, layout.bytes - layout.logits));
  const auto state = numbersIn<double>(part(layout.state, layout.recurrent - layout.state));
  const auto recurrent = numbersIn<float>(part(layout.recurrent, layout.tokens - layout.recurrent));
  auto tokens = numbersIn<int32_t>(part(layout.tokens, layout.logits - layout.tokens));
  auto isFinite = [](float x) { return std::isfinite(x); };
  auto isToken = [&](int32_t token) { return token >= 0 && token < manifest.model.vocabSize; };
  if (!std::ranges::all_of(logits, isFinite) || !std::ranges::all_of(recurrent, isFinite) ||
      !std::ranges::all_of(tokens, isToken) ||
      (manifest.online && !isState(*manifest.online, state)))
    return makeError(ErrorCode::Corrupt,
                     "bytes: found numbers that no sequence has, expected a saved sequence as it "
                     "was; append its tokens again");
  const int64_t needed = sizes.pagesOf(header->position);
  if (needed > pool->pages.free())
    return makeError(ErrorCode::OutOfRange,
                     "cache pages: a saved sequence of {} tokens takes {} pages, but {} of the {} "
                     "pages are free; remove or truncate sequences",
                     header->position, needed, pool->pages.free(), pool->pages.count());
  const int64_t slid = sizes.sliding ? sizes.pagesOf(header->resumes) : 0,
                gone = std::min(slid, pool->firstRead(header->resumes));
  std::vector<int64_t> pages, slidingPages;
  pages.reserve(static_cast<size_t>(needed));
  slidingPages.reserve(static_cast<size_t>(slid));
  Result<int64_t> added = add();
  if (!added)
    return added;
  Sequence &sequence = sequences.at(*added);
  sequence.pages = std::move(pages);
  sequence.slidingPages = std::move(slidingPages);
  auto fill = [&]() -> Result<void> {
    if (auto written = executor->writeCache(pool->placeOfWindow(sequence.window),
                                            part(layout.window, sizes.windowBytes));
        !written)
      return written;
    for (int64_t i = 0; i < needed; ++i) {
      sequence.pages.push_back(pool->pages.take());
      if (auto written =
              executor->writeCache(pool->placeOfPage(sequence.pages.back()),
                                   part(layout.pages + i * sizes.pageBytes, sizes.pageBytes));
          !written)
        return written;
    }
    sequence.slidingPages.assign(static_cast<size_t>(gone), -1);
    for (int64_t i = gone; i < slid; ++i) {
      sequence.slidingPages.push_back(pool->slidingPages.take());
      const int64_t place = layout.sliding + (i - gone) * sizes.slidingPageBytes();
      if (auto written =
              executor->writeCache(pool->placeOfSlidingPage(sequence.slidingPages.back()),
                                   part(place, sizes.slidingPageBytes()));
          !written)
        return written;
    }
    if (!recurrent.empty())
      if (auto written = executor->writeRecurrent(sequence.state.slot, recurrent); !written)
        return written;
    return manifest.online ? executor->writeState(sequence.state.slot, state) : Result<void>();
  };
  Result<void> filled;
  try {
    filled = fill();
  } catch (...) { // no memory for the numbers of pages
    (void)remove(*added);
    throw;
  }
  if (!filled) {
    (void)remove(*added);
    return Unexpected(filled.error());
  }
  sequence.position = header->position;
  sequence.held = header->held;
  sequence.state.position = header->resumes;
  sequence.tokens = std::move(tokens);
  sequence.recent.first = header->position;
  if (keptStates > 0 && header->resumes > 0 && header->resumes % sizes.pageTokens == 0)
    sequence.kept.push_back(share(sequence.state)); // at a page end
  if (header->hasLogits == 1) {
    sequence.logits = freeLogitsRow();
    std::copy(logits.begin(), logits.end(), logitsRow(current, sequence.logits));
  }
  return added;
}
