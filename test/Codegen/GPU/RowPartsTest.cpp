//===- RowPartsTest.cpp - Rows that ranks share, on simulated GPUs --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowOpData.h"

#include "easyquant/Numerics/Quantize.h"

#include <array>
#include <cmath>
#include <limits>

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;
using easyquant::gpu::paddedColumns;

namespace {

/// Rows of which two ranks have some of the columns each.
struct SharedRows {
  static constexpr int64_t kRows = 7;
  struct Part {
    int64_t from, count;
  };
  SharedRows(int64_t columns, int64_t first)
      : in(kRows, columns), parts{{{0, first}, {first, columns - first}}} {}
  std::vector<float> of(const Part &part) const {
    std::vector<float> own;
    for (int64_t m = 0; m < kRows; ++m) {
      auto begin = in.a.begin() + m * in.stride + part.from;
      own.insert(own.end(), begin, begin + part.count);
    }
    return own;
  }
  /// What is made of a part's rows, and then by what all parts have given.
  template <typename SpecOfPart>
  void add(KernelLibrary &library, const SpecOfPart &specOfPart) const {
    for (const Part &part : parts)
      for (RowSpec::OfRow number : {RowSpec::OfRow::Result, RowSpec::OfRow::Given})
        library.add(specOfPart(part.count, number));
  }

  RowInputs in;
  std::array<Part, 2> parts;
};

} // namespace

TEST(GPURowParts, CodesOfPartsOfRowsAreThoseOfTheRows) {
  constexpr int64_t kRows = SharedRows::kRows;
  // Two ranks have each one part of the columns: the larger of their magnitudes gives both parts
  // the codes that one rank has.
  for (auto [columns, first] : {std::pair<int64_t, int64_t>{100, 36}, {578, 290}, {4096, 2048}}) {
    SCOPED_TRACE(testing::Message() << first << " of " << columns << " columns");
    const SharedRows shared(columns, first);
    const RowInputs &in = shared.in;
    auto whole = quantizeTokens(in.matrix(in.a), 0);
    ASSERT_TRUE(whole) << whole.error().message;
    KernelLibrary library;
    auto specOfPart = [](int64_t columns, RowSpec::OfRow absMax) {
      RowSpec spec = specOf(RowOp::Quantize, columns);
      spec.absMax = absMax;
      spec.sums = absMax == RowSpec::OfRow::Given;
      return spec;
    };
    shared.add(library, specOfPart);

    simt::Device device;
    std::vector<float> most(kRows, 0.0f);
    for (auto [from, count] : shared.parts) {
      DeviceBuffer<float> x(device, shared.of({from, count})), absMax(device, kRows, "absmax");
      run(device, library, library.add(specOfPart(count, RowSpec::OfRow::Result)), kRows,
          {{"x", x}, {"x_stride", count}, {"absmax", absMax}});
      const std::vector<float> found = absMax.read();
      for (int64_t m = 0; m < kRows; ++m) {
        float expected = 0;
        for (int64_t k = from; k < from + count; ++k)
          expected = std::max(expected, std::abs(in.a[m * in.stride + k]));
        EXPECT_EQ(found[m], expected) << "row " << m;
        most[m] = std::max(most[m], found[m]);
      }
    }
    std::vector<int32_t> sums(kRows, 0);
    for (auto [from, count] : shared.parts) {
      DeviceBuffer<float> x(device, shared.of({from, count})), absMax(device, most);
      DeviceBuffer<float> scales(device, kRows, "scales");
      DeviceBuffer<int8_t> codes(device, kRows * paddedColumns(count), "codes");
      DeviceBuffer<int32_t> sumsOfPart(device, kRows, "sums");
      run(device, library, library.add(specOfPart(count, RowSpec::OfRow::Given)), kRows,
          {{"x", x},
           {"x_stride", count},
           {"absmax", absMax},
           {"codes", codes},
           {"scales", scales},
           {"sums", sumsOfPart}});
      EXPECT_EQ(scales.read(), whole->scales);
      const std::vector<int8_t> found = codes.read();
      int64_t wrong = 0;
      for (int64_t m = 0; m < kRows; ++m)
        for (int64_t k = 0; k < paddedColumns(count); ++k)
          wrong += found[m * paddedColumns(count) + k] !=
                   (k < count ? whole->codes[m * whole->paddedColumns + from + k] : 0);
      EXPECT_EQ(wrong, 0) << "codes of columns from " << from << " on";
      const std::vector<int32_t> added = sumsOfPart.read();
      for (int64_t m = 0; m < kRows; ++m)
        sums[m] += added[m];
    }
    EXPECT_EQ(sums, whole->sums);
  }
}

