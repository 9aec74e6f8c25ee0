//===- OnlineScalesTest.cpp - Scales that follow their input --------------===//
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
#include "GuardedBuffer.h"
#include "KernelRunner.h"
#include "SequenceTable.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/OnlineScales.h"
#include "easyquant/Numerics/Quantize.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;
using namespace easyquant::numerics;

namespace {

constexpr int64_t kSites = 5;

/// Rows of the extrema of all sites, a row as the kernels of the sites write it.
struct Extrema {
  GuardedBuffer<float> values;
  MemRef<float, 2> view(int64_t rows) { return {values.data(), {rows, 2 * kSites}}; }
};

KernelRunner compile(const AdvanceSpec &spec, const Target &target) {
  return KernelRunner(target,
                      [&](ModuleOp module) { return getOrEmitAdvance(module, spec, target); });
}

} // namespace

// A thousand steps of three sequences that take turns between two slots each.
TEST(Advance, IsTheTranscription) {
  for (const Target &target : testTargets())
    for (int64_t window : {0, 1, 6}) {
      const AdvanceSpec spec{kSites, window, 0.875};
      SCOPED_TRACE(target.name().str() + ", " + symbolName(spec));
      KernelRunner run = compile(spec, target);
      const int64_t fields = onlineFields(window), all = kSites * fields;
      constexpr int64_t sequences = 3;
      GuardedBuffer<double> state(2 * sequences * all, -1.0);
      std::vector<Transcription> expected;
      for (int64_t i = 0; i < sequences * kSites; ++i) {
        const float scale = 0.01f * static_cast<float>(i + 1);
        startOnline(scale,
                    state.span().subspan(i / kSites * 2 * all + i % kSites * fields, fields));
        expected.push_back({spec.decay, scale * 127.0, static_cast<size_t>(window)});
      }
      std::mt19937 random(7);
      for (int step = 0; step < 1000; ++step) {
        SequenceTable table;
        std::vector<std::vector<RowExtrema>> rows;
        for (int64_t n = 0; n < sequences; ++n) {
          std::vector<RowExtrema> given = rowsOfStep(random, step);
          eq_sequence &sequence = table.add(std::ssize(given), step);
          sequence.slot = static_cast<int32_t>(2 * n + step % 2);
          sequence.next_slot = static_cast<int32_t>(2 * n + 1 - step % 2);
          for (const RowExtrema &row : given)
            rows.push_back({row});
          for (int64_t site = 0; site < kSites; ++site)
            expected[n * kSites + site].step([&] {
              std::vector<RowExtrema> scaled = given;
              for (RowExtrema &row : scaled)
                row = {row.low * float(site + 1), row.high * float(site + 1)};
              return scaled;
            }());
        }
        Extrema extrema{GuardedBuffer<float>(std::ssize(rows) * 2 * kSites)};
        for (size_t m = 0; m < rows.size(); ++m)
          for (int64_t site = 0; site < kSites; ++site) {
            extrema.values[2 * (m * kSites + site)] = -rows[m][0].low * float(site + 1);
            extrema.values[2 * (m * kSites + site) + 1] = rows[m][0].high * float(site + 1);
          }
        auto extremaView = extrema.view(std::ssize(rows));
        MemRef<double, 2> stateView(state.data(), {2 * sequences, all});
        auto tableView = table.view();
        run(extremaView, stateView, tableView, int64_t(step % 50 == 0 ? 3 : 1));
        for (int64_t i = 0; i < sequences * kSites; ++i) {
          const double *site =
              state.data() + (i / kSites * 2 + 1 - step % 2) * all + i % kSites * fields;
          ASSERT_EQ(site[0], expected[i].peak) << "step " << step << ", site " << i;
          ASSERT_EQ(float(site[1]), expected[i].scale()) << "step " << step << ", site " << i;
          ASSERT_TRUE(isOnlineState({site, static_cast<size_t>(fields)}));
        }
      }
    }
}

// lib/Numerics is the transcription, too; no rows are no update.
TEST(Advance, NumericsIsTheTranscription) {
  for (int64_t window : {0, 1, 6}) {
    std::vector<double> state(onlineFields(window)), next(state.size());
    startOnline(0.02f, state);
    Transcription expected{0.9, double(0.02f) * 127, static_cast<size_t>(window)};
    std::mt19937 random(3);
    for (int step = 0; step < 1000; ++step) {
      std::vector<RowExtrema> rows;
      if (step % 17 != 0)
        rows = rowsOfStep(random, step);
      expected.step(rows);
      advanceOnline({0.9, window}, state, rows, next);
      std::swap(state, next);
      ASSERT_EQ(state[0], expected.peak) << "step " << step;
      ASSERT_EQ(float(state[1]), expected.scale()) << "step " << step;
    }
  }
}

