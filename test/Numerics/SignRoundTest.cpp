//===- SignRoundTest.cpp - Rounding learned by signed gradients -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The layer is y = x What^T. Oracle: the update of SignRound.h, transcribed in double precision.
// That of tables goes by places along the table: its values are at 0, 1, ..., linear between them.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/SignRound.h"

#include "RandomData.h"
#include "SchemeKinds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

constexpr int64_t kRows = 5, kColumns = 24, kTokens = 12, kSequences = 6;

struct Toy : DifferentiableLayer {
  std::vector<float> weight = gaussian(kRows * kColumns, 1), now = weight;
  std::vector<std::vector<float>> in, out;
  std::vector<ConstMatrix> targets;

  Toy() {
    std::vector<float> mix = gaussian(kColumns, 2);
    for (int64_t s = 0; s < kSequences; ++s) {
      in.push_back(gaussian(kTokens * kColumns, 10 + s));
      std::vector<float> common = gaussian(kTokens, 50 + s);
      for (int64_t i = 0; i < kTokens * kColumns; ++i)
        in.back()[i] += 2 * common[i / kColumns] * mix[i % kColumns];
      out.emplace_back(kTokens * kRows);
      EXPECT_TRUE(forward(s, {out.back().data(), kTokens, kRows}));
    }
    for (auto &y : out)
      targets.emplace_back(y.data(), kTokens, kRows);
  }
  Result<void> setWeight(size_t, ConstMatrix values) override {
    std::copy_n(values.data, kRows * kColumns, now.data());
    return {};
  }
  Result<void> forward(size_t s, Matrix y) override {
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t n = 0; n < kRows; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < kColumns; ++k)
          sum += double(in[s][t * kColumns + k]) * now[n * kColumns + k];
        y(t, n) = static_cast<float>(sum);
      }
    return {};
  }
  Result<void> backward(size_t s, ConstMatrix dy, std::span<const Matrix> gradients) override {
    for (int64_t n = 0; n < kRows; ++n)
      for (int64_t k = 0; k < kColumns; ++k) {
        double sum = 0;
        for (int64_t t = 0; t < kTokens; ++t)
          sum += double(dy(t, n)) * in[s][t * kColumns + k];
        gradients[0](n, k) = static_cast<float>(sum);
      }
    return {};
  }
  Result<TrainedWeights> learned(const Scheme &scheme, const SignRoundOptions &options,
                                 std::optional<QParams> params = {}) {
    TrainedSite site{ConstMatrix(weight.data(), kRows, kColumns),
                     scheme,
                     {extremesRule(scheme)},
                     std::move(params)};
    return learnRounding(*this, std::span(&site, 1), targets, options);
  }
};

/// What a weight of the oracle becomes in units of its scale; is it not clamped?
struct Place {
  double value;
  bool inside;
};
using Placing = std::function<Place(double steps, double offset, int64_t group)>;

/// The state after the last step is what the layer is given last.
void expectTranscribed(const Scheme &scheme, const QParams &params, int64_t steps,
                       const Placing &place) {
  Toy toy;
  const int64_t groups = params.groups, size = scheme.groupSize;
  std::vector<double> v(kRows * kColumns), a(kRows * groups, 1), what(kRows * kColumns);
  auto groupOf = [&](int64_t i) { return i / kColumns * groups + i % kColumns / size; };
  auto stepsOf = [&](int64_t i) {
    return toy.weight[i] / (a[groupOf(i)] * params.scales[groupOf(i)]);
  };
  auto round = [&] {
    for (int64_t i = 0; i < kRows * kColumns; ++i)
      what[i] =
          a[groupOf(i)] * params.scales[groupOf(i)] * place(stepsOf(i), v[i], groupOf(i)).value;
  };
  round();
  for (int64_t step = 0; step < steps; ++step) {
    const double rate = (1 - double(step) / steps) / steps;
    std::vector<double> slope(a.size()), old(v);
    for (int64_t n = 0; n < kRows; ++n)
      for (int64_t k = 0; k < kColumns; ++k) {
        double g = 0;
        for (int64_t t = 0; t < kTokens; ++t) {
          double error = -toy.targets[step](t, n);
          for (int64_t j = 0; j < kColumns; ++j)
            error += toy.in[step][t * kColumns + j] * what[n * kColumns + j];
          g += 2 * error * toy.in[step][t * kColumns + k];
        }
        int64_t i = n * kColumns + k;
        auto [value, inside] = place(stepsOf(i), old[i], groupOf(i));
        slope[groupOf(i)] += g * (value - (inside ? stepsOf(i) : 0));
        if (inside)
          v[i] = std::clamp(v[i] - rate * ((g > 0) - (g < 0)), -0.5, 0.5);
      }
    for (size_t p = 0; p < a.size(); ++p)
      a[p] -= rate / 4 * ((slope[p] > 0) - (slope[p] < 0));
    round();
  }
  auto result = toy.learned(scheme, {.steps = steps}, params);
  ASSERT_TRUE(result) << result.error().message;
  for (int64_t i = 0; i < kRows * kColumns; ++i)
    EXPECT_NEAR(toy.now[i], what[i], 1e-5) << toString(scheme) << " " << i;
}

