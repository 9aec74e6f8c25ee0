//===- MinimaTest.cpp - Floats in place of zero points --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Awq.h"
#include "easyquant/Numerics/Gptq.h"
#include "easyquant/Numerics/Packing.h"
#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

Scheme minima(int bits, int64_t group, ScaleFormat scales = ScaleFormat::F16) {
  return {.bits = bits,
          .symmetric = false,
          .granularity = Granularity::Group,
          .groupSize = group,
          .scales = scales,
          .minima = true};
}

/// Lopsided, so that ranges without 0 are among the groups.
std::vector<float> values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> gauss(0.5f, 0.4f);
  std::vector<float> x(count);
  for (float &v : x)
    v = gauss(random);
  return x;
}

struct Weights {
  int64_t rows, columns;
  std::vector<float> data;
  Weights(int64_t rows, int64_t columns, unsigned seed)
      : rows(rows), columns(columns), data(values(rows * columns, seed)) {}
  operator ConstMatrix() const { return {data.data(), rows, columns}; }
};

std::vector<float> dequantized(const QuantizedMatrix &q) {
  std::vector<float> back(q.codes.size());
  dequantize(q, {back.data(), q.rows, q.columns});
  return back;
}

/// sum h (x - xhat)^2 of a whole matrix.
double errorOf(const Weights &w, const QuantizedMatrix &q, const std::vector<float> &h) {
  const std::vector<float> back = dequantized(q);
  double sum = 0;
  for (size_t i = 0; i < back.size(); ++i) {
    const double difference = double(w.data[i]) - back[i];
    sum += h[i % w.columns] * difference * difference;
  }
  return sum;
}

QuantizedMatrix quantized(const Weights &w, const Scheme &scheme, const ScaleRule &rule) {
  auto q = quantize(w, scheme, rule);
  EXPECT_TRUE(q) << q.error().message;
  return *q;
}

const ScaleRule kExtremes{.kind = ScaleRuleKind::ZeroPoint};

} // namespace

TEST(Minima, SchemesThatHaveThem) {
  EXPECT_TRUE(checkScheme(minima(4, 32)));
  EXPECT_TRUE(checkScheme(minima(2, 16, ScaleFormat::F32)));
  EXPECT_EQ(toString(minima(4, 32)), "int4 with minima, groups of 32, f16 scales");
  EXPECT_FALSE(minima(4, 32).hasZeroPoints());
  EXPECT_EQ(codeRange(minima(5, 32)), (CodeRange{-16, 15}));
  auto refused = [](auto change) {
    Scheme scheme = minima(4, 32);
    change(scheme);
    auto ok = checkScheme(scheme);
    return ok ? "" : ok.error().message;
  };
  const char *words = "minima of";
  EXPECT_NE(refused([](Scheme &s) { s.symmetric = true; }).find(words), std::string::npos);
  EXPECT_NE(refused([](Scheme &s) { s.scales = ScaleFormat::UI6; }).find(words), std::string::npos);
  EXPECT_NE(refused([](Scheme &s) { s.outer = true; }).find(words), std::string::npos);
  EXPECT_NE(refused([](Scheme &s) {
              s.granularity = Granularity::Channel;
              s.groupSize = 0;
            }).find(words),
            std::string::npos);
}

// Each step of the definition in binary32.
TEST(Minima, MatchTheDefinitionElementByElement) {
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (ScaleFormat scales : {ScaleFormat::F16, ScaleFormat::F32}) {
      const Weights w(3, 100, static_cast<unsigned>(bits));
      const Scheme scheme = minima(bits, 32, scales);
      const QuantizedMatrix q = quantized(w, scheme, kExtremes);
      ASSERT_EQ(q.params.minima.size(), 3u * 4);
      EXPECT_TRUE(q.params.zeroPoints.empty());
      const std::vector<float> back = dequantized(q);
      const CodeRange range = codeRange(scheme);
      for (int64_t i = 0; i < w.rows; ++i)
        for (int64_t g = 0; g < 4; ++g) {
          const int64_t first = 32 * g, last = std::min<int64_t>(first + 32, 100);
          const float *row = &w.data[i * 100];
          const auto [lo, hi] = std::minmax_element(row + first, row + last);
          const float s = q.params.scales[4 * i + g], m = q.params.minima[4 * i + g];
          const double exact = (double(*hi) - *lo) / (range.max - range.min);
          EXPECT_EQ(s, roundScale(static_cast<float>(exact), scales));
          EXPECT_EQ(m, roundScale(*lo, scales));
          for (int64_t k = first; k < last; ++k) {
            const float steps = (row[k] - m) / s;
            const float code =
                std::clamp(std::nearbyint(steps), 0.0f, static_cast<float>(range.max - range.min));
            ASSERT_EQ(q.codes[100 * i + k], static_cast<int>(code) + range.min);
            ASSERT_EQ(back[100 * i + k], s * code + m);
          }
        }
    }
}

