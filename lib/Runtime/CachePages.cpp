//===- CachePages.cpp - Where a sequence's cache lies ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CachePages.h"

#include "Executor.h"

using namespace easyquant;
using namespace easyquant::runtime;

Result<int64_t> easyquant::runtime::cacheBytes(const formats::CacheSizes &sizes, int64_t tokens) {
  return sizeOf(nameOfCache(tokens), sizes.pagesOf(tokens), sizes.pageBytes, sizes.windowBytes);
}

std::vector<int64_t> easyquant::runtime::placePages(const formats::CacheSizes &sizes,
                                                    int64_t tokens) {
  std::vector<int64_t> table(static_cast<size_t>(sizes.pagesOf(tokens)));
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = sizes.windowBytes + static_cast<int64_t>(i) * sizes.pageBytes;
  return table;
}

std::string easyquant::runtime::nameOfCache(int64_t tokens) {
  return fmt::format("KV cache of {} tokens", tokens);
}
