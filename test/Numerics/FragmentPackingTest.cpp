//===- FragmentPackingTest.cpp - Codes where lanes expect them ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RandomData.h"

#include "easyquant/Numerics/FragmentPacking.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

Scheme groups(int bits, int64_t size) {
  return {bits, true, size ? Granularity::Group : Granularity::Channel, size};
}

QuantizedMatrix matrix(const FragmentLayout &layout, std::vector<int8_t> codes) {
  QuantizedMatrix q;
  q.scheme = layout.scheme;
  q.rows = layout.rows;
  q.columns = layout.columns;
  q.codes = std::move(codes);
  q.params = {q.rows, layout.groups(), std::vector<float>(q.rows * layout.groups(), 1.0f), {}};
  return q;
}

std::vector<uint8_t> packedCodes(const FragmentLayout &layout, const std::vector<int8_t> &codes) {
  return pack(layout, matrix(layout, codes))[WeightTensor::Codes];
}

/// Element i of a tensor of little-endian values.
template <typename T> T element(const std::vector<uint8_t> &bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

uint32_t word(const std::vector<uint8_t> &packed, int64_t block, int64_t lane, int64_t index) {
  uint32_t value;
  std::memcpy(&value, packed.data() + block * 512 + lane * 16 + index * 4, 4);
  return value;
}

/// The code at (row, k) by the formulas of the header.
int codeAt(const FragmentLayout &l, const std::vector<uint8_t> &packed, int64_t row, int64_t k) {
  const int bits = l.scheme.bits;
  const int64_t rows = fragmentRows(bits), n = row % rows, t = n / 8, c = k % 32;
  const uint8_t *block =
      packed.data() + (row / rows * l.columnBlocks() + k / 32) * fragmentBytes(bits);
  auto field = [&](int64_t lane, int64_t index, int64_t bit, int count) {
    uint32_t value;
    std::memcpy(&value, block + 16 * lane + 4 * index, 4);
    return static_cast<int>(value >> bit & ((1u << count) - 1));
  };
  auto signedCode = [&](int value) {
    return value >= 1 << (bits - 1) ? value - (1 << bits) : value;
  };
  const int low = bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits, above = bits - low;
  // The upper bits of a code in two planes, from bit `bit` of the lane's word on.
  auto upper = [&](int64_t lane, int64_t tilesOfWord, int64_t bit) {
    uint32_t value;
    const int64_t words = above * (128 / low) / 32;
    std::memcpy(&value, block + 512 + 4 * (words * lane + t / tilesOfWord), 4);
    return static_cast<int>(std::rotr(value, static_cast<int>(bit % 32)) & ((1u << above) - 1))
           << low;
  };
  if (l.order == FragmentOrder::M16N8K32) {
    const int64_t lane = 4 * (n % 8) + c % 16 / 4, i = c % 4, h = c / 16;
    if (bits == 8)
      return signedCode(field(lane, 2 * t + h, 8 * i, 8));
    const int lowest = low == 4 ? field(lane, t, 8 * i + 4 * h, 4)
                                : field(lane, t % 4, 8 * i + 2 * h + 4 * (t / 4), 2);
    if (above == 0)
      return signedCode(lowest);
    const int64_t tiles = 4 / above;
    return signedCode(lowest | upper(lane, tiles, 8 * i + above * (2 * (t % tiles) + h)));
  }
  const int64_t lane = 4 * (n % 8) + c % 8 / 2, i = c % 2, r = c / 8;
  if (bits == 8)
    return signedCode(field(lane, 2 * t + r / 2, 8 * (2 * (r % 2) + i), 8));
  const int lowest = low == 4 ? field(lane, t, 16 * i + 4 * r, 4)
                              : field(lane, t % 4, 16 * i + 2 * r + 8 * (t / 4), 2);
  if (above == 0)
    return signedCode(lowest);
  constexpr std::array kTurns = {std::array{0, 1, 8, 9}, std::array{0, 1, 2, 3},
                                 std::array{0, 2, 0, 0}};
  const int64_t tiles = 4 / above;
  return signedCode(
      lowest |
      upper(lane, tiles, 16 * i + low * r + low + kTurns[bits == 3 ? 0 : bits - 4][t % tiles]));
}

} // namespace

