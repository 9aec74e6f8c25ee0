//===- SuperBlocksTest.cpp - Scales that are integers ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RandomData.h"

#include "easyquant/Numerics/Awq.h"
#include "easyquant/Numerics/Bounds.h"
#include "easyquant/Numerics/Gptq.h"
#include "easyquant/Numerics/ScaleRules.h"
#include "easyquant/Numerics/SuperBlocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

Scheme superBlocks(int bits, int64_t group, bool minima, const Codebook *table = nullptr) {
  Scheme scheme{.bits = bits,
                .symmetric = !minima,
                .granularity = Granularity::Group,
                .groupSize = group,
                .fullRange = !minima && !table,
                .minima = minima,
                .superBlocks = true};
  scheme.codes = table ? CodeFormat::Table : CodeFormat::Integer;
  scheme.table = table;
  return scheme;
}

/// Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS, and Q3_K and Q6_K without their lowest code.
std::vector<Scheme> allSchemes() {
  std::vector<Scheme> schemes = {
      superBlocks(2, 16, true),  superBlocks(3, 16, false),
      superBlocks(4, 32, true),  superBlocks(5, 32, true),
      superBlocks(6, 16, false), superBlocks(4, 32, false, Codebook::iq4nl())};
  for (int bits : {3, 6}) {
    schemes.push_back(superBlocks(bits, 16, false));
    schemes.back().fullRange = false;
  }
  return schemes;
}

std::vector<float> weights(int64_t count, unsigned seed) {
  std::vector<float> w = gaussian(count, seed);
  for (float &v : w)
    v *= 0.05f;
  return w;
}

ScaleRule extremes(const Scheme &scheme) { return {extremesRule(scheme)}; }

/// Every scale and minimum is an integer of the type's range times an f16, one in each 256 columns,
/// and every code the nearest there is under them.
void expectSuperBlocks(ConstMatrix w, const QuantizedMatrix &q, bool areNearest = true) {
  SCOPED_TRACE(toString(q.scheme));
  ASSERT_TRUE(checkScales(q.params, q.scheme)) << checkScales(q.params, q.scheme).error().message;
  const SuperIntegers &integers = *superIntegers(q.scheme);
  const std::vector<ScaleUnits> units = unitsOf(q.params, q.scheme);
  const int64_t shared = kSuperBlock / q.scheme.groupSize;
  for (int64_t i = 0; i < std::ssize(units); ++i) {
    const int64_t first = i - i % q.params.groups % shared;
    ASSERT_EQ(units[i].scale, units[first].scale);
    ASSERT_EQ(units[i].scale, roundScale(units[i].scale, ScaleFormat::F16));
    const double n = double(q.params.scales[i]) / units[i].scale;
    ASSERT_EQ(n, std::nearbyint(n));
    ASSERT_TRUE(n >= integers.scales.min && n <= integers.scales.max && n != 0) << n;
    if (!q.scheme.minima)
      continue;
    ASSERT_EQ(units[i].minimum, units[first].minimum);
    const double m = units[i].minimum == 0 ? 0 : -double(q.params.minima[i]) / units[i].minimum;
    ASSERT_EQ(m, std::nearbyint(m));
    ASSERT_TRUE(m >= 0 && m <= integers.minima.max) << m;
  }
  std::vector<float> back(q.codes.size());
  dequantize(q, {back.data(), q.rows, q.columns});
  const CodeRange range = codeRange(q.scheme);
  for (int64_t i = 0; i < std::ssize(back) && areNearest; ++i) {
    const int64_t row = i / q.columns, column = i % q.columns;
    const SliceParams params =
        sliceParams(q.scheme, q.params, row * q.params.groups + column / q.scheme.groupSize);
    double least = INFINITY;
    for (int32_t code = range.min; code <= range.max; ++code) {
      const double value =
          double(params.scale) * codeValue(q.scheme, code, params.zeroPoint) + params.minimum;
      least = std::min(least, std::fabs(value - w(row, column)));
    }
    ASSERT_NEAR(std::fabs(double(back[i]) - w(row, column)), least, 1e-6 * std::fabs(params.scale));
  }
}

double errorOf(ConstMatrix w, const QuantizedMatrix &q, std::span<const float> h = {}) {
  std::vector<float> back(q.codes.size());
  dequantize(q, {back.data(), q.rows, q.columns});
  double sum = 0;
  for (int64_t i = 0; i < std::ssize(back); ++i) {
    const double difference = double(w(i / q.columns, i % q.columns)) - back[i];
    sum += (h.empty() ? 1.0f : h[i % q.columns]) * difference * difference;
  }
  return sum;
}

QuantizedMatrix quantized(ConstMatrix w, const Scheme &scheme, const ScaleRule &rule) {
  auto q = quantize(w, scheme, rule);
  EXPECT_TRUE(q) << toString(scheme) << ": " << (q ? "" : q.error().message);
  return q ? *q : QuantizedMatrix{scheme, 0, 0, {}, {}};
}

} // namespace

