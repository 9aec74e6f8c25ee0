//===- PagePool.cpp - Windows, pages and slots of a batch -----------------===//
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
