//===- GGMLTypeTest.cpp - Dequantization of ggml's blocks -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each test packs known codes and scales into blocks and expects the values that the formulas of
// GGMLType.h give. test/python/test_dequantize.py compares with the `gguf` package.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/GGMLType.h"

#include "TestFiles.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;

namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint16_t kHalf = 0x3800;    // fp16 0.5
constexpr uint16_t kQuarter = 0xb400; // fp16 -0.25

std::string text(const Bytes &bytes) { return {bytes.begin(), bytes.end()}; }

std::vector<float> run(GGMLType type, const std::string &block, size_t count) {
  std::vector<float> out(count, NAN);
  Result<void> done = dequantize(type, bytesOf(block), out);
  EXPECT_TRUE(done) << done.error().message;
  return out;
}

/// `count` codes below `limit`.
std::vector<int> randomCodes(size_t count, int limit, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<int> codes(count);
  for (int &code : codes)
    code = static_cast<int>(rng() % static_cast<unsigned>(limit));
  return codes;
}

/// Codes i and i + n/2 of a block of n share a byte.
Bytes packNibbles(const std::vector<int> &codes) {
  Bytes bytes(codes.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + bytes.size()] & 15) << 4);
  return bytes;
}

/// Bit 4 of 32 codes, as a word.
uint32_t fifthBits(const std::vector<int> &codes) {
  uint32_t word = 0;
  for (size_t i = 0; i < codes.size(); ++i)
    word |= static_cast<uint32_t>(codes[i] >> 4 & 1) << i;
  return word;
}

template <typename Formula> void expectFormula(const std::vector<float> &out, Formula formula) {
  for (size_t i = 0; i < out.size(); ++i)
    ASSERT_EQ(out[i], static_cast<float>(formula(i))) << "weight " << i;
}

/// The 12 bytes of 6-bit scales and minima of Q4_K and Q5_K.
Bytes packScaleMin(const std::vector<int> &scales, const std::vector<int> &mins) {
  Bytes bytes(12, 0);
  for (int g = 0; g < 8; ++g) {
    if (g < 4) {
      bytes[g] |= scales[g];
      bytes[g + 4] |= mins[g];
    } else {
      bytes[g + 4] |= (scales[g] & 15) | (mins[g] & 15) << 4;
      bytes[g - 4] |= scales[g] >> 4 << 6;
      bytes[g] |= mins[g] >> 4 << 6;
    }
  }
  return bytes;
}

} // namespace

TEST(GGMLType, KnowsBlocks) {
  ASSERT_NE(ggmlTypeInfo(8), nullptr);
  EXPECT_EQ(ggmlTypeInfo(8)->name, "Q8_0");
  EXPECT_EQ(ggmlTypeInfo(4), nullptr);
  EXPECT_EQ(ggmlTypeInfo(~0u), nullptr);
}

TEST(GGMLType, RefusesWhatItCannotConvert) {
  std::vector<float> out(32);
  EXPECT_ERROR(dequantize(GGMLType::TQ2_0, bytesOf(std::string(66, 0)), out),
               ErrorCode::Unsupported, "TQ2_0");
  EXPECT_ERROR(dequantize(GGMLType::I32, bytesOf(std::string(128, 0)), out), ErrorCode::Unsupported,
               "I32");
  EXPECT_ERROR(dequantize(GGMLType::Q8_0, bytesOf(std::string(33, 0)), out),
               ErrorCode::InvalidArgument, "33 bytes");
  EXPECT_ERROR(dequantize(GGMLType::Q8_0, bytesOf(std::string(34, 0)), std::span(out).first(31)),
               ErrorCode::InvalidArgument, "31 weights");
  EXPECT_TRUE(dequantize(GGMLType::Q8_0, {}, {}));
}

TEST(GGMLType, WidensEveryHalf) {
  // Against the definition of binary16 in double precision.
  std::string all;
  for (uint32_t bits = 0; bits < 0x10000; ++bits)
    all += raw(static_cast<uint16_t>(bits));
  std::vector<float> out = run(GGMLType::F16, all, 0x10000);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double expected = exponent == 31 ? (mantissa ? NAN : INFINITY)
                      : exponent == 0
                          ? std::ldexp(mantissa, -24)
                          : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    if (bits & 0x8000)
      expected = -expected;
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(out[bits])) << bits;
    else
      ASSERT_EQ(out[bits], expected) << bits;
    ASSERT_EQ(std::signbit(out[bits]), (bits & 0x8000) != 0) << bits;
  }
}

