//===- StatisticsTest.cpp - Accumulators ----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Oracles: the definitions over all rows at once, in double precision.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Statistics.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

/// Rows of activations: every channel of its own scale and mean, one outlier, a stride.
struct Rows {
  Rows(int64_t rows, int64_t columns, unsigned seed)
      : values(gaussian(rows * (columns + 2), seed)),
        view(values.data(), rows, columns, columns + 2) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        view(i, j) = view(i, j) * std::pow(10.0f, j % 5 - 2) + (j % 3) * 50;
    if (rows > 1)
      view(rows / 2, columns / 2) = -3000;
  }
  std::vector<float> values;
  Matrix view;
};

/// The statistics of rows cut at `cut`, merged.
template <typename Accumulator> Accumulator merged(const Rows &x, int64_t cut, auto &&update) {
  Accumulator a(x.view.columns), b(x.view.columns);
  EXPECT_TRUE(update(a, x.view.middleRows(0, cut)));
  EXPECT_TRUE(update(b, x.view.middleRows(cut, x.view.rows - cut)));
  a.merge(b);
  return a;
}
constexpr auto kUpdate = [](auto &a, ConstMatrix x) { return a.update(x); };

class Statistics : public testing::TestWithParam<std::pair<int64_t, int64_t>> {
protected:
  Rows x{GetParam().first, GetParam().second, 11};
  int64_t rows = GetParam().first, columns = GetParam().second;
  /// Before the first row, after the last, and between.
  std::vector<int64_t> cuts = {0, rows / 3, rows};

  double sum(int64_t j, auto &&of) {
    double total = 0;
    for (int64_t i = 0; i < rows; ++i)
      total += of(double(x.view(i, j)));
    return total;
  }
};

TEST_P(Statistics, Extrema) {
  for (int64_t cut : cuts) {
    auto absMax = merged<AbsMax>(x, cut, kUpdate);
    auto minMax = merged<MinMax>(x, cut, kUpdate);
    float peak = 0;
    for (int64_t j = 0; j < columns; ++j) {
      float low = x.view(0, j), high = low;
      for (int64_t i = 0; i < rows; ++i) {
        low = std::min(low, x.view(i, j));
        high = std::max(high, x.view(i, j));
      }
      EXPECT_EQ(minMax.minima()[j], low);
      EXPECT_EQ(minMax.maxima()[j], high);
      EXPECT_EQ(absMax.channels()[j], std::max(std::fabs(low), std::fabs(high)));
      peak = std::max(peak, absMax.channels()[j]);
    }
    EXPECT_EQ(absMax.tensor(), peak);
  }
}

TEST_P(Statistics, MeansAndVariances) {
  for (int64_t cut : cuts) {
    std::vector<float> meanAbs = merged<MeanAbs>(x, cut, kUpdate).means();
    auto moments = merged<Moments>(x, cut, kUpdate);
    std::vector<float> means = moments.means(), variances = moments.variances();
    for (int64_t j = 0; j < columns; ++j) {
      double mean = sum(j, [](double v) { return v; }) / rows;
      double variance = sum(j, [&](double v) { return (v - mean) * (v - mean); }) / rows;
      double magnitude = sum(j, [](double v) { return std::fabs(v); }) / rows;
      EXPECT_NEAR(meanAbs[j], magnitude, magnitude * 1e-6);
      EXPECT_NEAR(means[j], mean, magnitude * 1e-6);
      EXPECT_NEAR(variances[j], variance, variance * 1e-6 + mean * mean * 1e-12);
    }
  }
}

