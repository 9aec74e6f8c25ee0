//===- PagePool.cpp - Windows, pages and slots of a batch -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PagePool.h"

#include "Executor.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::runtime;

std::string easyquant::runtime::nameOfCache(const formats::CacheSizes &sizes,
                                            const PoolSize &pool) {
  return fmt::format("KV cache of {} pages of {} tokens", pool.pages, sizes.pageTokens);
}

Result<int64_t> easyquant::runtime::cacheBytes(const formats::CacheSizes &sizes,
                                               const PoolSize &pool) {
  const std::string what = nameOfCache(sizes, pool);
  return sizeOf(what, pool.sequences, sizes.windowBytes, 0)
      .and_then([&](int64_t windows) { return sizeOf(what, pool.pages, sizes.pageBytes, windows); })
      .and_then([&](int64_t pages) {
        return sizeOf(what, pool.slidingPages, sizes.slidingPageBytes(), pages);
      });
}

int64_t PagePool::firstWritten(int64_t position) const {
  // Codes are counted from the first token behind the sinks on, and made from tokens as they leave
  // the float window, keys whole blocks of `residual` at a time.
  if (residual > 0) {
    position = std::max<int64_t>(0, position - sinks - residual);
    position -= position % residual;
  }
  return position / cut.pageTokens;
}

int64_t PagePool::firstRead(int64_t position) const {
  const int64_t window = cut.sliding ? cut.sliding->window : 0;
  // The next token sees itself, too.
  const int64_t oldest = std::max<int64_t>(0, position + 1 - window - sinks);
  return std::min(oldest / cut.pageTokens, firstWritten(position));
}

int64_t PagePool::mostSliding(int64_t rows, int64_t kept) const {
  const int64_t window = cut.sliding ? cut.sliding->window : 0;
  const int64_t read = cut.pagesOf(std::max(window + sinks, 2 * residual + sinks)) + 1;
  // What was there before a call stays until it has succeeded.
  return (read + kept) + (read + cut.pagesOf(rows) + 1);
}

int64_t NumberPool::take() {
  if (!returned.empty()) {
    const int64_t number = returned.back();
    returned.pop_back();
    references[static_cast<size_t>(number)] = 1;
    return number;
  }
  // Room for giving it back first, doubled so that taking many costs little.
  if (returned.capacity() <= references.size())
    returned.reserve(2 * references.size() + 16);
  references.push_back(1);
  return std::ssize(references) - 1;
}

void NumberPool::release(int64_t number) noexcept {
  if (--references[static_cast<size_t>(number)] == 0)
    returned.push_back(number);
}