// Codes with the scale of each row's sequence; extrema as they are, whatever their signs. With
// sinks apart rows that leave the range have scales of their own, and count as twice the range at
// most. A rotated row is all that as it is rotated.
TEST(OnlineRows, CodesAndExtrema) {
  for (const Target &target : testTargets())
    for (auto [columns, sinks, block] : {std::tuple(1, false, 0),
                                         {7, false, 0},
                                         {64, false, 0},
                                         {172, false, 0},
                                         {576, false, 0},
                                         {576, false, 64},
                                         {1, true, 0},
                                         {7, true, 0},
                                         {172, true, 0},
                                         {576, true, 0},
                                         {1536, true, 512}}) {
      RowSpec spec{RowOp::Quantize, columns, 0.0, RowQuantization::Online};
      spec.stateFields = 8;
      spec.sinks = sinks;
      spec.hadamard = block;
      SCOPED_TRACE(target.name().str() + ", " + symbolName(spec));
      KernelRunner run(target,
                       [&](ModuleOp module) { return getOrEmitRowOp(module, spec, target); });
      constexpr int64_t rows = 9;
      SequenceTable table;
      for (auto [count, slot] : {std::pair(4, 2), {1, 0}, {4, 1}})
        table.add(count, 0).slot = slot;
      std::vector<double> state(3 * 8, -1.0);
      const float scales[] = {0.03f, 0.0078125f, 1.5f};
      for (int64_t slot = 0; slot < 3; ++slot)
        state[slot * 8 + 5] = scales[slot];
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      GuardedBuffer<float> x(rows * columns), scaleOf(rows), extrema(rows * 2);
      for (int64_t i = 0; i < rows * columns; ++i) {
        float shift = i / columns == 2 ? 9.0f : i / columns == 5 ? -9.0f : 0.0f;
        x[i] = normal(random) + shift;
      }
      const int64_t padded = easyquant::cpu::paddedColumns(columns);
      GuardedBuffer<int8_t> codes(rows * padded, 99);
      GuardedBuffer<int32_t> sums(rows);
      int64_t towering = 0;
      for (int64_t threads : {1, 3}) {
        MemRef<float, 2> xs(x.data(), {rows, columns}), es(extrema.data(), {rows, 2});
        MemRef<double, 2> ss(state.data(), {3, 8});
        MemRef<int8_t, 2> cs(codes.data(), {rows, padded});
        MemRef<float, 1> rs(scaleOf.data(), {rows});
        MemRef<int32_t, 2> gs(sums.data(), {rows, 1});
        auto ts = table.view();
        run(xs, ss, ts, int64_t(4), cs, rs, gs, es, threads);
        for (int64_t m = 0; m < rows; ++m) {
          const float scale = scales[m < 4 ? 2 : m < 5 ? 0 : 1];
          std::vector<float> y(x.data() + m * columns, x.data() + (m + 1) * columns);
          if (block > 0)
            rotateActivation(y, block);
          ConstMatrix row{y.data(), 1, columns, columns};
          Scheme scheme{8, true, Granularity::Tensor};
          scheme.sinks = sinks;
          auto expected = quantizeTokens(row, scheme, scale, 0, 0);
          ASSERT_TRUE(expected);
          EXPECT_EQ(scaleOf[m], expected->scales[0]);
          towering += expected->scales[0] != scale;
          EXPECT_EQ(sums[m], expected->sums[0]);
          for (int64_t k = 0; k < padded; ++k)
            ASSERT_EQ(codes[m * padded + k], expected->codes[k]) << "row " << m;
          auto [low, high] = std::minmax_element(row.row(0), row.row(0) + columns);
          const float most = sinks ? 254 * scale : std::numeric_limits<float>::infinity();
          EXPECT_EQ(extrema[2 * m], std::min(-*low, most)) << "row " << m;
          EXPECT_EQ(extrema[2 * m + 1], std::min(*high, most)) << "row " << m;
        }
      }
      EXPECT_EQ(towering > 0, sinks);
    }
}

