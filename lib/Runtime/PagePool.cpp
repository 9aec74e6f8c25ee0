//===- PagePool.cpp - Windows and pages of a batch's caches ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PagePool.h"

#include "Executor.h"

using namespace easyquant;
using namespace easyquant::runtime;

std::string easyquant::runtime::nameOfCache(const formats::CacheSizes &sizes,
                                            const PoolSize &pool) {
  return fmt::format("KV cache of {} pages of {} tokens", pool.pages, sizes.pageTokens);
}

Result<int64_t> easyquant::runtime::cacheBytes(const formats::CacheSizes &sizes,
                                               const PoolSize &pool) {
  const std::string what = nameOfCache(sizes, pool);
  return sizeOf(what, pool.sequences, sizes.windowBytes, 0).and_then([&](int64_t windows) {
    return sizeOf(what, pool.pages, sizes.pageBytes, windows);
  });
}

int64_t PagePool::takePage() {
  if (!returnedPages.empty()) {
    const int64_t page = returnedPages.back();
    returnedPages.pop_back();
    references[static_cast<size_t>(page)] = 1;
    return page;
  }
  // Room for giving it back first, doubled so that taking many costs little.
  if (returnedPages.capacity() <= references.size())
    returnedPages.reserve(2 * references.size() + 16);
  references.push_back(1);
  return std::ssize(references) - 1;
}

void PagePool::release(int64_t page) noexcept {
  if (--references[static_cast<size_t>(page)] == 0)
    returnedPages.push_back(page);
}

int64_t PagePool::takeWindow() {
  if (!returnedWindows.empty()) {
    const int64_t window = returnedWindows.back();
    returnedWindows.pop_back();
    return window;
  }
  returnedWindows.reserve(static_cast<size_t>(windowsTaken) + 1);
  return windowsTaken++;
}
