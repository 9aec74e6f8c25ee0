//===- HuggingFaceFields.h - Fields of config.json --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fields with the defaults of transformers, where null is as good as nothing.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_HUGGINGFACEFIELDS_H
#define EASYQUANT_LIB_FORMATS_HUGGINGFACEFIELDS_H

#include "easyquant/Formats/ModelConfig.h"
#include "easyquant/Support/FieldReader.h"

namespace easyquant::formats::huggingFace {

inline int64_t integer(FieldReader &fields, const char *key, int64_t largest,
                       std::optional<int64_t> otherwise = {}) {
  int64_t value = otherwise.value_or(1);
  if (otherwise)
    fields.optional(key, value, Bounds{1, largest});
  else
    fields.required(key, value, Bounds{1, largest});
  return value;
}

/// An integer that may be 0.
inline int64_t count(FieldReader &fields, const char *key, int64_t largest, int64_t otherwise) {
  fields.optional(key, otherwise, Bounds{0, largest});
  return otherwise;
}

inline double positive(FieldReader &fields, const char *key, double otherwise) {
  fields.optional(key, otherwise, Numbers::Positive);
  return otherwise;
}

inline bool flag(FieldReader &fields, const char *key, bool otherwise) {
  fields.optional(key, otherwise);
  return otherwise;
}

inline std::string word(FieldReader &fields, const char *key, std::string otherwise) {
  fields.optional(key, otherwise);
  return otherwise;
}

/// All that a model's object says but its tokens; the architecture is known.
void readModel(FieldReader &fields, ModelConfig &config);

/// The rotary positions of a configuration, whose sizes are read.
void readRope(FieldReader &fields, ModelConfig &config);

} // namespace easyquant::formats::huggingFace

#endif // EASYQUANT_LIB_FORMATS_HUGGINGFACEFIELDS_H
