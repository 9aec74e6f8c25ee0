//===- CacheFields.h - The fields of CacheSizes -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_CACHEFIELDS_H
#define EASYQUANT_LIB_FORMATS_CACHEFIELDS_H

#include "easyquant/Formats/CacheSizes.h"
#include "easyquant/Support/FieldReader.h"

namespace easyquant::formats {

template <typename Fields> void mapFields(Fields &fields, CacheSizes &sizes) {
  fields.required("page_tokens", sizes.pageTokens, Bounds{1, kMaxInt32});
  for (auto [key, bytes] :
       {std::pair("page_bytes", &sizes.pageBytes), std::pair("window_bytes", &sizes.windowBytes)}) {
    fields.required(key, *bytes, Bounds());
    fields.check(*bytes % CacheSizes::kAlignment == 0, key, std::to_string(*bytes),
                 "a multiple of 64");
  }
}

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_CACHEFIELDS_H
