//===- TwoLevelScalesTest.cpp - Scales of six bits under an f16 -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RandomData.h"
#include "SchemeKinds.h"

#include "easyquant/Numerics/Awq.h"
#include "easyquant/Numerics/Gptq.h"
#include "easyquant/Numerics/Packing.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

Scheme twoLevel(int bits, int64_t groupSize, bool symmetric = true) {
  Scheme scheme = grouped(bits, groupSize);
  scheme.symmetric = symmetric;
  scheme.scales = ScaleFormat::UI6;
  return scheme;
}

/// What the kernels read at row r and group g, by the sentences of Packing.h.
float packedScale(const PanelLayout &layout, const PackedWeight &packed, int64_t row, int64_t g) {
  const int64_t groups = layout.groups(), supers = (groups + 7) / 8, r = row % 32;
  const uint8_t *panel =
      packed[WeightTensor::Scales].data() + row / 32 * (64 * supers + 24 * groups);
  uint16_t unit;
  std::memcpy(&unit, panel + g / 8 * 64 + 2 * r, 2);
  const uint8_t *fields = panel + 64 * supers + 24 * g;
  int upper = fields[r % 16] >> (4 * (r / 16)) & 15,
      lower = fields[16 + r % 8] >> (2 * (r / 8)) & 3;
  return static_cast<float>(4 * upper + lower) / 64 * decodeScale(unit, ScaleFormat::F16);
}

/// Are all scales multiples of an f16 for each super-group, and packed as such?
void expectTwoLevels(const QuantizedMatrix &q) {
  auto layout = panelLayout(q.scheme, q.rows, q.columns);
  ASSERT_TRUE(layout) << layout.error().message;
  ASSERT_TRUE(checkScales(q.params, q.scheme));
  PackedWeight packed = pack(*layout, q);
  for (int64_t row = 0; row < q.rows; ++row)
    for (int64_t g = 0; g < q.params.groups; ++g)
      ASSERT_EQ(packedScale(*layout, packed, row, g), q.params.scales[row * q.params.groups + g])
          << row << ", " << g;
}

// Every sixth-bit field in every place, under units of every exponent.
TEST(TwoLevelScales, EveryFieldRoundTrips) {
  constexpr int64_t rows = 33, groups = 19;
  QuantizedMatrix q{twoLevel(4, 8), rows, groups * 8, {}, {rows, groups, {}, {}}};
  q.codes.resize(rows * groups * 8);
  for (int first = 0; first < 63; ++first) {
    q.params.scales.clear();
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t g = 0; g < groups; ++g) {
        float unit = std::ldexp(1.0f + static_cast<float>(row * 3 + g / 8) / 1024,
                                static_cast<int>((row + first + g / 8) % 29) - 14);
        q.params.scales.push_back(static_cast<float>((first + 5 * g) % 63 + 1) / 64 * unit);
      }
    expectTwoLevels(q);
  }
}

// The definition, once more in double precision.
TEST(TwoLevelScales, AreThoseOfTheDefinition) {
  for (auto [columns, groupSize] :
       {std::pair<int64_t, int64_t>{576, 32}, {70, 16}, {8, 8}, {520, 64}}) {
    const int64_t rows = 35, groups = groupCount(columns, groupSize);
    std::vector<float> w = gaussian(rows * columns, 5, 40.0f);
    std::fill_n(w.data() + 3 * columns, columns, 0.0f);                      // a row of zeros
    std::fill_n(w.data() + 4 * columns, std::min(groupSize, columns), 0.0f); // and a group
    for (int bits : {2, 4, 6}) {
      auto q = quantize(ConstMatrix(w.data(), rows, columns), twoLevel(bits, groupSize), {});
      ASSERT_TRUE(q) << q.error().message;
      expectTwoLevels(*q);
      const int top = codeRange(q->scheme).max;
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t first = 0; first < groups; first += 8) {
          std::vector<double> exact;
          for (int64_t g = first; g < std::min(first + 8, groups); ++g) {
            double most = 0;
            for (int64_t k = g * groupSize; k < std::min((g + 1) * groupSize, columns); ++k)
              most = std::max(most, std::fabs(double(w[row * columns + k])));
            exact.push_back(
                static_cast<double>(static_cast<float>(most) / static_cast<float>(top)));
          }
          double largest = *std::ranges::max_element(exact);
          double unit = largest == 0 ? 1
                                     : static_cast<float>(static_cast<_Float16>(
                                           static_cast<float>(largest) * 64 / 63));
          for (size_t i = 0; i < exact.size(); ++i) {
            double n =
                exact[i] == 0 ? 63 : std::clamp(std::nearbyint(exact[i] / unit * 64), 1.0, 63.0);
            ASSERT_NEAR(q->params.scales[row * groups + first + i], n / 64 * unit, 1e-6 * unit);
          }
        }
    }
  }
}