Scheme tableScheme(const Codebook *table) {
  Scheme scheme = grouped(table->bits(), 8);
  scheme.codes = CodeFormat::Table;
  scheme.table = table;
  return scheme;
}

const Codebook *unevenTable() {
  return *Codebook::of(std::vector<float>{-1, -0.5f, -0.3f, -0.05f, 0.1f, 0.2f, 0.65f, 0.8f});
}

std::vector<Scheme> tableSchemes() {
  return {tableScheme(Codebook::nf4()), tableScheme(Codebook::iq4nl()), tableScheme(unevenTable()),
          tableScheme(*Codebook::of(std::vector<float>{-1, -0.25f, 0.375f, 0.75f}))};
}

QParams paramsOf(const Toy &toy, const Scheme &scheme) {
  auto params = chooseQParams(ConstMatrix(toy.weight.data(), kRows, kColumns), scheme,
                              {extremesRule(scheme)});
  EXPECT_TRUE(params);
  return *params;
}

TEST(SignRound, IsTheUpdateTranscribed) {
  const Scheme scheme{3, false, kGroup, 8, false};
  const QParams params = paramsOf(Toy(), scheme);
  expectTranscribed(scheme, params, 2, [&](double steps, double offset, int64_t group) -> Place {
    const int z = params.zeroPoints[group];
    const double place = steps + offset;
    return {double(std::clamp<int>(std::nearbyint(place) + z, -4, 3) - z),
            place >= -4 - z && place <= 3 - z};
  });
}

TEST(SignRound, IsTheUpdateTranscribedOfTables) {
  for (const Scheme &scheme : tableSchemes()) {
    const std::span<const float> t = scheme.table->values();
    const int last = static_cast<int>(t.size()) - 1;
    // Scales that leave some weights beyond the ends.
    QParams params = paramsOf(Toy(), scheme);
    for (float &scale : params.scales)
      scale *= 0.7f;
    for (int64_t steps : {2, 5})
      expectTranscribed(scheme, params, steps, [&](double x, double offset, int64_t) -> Place {
        int i = 0;
        while (i + 1 < last && x >= t[i + 1])
          ++i;
        const double place = i + (x - t[i]) / (double(t[i + 1]) - t[i]) + offset;
        return {t[static_cast<int>(std::clamp<double>(std::nearbyint(place), 0, last))],
                place >= 0 && place <= last};
      });
  }
}

TEST(SignRound, EvenTablesAreIntegers) {
  std::vector<float> values(16);
  std::iota(values.begin(), values.end(), -8.0f);
  Scheme integers = grouped(4, 8);
  integers.fullRange = true;
  Toy toy, same;
  const QParams params = paramsOf(toy, integers);
  auto expected = toy.learned(integers, {.steps = 40}, params);
  auto found = same.learned(tableScheme(*Codebook::of(values)), {.steps = 40}, params);
  ASSERT_TRUE(expected);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->weights[0].codes, expected->weights[0].codes);
  EXPECT_EQ(found->weights[0].params.scales, expected->weights[0].params.scales);
  EXPECT_EQ(same.now, toy.now);
}

TEST(SignRound, StaysBetweenNeighboursInATable) {
  for (const Scheme &scheme : tableSchemes()) {
    Toy toy;
    auto result = toy.learned(scheme, {.steps = 100});
    ASSERT_TRUE(result) << result.error().message;
    const QuantizedMatrix &q = result->weights[0];
    const std::span<const float> t = scheme.table->values();
    const QParams start = paramsOf(toy, scheme);
    int64_t moved = 0;
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      const double x = toy.weight[i] / q.params.scales[i / 8];
      const size_t code = q.codes[i] + t.size() / 2;
      EXPECT_TRUE(code == 0 || t[code - 1] <= x) << toString(scheme) << " " << i;
      EXPECT_TRUE(code + 1 == t.size() || x <= t[code + 1]) << toString(scheme) << " " << i;
      EXPECT_NEAR(q.params.scales[i / 8], start.scales[i / 8], start.scales[i / 8] / 7);
      moved += code > 0 && code + 1 < t.size() &&
               (x < (t[code - 1] + t[code]) / 2 || x > (t[code] + t[code + 1]) / 2);
    }
    EXPECT_GT(moved, 0);
  }
}

