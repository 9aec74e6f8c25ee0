//===- OnlineScalesTest.cpp - Online scales on a simulated GPU ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The kernels that read, track and advance online scales, against lib/Numerics and a transcription
// of the formulas in double, to the bit.
//
//===----------------------------------------------------------------------===//

#include "../OnlineTranscription.h"
#include "SimtRunner.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/Quantize.h"

#include <algorithm>
#include <cmath>

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;

// A thousand steps of a sequence that takes turns between two slots; its rows begin behind another
// one's.
TEST(GPUAdvance, IsTheTranscription) {
  constexpr int64_t sites = 131, steps = 1000; // more than a block's
  for (int64_t window : {0, 1, 6}) {
    SCOPED_TRACE(testing::Message() << "window " << window);
    KernelLibrary library;
    const AdvanceSpec spec{sites, window, 0.875};
    const Description kernel = library.add(spec);
    const int64_t fields = onlineFields(window);
    std::vector<double> state(4 * sites * fields, -1.0);
    std::vector<Transcription> expected;
    for (int64_t site = 0; site < sites; ++site) {
      const float scale = 0.001f * static_cast<float>(site + 1);
      startOnline(scale, std::span(state).subspan(site * fields, fields));
      expected.push_back({spec.decay, scale * 127.0, static_cast<size_t>(window)});
    }
    simt::Device device;
    DeviceBuffer<double> states(device, state);
    DeviceBuffer<float> extrema(device, 6 * 2 * sites);
    std::mt19937 random(7);
    for (int64_t step = 0; step < steps; ++step) {
      const std::vector<RowExtrema> rows = rowsOfStep(random, static_cast<int>(step));
      // Behind a row of a sequence whose slots nobody looks at.
      std::vector<float> noted((rows.size() + 1) * 2 * sites, 1e9f);
      for (int64_t site = 0; site < sites; ++site) {
        const auto factor = static_cast<float>(site % 7 + 1);
        std::vector<RowExtrema> own = rows;
        for (size_t m = 0; m < rows.size(); ++m) {
          own[m] = {rows[m].low * factor, rows[m].high * factor};
          noted[2 * ((m + 1) * sites + site)] = -own[m].low;
          noted[2 * ((m + 1) * sites + site) + 1] = own[m].high;
        }
        expected[site].step(own);
      }
      eq_sequence other = sequenceOf(1, 0), own = sequenceOf(std::ssize(rows), 0, 1);
      other.slot = 2;
      other.next_slot = 3;
      own.slot = static_cast<int32_t>(step % 2);
      own.next_slot = 1 - own.slot;
      StepInput input(device, {other, own});
      ASSERT_TRUE(device.copyIn(extrema.address(), noted.data(), noted.size() * sizeof(float)));
      run(device, library, kernel, 1 + std::ssize(rows),
          {{"extrema", extrema},
           {"extrema_stride", 2 * sites},
           {"states", states},
           {"sequences", input.sequences},
           {"row_places", input.rowPlaces}},
          step % 100 == 0 ? simt::Checks::All : simt::Checks::None);
      const std::vector<double> found = states.read();
      for (int64_t site = 0; site < sites; ++site) {
        const double *fresh = found.data() + (1 - step % 2) * sites * fields + site * fields;
        ASSERT_EQ(fresh[0], expected[site].peak) << "step " << step << ", site " << site;
        ASSERT_EQ(fresh[1], expected[site].scale()) << "step " << step << ", site " << site;
        ASSERT_TRUE(isOnlineState({fresh, static_cast<size_t>(fields)}));
      }
    }
  }
}

