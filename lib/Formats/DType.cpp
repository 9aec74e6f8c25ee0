//===- DType.cpp - Element types of safetensors ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/DType.h"

#include <array>

using namespace easyquant;
using namespace easyquant::formats;

namespace {
struct DTypeInfo {
  DType type;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<DTypeInfo, 17> kDTypes = {{
    {DType::Bool, "BOOL", 1},
    {DType::U8, "U8", 1},
    {DType::I8, "I8", 1},
    {DType::F8E4M3, "F8_E4M3", 1},
    {DType::F8E5M2, "F8_E5M2", 1},
    {DType::F8E8M0, "F8_E8M0", 1},
    {DType::U16, "U16", 2},
    {DType::I16, "I16", 2},
    {DType::F16, "F16", 2},
    {DType::BF16, "BF16", 2},
    {DType::U32, "U32", 4},
    {DType::I32, "I32", 4},
    {DType::F32, "F32", 4},
    {DType::U64, "U64", 8},
    {DType::I64, "I64", 8},
    {DType::F64, "F64", 8},
    {DType::C64, "C64", 8},
}};

constexpr bool indexedByEnumerator() {
  for (size_t i = 0; i < kDTypes.size(); ++i)
    if (static_cast<size_t>(kDTypes[i].type) != i)
      return false;
  return true;
}
static_assert(indexedByEnumerator());
} // namespace

std::string_view formats::dtypeName(DType type) { return kDTypes[static_cast<size_t>(type)].name; }

std::optional<DType> formats::parseDType(std::string_view name) {
  for (const DTypeInfo &info : kDTypes)
    if (info.name == name)
      return info.type;
  return std::nullopt;
}

int64_t formats::dtypeBytes(DType type) { return kDTypes[static_cast<size_t>(type)].bytes; }

std::optional<int64_t> formats::elementCount(std::span<const int64_t> shape) {
  // A zero anywhere makes the product zero, but must not excuse an overflow before it.
  int64_t count = 1;
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0)
      return std::nullopt;
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(count, size, &count))
      return std::nullopt;
  }
  return empty ? 0 : count;
}

std::optional<int64_t> formats::tensorBytes(DType type, std::span<const int64_t> shape) {
  std::optional<int64_t> count = elementCount(shape);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, dtypeBytes(type), &bytes))
    return std::nullopt;
  return bytes;
}