TEST(SuperBlocks, SchemesThatHaveThem) {
  for (const Scheme &scheme : allSchemes())
    EXPECT_TRUE(checkScheme(scheme)) << toString(scheme);
  EXPECT_EQ(toString(superBlocks(4, 32, true)), "int4 with minima, groups of 32, super-blocks");
  for (auto change :
       {+[](Scheme &s) { s.bits = 6; }, +[](Scheme &s) { s.groupSize = 16; },
        +[](Scheme &s) { s.scales = ScaleFormat::F16; }, +[](Scheme &s) { s.minima = false; }}) {
    Scheme scheme = superBlocks(4, 32, true);
    change(scheme);
    auto ok = checkScheme(scheme);
    ASSERT_FALSE(ok) << toString(scheme);
    EXPECT_NE(ok.error().message.find("super-blocks of"), std::string::npos);
  }
  EXPECT_FALSE(withWideScales(superBlocks(4, 32, true)).superBlocks);
}

// Units of every exponent and either sign, subnormal ones among them, under integers of all ranges.
TEST(SuperBlocks, UnitsAreFoundFromTheirProducts) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int> bits(1, 0x7bff);
  for (CodeRange range : {CodeRange{0, 15}, {0, 63}, {-32, 31}, {-128, 127}}) {
    std::uniform_int_distribution<int> integer(range.min, range.max);
    for (int i = 0; i < 500; ++i) {
      const float unit = (i % 2 ? -1.0f : 1.0f) * decodeScale(bits(random), ScaleFormat::F16);
      std::vector<float> products;
      for (int k = 0; k < 16; ++k)
        products.push_back(static_cast<float>(integer(random)) * unit);
      const auto found = superUnitOf(products, range);
      ASSERT_TRUE(found) << unit;
      for (float product : products) {
        const int32_t n = superInteger(product, *found);
        ASSERT_TRUE(n >= range.min && n <= range.max);
        ASSERT_EQ(static_cast<float>(n) * *found, product);
      }
      // What llama.cpp writes: the largest integer is the farthest one.
      products.push_back(static_cast<float>(range.min < 0 ? range.min : range.max) * unit);
      ASSERT_EQ(superUnitOf(products, range), unit);
    }
  }
  EXPECT_EQ(superUnitOf(std::vector<float>(8, 0.0f), {0, 63}), 0.0f);
  EXPECT_FALSE(superUnitOf(std::vector<float>{1.0f, 1.7f}, {0, 63}));
  EXPECT_FALSE(superUnitOf(std::vector<float>{1.0f, INFINITY}, {0, 63}));
}

TEST(SuperBlocks, EveryRuleHasThem) {
  const int64_t rows = 12, columns = 512;
  std::vector<float> w = weights(rows * columns, 3), h = gaussian(columns, 4);
  for (float &v : h)
    v = v * v;
  std::fill_n(w.data() + 3 * columns, 256, 0.0f);     // a block of zeros
  std::fill_n(w.data() + 4 * columns + 64, 32, 0.0f); // groups of zeros
  std::fill_n(w.data() + 5 * columns, 32, 0.25f);     // constants of either sign
  std::fill_n(w.data() + 5 * columns + 32, 32, -0.25f);
  for (int64_t k = 0; k < columns; ++k)
    w[6 * columns + k] = std::fabs(w[6 * columns + k]) + 0.1f; // far from 0
  for (int64_t k = 0; k < columns; ++k)
    w[7 * columns + k] *= 1e-4f; // units are subnormal
  const ConstMatrix weight(w.data(), rows, columns);
  for (const Scheme &scheme : allSchemes())
    for (ScaleRuleKind kind : {extremesRule(scheme), ScaleRuleKind::Percentile, ScaleRuleKind::Mse,
                               ScaleRuleKind::HessianDiagonal}) {
      SCOPED_TRACE(toString(kind));
      expectSuperBlocks(weight, quantized(weight, scheme, {.kind = kind, .weights = h}));
    }
}

TEST(SuperBlocks, CostLittleBesideScalesOfTheirOwn) {
  const int64_t rows = 32, columns = 1024;
  std::vector<float> w = weights(rows * columns, 9);
  const std::vector<float> ones(columns, 1.0f);
  const ConstMatrix weight(w.data(), rows, columns);
  for (const Scheme &scheme : allSchemes()) {
    const ScaleRule rule{.kind = ScaleRuleKind::HessianDiagonal, .weights = ones};
    const double all = errorOf(weight, quantized(weight, scheme, extremes(scheme))),
                 fitted = errorOf(weight, quantized(weight, scheme, rule)),
                 own = errorOf(weight, quantized(weight, withWideScales(scheme), rule));
    EXPECT_LT(fitted, all) << toString(scheme);
    // Scales and minima of four bits are coarse. Signed scales make up for more.
    EXPECT_LT(fitted, (scheme.bits == 2 ? 1.35 : 1.12) * own) << toString(scheme);
  }
}