TEST(FragmentPacking, ComesBack) {
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (FragmentOrder order : {FragmentOrder::M16N8K32, FragmentOrder::M16N8K16})
      for (auto [n, k] : {std::pair(1, 1), {16, 32}, {65, 33}, {130, 100}}) {
        auto layout = fragmentLayout(groups(bits, 0), order, n, k);
        ASSERT_TRUE(layout) << layout.error().message;
        int half = 1 << (bits - 1);
        std::vector<int8_t> codes = randomCodes(n * k, bits * 100 + n, -half, half - 1);
        std::vector<uint8_t> packed = packedCodes(*layout, codes);
        EXPECT_EQ(std::ssize(packed), layout->bytes(WeightTensor::Codes));
        std::vector<int8_t> back;
        for (int64_t row = 0; row < n; ++row)
          for (int64_t column = 0; column < k; ++column)
            back.push_back(static_cast<int8_t>(codeAt(*layout, packed, row, column)));
        EXPECT_EQ(back, codes) << bits << " bits, " << n << " x " << k;
        // Every code has bits of its own: as many are set as in all codes together.
        int64_t set = 0, expected = 0;
        for (uint8_t byte : packed)
          set += __builtin_popcount(byte);
        for (int8_t code : codes)
          expected += __builtin_popcount(static_cast<unsigned>(code) & ((1u << bits) - 1));
        EXPECT_EQ(set, expected);
      }
}

TEST(FragmentPacking, PlacesAreThoseOfTheManual) {
  // Written out for one code each: row 8t + g, the lane of (g, q), its word and bits.
  struct Case {
    int bits;
    FragmentOrder order;
    int64_t row, column, lane, word;
    int bit;
  };
  const Case cases[] = {
      {8, FragmentOrder::M16N8K32, 11, 22, 4 * 3 + 1, 3, 16}, // t 1, g 3; h 1, q 1, i 2
      {4, FragmentOrder::M16N8K32, 11, 22, 4 * 3 + 1, 1, 20}, // t 1; byte 2, upper nibble
      {4, FragmentOrder::M16N8K32, 29, 9, 4 * 5 + 2, 3, 8},   // t 3, g 5; q 2, i 1
      {2, FragmentOrder::M16N8K32, 43, 22, 4 * 3 + 1, 1, 22}, // row 32 + 11
      {8, FragmentOrder::M16N8K16, 11, 27, 4 * 3 + 1, 3, 24}, // r 3, q 1, i 1
      {4, FragmentOrder::M16N8K16, 11, 27, 4 * 3 + 1, 1, 28}, // r 3, i 1
      {2, FragmentOrder::M16N8K16, 43, 27, 4 * 3 + 1, 1, 30},
  };
  for (const Case &c : cases) {
    auto layout = *fragmentLayout(groups(c.bits, 0), c.order, 64, 32);
    std::vector<int8_t> codes(64 * 32);
    codes[c.row * 32 + c.column] = 1;
    std::vector<uint8_t> packed = packedCodes(layout, codes);
    int64_t block = c.row / fragmentRows(c.bits);
    EXPECT_EQ(word(packed, block, c.lane, c.word), 1u << c.bit)
        << c.bits << " bits, row " << c.row << ", column " << c.column;
  }
}

