//===- PagePool.h - Windows and pages of a batch's caches -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The memory of an executor's cache: windows, one a sequence, then pages. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_PAGEPOOL_H
#define EASYQUANT_LIB_RUNTIME_PAGEPOOL_H

#include "easyquant/Formats/Cache.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace easyquant::runtime {

/// How many windows, and how many pages behind them.
struct PoolSize {
  int64_t sequences = 1, pages = 0;
};

/// Errors: OutOfRange (more than can be addressed).
Result<int64_t> cacheBytes(const formats::CacheSizes &sizes, const PoolSize &pool);

/// What messages call it.
std::string nameOfCache(const formats::CacheSizes &sizes, const PoolSize &pool);

/// Knows which windows and pages are in use, and by how many sequences each page. Functions that
/// take pages may throw std::bad_alloc, and have then changed nothing. Others never throw.
class PagePool {
public:
  PagePool() = default;
  PagePool(const formats::CacheSizes &cut, const PoolSize &size) : cut(cut), size(size) {}

  const formats::CacheSizes &sizes() const { return cut; }

  /// The byte of the cache where one begins.
  int64_t placeOfWindow(int64_t window) const { return window * cut.windowBytes; }
  int64_t placeOfPage(int64_t page) const {
    return size.sequences * cut.windowBytes + page * cut.pageBytes;
  }

  int64_t pages() const { return size.pages; }
  int64_t freePages() const {
    return size.pages - std::ssize(references) + std::ssize(returnedPages);
  }
  /// One of the free pages, of which there must be any, for one sequence.
  int64_t takePage();
  void share(int64_t page) noexcept { ++references[static_cast<size_t>(page)]; }
  bool isShared(int64_t page) const { return references[static_cast<size_t>(page)] > 1; }
  /// By one of its sequences.
  void release(int64_t page) noexcept;

  bool hasFreeWindow() const { return windowsTaken < size.sequences || !returnedWindows.empty(); }
  int64_t takeWindow();
  void releaseWindow(int64_t window) noexcept { returnedWindows.push_back(window); }

private:
  formats::CacheSizes cut;
  PoolSize size;
  /// References to the pages that were ever taken, which are the first ones. Memory that no
  /// sequence has come to need is not touched.
  std::vector<int32_t> references;
  std::vector<int64_t> returnedPages; ///< has room for all that were ever taken
  int64_t windowsTaken = 0;           ///< ever
  std::vector<int64_t> returnedWindows;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_PAGEPOOL_H
