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
#include <type_traits>

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
  S4,
  E2M1
};

/// What a type is called, without its leading dot, and its bytes in memory; sub-byte types count as
/// 1. In the order of Type.
struct TypeInfo {
  std::string_view name;
  uint8_t bytes;
};
inline constexpr TypeInfo kTypes[] = {
    {"pred", 1},   {"b8", 1},     {"u8", 1},     {"s8", 1},   {"b16", 2},   {"u16", 2},
    {"s16", 2},    {"f16", 2},    {"bf16", 2},   {"b32", 4},  {"u32", 4},   {"s32", 4},
    {"f32", 4},    {"f16x2", 4},  {"bf16x2", 4}, {"tf32", 4}, {"u16x2", 4}, {"s16x2", 4},
    {"e4m3x2", 2}, {"e5m2x2", 2}, {"e4m3", 1},   {"e5m2", 1}, {"b64", 8},   {"u64", 8},
    {"s64", 8},    {"f64", 8},    {"b128", 16},  {"b1", 1},   {"u4", 1},    {"s4", 1},
    {"e2m1", 1}};

constexpr const TypeInfo &infoOf(Type type) { return kTypes[static_cast<unsigned>(type)]; }
constexpr unsigned sizeOf(Type type) { return infoOf(type).bytes; }
/// "u32", "f16x2", ...
std::optional<Type> parseType(std::string_view name);

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
/// The bits of so many bytes.
constexpr Type bitsOf(unsigned bytes) {
  return bytes == 1   ? Type::B8
         : bytes == 2 ? Type::B16
         : bytes == 4 ? Type::B32
         : bytes == 8 ? Type::B64
                      : Type::B128;
}
constexpr bool isFloat(Type type) {
  return type == Type::F16 || type == Type::BF16 || type == Type::F32 || type == Type::F64;
}

namespace detail {
template <unsigned bytes, bool isSigned> auto integerOf() {
  if constexpr (bytes == 1)
    return std::conditional_t<isSigned, int8_t, uint8_t>();
  else if constexpr (bytes == 2)
    return std::conditional_t<isSigned, int16_t, uint16_t>();
  else if constexpr (bytes == 4)
    return std::conditional_t<isSigned, int32_t, uint32_t>();
  else
    return std::conditional_t<isSigned, int64_t, uint64_t>();
}
} // namespace detail

/// The C++ type that computes with a type; the bits of a type that C++ does not have.
template <Type type>
using ValueOf = std::conditional_t<
    type == Type::F32, float,
    std::conditional_t<type == Type::F64, double,
                       decltype(detail::integerOf<sizeOf(type), isSigned(type)>())>>;

enum class Space : uint8_t { Register, Param, Global, Const, Shared, Local, Generic };

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_TYPES_H