TEST(GPURowParts, NormsOfPartsOfRowsAreThoseOfTheRows) {
  constexpr int64_t kRows = SharedRows::kRows;
  constexpr double kLeast = std::numeric_limits<float>::min();
  for (auto [columns, first] : {std::pair<int64_t, int64_t>{100, 36}, {4096, 2048}}) {
    SCOPED_TRACE(testing::Message() << first << " of " << columns << " columns");
    const SharedRows shared(columns, first);
    const RowInputs &in = shared.in;
    KernelLibrary library;
    auto specOfPart = [whole = columns](int64_t columns, RowSpec::OfRow squares) {
      RowSpec spec = specOf(RowOp::RmsNorm, columns);
      spec.squares = squares;
      spec.wholeColumns = squares == RowSpec::OfRow::Given ? whole : 0;
      return spec;
    };
    shared.add(library, specOfPart);
    simt::Device device;
    std::vector<float> added(kRows, 0.0f);
    std::vector<double> exact(kRows, 0.0);
    for (auto [from, count] : shared.parts) {
      DeviceBuffer<float> x(device, shared.of({from, count})), squares(device, kRows, "squares");
      run(device, library, library.add(specOfPart(count, RowSpec::OfRow::Result)), kRows,
          {{"x", x}, {"x_stride", count}, {"squares", squares}});
      const std::vector<float> found = squares.read();
      for (int64_t m = 0; m < kRows; ++m) {
        double expected = 0;
        for (int64_t k = from; k < from + count; ++k)
          expected += std::pow(double(in.a[m * in.stride + k]), 2);
        EXPECT_NEAR(found[m], expected, 1e-6 * expected + kLeast) << "row " << m;
        added[m] += found[m];
        exact[m] += expected;
      }
    }
    std::vector<float> weight(columns);
    for (int64_t k = 0; k < columns; ++k)
      weight[k] = 0.5f + static_cast<float>(k % 7);
    for (auto [from, count] : shared.parts) {
      DeviceBuffer<float> x(device, shared.of({from, count})), squares(device, added);
      DeviceBuffer<float> own(
          device, std::vector<float>(weight.begin() + from, weight.begin() + from + count));
      DeviceBuffer<float> y(device, kRows * count, "y");
      run(device, library, library.add(specOfPart(count, RowSpec::OfRow::Given)), kRows,
          {{"x", x},
           {"x_stride", count},
           {"weight", own},
           {"squares", squares},
           {"y", y},
           {"y_stride", count}});
      const std::vector<float> found = y.read();
      for (int64_t m = 0; m < kRows; ++m)
        for (int64_t k = 0; k < count; ++k) {
          const double expected = in.a[m * in.stride + from + k] * weight[from + k] /
                                  std::sqrt(exact[m] / double(columns) + kEpsilon);
          ASSERT_NEAR(found[m * count + k], expected, 2e-6 * std::abs(expected) + kLeast)
              << "row " << m << ", column " << from + k;
        }
    }
  }
}

TEST(GPURowParts, RowsWhosePartsAreElsewhereLeaveStaticRanges) {
  // The part that has no outlier leaves the range with the part that has one.
  constexpr int64_t kRows = 7, kWide = 100, kFirst = 36;
  constexpr float kScale = 0.02f;
  const RowInputs in(kRows, kWide);
  Scheme scheme{8, true, Granularity::Tensor};
  scheme.sinks = true;
  auto whole = quantizeTokens(in.matrix(in.a), scheme, kScale, 0, 0);
  ASSERT_TRUE(whole) << whole.error().message;
  std::vector<float> part, most(kRows, 0.0f);
  for (int64_t m = 0; m < kRows; ++m) {
    const float *row = in.a.data() + m * in.stride;
    part.insert(part.end(), row, row + kFirst);
    for (int64_t k = 0; k < kWide; ++k)
      most[m] = std::max(most[m], std::abs(row[k]));
  }
  RowSpec spec = specOf(RowOp::Quantize, kFirst);
  spec.quantization = RowQuantization::Static;
  spec.sinks = true;
  spec.absMax = RowSpec::OfRow::Given;
  KernelLibrary library;
  simt::Device device;
  DeviceBuffer<float> x(device, part), absMax(device, most), scales(device, kRows, "scales");
  DeviceBuffer<float> scale(device, std::vector<float>{kScale});
  DeviceBuffer<int8_t> codes(device, kRows * paddedColumns(kFirst), "codes");
  run(device, library, library.add(spec), kRows,
      {{"x", x},
       {"x_stride", kFirst},
       {"scale", scale},
       {"absmax", absMax},
       {"codes", codes},
       {"scales", scales}});
  EXPECT_NE(whole->scales[3], kScale) << "the outlier's row leaves the range";
  EXPECT_EQ(whole->scales[2], kScale) << "that of zeros does not";
  EXPECT_EQ(scales.read(), whole->scales);
  const std::vector<int8_t> found = codes.read();
  for (int64_t m = 0; m < kRows; ++m)
    for (int64_t k = 0; k < kFirst; ++k)
      EXPECT_EQ(found[m * paddedColumns(kFirst) + k], whole->codes[m * whole->paddedColumns + k])
          << m << ", " << k;
}