TEST(SignRound, ScalesOfTwoLevelsKeepTheUpperOne) {
  for (Scheme scheme : {grouped(3, 8), tableScheme(Codebook::nf4())}) {
    scheme.scales = ScaleFormat::UI6;
    Toy toy;
    const QParams start = paramsOf(toy, scheme);
    auto result = toy.learned(scheme, {.steps = 100});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_LT(result->after, 0.9 * result->before) << toString(scheme);
    for (int64_t row = 0; row < kRows; ++row) {
      const float unit = *superScaleOf({&start.scales[row * 3], 3});
      for (int64_t p = row * 3; p < row * 3 + 3; ++p) {
        const float scale = result->weights[0].params.scales[p];
        EXPECT_EQ(roundScale(scale / unit, ScaleFormat::UI6) * unit, scale);
        EXPECT_NEAR(scale, start.scales[p], start.scales[p] / 7 + unit / 64);
      }
    }
  }
}

TEST(SignRound, SuperBlocksKeepTheirUnitsAndSigns) {
  for (bool minima : {false, true}) {
    Scheme scheme = grouped(minima ? 4 : 3, minima ? 32 : 16);
    scheme.scales = ScaleFormat::F32;
    scheme.symmetric = !minima;
    scheme.fullRange = !minima;
    scheme.minima = minima;
    scheme.superBlocks = true;
    Toy toy;
    const QParams start = paramsOf(toy, scheme);
    auto result = toy.learned(scheme, {.steps = 100});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_LT(result->after, 0.95 * result->before) << toString(scheme);
    const QParams &params = result->weights[0].params;
    EXPECT_TRUE(checkScales(params, scheme));
    EXPECT_EQ(params.minima, start.minima);
    int64_t turned = 0;
    for (size_t p = 0; p < start.scales.size(); ++p) {
      EXPECT_EQ(params.scales[p] < 0, start.scales[p] < 0);
      turned += params.scales[p] < 0;
    }
    EXPECT_EQ(turned > 0, !minima);
  }
}

TEST(SignRound, LowersTheErrorAndNeverEndsWorse) {
  std::vector<Scheme> schemes = tableSchemes();
  schemes.insert(schemes.end(),
                 {grouped(3, 8), Scheme{4, false, kGroup, 8, false}, grouped(2, 24)});
  for (const Scheme &scheme : schemes) {
    auto result = Toy().learned(scheme, {.steps = 100});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_LT(result->after, 0.9 * result->before) << toString(scheme);
  }
  for (const Scheme &scheme : schemes) {
    Toy toy;
    auto none = toy.learned(scheme, {.steps = 0});
    ASSERT_TRUE(none);
    EXPECT_EQ(none->after, none->before);
    auto nearest =
        quantize(ConstMatrix(toy.weight.data(), kRows, kColumns), scheme, {extremesRule(scheme)});
    ASSERT_TRUE(nearest);
    EXPECT_EQ(none->weights[0].codes, nearest->codes) << toString(scheme);
  }
}

TEST(SignRound, IsTheSameForAnyNumberOfThreads) {
  for (const Scheme &scheme : {grouped(3, 8), tableScheme(unevenTable())}) {
    Toy one, many;
    ASSERT_TRUE(one.learned(scheme, {.steps = 20, .threads = 1}));
    ASSERT_TRUE(many.learned(scheme, {.steps = 20, .threads = 3}));
    EXPECT_EQ(one.now, many.now);
  }
}

TEST(SignRound, RefusesWhatItCannotLearn) {
  Scheme fp8{8, true, kChannel, 0, false};
  fp8.codes = CodeFormat::F8E4M3FN;
  auto refused = Toy().learned(fp8, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("take gptq or lkd"), std::string::npos);
  auto whole = Toy().learned({8, true, kTensor, 0, false}, {});
  ASSERT_FALSE(whole);
  EXPECT_NE(whole.error().message.find("a range of each row or group"), std::string::npos);
  EXPECT_FALSE(Toy().learned(grouped(3, 8), {.steps = -1}));
  EXPECT_FALSE(Toy().learned(grouped(3, 8), {.heldOut = 1}));
}

} // namespace