TEST(GGMLType, WidensBfloatAndCopiesFloat) {
  EXPECT_EQ(run(GGMLType::BF16, raw<uint16_t>(0x3fc0) + raw<uint16_t>(0xc000), 2),
            (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(run(GGMLType::F32, raw(0.1f) + raw(-1e30f), 2), (std::vector<float>{0.1f, -1e30f}));
  // Unaligned.
  std::string padded = "x" + raw(0.1f);
  std::vector<float> out(1);
  ASSERT_TRUE(dequantize(GGMLType::F32, bytesOf(padded).subspan(1), out));
  EXPECT_EQ(out[0], 0.1f);
}

TEST(GGMLType, Q4_0AndQ4_1) {
  std::vector<int> q = randomCodes(32, 16, 1);
  std::string nibbles = text(packNibbles(q));
  expectFormula(run(GGMLType::Q4_0, raw(kHalf) + nibbles, 32),
                [&](size_t i) { return 0.5 * (q[i] - 8); });
  expectFormula(run(GGMLType::Q4_1, raw(kHalf) + raw(kQuarter) + nibbles, 32),
                [&](size_t i) { return 0.5 * q[i] - 0.25; });
}

TEST(GGMLType, Q5_0AndQ5_1) {
  std::vector<int> q = randomCodes(32, 32, 2);
  std::string rest = raw(fifthBits(q)) + text(packNibbles(q));
  expectFormula(run(GGMLType::Q5_0, raw(kHalf) + rest, 32),
                [&](size_t i) { return 0.5 * (q[i] - 16); });
  expectFormula(run(GGMLType::Q5_1, raw(kHalf) + raw(kQuarter) + rest, 32),
                [&](size_t i) { return 0.5 * q[i] - 0.25; });
}

TEST(GGMLType, Q8_0OverTwoBlocks) {
  std::vector<int> q = randomCodes(64, 256, 3);
  std::string blocks;
  for (int block = 0; block < 2; ++block) {
    blocks += raw(block == 0 ? kHalf : kQuarter);
    for (int i = 0; i < 32; ++i)
      blocks += raw(static_cast<int8_t>(q[32 * block + i] - 128));
  }
  expectFormula(run(GGMLType::Q8_0, blocks, 64),
                [&](size_t i) { return (i < 32 ? 0.5 : -0.25) * (q[i] - 128); });
}

TEST(GGMLType, Q2_K) {
  std::vector<int> q = randomCodes(256, 4, 4), s = randomCodes(16, 16, 5),
                   t = randomCodes(16, 16, 6);
  Bytes scales(16), qs(64, 0);
  for (int i = 0; i < 16; ++i)
    scales[i] = static_cast<uint8_t>(s[i] | t[i] << 4);
  for (int half = 0; half < 2; ++half)
    for (int j = 0; j < 4; ++j)
      for (int l = 0; l < 32; ++l)
        qs[32 * half + l] |= q[128 * half + 32 * j + l] << (2 * j);
  expectFormula(run(GGMLType::Q2_K, text(scales) + text(qs) + raw(kHalf) + raw(kQuarter), 256),
                [&](size_t i) { return 0.5 * s[i / 16] * q[i] + 0.25 * t[i / 16]; });
}

TEST(GGMLType, Q3_K) {
  std::vector<int> q = randomCodes(256, 8, 7), s = randomCodes(16, 64, 8);
  Bytes high(32, 0), qs(64, 0), packed(12, 0);
  for (int i = 0; i < 256; ++i) {
    qs[i / 128 * 32 + i % 32] |= (q[i] & 3) << (i / 32 % 4 * 2);
    high[i % 32] |= (q[i] >> 2) << (i / 32);
  }
  for (int i = 0; i < 16; ++i) {
    packed[i % 8] |= (s[i] & 15) << (i < 8 ? 0 : 4);
    packed[8 + i % 4] |= (s[i] >> 4) << (i / 4 * 2);
  }
  expectFormula(run(GGMLType::Q3_K, text(high) + text(qs) + text(packed) + raw(kHalf), 256),
                [&](size_t i) { return 0.5 * (s[i / 16] - 32) * (q[i] - 4); });
}

TEST(GGMLType, Q4_KAndQ5_K) {
  std::vector<int> q = randomCodes(256, 32, 9), s = randomCodes(8, 64, 10),
                   t = randomCodes(8, 64, 11);
  Bytes high(32, 0), qs;
  for (int pair = 0; pair < 4; ++pair) { // groups 2 pair and 2 pair + 1 share 32 bytes
    Bytes nibbles = packNibbles({q.begin() + 64 * pair, q.begin() + 64 * (pair + 1)});
    qs.insert(qs.end(), nibbles.begin(), nibbles.end());
  }
  for (int i = 0; i < 256; ++i)
    high[i % 32] |= (q[i] >> 4) << (i / 32);
  std::string head = raw(kHalf) + raw(kQuarter) + text(packScaleMin(s, t));
  expectFormula(run(GGMLType::Q4_K, head + text(qs), 256),
                [&](size_t i) { return 0.5 * s[i / 32] * (q[i] & 15) + 0.25 * t[i / 32]; });
  expectFormula(run(GGMLType::Q5_K, head + text(high) + text(qs), 256),
                [&](size_t i) { return 0.5 * s[i / 32] * q[i] + 0.25 * t[i / 32]; });
}

TEST(GGMLType, Q6_KAndQ8_K) {
  std::vector<int> q = randomCodes(256, 64, 12), s = randomCodes(16, 256, 13);
  Bytes low(128, 0), high(64, 0), scales(16);
  for (int i = 0; i < 256; ++i) {
    int half = i / 128, j = i / 32 % 4, l = i % 32;
    low[64 * half + 32 * (j & 1) + l] |= (q[i] & 15) << (j < 2 ? 0 : 4);
    high[32 * half + l] |= (q[i] >> 4) << (2 * j);
  }
  for (int i = 0; i < 16; ++i)
    scales[i] = static_cast<uint8_t>(s[i] - 128);
  expectFormula(run(GGMLType::Q6_K, text(low) + text(high) + text(scales) + raw(kHalf), 256),
                [&](size_t i) { return 0.5 * (s[i / 16] - 128) * (q[i] - 32); });

  std::string codes;
  for (int i = 0; i < 256; ++i)
    codes += raw(static_cast<int8_t>(q[i] - 32));
  expectFormula(run(GGMLType::Q8_K, raw(0.75f) + codes + std::string(32, '\1'), 256),
                [&](size_t i) { return 0.75 * (q[i] - 32); });
}