TEST_P(Statistics, HessianIsTwiceTheMeanOfOuterProducts) {
  for (int64_t cut : cuts) {
    auto gram = merged<Gram>(x, cut, [](Gram &g, ConstMatrix v) { return g.update(v, 1); });
    auto threaded = merged<Gram>(x, cut, [](Gram &g, ConstMatrix v) { return g.update(v, 3); });
    EXPECT_EQ(gram.tokens(), rows);
    std::vector<float> hessian = std::move(gram).takeHessian();
    EXPECT_EQ(hessian, std::move(threaded).takeHessian()); // to the bit
    for (int64_t a = 0; a < columns; a += 7)
      for (int64_t b = 0; b < columns; ++b) {
        double expected = 0, size = 0;
        for (int64_t i = 0; i < rows; ++i) {
          expected += 2.0 * x.view(i, a) * x.view(i, b) / rows;
          size += 2.0 * std::fabs(double(x.view(i, a)) * x.view(i, b)) / rows;
        }
        ASSERT_NEAR(hessian[a * columns + b], expected, size * 1e-5);
        ASSERT_EQ(hessian[a * columns + b], hessian[b * columns + a]);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Statistics,
                         testing::Values(std::pair(1, 1), std::pair(2, 3), std::pair(3, 17),
                                         std::pair(17, 5), std::pair(200, 300),
                                         std::pair(40, 513)));

TEST(Statistics, NothingCountedIsZero) {
  EXPECT_EQ(AbsMax(2).channels(), std::vector<float>(2));
  EXPECT_EQ(MinMax(2).minima(), std::vector<float>(2));
  EXPECT_EQ(MeanAbs(2).means(), std::vector<float>(2));
  EXPECT_EQ(Moments(2).variances(), std::vector<float>(2));
  EXPECT_EQ(Gram(2).takeHessian(), std::vector<float>(4));
  EXPECT_EQ(Ema().params(Scheme{}), SliceParams());
  EXPECT_TRUE(TokenPeaks().sinks().empty());
  EXPECT_EQ(Inliers(2).extrema().maxima(), std::vector<float>(2));
  EXPECT_EQ(Inliers(2).tokens(), 0);
}

/// Oracle: the median by sorting. A bin ends at most an eighth above its tokens, so that who has up
/// to 3 / 1.125 times the median is in, who has more than 3 * 1.125 times out, and tokens between
/// may be either.
TEST(Inliers, AreTheTokensThatDoNotTowerAboveTheOthers) {
  const int64_t rows = 101, columns = 9;
  for (unsigned seed : {1u, 2u, 3u}) {
    std::vector<float> x = gaussian(rows * columns, seed);
    std::vector<float> peaks;
    for (int64_t i = 0; i < rows; ++i) {
      // Few tokens tower: by 10, 20, ..., one in every eleven.
      for (int64_t j = 0; j < columns; ++j)
        x[i * columns + j] = i % 11 == 0 ? x[i * columns + j] * (10 + i) : x[i * columns + j];
      float peak = 0;
      for (int64_t j = 0; j < columns; ++j)
        peak = std::max(peak, std::fabs(x[i * columns + j]));
      peaks.push_back(peak);
    }
    std::vector<float> sorted = peaks;
    std::sort(sorted.begin(), sorted.end());
    const double median = sorted[rows / 2];
    int64_t least = 0, most = 0;
    MinMax within(columns), perhaps(columns);
    for (int64_t i = 0; i < rows; ++i) {
      ConstMatrix row(x.data() + i * columns, 1, columns);
      if (peaks[i] <= 2.6 * median)
        ++least, (void)within.update(row);
      if (peaks[i] <= 3.4 * median)
        ++most, (void)perhaps.update(row);
    }
    Inliers all(columns), first(columns), second(columns);
    ConstMatrix view(x.data(), rows, columns);
    ASSERT_TRUE(all.update(view));
    ASSERT_TRUE(first.update(view.middleRows(0, 40)) && second.update(view.middleRows(40, 61)));
    first.merge(second);
    EXPECT_GE(all.tokens(), least);
    EXPECT_LE(all.tokens(), most);
    EXPECT_LT(all.tokens(), rows);
    for (int64_t j = 0; j < columns; ++j) {
      EXPECT_GE(all.extrema().maxima()[j], within.maxima()[j]);
      EXPECT_LE(all.extrema().maxima()[j], perhaps.maxima()[j]);
      EXPECT_GE(all.extrema().minima()[j], perhaps.minima()[j]);
    }
    EXPECT_EQ(first.tokens(), all.tokens());
    EXPECT_EQ(first.extrema().maxima(), all.extrema().maxima());
    EXPECT_EQ(first.extrema().minima(), all.extrema().minima());
  }
}

TEST(Statistics, RefuseWhatIsNotFiniteAndStayAsTheyWere) {
  for (float bad : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> x(20, 3.0f);
    x[2 * 5 + 4] = bad;
    ConstMatrix good(x.data(), 2, 5), all(x.data(), 4, 5);
    auto check = [&](auto accumulator, auto &&value) {
      ASSERT_TRUE(accumulator.update(good));
      auto before = value(accumulator);
      auto result = accumulator.update(all);
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().code, ErrorCode::InvalidArgument);
      EXPECT_NE(result.error().message.find("row 2, column 4"), std::string::npos);
      EXPECT_EQ(value(accumulator), before);
      EXPECT_FALSE(accumulator.update(ConstMatrix(x.data(), 2, 5, 4)));
    };
    check(AbsMax(5), [](const AbsMax &a) { return a.channels(); });
    check(MinMax(5), [](const MinMax &a) { return a.maxima(); });
    check(Inliers(5), [](const Inliers &a) { return a.tokens(); });
    check(MeanAbs(5), [](const MeanAbs &a) { return a.tokens(); });
    check(Moments(5), [](const Moments &a) { return a.means(); });
    check(Ema(), [](const Ema &a) { return a.steps(); });
    check(Gram(5), [](const Gram &a) { return a.tokens(); });
  }
  std::vector<float> x(20, 1.0f);
  EXPECT_FALSE(AbsMax(4).update(ConstMatrix(x.data(), 4, 5)));
  x[3] = 1e19f;
  EXPECT_NE(Gram(5).update(ConstMatrix(x.data(), 4, 5)).error().message.find("range of float"),
            std::string::npos);
  x[3] = NAN;
  EXPECT_FALSE(TokenPeaks().update(ConstMatrix(x.data(), 4, 5), 0));
  EXPECT_FALSE(TokenPeaks().update(ConstMatrix(x.data(), 4, 5), -1));
}

TEST(FillUp, TakesWhatIsMissingFromTheOther) {
  const std::vector<float> own = {4, 1, 1, 2}, other = {8, 3, 3, 4};
  std::vector<float> h = own;
  fillUp(h, 2, 3, 4, other); // three of four rows
  EXPECT_EQ(h, (std::vector<float>{5, 1.5f, 1.5f, 2.5f}));
  h = own;
  fillUp(h, 2, 1, 4, {}); // columns alike: 3 on the diagonal
  EXPECT_EQ(h, (std::vector<float>{3.25f, 0.25f, 0.25f, 2.75f}));
  h = own;
  fillUp(h, 2, 4, 4, other);
  EXPECT_EQ(h, own);
  std::vector<float> none(4), squares = {1, 3};
  fillUp(none, 2, 0, 4, {});
  EXPECT_EQ(none, (std::vector<float>{1, 0, 0, 1}));
  fillUp(none, 2, 0, 4, other);
  EXPECT_EQ(none, other);
  fillUp(squares, 2, 64, 128, {});
  EXPECT_EQ(squares, (std::vector<float>{1.5f, 2.5f}));
  fillUp(squares, 2, 64, 128, std::vector<float>{0.5f, 0.5f});
  EXPECT_EQ(squares, (std::vector<float>{1, 1.5f}));
}

} // namespace
