//===- Cache.h - The KV cache of a program ----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_CACHE_H
#define EASYQUANT_FORMATS_CACHE_H

#include <cstdint>
#include <optional>
#include <string>

namespace easyquant::formats {

/// Bytes are of all layers and multiples of kAlignment, as are the places of pages and windows.
struct CacheSizes {
  /// Layers that read the newest tokens alone, whose pages are others.
  struct Sliding {
    int64_t window = 1; ///< tokens, the most that one of these layers reads
    int64_t pageBytes = 0;
    bool operator==(const Sliding &) const = default;
  };
  static constexpr int64_t kAlignment = 64;
  int64_t pageTokens = 1;  ///< tokens whose keys and values are in one page
  int64_t pageBytes = 0;   ///< of a page of the other layers
  int64_t windowBytes = 0; ///< of what a sequence has beside its pages: sinks and float window
  std::optional<Sliding> sliding = {}; ///< if there are any
  bool operator==(const CacheSizes &) const = default;

  int64_t slidingPageBytes() const { return sliding ? sliding->pageBytes : 0; }
  int64_t pagesOf(int64_t tokens) const { return (tokens + pageTokens - 1) / pageTokens; }
};

/// The codes of a KV cache.
struct CacheScheme {
  int64_t bits = 0, groupSize = 0, residual = 0, sinks = 0;
  std::string keys, keyScales;
  bool operator==(const CacheScheme &) const = default;
};

struct Cache {
  CacheSizes sizes;
  std::optional<CacheScheme> scheme; ///< none: all of it is float
  std::string type = {};             ///< of what is float
  bool operator==(const Cache &) const = default;
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_CACHE_H
