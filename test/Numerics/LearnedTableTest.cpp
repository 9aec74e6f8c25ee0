//===- LearnedTableTest.cpp - Tables of values from weights ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Oracle: the best k-means of weighted values on a line, by dynamic programming in double.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/LearnedTable.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

Scheme tableScheme(int bits, int64_t groupSize = 0) {
  Scheme scheme{.bits = bits};
  scheme.codes = CodeFormat::Table;
  scheme.table = Codebook::learned(bits);
  if (groupSize) {
    scheme.granularity = Granularity::Group;
    scheme.groupSize = groupSize;
  }
  return scheme;
}

/// The least sum of h (x - c)^2 with `count` values c.
double leastKMeans(const std::vector<float> &x, const std::vector<float> &h, size_t count) {
  const size_t n = x.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return x[i]; });
  std::vector<double> weight(n + 1), first(n + 1), second(n + 1);
  for (size_t i = 0; i < n; ++i) {
    const double v = x[order[i]], w = h[order[i]];
    weight[i + 1] = weight[i] + w;
    first[i + 1] = first[i] + w * v;
    second[i + 1] = second[i] + w * v * v;
  }
  auto cost = [&](size_t from, size_t to) {
    const double w = weight[to] - weight[from], s = first[to] - first[from];
    return w > 0 ? second[to] - second[from] - s * s / w : 0;
  };
  std::vector<double> best(n + 1, INFINITY);
  best[0] = 0;
  for (size_t k = 0; k < count; ++k) {
    std::vector<double> next(n + 1, INFINITY);
    for (size_t to = 0; to <= n; ++to)
      for (size_t from = 0; from <= to; ++from)
        next[to] = std::min(next[to], best[from] + cost(from, to));
    best = std::move(next);
  }
  return best[n];
}

double tableError(ConstMatrix w, std::span<const float> h, const Scheme &scheme, ScaleRule rule) {
  rule.weights = h;
  auto q = quantize(w, scheme, rule);
  EXPECT_TRUE(q) << q.error().message;
  std::vector<float> back(w.rows * w.columns);
  dequantize(*q, Matrix(back.data(), w.rows, w.columns));
  double sum = 0;
  for (int64_t i = 0; i < w.rows; ++i)
    for (int64_t j = 0; j < w.columns; ++j)
      sum += h[j] * std::pow(double(w(i, j)) - back[i * w.columns + j], 2);
  return sum;
}

std::vector<float> meanSquares(int64_t count, unsigned seed) {
  std::vector<float> h = gaussian(count, seed);
  for (float &v : h)
    v = std::exp(v);
  return h;
}

const ScaleRule kWeighted{.kind = ScaleRuleKind::HessianDiagonal};

// A row with one scale is the problem of the oracle: nothing but the product of scale and table
// counts.
TEST(LearnedTable, ComesCloseToTheBestKMeansOfARow) {
  for (int bits : {2, 3, 4}) {
    // Skewed and with long tails, unlike the normal distribution that it starts from.
    std::vector<float> x = gaussian(600, 3), h = meanSquares(600, 4);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = std::exp(0.7f * x[i]) - 1;
    const ConstMatrix w(x.data(), 1, 600);
    const RowsToLearn rows[] = {{w, h}};
    Scheme scheme = tableScheme(bits);
    auto table = learnTable(rows, scheme, kWeighted, 1);
    ASSERT_TRUE(table) << table.error().message;
    const double before = tableError(w, h, scheme, kWeighted);
    scheme.table = *table;
    const double after = tableError(w, h, scheme, kWeighted),
                 least = leastKMeans(x, h, size_t(1) << bits);
    EXPECT_GE(after, least * (1 - 1e-5)) << bits;
    EXPECT_LE(after, least * 1.15) << bits;
    EXPECT_LT(after, before * 0.8) << bits;
  }
}

// Weights that a table has made, in groups and in two matrices, are found out.
TEST(LearnedTable, FindsTheTableThatWeightsCameFrom) {
  const std::vector<float> made = {-1, -0.7f, -0.45f, -0.1f, 0.2f, 0.3f, 0.55f, 0.8f};
  std::vector<float> x = gaussian(96 * 64, 5), s = gaussian(96 * 4, 6), h = meanSquares(64, 7);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = made[(i * 2654435761u >> 7) % made.size()] * std::exp(0.5f * s[i / 16]);
  const RowsToLearn rows[] = {{ConstMatrix(x.data(), 40, 64), h},
                              {ConstMatrix(x.data() + int64_t(40) * 64, 56, 64), h}};
  auto table = learnTable(rows, tableScheme(3, 16), kWeighted, 2);
  ASSERT_TRUE(table) << table.error().message;
  // The largest magnitude is 1; which sign it has does not matter to signed scales, but ours are
  // positive.
  for (size_t i = 0; i < made.size(); ++i)
    EXPECT_NEAR((*table)->values()[i], made[i], 2e-3) << i;
}

