//===- CachePages.h - Where a sequence's cache lies -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The memory of a session with one sequence: the sequence's window, then its pages, one behind the
// other in their order. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_CACHEPAGES_H
#define EASYQUANT_LIB_RUNTIME_CACHEPAGES_H

#include "easyquant/Formats/CacheSizes.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace easyquant::runtime {

/// Of a sequence of up to `tokens` tokens. Errors: OutOfRange (more than can be addressed).
Result<int64_t> cacheBytes(const formats::CacheSizes &sizes, int64_t tokens);

/// The byte where each of its pages begins.
std::vector<int64_t> placePages(const formats::CacheSizes &sizes, int64_t tokens);

/// What messages call it.
std::string nameOfCache(int64_t tokens);

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_CACHEPAGES_H