// Three bits have one code more on one side.
TEST(SuperBlocks, SignsOfScalesTurnTheLowestCode) {
  const int64_t rows = 32, columns = 512;
  std::vector<float> w = weights(rows * columns, 5);
  const ConstMatrix weight(w.data(), rows, columns);
  const Scheme scheme = superBlocks(3, 16, false);
  const std::vector<float> ones(columns, 1.0f);
  const ScaleRule rule{.kind = ScaleRuleKind::HessianDiagonal, .weights = ones};
  const QuantizedMatrix turned = quantized(weight, scheme, rule);
  const double positive = errorOf(weight, quantized(weight, withWideScales(scheme), rule));
  EXPECT_LT(errorOf(weight, turned), 0.9 * positive);
  const auto negative = std::ranges::count_if(turned.params.scales, [](float s) { return s < 0; });
  EXPECT_GT(negative, std::ssize(turned.params.scales) / 4);
  EXPECT_LT(negative, std::ssize(turned.params.scales) * 3 / 4);
  for (int64_t i = 0; i < rows * columns / 16; ++i) {
    const auto [lo, hi] = std::minmax_element(&w[i * 16], &w[i * 16] + 16);
    std::vector<float> back(turned.codes.size());
    const double bound =
        quantizationErrorBound(*lo, *hi, sliceParams(scheme, turned.params, i), scheme);
    for (int64_t k = i * 16; k < i * 16 + 16; ++k)
      ASSERT_LE(std::fabs(w[k] - double(turned.params.scales[i]) * turned.codes[k]),
                bound * 1.0001);
  }
}

TEST(SuperBlocks, MethodsHaveThem) {
  const int64_t rows = 16, columns = 256, tokens = 300;
  std::vector<float> w = weights(rows * columns, 7), x = gaussian(tokens * columns, 8);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t k = 1; k < columns; ++k)
      x[t * columns + k] += 0.7f * x[t * columns + k - 1];
  const ConstMatrix weight(w.data(), rows, columns), inputs(x.data(), tokens, columns);
  std::vector<float> hessian(columns * columns);
  for (int64_t i = 0; i < columns; ++i)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t t = 0; t < tokens; ++t)
        hessian[i * columns + j] += x[t * columns + i] * x[t * columns + j];
  auto outputError = [&](const QuantizedMatrix &q) {
    std::vector<float> back(q.codes.size());
    dequantize(q, {back.data(), rows, columns});
    double sum = 0;
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t i = 0; i < columns; ++i)
        for (int64_t j = 0; j < columns; ++j)
          sum += (double(w[n * columns + i]) - back[n * columns + i]) * hessian[i * columns + j] *
                 (double(w[n * columns + j]) - back[n * columns + j]);
    return sum;
  };
  for (const Scheme &scheme : allSchemes()) {
    const double nearest = outputError(quantized(weight, scheme, extremes(scheme)));
    for (bool actOrder : {true, false}) {
      GptqOptions options{.actOrder = actOrder};
      auto factor = factorHessian(ConstMatrix(hessian.data(), columns, columns), options);
      ASSERT_TRUE(factor);
      auto done = gptq(weight, *factor, scheme, {ScaleRuleKind::HessianDiagonal}, options);
      ASSERT_TRUE(done) << done.error().message;
      expectSuperBlocks(weight, done->weight, /*areNearest=*/false);
      EXPECT_LT(outputError(done->weight), 0.8 * nearest) << toString(scheme);
    }
    for (bool refines : {false, true}) {
      auto clip = searchAwqClip(weight, inputs, scheme, refines, 2);
      ASSERT_TRUE(clip) << clip.error().message;
      QuantizedMatrix clipped{scheme, rows, columns, std::vector<int8_t>(rows * columns),
                              clip->params};
      ASSERT_TRUE(quantize(weight, scheme, clipped.params, clipped.codes));
      expectSuperBlocks(weight, clipped);
      if (refines)
        EXPECT_LT(outputError(clipped), nearest) << toString(scheme);
    }
  }
}

TEST(SuperBlocks, Refused) {
  std::vector<float> w(256, 1e9f);
  w[0] = -1e9f;
  for (const Scheme &scheme : allSchemes()) {
    auto q = quantize(ConstMatrix(w.data(), 1, 256), scheme, extremes(scheme));
    ASSERT_FALSE(q) << toString(scheme);
    EXPECT_NE(q.error().message.find("without super-blocks"), std::string::npos)
        << q.error().message;
  }
  std::ranges::fill(w, 0.5f);
  Scheme scheme = superBlocks(4, 32, true);
  QuantizedMatrix q = quantized(ConstMatrix(w.data(), 1, 256), scheme, extremes(scheme));
  q.params.scales[3] *= 1.37f;
  auto held = checkScales(q.params, scheme);
  ASSERT_FALSE(held);
  EXPECT_NE(held.error().message.find("scales and minima [0, 0] to [0, 7], as integers"),
            std::string::npos)
      << held.error().message;
}
