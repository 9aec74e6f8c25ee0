//===- CacheFields.h - The fields of a cache --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_CACHEFIELDS_H
#define EASYQUANT_LIB_FORMATS_CACHEFIELDS_H

#include "easyquant/Formats/Cache.h"
#include "easyquant/Support/FieldReader.h"

namespace easyquant::formats {

template <typename Fields> void mapCacheBytes(Fields &fields, const char *key, int64_t &bytes) {
  fields.required(key, bytes, Bounds());
  fields.check(bytes % CacheSizes::kAlignment == 0, key, std::to_string(bytes), "a multiple of 64");
}

template <typename Fields> void mapFields(Fields &fields, CacheSizes::Sliding &sliding) {
  fields.required("window", sliding.window, Bounds{1, kMaxInt32});
  mapCacheBytes(fields, "page_bytes", sliding.pageBytes);
}

template <typename Fields> void mapFields(Fields &fields, CacheSizes &sizes) {
  fields.required("page_tokens", sizes.pageTokens, Bounds{1, kMaxInt32});
  mapCacheBytes(fields, "page_bytes", sizes.pageBytes);
  mapCacheBytes(fields, "window_bytes", sizes.windowBytes);
  fields.optional("sliding", sizes.sliding);
}

template <typename Fields> void mapFields(Fields &fields, CacheScheme &scheme) {
  constexpr Bounds bounds = {0, kMaxInt32};
  fields.required("bits", scheme.bits, bounds);
  fields.required("group_size", scheme.groupSize, bounds);
  fields.required("residual", scheme.residual, bounds);
  fields.required("sinks", scheme.sinks, bounds);
  fields.required("keys", scheme.keys);
  fields.required("key_scales", scheme.keyScales);
}

template <typename Fields> void mapFields(Fields &fields, Cache &cache) {
  fields.required("sizes", cache.sizes);
  fields.required("scheme", cache.scheme);
  fields.required("type", cache.type);
}

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_CACHEFIELDS_H