TEST(Minima, ConstantGroupsAreTheirMinimum) {
  for (float value : {0.0f, 0.375f, -3.0f, 1e-30f}) {
    Weights w(1, 32, 0);
    std::ranges::fill(w.data, value);
    const Scheme scheme = minima(4, 32, ScaleFormat::F32);
    for (ScaleRuleKind kind : {ScaleRuleKind::ZeroPoint, ScaleRuleKind::Mse,
                               ScaleRuleKind::Percentile, ScaleRuleKind::HessianDiagonal}) {
      const std::vector<float> h(32, 1.0f);
      ScaleRule rule{.kind = kind, .weights = h};
      EXPECT_EQ(dequantized(quantized(w, scheme, rule)), w.data) << toString(kind);
    }
  }
}

// No rule is behind the range of all values by its own measure.
TEST(Minima, RulesFindBetterRanges) {
  for (int bits : {2, 4, 5}) {
    Weights w(16, 96, 7);
    for (int64_t i = 0; i < 16; ++i)
      w.data[i * 96 + 5] *= 4; // an outlier
    const Scheme scheme = minima(bits, 32);
    std::vector<float> h = values(96, 8);
    for (float &v : h)
      v = v * v;
    const std::vector<float> ones(96, 1.0f);
    const QuantizedMatrix all = quantized(w, scheme, kExtremes);
    const QuantizedMatrix mse = quantized(w, scheme, {.kind = ScaleRuleKind::Mse, .norm = 2});
    const QuantizedMatrix fitted =
        quantized(w, scheme, {.kind = ScaleRuleKind::HessianDiagonal, .weights = h});
    EXPECT_LT(errorOf(w, mse, ones), errorOf(w, all, ones));
    EXPECT_LT(errorOf(w, fitted, h), 0.85 * errorOf(w, all, h));
    // Zero points are those minima that are whole steps.
    Scheme zeroPoints = scheme;
    zeroPoints.minima = false;
    const QuantizedMatrix whole =
        quantized(w, zeroPoints, {.kind = ScaleRuleKind::HessianDiagonal, .weights = h});
    EXPECT_LT(errorOf(w, fitted, h), errorOf(w, whole, h));
  }
}

TEST(Minima, FitIsExactWhereCodesAre) {
  Weights w(1, 32, 0);
  for (int i = 0; i < 32; ++i)
    w.data[i] = 0.25f * static_cast<float>(i % 15) + 0.4375f;
  w.data[31] = 9; // does not count
  std::vector<float> h(32, 1.0f);
  h[31] = 0;
  const QuantizedMatrix q =
      quantized(w, minima(4, 32), {.kind = ScaleRuleKind::HessianDiagonal, .weights = h});
  EXPECT_EQ(q.params.scales[0], 0.25f);
  EXPECT_NEAR(errorOf(w, q, h), 0, 1e-12);
}

TEST(Minima, Refused) {
  Weights w(1, 32, 0);
  auto entropy = quantize(w, minima(4, 32), ScaleRule{.kind = ScaleRuleKind::Entropy});
  ASSERT_FALSE(entropy);
  EXPECT_NE(entropy.error().message.find("take mse"), std::string::npos);
  std::ranges::fill(w.data, 1e6f);
  w.data[0] = 2e6f;
  auto large = quantize(w, minima(4, 32), kExtremes);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().message,
            "minimum [0, 0] is beyond what f16 holds; take scales of f32 (--scale-type f32)");
  EXPECT_TRUE(quantize(w, minima(4, 32, ScaleFormat::F32), kExtremes));
  QuantizedMatrix q = quantized(w, minima(4, 32, ScaleFormat::F32), kExtremes);
  std::vector<int8_t> codes(32);
  q.params.minima.clear();
  EXPECT_FALSE(quantize(w, q.scheme, q.params, codes));
  q.params.minima = {std::nanf("")};
  EXPECT_FALSE(quantize(w, q.scheme, q.params, codes));
}

// The product of integers with minima is that of what codes stand for.
TEST(Minima, IntegerLinearsAreThoseOfTheDequantizedWeight) {
  const Weights w(5, 100, 3), x(4, 100, 4);
  for (int64_t group : {16, 32, 64}) {
    const QuantizedMatrix q = quantized(w, minima(4, group), kExtremes);
    const std::vector<float> back = dequantized(q);
    std::vector<QuantizedTokens> inputs = {*quantizeTokens(x, group)};
    Scheme isStatic{.bits = 8, .symmetric = false, .granularity = Granularity::Tensor};
    inputs.push_back(*quantizeTokens(x, isStatic, 0.02f, -40, group));
    if (group >= 32)
      for (bool symmetric : {true, false})
        inputs.push_back(*quantizeTokensInGroups(x, 32, symmetric));
    for (const QuantizedTokens &tokens : inputs) {
      std::vector<float> a(x.data.size());
      dequantize(tokens, {a.data(), x.rows, x.columns});
      std::vector<double> exact(20), sums(20);
      reference::linear({a.data(), x.rows, x.columns}, {back.data(), w.rows, w.columns}, nullptr,
                        {exact.data(), 4, 5});
      ASSERT_TRUE(reference::integerLinear(tokens, q, nullptr, {sums.data(), 4, 5}));
      std::vector<float> rounded(20);
      ASSERT_TRUE(reference::integerLinear(tokens, q, nullptr, false, {rounded.data(), 4, 5}));
      for (int i = 0; i < 20; ++i) {
        EXPECT_NEAR(sums[i], exact[i], 1e-5 * std::fabs(exact[i]) + 1e-5);
        EXPECT_NEAR(rounded[i], exact[i], 1e-4 * std::fabs(exact[i]) + 1e-4);
      }
    }
  }
}