// With sinks apart, a thousand steps of rows of which some leave the range and some tower above it:
// rows' codes and scales are those of lib/Numerics, and the state is the transcription's of rows
// that reach no further than twice the range.
TEST(OnlineRows, RowsThatTowerAreNotFollowed) {
  for (const Target &target : testTargets()) {
    SCOPED_TRACE(target.name().str());
    constexpr int64_t columns = 43, most = 5;
    RowSpec spec{RowOp::Quantize, columns, 0.0, RowQuantization::Online};
    spec.stateFields = onlineFields(0);
    spec.sinks = true;
    KernelRunner quantize(target,
                          [&](ModuleOp module) { return getOrEmitRowOp(module, spec, target); });
    const AdvanceSpec advanceSpec{1, 0, 0.875};
    KernelRunner advance = compile(advanceSpec, target);
    const Scheme scheme{.bits = 8, .granularity = Granularity::Tensor, .sinks = true};

    GuardedBuffer<double> state(4);
    startOnline(0.02f, state.span().first(2));
    Transcription expected{advanceSpec.decay, double(0.02f) * 127, 0};
    const int64_t padded = easyquant::cpu::paddedColumns(columns);
    GuardedBuffer<float> x(most * columns), scaleOf(most), extrema(most * 2);
    GuardedBuffer<int8_t> codes(most * padded);
    GuardedBuffer<int32_t> sums(most);
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    const float spikes[] = {0.5f, 1.003f, 1.01f, 1.99f, 2.01f, 40.0f, 1e30f};
    int64_t towering = 0, leaving = 0;
    for (int step = 0; step < 1000; ++step) {
      const int64_t rows = 1 + random() % most;
      const float scale = expected.scale(), size = 0.3f * std::exp(0.01f * float(step % 500));
      std::vector<RowExtrema> counted;
      for (int64_t m = 0; m < rows; ++m) {
        std::span<float> row = x.span().subspan(m * columns, columns);
        for (float &value : row)
          value = step % 13 == 4 ? 0.25f * scale : normal(random) * size;
        if (step % 17 == 3 || random() % 4 == 0)
          row[random() % columns] = scale * 127 * (random() % 2 ? 1.0f : -1.0f) *
                                    spikes[step % 17 == 3 ? 5 : random() % std::size(spikes)];
        if (step % 29 == 7)
          row[columns - 1] = -kInfinity;
        auto [low, high] = std::minmax_element(row.begin(), row.end());
        const float reach = 254 * scale;
        towering += *low < -reach || *high > reach;
        counted.push_back(
            {std::isinf(*low) ? *low : std::max(*low, -reach), std::min(*high, reach)});
      }
      SequenceTable table;
      eq_sequence &sequence = table.add(rows, step);
      sequence.slot = step % 2;
      sequence.next_slot = 1 - step % 2;
      MemRef<float, 2> xs(x.data(), {rows, columns}), es(extrema.data(), {rows, 2});
      MemRef<double, 2> ss(state.data(), {2, 2});
      MemRef<int8_t, 2> cs(codes.data(), {rows, padded});
      MemRef<float, 1> rs(scaleOf.data(), {rows});
      MemRef<int32_t, 2> gs(sums.data(), {rows, 1});
      auto ts = table.view();
      quantize(xs, ss, ts, int64_t(0), cs, rs, gs, es, int64_t(1 + step % 2));
      advance(es, ss, ts, int64_t(1));
      for (int64_t m = 0; m < rows && step % 29 != 7; ++m) {
        auto own =
            quantizeTokens({x.data() + m * columns, 1, columns, columns}, scheme, scale, 0, 0);
        ASSERT_TRUE(own);
        leaving += own->scales[0] != scale;
        ASSERT_EQ(scaleOf[m], own->scales[0]) << "step " << step << ", row " << m;
        ASSERT_EQ(sums[m], own->sums[0]);
        for (int64_t k = 0; k < padded; ++k)
          ASSERT_EQ(codes[m * padded + k], own->codes[k]) << "step " << step << ", row " << m;
      }
      expected.step(counted);
      const double *next = state.data() + 2 * (1 - step % 2);
      ASSERT_EQ(next[0], expected.peak) << "step " << step;
      ASSERT_EQ(float(next[1]), expected.scale()) << "step " << step;
    }
    EXPECT_GT(towering, 100);
    EXPECT_GT(leaving, towering + 100);
  }
}