TEST(LearnedTable, IsTheSameForAnyThreadsAndNeverWorseThanTheStart) {
  std::vector<float> x = gaussian(130 * 72, 8), h = meanSquares(72, 9);
  const ConstMatrix w(x.data(), 130, 72);
  for (const ScaleRule &rule : {kWeighted, ScaleRule{.kind = ScaleRuleKind::AbsMax}})
    for (int bits : {2, 4}) {
      const RowsToLearn rows[] = {{w, h}};
      Scheme scheme = tableScheme(bits, 24);
      scheme.scales = ScaleFormat::F16;
      auto one = learnTable(rows, scheme, rule, 1), three = learnTable(rows, scheme, rule, 3);
      ASSERT_TRUE(one && three);
      EXPECT_EQ(*one, *three);
      ScaleRule coarse = rule;
      coarse.coarse = true;
      const double before = tableError(w, h, withWideScales(scheme), coarse);
      scheme.table = *one;
      EXPECT_LT(tableError(w, h, withWideScales(scheme), coarse), before);
    }
}

// What is learned are int8 values: none of the table that floats would have, rounded, is better.
TEST(LearnedTable, LearnsTablesOfInt8) {
  std::vector<float> x = gaussian(130 * 72, 10), h = meanSquares(72, 11);
  const ConstMatrix w(x.data(), 130, 72);
  const RowsToLearn rows[] = {{w, h}};
  for (const ScaleRule &rule : {kWeighted, ScaleRule{.kind = ScaleRuleKind::AbsMax}})
    for (int bits : {2, 3, 4}) {
      Scheme floats = tableScheme(bits, 24), scheme = floats;
      scheme.table = Codebook::learnedInt8(bits);
      ScaleRule coarse = rule;
      coarse.coarse = true;
      const double before = tableError(w, h, scheme, coarse);
      auto one = learnTable(rows, scheme, rule, 1), three = learnTable(rows, scheme, rule, 3);
      auto exact = learnTable(rows, floats, rule, 2);
      ASSERT_TRUE(one && three && exact);
      EXPECT_EQ(*one, *three);
      EXPECT_EQ((*one)->int8Unit(), 0x1p-7f);
      EXPECT_FALSE((*exact)->int8Unit());
      const std::span<const float> values = (*one)->values();
      EXPECT_EQ(std::max(-values.front(), values.back()), 127.0f / 128);
      scheme.table = *one;
      const double learned = tableError(w, h, scheme, coarse);
      EXPECT_LT(learned, before);
      floats.table = *exact;
      EXPECT_LT(learned, 1.01 * tableError(w, h, floats, coarse));
      floats.table = *(*exact)->inInt8();
      EXPECT_LT(learned, 1.002 * tableError(w, h, floats, coarse));
    }
}

// Values that int8 would make equal get neighbours of it.
TEST(LearnedTable, KeepsInt8ValuesApart) {
  std::vector<float> x;
  for (int i = 0; i < 64; ++i)
    x.insert(x.end(), {-1, 0.5f, 0.506f, 0.512f, 0.518f, 0.524f, 0.53f, 1});
  const ConstMatrix w(x.data(), 32, 16);
  const RowsToLearn rows[] = {{w, {}}};
  Scheme scheme = tableScheme(3);
  scheme.table = Codebook::learnedInt8(3);
  auto table = learnTable(rows, scheme, {.kind = ScaleRuleKind::AbsMax}, 1);
  ASSERT_TRUE(table) << table.error().message;
  for (size_t i = 0; i < 8; ++i)
    EXPECT_EQ((*table)->int8Value(i), (std::array{-127, 64, 65, 66, 67, 68, 69, 127})[i]) << i;
}

// A table that stays what it began with is learned all the same.
TEST(LearnedTable, NeverLeavesATableToBeLearned) {
  const std::span<const float> start = (*Codebook::learned(4)->inInt8())->values();
  std::vector<float> x;
  for (int i = 0; i < 8; ++i)
    x.insert(x.end(), start.begin(), start.end());
  const RowsToLearn rows[] = {{ConstMatrix(x.data(), 4, 32), {}}};
  Scheme scheme = tableScheme(4);
  scheme.table = Codebook::learnedInt8(4);
  auto table = learnTable(rows, scheme, {.kind = ScaleRuleKind::AbsMax}, 1);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(*table, *Codebook::learned(4)->inInt8());
  EXPECT_FALSE((*table)->isToBeLearned());
}

TEST(LearnedTable, TakesZerosAlone) {
  std::vector<float> zeros(64);
  const RowsToLearn rows[] = {{ConstMatrix(zeros.data(), 2, 32), {}}};
  auto table = learnTable(rows, tableScheme(4), {.kind = ScaleRuleKind::AbsMax}, 1);
  ASSERT_TRUE(table) << table.error().message;
  for (float value : (*table)->values())
    EXPECT_TRUE(std::isfinite(value) && std::fabs(value) <= 1) << value;
}

TEST(LearnedTable, SaysWhichWeightIsNotFinite) {
  std::vector<float> x(64, 1.0f);
  x[40] = NAN;
  const RowsToLearn rows[] = {{ConstMatrix(x.data(), 2, 32), {}}};
  auto table = learnTable(rows, tableScheme(4), {.kind = ScaleRuleKind::AbsMax}, 1);
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, ErrorCode::InvalidArgument);
}

} // namespace