TEST(FragmentPacking, ThirdBitsComeAboveTheOthers) {
  // As kernels find them: word t / 4 of a lane's upper plane, turned right by {0, 1, 8, 9}[t mod
  // 4].
  auto layout = *fragmentLayout(groups(3, 0), FragmentOrder::M16N8K16, 64, 32);
  ASSERT_EQ(layout.bytes(WeightTensor::Codes), 768);
  std::vector<int8_t> codes = randomCodes(64 * 32, 17, -4, 3);
  std::vector<uint8_t> packed = packedCodes(layout, codes);
  for (int64_t row = 0; row < 64; ++row)
    for (int64_t k = 0; k < 32; ++k) {
      int64_t t = row / 8, lane = 4 * (row % 8) + k % 8 / 2, r = k / 8, i = k % 2;
      uint32_t low = word(packed, 0, lane, t % 4) >> (8 * (t / 4)), high;
      std::memcpy(&high, packed.data() + 512 + 8 * lane + 4 * (t / 4), 4);
      high = std::rotr(high, std::array{0, 1, 8, 9}[t % 4]);
      uint32_t field =
          ((low & 0x00ff00ffu & (0x00030003u << 2 * r)) | (high & (0x00040004u << 2 * r))) >>
          (16 * i + 2 * r);
      ASSERT_EQ(field & 7, static_cast<uint32_t>(codes[row * 32 + k]) & 7) << row << ", " << k;
    }
}

TEST(FragmentPacking, FloatsAreTheRegistersOfTheProduct) {
  for (auto [n, k] : {std::pair(1, 1), {8, 32}, {21, 77}}) {
    std::vector<uint16_t> weights(n * k);
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = static_cast<uint16_t>(i * 40503 + 1);
    std::vector<uint8_t> packed(floatFragmentBytes(n, k), 0xAA);
    packFloatFragments(n, k, weights.data(), packed.data());
    for (int64_t row = 0; row < n; ++row)
      for (int64_t column = 0; column < k; ++column) {
        const int64_t block = row / 8 * ((k + 31) / 32) + column / 32, c = column % 32;
        const uint32_t pair = word(packed, block, 4 * (row % 8) + c % 8 / 2, c / 8);
        ASSERT_EQ(pair >> (16 * (c % 2)) & 0xffff, weights[row * k + column]);
      }
  }
  // Row 8 + 3, column 32 + 8 * 2 + 2 * 1 + 1: block row 1, block 1 of 2, lane 13, word 2, upper
  // half.
  std::vector<uint16_t> weights(16 * 64);
  weights[11 * 64 + 51] = 0x8001;
  std::vector<uint8_t> packed(floatFragmentBytes(16, 64));
  packFloatFragments(16, 64, weights.data(), packed.data());
  EXPECT_EQ(word(packed, 3, 13, 2), 0x80010000u);
}

TEST(FragmentPacking, ParametersAreTransposed) {
  for (ScaleFormat format : {ScaleFormat::F32, ScaleFormat::F16}) {
    Scheme scheme = groups(4, 32);
    scheme.symmetric = false;
    scheme.scales = format;
    auto layout = *fragmentLayout(scheme, FragmentOrder::M16N8K32, 3, 40);
    layout.withSums = true;
    QuantizedMatrix q = matrix(layout, randomCodes(3 * 40, 5, -8, 7));
    q.params = {3, 2, {1, 2, 3, 4, 5, 6}, {-1, 1, -2, 2, -3, 3}};
    PackedWeight packed = pack(layout, q);
    const std::vector<uint8_t> &scales = packed[WeightTensor::Scales];
    ASSERT_EQ(std::ssize(scales), 128 * scaleBytes(format));
    auto scale = [&](int64_t i) {
      return decodeScale(format == ScaleFormat::F32 ? element<uint32_t>(scales, i)
                                                    : element<uint16_t>(scales, i),
                         format);
    };
    EXPECT_EQ(scale(2), 5.0f);
    EXPECT_EQ(scale(64 + 1), 4.0f);
    EXPECT_EQ(scale(3), 1.0f); // padding
    int32_t expected = -8 * 3;
    for (int64_t k = 32; k < 40; ++k)
      expected += q.codes[2 * 40 + k];
    EXPECT_EQ(element<int32_t>(packed[WeightTensor::Sums], 64 + 2), expected);
    EXPECT_EQ(element<int32_t>(packed[WeightTensor::Sums], 64 + 3), 0);
  }
}

