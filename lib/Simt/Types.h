//===- Types.h - Scalar types and state spaces of PTX --------- -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_TYPES_H
#define EASYQUANT_LIB_SIMT_TYPES_H

#include <cstdint>
#include <optional>
#include <string_view>

namespace easyquant::simt {

enum class Type : uint8_t {
  Pred,
  B8,
  U8,
  S8,
  B16,
  U16,
  S16,
  F16,
  BF16,
  B32,
  U32,
  S32,
  F32,
  F16x2,
  BF16x2,
  TF32,
  U16x2,
  S16x2,
  E4M3x2,
  E5M2x2,
  E4M3,
  E5M2,
  B64,
  U64,
  S64,
  F64,
  B128,
  B1,
  U4,
  S4
};

/// `name` without its leading dot: "u32", "f16x2", ...
std::optional<Type> parseType(std::string_view name);

/// Bytes in memory. Packed pairs of fp8 are 2; sub-byte types count as 1.
constexpr unsigned sizeOf(Type type) {
  switch (type) {
  case Type::Pred:
  case Type::B8:
  case Type::U8:
  case Type::S8:
  case Type::E4M3:
  case Type::E5M2:
  case Type::B1:
  case Type::U4:
  case Type::S4:
    return 1;
  case Type::B16:
  case Type::U16:
  case Type::S16:
  case Type::F16:
  case Type::BF16:
  case Type::E4M3x2:
  case Type::E5M2x2:
    return 2;
  case Type::B64:
  case Type::U64:
  case Type::S64:
  case Type::F64:
    return 8;
  case Type::B128:
    return 16;
  default:
    return 4;
  }
}

constexpr bool isSigned(Type type) {
  return type == Type::S8 || type == Type::S16 || type == Type::S32 || type == Type::S64;
}
constexpr bool isUnsigned(Type type) {
  return type == Type::U8 || type == Type::U16 || type == Type::U32 || type == Type::U64;
}
constexpr bool isInteger(Type type) { return isSigned(type) || isUnsigned(type); }
constexpr bool isBits(Type type) {
  return type == Type::B8 || type == Type::B16 || type == Type::B32 || type == Type::B64;
}
constexpr bool isFloat(Type type) {
  return type == Type::F16 || type == Type::BF16 || type == Type::F32 || type == Type::F64;
}

enum class Space : uint8_t { Register, Param, Global, Const, Shared, Local, Generic };

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_TYPES_H