TEST(Minima, LieAsScalesDoInPanels) {
  const Weights w(37, 96, 5);
  for (ScaleFormat scales : {ScaleFormat::F16, ScaleFormat::F32}) {
    const QuantizedMatrix q = quantized(w, minima(4, 32, scales), kExtremes);
    const PanelLayout layout = *panelLayout(q.scheme, 37, 96);
    EXPECT_FALSE(layout.has(WeightTensor::ZeroPoints));
    EXPECT_EQ(layout.shape(WeightTensor::Minima), layout.shape(WeightTensor::Scales));
    const PackedWeight packed = pack(layout, q);
    const uint8_t *bytes = packed[WeightTensor::Minima].data();
    for (int64_t row = 0; row < 64; ++row)
      for (int64_t g = 0; g < 3; ++g)
        EXPECT_EQ(loadScale(bytes, (row / 32 * 3 + g) * 32 + row % 32, scales),
                  row < 37 ? q.params.minima[3 * row + g] : 0);
  }
}

TEST(Minima, GptqMakesUpForErrorsInOtherColumns) {
  const Weights w(12, 64, 11), x(200, 64, 12);
  std::vector<double> gram(64 * 64);
  std::vector<float> hessian(64 * 64);
  for (int64_t i = 0; i < 64; ++i)
    for (int64_t j = 0; j < 64; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < 200; ++t)
        sum += double(x.data[t * 64 + i]) * x.data[t * 64 + j];
      hessian[i * 64 + j] = static_cast<float>(gram[i * 64 + j] = sum);
    }
  auto outputError = [&](const QuantizedMatrix &q) {
    const std::vector<float> back = dequantized(q);
    double sum = 0;
    for (int64_t n = 0; n < 12; ++n)
      for (int64_t i = 0; i < 64; ++i)
        for (int64_t j = 0; j < 64; ++j)
          sum += (double(w.data[n * 64 + i]) - back[n * 64 + i]) * gram[i * 64 + j] *
                 (double(w.data[n * 64 + j]) - back[n * 64 + j]);
    return sum;
  };
  for (bool actOrder : {false, true}) {
    GptqOptions options;
    options.actOrder = actOrder;
    auto factor = factorHessian({hessian.data(), 64, 64}, options);
    ASSERT_TRUE(factor) << factor.error().message;
    auto solved = gptq(w, *factor, minima(3, 32), kExtremes, options);
    ASSERT_TRUE(solved) << solved.error().message;
    EXPECT_EQ(solved->weight.params.minima.size(), 24u);
    const double nearest = outputError(quantized(w, minima(3, 32), kExtremes));
    EXPECT_LT(outputError(solved->weight), 0.5 * nearest);
  }
}

TEST(Minima, AwqClipsAboutTheMiddle) {
  const Weights w(10, 64, 21), x(100, 64, 22);
  auto outputError = [&](const QParams &params) {
    QuantizedMatrix q{minima(3, 32), 10, 64, std::vector<int8_t>(640), params};
    EXPECT_TRUE(quantize(w, q.scheme, params, q.codes));
    const std::vector<float> back = dequantized(q);
    double error = 0;
    for (int64_t g = 0; g < 2; ++g) // groups are searched by themselves
      for (int64_t t = 0; t < 100; ++t)
        for (int64_t n = 0; n < 10; ++n) {
          double sum = 0;
          for (int64_t k = 32 * g; k < 32 * g + 32; ++k)
            sum += (double(w.data[n * 64 + k]) - back[n * 64 + k]) * x.data[t * 64 + k];
          error += sum * sum;
        }
    return error;
  };
  const double all = outputError(*chooseQParams(w, minima(3, 32), kExtremes));
  auto clipped = searchAwqClip(w, x, minima(3, 32), /*refines=*/false, 2);
  auto refined = searchAwqClip(w, x, minima(3, 32), /*refines=*/true, 2);
  ASSERT_TRUE(clipped && refined);
  EXPECT_LT(outputError(clipped->params), all);
  EXPECT_LT(outputError(refined->params), 0.9 * outputError(clipped->params));
}