// Rounded before codes are chosen: no code of the absmax rule would do better under these scales.
TEST(TwoLevelScales, CodesAreChosenUnderTheRoundedScales) {
  const int64_t rows = 9, columns = 96;
  std::vector<float> w = gaussian(rows * columns, 6);
  for (bool symmetric : {true, false}) {
    Scheme scheme = twoLevel(3, 8, symmetric);
    ScaleRule rule{extremesRule(scheme)};
    auto q = quantize(ConstMatrix(w.data(), rows, columns), scheme, rule);
    ASSERT_TRUE(q);
    CodeRange range = codeRange(scheme);
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t param = i / columns * 12 + i % columns / 8;
      const int32_t zero = symmetric ? 0 : q->params.zeroPoints[param];
      const float scale = q->params.scales[param];
      const float best = std::clamp(std::nearbyint(w[i] / scale) + static_cast<float>(zero),
                                    float(range.min), float(range.max));
      ASSERT_EQ(q->codes[i], best);
    }
  }
}

TEST(TwoLevelScales, EveryRuleAndMethodHasThem) {
  const int64_t rows = 40, columns = 100, tokens = 50;
  std::vector<float> w = gaussian(rows * columns, 7), x = gaussian(tokens * columns, 8);
  ConstMatrix weight(w.data(), rows, columns);
  std::vector<float> hessian(columns * columns);
  for (int64_t i = 0; i < columns; ++i)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t t = 0; t < tokens; ++t)
        hessian[i * columns + j] += x[t * columns + i] * x[t * columns + j];
  for (bool symmetric : {true, false}) {
    Scheme scheme = twoLevel(4, 8, symmetric);
    for (ScaleRuleKind kind : {extremesRule(scheme), ScaleRuleKind::Percentile, ScaleRuleKind::Mse,
                               ScaleRuleKind::Entropy}) {
      auto q = quantize(weight, scheme, ScaleRule{kind});
      ASSERT_TRUE(q) << toString(kind) << ": " << q.error().message;
      expectTwoLevels(*q);
    }
    for (bool actOrder : {true, false}) {
      GptqOptions options{.actOrder = actOrder};
      auto factor = factorHessian(ConstMatrix(hessian.data(), columns, columns), options);
      ASSERT_TRUE(factor);
      auto done = gptq(weight, *factor, scheme, {extremesRule(scheme)}, options);
      ASSERT_TRUE(done) << done.error().message;
      expectTwoLevels(done->weight);
    }
    auto clip = searchAwqClip(weight, ConstMatrix(x.data(), tokens, columns), scheme, false, 2);
    ASSERT_TRUE(clip) << clip.error().message;
    QuantizedMatrix clipped{scheme, rows, columns, std::vector<int8_t>(rows * columns),
                            clip->params};
    ASSERT_TRUE(quantize(weight, scheme, clipped.params, clipped.codes));
    expectTwoLevels(clipped);
  }
}

// Weighted less finely than by scales of f32, but hardly.
TEST(TwoLevelScales, CostLittle) {
  const int64_t rows = 64, columns = 512;
  std::vector<float> w = gaussian(rows * columns, 9), back(w.size());
  auto error = [&](ScaleFormat format) {
    Scheme scheme = twoLevel(4, 32);
    scheme.scales = format;
    auto q = quantize(ConstMatrix(w.data(), rows, columns), scheme, {});
    dequantize(*q, Matrix(back.data(), rows, columns));
    return relativeRms(w.data(), back.data(), static_cast<int64_t>(w.size()));
  };
  EXPECT_LT(error(ScaleFormat::UI6), 1.03 * error(ScaleFormat::F32));
}

// Rows of small weights are in real models (q_proj of Gemma 3 270M): their scales are in units of
// the least normal f16.
TEST(TwoLevelScales, HoldSmallWeights) {
  for (float weight : {4.1e-4f, 2e-5f, 1e-9f}) {
    std::vector<float> w(64, weight), back(w.size());
    for (ScaleRuleKind kind : {ScaleRuleKind::AbsMax, ScaleRuleKind::Mse}) {
      auto q = quantize(ConstMatrix(w.data(), 1, 64), twoLevel(4, 8), {kind});
      ASSERT_TRUE(q) << q.error().message;
      expectTwoLevels(*q);
      dequantize(*q, Matrix(back.data(), 1, 64));
      for (float found : back)
        EXPECT_NEAR(found, weight, 0x1p-21 * 7);
    }
  }
}

TEST(TwoLevelScales, RefusesWhatItCannotHold) {
  std::vector<float> huge(64, 1e6f);
  auto q = quantize(ConstMatrix(huge.data(), 1, 64), twoLevel(2, 8), {});
  ASSERT_FALSE(q);
  EXPECT_EQ(q.error().code, ErrorCode::OutOfRange);
  EXPECT_NE(q.error().message.find("--scale-type f32"), std::string::npos) << q.error().message;
  Scheme rows = twoLevel(4, 8);
  rows.granularity = Granularity::Channel;
  rows.groupSize = 0;
  auto refused = checkScheme(rows);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("ask for groups"), std::string::npos);
  EXPECT_FALSE(superScaleOf(std::vector<float>{1.0f, 0.3f}));
  EXPECT_FALSE(superScaleOf(std::vector<float>{0.0f}));
}

} // namespace
