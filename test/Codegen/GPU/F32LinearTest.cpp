//===- F32LinearTest.cpp - Linears that keep the bits of f32 --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimtRunner.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace easyquant;
using namespace easyquant::gpu;

namespace {

std::vector<float> normals(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float &value : values)
    value = normal(random);
  return values;
}

/// Rows with a number between them that is nobody's, and all that a kernel reads.
struct Problem {
  Problem(const F32LinearSpec &spec, int64_t rows)
      : spec(spec), rows(rows), xStride(spec.k + 4), yStride(spec.n + 1),
        x(normals(rows * xStride, 1)), w(normals(spec.n * spec.k, 2)), bias(normals(spec.n, 3)),
        y(normals(rows * yStride, 4)) {}

  std::vector<float> compute(KernelLibrary &library, const F32LinearKernel &kernel) const {
    simt::Device device;
    DeviceBuffer<float> read(device, x, "x"), written(device, y, "y"), added(device, bias, "bias");
    DeviceBuffer<float> weights(device, w, "w");
    std::map<std::string, Argument> arguments = {
        {"x", read}, {"w", weights}, {"x_stride", xStride}, {"y", written}, {"y_stride", yStride}};
    if (spec.bias)
      arguments.emplace("bias", added);
    run(device, library, kernel.description, rows, arguments);
    return written.read();
  }

  void check(const std::vector<float> &found) const {
    const double unit = std::ldexp(static_cast<double>(spec.k) / 32 + 8, -24);
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < spec.n; ++n) {
        double sum = 0, magnitudes = 0;
        auto add = [&](double term) {
          sum += term;
          magnitudes += std::abs(term);
        };
        for (int64_t k = 0; k < spec.k; ++k)
          add(double(x[static_cast<size_t>(m * xStride + k)]) *
              w[static_cast<size_t>(n * spec.k + k)]);
        if (spec.bias)
          add(bias[static_cast<size_t>(n)]);
        if (spec.accumulate)
          add(y[static_cast<size_t>(m * yStride + n)]);
        EXPECT_NEAR(found[static_cast<size_t>(m * yStride + n)], sum, unit * magnitudes);
      }
      const auto behind = static_cast<size_t>(m * yStride + spec.n);
      EXPECT_EQ(found[behind], y[behind]);
    }
  }

  F32LinearSpec spec;
  int64_t rows, xStride, yStride;
  std::vector<float> x, w, bias, y;
};

} // namespace

TEST(GPUF32Linear, SumsAreThoseOfDoubles) {
  // A loop and what is behind it, a part of a step, columns that no vector divides, outputs that
  // end within a warp or a block.
  const std::vector<F32LinearSpec> specs = {{128, 1024},
                                            {5, 64, /*bias=*/true},
                                            {33, 1220},
                                            {6, 70},
                                            {1, 37, true, /*accumulate=*/true},
                                            {20, 4, false, true}};
  for (ChipId chip : {ChipId::SM80, ChipId::SM90a}) {
    KernelLibrary library(chip);
    std::vector<std::vector<F32LinearKernel>> kernels;
    for (const F32LinearSpec &spec : specs)
      kernels.push_back(library.add(spec));
    for (const auto &[spec, choices] : llvm::zip_equal(specs, kernels))
      for (const F32LinearKernel &kernel : choices) {
        SCOPED_TRACE(kernel.description.name);
        const Problem problem(spec, kernel.rows + 1);
        problem.check(problem.compute(library, kernel));
      }
  }
}

// Rows have one order of sums, however many there are.
TEST(GPUF32Linear, KernelsGiveTheSameBits) {
  const F32LinearSpec spec{9, 1500, /*bias=*/true};
  KernelLibrary library;
  const std::vector<F32LinearKernel> kernels = library.add(spec);
  const Problem problem(spec, 5);
  const std::vector<float> expected = problem.compute(library, kernels.front());
  ASSERT_EQ(kernels.size(), 3u);
  for (const F32LinearKernel &kernel : kernels)
    EXPECT_EQ(problem.compute(library, kernel), expected) << kernel.description.name;
}