TEST(FragmentPacking, ZeroPointsTakeTheBitsOfTheirCodes) {
  // Row 6 of group 1: of 2 bits the third field of byte 16 + 1, of 4 bits the first of byte 32 + 3,
  // of 8 bits byte 64 + 6. All others are 0, which is stored as 2^(b-1).
  struct Case {
    int bits;
    int64_t bytes, byte;
    uint8_t found, others;
  };
  for (const Case &c :
       {Case{2, 32, 17, 0x9a, 0xaa}, {4, 64, 35, 0x87, 0x88}, {8, 128, 70, 0x7f, 0x80}}) {
    Scheme scheme = groups(c.bits, 32);
    scheme.symmetric = false;
    auto layout = *fragmentLayout(scheme, FragmentOrder::M16N8K16, 64, 64);
    QuantizedMatrix q = matrix(layout, std::vector<int8_t>(64 * 64));
    q.params.zeroPoints.assign(128, 0);
    q.params.zeroPoints[2 * 6 + 1] = -1;
    PackedWeight packed = pack(layout, q);
    std::vector<uint8_t> expected(c.bytes, c.others);
    expected[c.byte] = c.found;
    EXPECT_EQ(packed[WeightTensor::ZeroPoints], expected) << c.bits << " bits";
  }
}

TEST(FragmentPacking, NumbersOfOddBitsAreInTwoPlanes) {
  // Row 6 of group 1 again, which is -1, stored as 2^(b-1) - 1: of 3 bits 01 in the upper plane of
  // 16 bytes and 1 in the lower one of 8; of 5 bits 0111 and 1, in 32 and 8; of 6 bits 0111 and 11,
  // in 32 and 16.
  struct Case {
    int bits;
    int64_t upper; ///< bytes of the upper plane
    int64_t firstByte, secondByte;
    uint8_t first, second, upperOthers;
  };
  for (const Case &c : {Case{3, 16, 1, 0, 0x9a, 0x40, 0xaa},
                        {5, 32, 3, 0, 0x87, 0x40, 0x88},
                        {6, 32, 3, 1, 0x87, 0x30, 0x88}}) {
    Scheme scheme = groups(c.bits, 32);
    scheme.symmetric = false;
    auto layout = *fragmentLayout(scheme, FragmentOrder::M16N8K16, 64, 64);
    QuantizedMatrix q = matrix(layout, std::vector<int8_t>(64 * 64));
    q.params.zeroPoints.assign(128, 0);
    q.params.zeroPoints[2 * 6 + 1] = -1;
    std::vector<uint8_t> expected(16 * c.bits);
    for (int64_t group : {0, 1})
      std::fill_n(expected.begin() + group * 8 * c.bits, c.upper, c.upperOthers);
    const int64_t second = 8 * c.bits;
    expected[second + c.firstByte] = c.first;
    expected[second + c.upper + c.secondByte] = c.second;
    EXPECT_EQ(pack(layout, q)[WeightTensor::ZeroPoints], expected) << c.bits << " bits";
  }
}