// Codes with the scale of each row's sequence; extrema as they are, whatever their signs. With
// sinks apart rows that leave the range have scales of their own, and count as twice the range at
// most. A rotated row is all that as it is rotated.
TEST(GPUOnlineRows, CodesAndExtrema) {
  constexpr int64_t rows = 9, fields = 8, first = 4;
  const float scales[] = {0.03f, 0.0078125f, 1.5f};
  KernelLibrary library;
  auto specOf = [](int64_t columns, int64_t block, bool sinks) {
    RowSpec spec;
    spec.columns = columns;
    spec.hadamard = block;
    spec.quantization = RowQuantization::Online;
    spec.sums = true;
    spec.sinks = sinks;
    return spec;
  };
  constexpr std::pair<int64_t, int64_t> kShapes[] = {
      {1, 0}, {7, 0}, {64, 0}, {172, 0}, {576, 0}, {4100, 0}, {40000, 0}, {576, 64}, {1536, 512}};
  for (auto [columns, block] : kShapes)
    for (bool sinks : {false, true})
      library.add(specOf(columns, block, sinks));
  for (auto [columns, block] : kShapes)
    for (bool sinks : {false, true}) {
      const RowSpec spec = specOf(columns, block, sinks);
      SCOPED_TRACE(library.add(spec).name);
      std::vector<double> state(3 * fields, -1.0);
      for (int64_t slot = 0; slot < 3; ++slot)
        state[slot * fields + first + 1] = scales[slot];
      auto slotOf = [](int64_t m) { return m < 4 ? 2 : m < 5 ? 0 : 1; };
      std::vector<int64_t> places;
      for (int64_t m = 0; m < rows; ++m)
        places.push_back(slotOf(m) * fields * 8);
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      std::vector<float> x(rows * columns);
      for (int64_t i = 0; i < rows * columns; ++i)
        x[i] = normal(random) + (i / columns == 2 ? 9.0f : i / columns == 5 ? -9.0f : 0.0f);

      simt::Device device;
      DeviceBuffer<float> xs(device, x), scaleOf(device, rows), extrema(device, rows * 6);
      DeviceBuffer<double> states(device, state);
      DeviceBuffer<int64_t> rowStates(device, places);
      DeviceBuffer<int8_t> codes(device, rows * paddedColumns(columns));
      DeviceBuffer<int32_t> sums(device, rows);
      run(device, library, library.add(spec), rows,
          {{"x", xs},
           {"x_stride", columns},
           {"states", states},
           {"row_states", rowStates},
           {"first", first},
           {"codes", codes},
           {"scales", scaleOf},
           {"sums", sums},
           {"extrema", Argument(extrema.address() + 2 * sizeof(float))},
           {"extrema_stride", 6}});
      const std::vector<float> ends = extrema.read(), ownScales = scaleOf.read();
      const std::vector<int8_t> found = codes.read();
      const std::vector<int32_t> foundSums = sums.read();
      for (int64_t m = 0; block > 0 && m < rows; ++m)
        rotateActivation(std::span(x).subspan(m * columns, columns), block);
      int64_t towering = 0;
      for (int64_t m = 0; m < rows; ++m) {
        const float scale = scales[slotOf(m)];
        ConstMatrix row{x.data() + m * columns, 1, columns, columns};
        Scheme scheme{8, true, Granularity::Tensor};
        scheme.sinks = sinks;
        auto expected = quantizeTokens(row, scheme, scale, 0, 0);
        ASSERT_TRUE(expected);
        EXPECT_EQ(ownScales[m], expected->scales[0]);
        towering += expected->scales[0] != scale;
        EXPECT_EQ(foundSums[m], expected->sums[0]);
        for (int64_t k = 0; k < paddedColumns(columns); ++k)
          ASSERT_EQ(found[m * paddedColumns(columns) + k], k < columns ? expected->codes[k] : 0)
              << "row " << m;
        auto [low, high] = std::minmax_element(row.row(0), row.row(0) + columns);
        const float most = sinks ? kOnlineReach * scale : kInfinity;
        EXPECT_EQ(ends[6 * m + 2], std::min(-*low, most)) << "row " << m;
        EXPECT_EQ(ends[6 * m + 3], std::min(*high, most)) << "row " << m;
      }
      EXPECT_EQ(towering > 0, sinks);
    }
}

TEST(GPUOnlineRows, WhatIsNotFiniteStaysSo) {
  for (bool sinks : {false, true}) {
    KernelLibrary library;
    RowSpec spec;
    spec.columns = 64;
    spec.quantization = RowQuantization::Online;
    spec.sinks = sinks;
    const Description kernel = library.add(spec);
    std::vector<float> x(3 * 64, 0.5f);
    x[5] = kInfinity;
    x[64 + 5] = -kInfinity;
    x[128 + 5] = std::nanf("");
    simt::Device device;
    DeviceBuffer<float> xs(device, x), scaleOf(device, 3), extrema(device, 6);
    DeviceBuffer<double> states(device, std::vector<double>{127, 1});
    DeviceBuffer<int64_t> rowStates(device, std::vector<int64_t>(3, 0));
    DeviceBuffer<int8_t> codes(device, 3 * paddedColumns(64));
    run(device, library, kernel, 3,
        {{"x", xs},
         {"x_stride", 64},
         {"states", states},
         {"row_states", rowStates},
         {"first", 0},
         {"codes", codes},
         {"scales", scaleOf},
         {"extrema", extrema},
         {"extrema_stride", 2}});
    const std::vector<float> ends = extrema.read();
    for (int64_t m = 0; m < 3; ++m)
      EXPECT_FALSE(std::isfinite(ends[2 * m]) && std::isfinite(ends[2 * m + 1])) << "row " << m;
  }
}
