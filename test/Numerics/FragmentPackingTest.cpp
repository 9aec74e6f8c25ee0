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

uint32_t word(const std::vector<uint8_t> &packed, int64_t block, int64_t lane, int64_t index) {
  uint32_t value;
  std::memcpy(&value, packed.data() + block * 512 + lane * 16 + index * 4, 4);
  return value;
}

} // namespace

TEST(FragmentPacking, ComesBack) {
  for (int bits : {2, 3, 4, 8})
    for (FragmentOrder order : {FragmentOrder::Bytes, FragmentOrder::Halves})
      for (auto [n, k] : {std::pair(1, 1), {16, 32}, {65, 33}, {130, 100}}) {
        if (bits == 3 && order == FragmentOrder::Bytes)
          continue;
        auto layout = fragmentLayout(groups(bits, 0), order, n, k);
        ASSERT_TRUE(layout) << layout.error().message;
        int half = 1 << (bits - 1);
        std::vector<int8_t> codes = randomCodes(n * k, bits * 100 + n, -half, half - 1);
        std::vector<uint8_t> packed(layout->codeBytes(), 0xAA);
        packFragments(*layout, codes.data(), packed.data());
        std::vector<int8_t> back(codes.size());
        unpackFragments(*layout, packed.data(), back.data());
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
      {8, FragmentOrder::Bytes, 11, 22, 4 * 3 + 1, 3, 16},  // t 1, g 3; h 1, q 1, i 2
      {4, FragmentOrder::Bytes, 11, 22, 4 * 3 + 1, 1, 20},  // t 1; byte 2, upper nibble
      {4, FragmentOrder::Bytes, 29, 9, 4 * 5 + 2, 3, 8},    // t 3, g 5; q 2, i 1
      {2, FragmentOrder::Bytes, 43, 22, 4 * 3 + 1, 1, 22},  // row 32 + 11
      {8, FragmentOrder::Halves, 11, 27, 4 * 3 + 1, 3, 24}, // r 3, q 1, i 1
      {4, FragmentOrder::Halves, 11, 27, 4 * 3 + 1, 1, 28}, // r 3, i 1
      {2, FragmentOrder::Halves, 43, 27, 4 * 3 + 1, 1, 30},
  };
  for (const Case &c : cases) {
    auto layout = *fragmentLayout(groups(c.bits, 0), c.order, 64, 32);
    std::vector<int8_t> codes(64 * 32);
    codes[c.row * 32 + c.column] = 1;
    std::vector<uint8_t> packed(layout.codeBytes());
    packFragments(layout, codes.data(), packed.data());
    int64_t block = c.row / fragmentRows(c.bits);
    EXPECT_EQ(word(packed, block, c.lane, c.word), 1u << c.bit)
        << c.bits << " bits, row " << c.row << ", column " << c.column;
  }
}

TEST(FragmentPacking, ThirdBitsComeAboveTheOthers) {
  // As kernels find them: word t / 4 of a lane's upper plane, turned right by {0, 1, 8, 9}[t mod
  // 4].
  auto layout = *fragmentLayout(groups(3, 0), FragmentOrder::Halves, 64, 32);
  ASSERT_EQ(layout.codeBytes(), 768);
  std::vector<int8_t> codes = randomCodes(64 * 32, 17, -4, 3);
  std::vector<uint8_t> packed(layout.codeBytes());
  packFragments(layout, codes.data(), packed.data());
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
    std::vector<uint16_t> weights(n * k), back(n * k);
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = static_cast<uint16_t>(i * 40503 + 1);
    std::vector<uint8_t> packed(floatFragmentBytes(n, k), 0xAA);
    packFloatFragments(n, k, weights.data(), packed.data());
    unpackFloatFragments(n, k, packed.data(), back.data());
    EXPECT_EQ(back, weights);
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
  QuantizedMatrix q;
  q.scheme = {4, false, Granularity::Group, 32};
  q.rows = 3;
  q.columns = 40;
  q.codes = randomCodes(3 * 40, 5, -8, 7);
  q.params = {3, 2, {1, 2, 3, 4, 5, 6}, {-1, 1, -2, 2, -3, 3}};
  auto layout = *fragmentLayout(q.scheme, FragmentOrder::Bytes, 3, 40);
  std::vector<float> scales = fragmentScales(layout, q.params);
  std::vector<int8_t> zeros = fragmentZeroPoints(layout, q.params);
  std::vector<int32_t> sums = fragmentSums(layout, q);
  ASSERT_EQ(scales.size(), 128u);
  EXPECT_EQ(scales[2], 5.0f);
  EXPECT_EQ(scales[64 + 1], 4.0f);
  EXPECT_EQ(scales[3], 1.0f); // padding
  EXPECT_EQ(zeros[64 + 2], 3);
  int32_t expected = -8 * 3;
  for (int64_t k = 32; k < 40; ++k)
    expected += q.codes[2 * 40 + k];
  EXPECT_EQ(sums[64 + 2], expected);
}

TEST(FragmentPacking, RefusesWhatKernelsCannotTake) {
  EXPECT_EQ(fragmentLayout(groups(3, 0), FragmentOrder::Bytes, 8, 8).error().code,
            ErrorCode::Unsupported);
  auto error = fragmentLayout(groups(4, 40), FragmentOrder::Bytes, 8, 80).error();
  EXPECT_NE(error.message.find("multiples of 32 (such as 64)"), std::string::npos) << error.message;
  EXPECT_EQ(fragmentLayout(groups(4, 0), FragmentOrder::Bytes, 0, 8).error().code,
            ErrorCode::InvalidArgument);
  Scheme dynamic{8, true, Granularity::Token, 0, true};
  EXPECT_FALSE(fragmentLayout(dynamic, FragmentOrder::Bytes, 8, 8));
}
