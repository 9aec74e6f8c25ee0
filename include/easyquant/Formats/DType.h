//===- DType.h - Element types of safetensors ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_DTYPE_H
#define EASYQUANT_FORMATS_DTYPE_H

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace easyquant::formats {

/// The element types that the safetensors format names.
enum class DType {
  Bool,
  U8,
  I8,
  F8E4M3,
  F8E5M2,
  F8E8M0,
  U16,
  I16,
  F16,
  BF16,
  U32,
  I32,
  F32,
  U64,
  I64,
  F64,
  C64,
};

/// The name that safetensors headers use: "F32", "BF16", "F8_E4M3", ...
std::string_view dtypeName(DType type);
std::optional<DType> parseDType(std::string_view name);
/// Bytes of one element.
int64_t dtypeBytes(DType type);

/// Bytes of a tensor of `shape`, or nullopt if a dimension is negative or the product exceeds 2^63.
std::optional<int64_t> tensorBytes(DType type, std::span<const int64_t> shape);
/// Elements of a tensor of `shape`, with the same condition. A scalar (no dimensions) has one.
std::optional<int64_t> elementCount(std::span<const int64_t> shape);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_DTYPE_H
