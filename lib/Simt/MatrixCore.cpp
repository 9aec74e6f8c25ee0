//===- MatrixCore.cpp - Products of small matrices, and where their elements are -===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MatrixCore.h"

#include "Half.h"

#include <algorithm>
#include <charconv>
#include <limits>

using namespace easyquant;
using namespace easyquant::simt;

std::optional<MatrixShape> simt::parseMatrixShape(std::string_view text) {
  MatrixShape shape{};
  unsigned *parts[] = {&shape.m, &shape.n, &shape.k};
  const char names[] = {'m', 'n', 'k'};
  const char *at = text.data(), *end = at + text.size();
  for (int part = 0; part < 3; ++part) {
    if (at == end || *at++ != names[part])
      return std::nullopt;
    auto [stop, error] = std::from_chars(at, end, *parts[part]);
    if (error != std::errc())
      return std::nullopt;
    at = stop;
  }
  return at == end ? std::optional(shape) : std::nullopt;
}

unsigned simt::elementBits(Type type) {
  switch (type) {
  case Type::B1:
    return 1;
  case Type::U4:
  case Type::S4:
    return 4;
  case Type::TF32:
    return 32;
  default:
    return 8 * sizeOf(type);
  }
}

double simt::decodeFloat(uint64_t bits, Type type) {
  switch (type) {
  case Type::F16:
    return Half::widen(static_cast<uint16_t>(bits));
  case Type::BF16:
    return BFloat::widen(static_cast<uint16_t>(bits));
  // The tensor core looks at the upper 19 bits only.
  case Type::TF32:
    return std::bit_cast<float>(static_cast<uint32_t>(bits) & 0xffffe000u);
  case Type::F32:
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  case Type::E4M3:
    return std::bit_cast<double>(convert(bits, kE4M3, kDouble, Rounding::NearestEven));
  case Type::E5M2:
    return std::bit_cast<double>(convert(bits, kE5M2, kDouble, Rounding::NearestEven));
  default:
    return std::bit_cast<double>(bits);
  }
}

int32_t simt::decodeInteger(uint64_t bits, Type type) {
  switch (type) {
  case Type::S8:
    return static_cast<int8_t>(bits);
  case Type::U8:
    return static_cast<uint8_t>(bits);
  case Type::S4:
    return static_cast<int32_t>(static_cast<uint32_t>(bits) << 28) >> 28;
  case Type::U4:
    return bits & 15;
  case Type::B1:
    return bits & 1;
  default:
    return static_cast<int32_t>(bits);
  }
}

uint64_t simt::encodeFloat(double value, Type type) {
  auto bits = std::bit_cast<uint64_t>(value);
  switch (type) {
  case Type::F16:
    return convert(bits, kDouble, kHalf, Rounding::NearestEven);
  case Type::F32:
    return value != value ? 0x7fffffffu : std::bit_cast<uint32_t>(static_cast<float>(value));
  default:
    return bits;
  }
}

void simt::multiplyFloats(MatrixShape s, const double *a, const double *b, double *d) {
  for (unsigned i = 0; i < s.m; ++i)
    for (unsigned j = 0; j < s.n; ++j) {
      double sum = d[i * s.n + j];
      for (unsigned k = 0; k < s.k; ++k)
        sum += a[i * s.k + k] * b[j * s.k + k];
      d[i * s.n + j] = sum;
    }
}

void simt::multiplyIntegers(MatrixShape s, const int32_t *a, const int32_t *b, int32_t *d,
                            bool saturate) {
  for (unsigned i = 0; i < s.m; ++i)
    for (unsigned j = 0; j < s.n; ++j) {
      int32_t products = 0; // at most 64 · 255 · 255
      for (unsigned k = 0; k < s.k; ++k)
        products += a[i * s.k + k] * b[j * s.k + k];
      int64_t sum = int64_t(d[i * s.n + j]) + products;
      if (saturate)
        sum = std::clamp<int64_t>(sum, std::numeric_limits<int32_t>::min(),
                                  std::numeric_limits<int32_t>::max());
      d[i * s.n + j] = static_cast<int32_t>(sum);
    }
}

void simt::multiplyBits(MatrixShape s, const int32_t *a, const int32_t *b, int32_t *d, bool isXor) {
  for (unsigned i = 0; i < s.m; ++i)
    for (unsigned j = 0; j < s.n; ++j)
      for (unsigned k = 0; k < s.k; ++k)
        d[i * s.n + j] += isXor ? a[i * s.k + k] ^ b[j * s.k + k] : a[i * s.k + k] & b[j * s.k + k];
}

FragmentPlace simt::placeOf(Fragment fragment, MatrixShape s, unsigned bits, unsigned row,
                            unsigned column) {
  // PTX ISA, "Matrix Fragments for mma": a quad of lanes holds a row of A (a column of B), each
  // lane one register of neighbouring elements; further registers repeat this 8 rows or 4 registers
  // on.
  unsigned per = bits >= 32 ? 1 : 32 / bits; // elements a register
  auto place = [](unsigned lane, unsigned reg, unsigned shift) {
    return FragmentPlace{static_cast<uint8_t>(lane), static_cast<uint8_t>(reg),
                         static_cast<uint8_t>(shift)};
  };
  if (fragment == Fragment::C) {
    unsigned element = (row / 8) * 2 + column % 2;
    unsigned lane = row % 8 * 4 + column / 2;
    return bits == 16 ? place(lane, element / 2, element % 2 * 16) : place(lane, element, 0);
  }
  unsigned k = fragment == Fragment::A ? column : row,
           other = fragment == Fragment::A ? row : column;
  unsigned lane = other % 8 * 4 + k / per % 4, chunk = k / (4 * per);
  unsigned reg = fragment == Fragment::A && s.m == 16 ? chunk * 2 + other / 8 : chunk;
  return place(lane, reg, k % per * (bits >= 32 ? 0 : bits));
}
