//===- BitString.h - Fields of bits in words ----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_CODECS_BITSTRING_H
#define EASYQUANT_LIB_FORMATS_CODECS_BITSTRING_H

#include <cstdint>
#include <cstring>

namespace easyquant::formats {

/// Words that hold `count` fields of so many bits.
constexpr int64_t wordsOf(int64_t count, int bits) { return (count * bits + 31) / 32; }

/// Fields of `bits` bits, dense, low end first, in little-endian words of 32 bits, `stride` words
/// apart. A field may begin in one word and end in the next. Byte is uint8_t, const or not.
template <typename Byte> struct BitString {
  Byte *data;
  int64_t stride;
  int bits;

  /// Sets field i of words that are 0.
  void put(int64_t i, uint32_t field) const {
    const int64_t bit = i * bits;
    const uint64_t placed = static_cast<uint64_t>(field) << bit % 32;
    orWord(bit / 32, static_cast<uint32_t>(placed));
    if (bit % 32 + bits > 32)
      orWord(bit / 32 + 1, static_cast<uint32_t>(placed >> 32));
  }
  uint32_t get(int64_t i) const {
    const int64_t bit = i * bits;
    uint64_t words = word(bit / 32);
    if (bit % 32 + bits > 32)
      words |= static_cast<uint64_t>(word(bit / 32 + 1)) << 32;
    return static_cast<uint32_t>(words >> bit % 32) & ((1u << bits) - 1);
  }

private:
  uint32_t word(int64_t index) const {
    uint32_t value;
    std::memcpy(&value, data + 4 * stride * index, 4);
    return value;
  }
  void orWord(int64_t index, uint32_t mask) const {
    const uint32_t value = word(index) | mask;
    std::memcpy(data + 4 * stride * index, &value, 4);
  }
};
template <typename Byte> BitString(Byte *, int64_t, int) -> BitString<Byte>;

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_CODECS_BITSTRING_H