TEST(FragmentPacking, ScalesOfTwoLevels) {
  // Nine groups: two super-groups of f16, 2 x 64, and behind them 9 x 48 bytes.
  Scheme scheme = groups(4, 32);
  scheme.scales = ScaleFormat::UI6;
  auto layout = *fragmentLayout(scheme, FragmentOrder::M16N8K16, 3, 288);
  QuantizedMatrix q = matrix(layout, std::vector<int8_t>(3 * 288));
  for (int64_t i = 0; i < 27; ++i)
    q.params.scales[i] = 0.5f * static_cast<float>(i % 9 % 8 == 0 ? 63 : i) / 64;
  const std::vector<uint8_t> scales = pack(layout, q)[WeightTensor::Scales];
  ASSERT_EQ(std::ssize(scales), 2 * 64 * 2 + 9 * 48);
  for (int64_t n = 0; n < 3; ++n)
    for (int64_t g = 0; g < 9; ++g) {
      const uint8_t *numbers = scales.data() + 256 + 48 * g;
      const int number =
          (numbers[n / 2] >> (4 * (n % 2)) & 15) << 2 | (numbers[32 + n / 4] >> (2 * (n % 4)) & 3);
      const float super = decodeScale(element<uint16_t>(scales, g / 8 * 64 + n), ScaleFormat::F16);
      EXPECT_EQ(super * static_cast<float>(number) / 64, q.params.scales[9 * n + g]);
    }
}

TEST(FragmentPacking, OtherCodesAreTheirBits) {
  Scheme scheme = groups(8, 0);
  scheme.codes = CodeFormat::F8E4M3FN;
  auto layout = *fragmentLayout(scheme, FragmentOrder::M16N8K16, 16, 32);
  std::vector<int8_t> codes(16 * 32, -128); // +0
  codes[0] = 0x38 - 128;                    // 1
  std::vector<uint8_t> packed = packedCodes(layout, codes), expected(512);
  expected[0] = 0x38;
  EXPECT_EQ(packed, expected);
}

TEST(FragmentPacking, BlocksOfRowsComeApart) {
  Scheme scheme = groups(3, 32);
  scheme.symmetric = false;
  auto layout = *fragmentLayout(scheme, FragmentOrder::M16N8K16, 150, 64);
  layout.withSums = true;
  QuantizedMatrix q = matrix(layout, randomCodes(150 * 64, 9, -4, 3));
  q.params.zeroPoints.resize(300);
  for (int i = 0; i < 300; ++i) {
    q.params.scales[i] = 1.0f + float(i);
    q.params.zeroPoints[i] = i % 8 - 4;
  }
  PackedWeight parts = layout.allocate();
  for (int64_t first : {128, 0, 64}) {
    QuantizedMatrix block = q;
    block.rows = block.params.rows = std::min<int64_t>(layout.blockRows(), 150 - first);
    block.codes.erase(block.codes.begin(), block.codes.begin() + first * 64);
    block.params.scales.erase(block.params.scales.begin(), block.params.scales.begin() + first * 2);
    block.params.zeroPoints.erase(block.params.zeroPoints.begin(),
                                  block.params.zeroPoints.begin() + first * 2);
    layout.pack(first, block, parts);
  }
  EXPECT_EQ(parts.tensors, pack(layout, q).tensors);
}

TEST(FragmentPacking, RefusesWhatKernelsCannotTake) {
  auto error = fragmentLayout(groups(4, 40), FragmentOrder::M16N8K32, 8, 80).error();
  EXPECT_NE(error.message.find("multiples of 32 (such as 64)"), std::string::npos) << error.message;
  EXPECT_EQ(fragmentLayout(groups(4, 0), FragmentOrder::M16N8K32, 0, 8).error().code,
            ErrorCode::InvalidArgument);
  EXPECT_NE(fragmentLayout(groups(4, 24), FragmentOrder::M16N8K16, 8, 48)
                .error()
                .message.find("multiples of 16 (such as 32)"),
            std::string::npos);
  Scheme fp8 = groups(8, 0);
  fp8.codes = CodeFormat::F8E4M3FN;
  EXPECT_NE(
      fragmentLayout(fp8, FragmentOrder::M16N8K32, 8, 32).error().message.find("take integers"),
      std::string::npos);
  Scheme dynamic{8, true, Granularity::Token, 0, true};
  EXPECT_FALSE(fragmentLayout(dynamic, FragmentOrder::M16N8K32, 8, 8));
}
