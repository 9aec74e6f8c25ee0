//===- PagePool.h - Windows and pages of a batch's caches -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What sequences take of an executor's memory: windows, one each, and pages of its cache, apart for
// layers that keep all tokens and for those that keep the newest; slots of state. Private to the
// runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_PAGEPOOL_H
#define EASYQUANT_LIB_RUNTIME_PAGEPOOL_H

#include "easyquant/Formats/Cache.h"
#include "easyquant/Support/Result.h"

#include "HiddenPlaces.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace easyquant::runtime {

/// How many windows, pages behind them, those of layers with a window behind these, and slots of
/// state.
struct PoolSize {
  int64_t sequences = 1, pages = 0, slidingPages = 0, slots = 0;
};

/// Errors: OutOfRange (more than can be addressed).
Result<int64_t> cacheBytes(const formats::CacheSizes &sizes, const PoolSize &pool);

/// What messages call it.
std::string nameOfCache(const formats::CacheSizes &sizes, const PoolSize &pool);

/// Numbers from 0 on, each of which several owners may have. take() may throw std::bad_alloc, and
/// has then changed nothing. The others never throw.
class NumberPool {
public:
  explicit NumberPool(int64_t count = 0) : all(count) {}

  int64_t count() const { return all; }
  int64_t free() const { return all - std::ssize(references) + std::ssize(returned); }
  /// One of the free ones, of which there must be any, for one owner.
  int64_t take();
  void share(int64_t number) noexcept { ++references[static_cast<size_t>(number)]; }
  bool isShared(int64_t number) const { return references[static_cast<size_t>(number)] > 1; }
  /// By one of its owners.
  void release(int64_t number) noexcept;

private:
  int64_t all;
  /// Owners of the numbers that were ever taken, which are the first ones. Memory that no sequence
  /// has come to need is not touched.
  std::vector<int32_t> references;
  std::vector<int64_t> returned; ///< has room for all that were ever taken
};

/// Knows which windows, pages and slots are in use.
class PagePool {
public:
  /// `codes`: what a cache of codes is cut by, if it is one.
  PagePool(const formats::CacheSizes &cut, const std::optional<formats::CacheScheme> &codes,
           const PoolSize &size)
      : windows(size.sequences), pages(size.pages), slidingPages(size.slidingPages),
        slots(size.slots), cut(cut), residual(codes ? codes->residual : 0),
        sinks(codes ? codes->sinks : 0) {}

  const formats::CacheSizes &sizes() const { return cut; }

  /// The byte of the cache where one begins.
  int64_t placeOfWindow(int64_t window) const { return window * cut.windowBytes; }
  int64_t placeOfPage(int64_t page) const {
    return windows.count() * cut.windowBytes + page * cut.pageBytes;
  }
  int64_t placeOfSlidingPage(int64_t page) const {
    return placeOfPage(pages.count()) + page * cut.slidingPageBytes();
  }

  /// The first of the pages of a sequence that a step behind `position` tokens may write.
  int64_t firstWritten(int64_t position) const;
  /// The first one that it may read in layers with a window.
  int64_t firstRead(int64_t position) const;
  /// How many pages a sequence has at most in layers with a window, where a step has up to `rows`
  /// tokens, and `kept` pages behind what it reads are kept.
  int64_t mostSliding(int64_t rows, int64_t kept) const;

  NumberPool windows, pages, slidingPages, slots;
  HiddenPlaces hidden; ///< where the batch drafts

private:
  formats::CacheSizes cut;
  int64_t residual, sinks;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_PAGEPOOL_H
