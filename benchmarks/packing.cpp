//===- packing.cpp - Quantizing and packing weights beside reading them ---===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What equant-materialize-weights does to a float weight: absmax, codes, panels, the error, in one
// pass. One thread; the roof is how fast the same thread reads the same floats. The last line is
// the rate of each scheme as JSON, for benchmarks/packing.py, which adds gguf's quantizer.
//
//   easyquant-packing-bench [ROWS [COLUMNS [ROUNDS]]]
//
//===----------------------------------------------------------------------===//

#include "Roofs.h"

#include "easyquant/Numerics/Packing.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <random>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

struct Case {
  const char *name;
  int bits;
  int64_t groupSize;
  ScaleFormat scales;
};

/// Weights a second of one pass over all panels.
double quantizeOnce(const PanelLayout &layout, ConstMatrix w, PackedWeight &packed) {
  ErrorSums error;
  double start = bench::now(1);
  for (int64_t row = 0; row < w.rows; row += layout.blockRows()) {
    ConstMatrix block{w.row(row), std::min(layout.blockRows(), w.rows - row), w.columns, w.columns};
    auto quantized = quantizeAbsMax(block, layout.scheme, row, error);
    if (!quantized) {
      fmt::print(stderr, "error: {}\n", quantized.error().message);
      std::exit(1);
    }
    layout.pack(row, *quantized, packed);
  }
  return static_cast<double>(w.rows * w.columns) / (bench::now(1) - start);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

} // namespace

int main(int argc, char **argv) {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 11008;
  const int64_t columns = argc > 2 ? std::atoll(argv[2]) : 4096;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  if (rows < 1 || columns < 1 || rounds < 1) {
    fmt::print(stderr, "error: expected positive numbers: easyquant-packing-bench [ROWS [COLUMNS "
                       "[ROUNDS]]]\n");
    return 1;
  }
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> w(rows * columns);
  for (float &v : w)
    v = normal(random);
  fmt::print("{}, {} x {} floats, one thread, medians of {} rounds\n", bench::cpuModel(), rows,
             columns, rounds);
  std::string json;
  for (Case c : {Case{"int8 per channel", 8, 0, ScaleFormat::F32},
                 Case{"int4, groups of 128", 4, 128, ScaleFormat::F16},
                 Case{"int4, groups of 32", 4, 32, ScaleFormat::F16},
                 Case{"int2, groups of 128", 2, 128, ScaleFormat::F16}}) {
    Scheme scheme;
    scheme.bits = c.bits;
    scheme.granularity = c.groupSize ? Granularity::Group : Granularity::Channel;
    scheme.groupSize = c.groupSize;
    scheme.scales = c.scales;
    auto layout = panelLayout(scheme, rows, columns);
    if (!layout) {
      fmt::print(stderr, "error: {}\n", layout.error().message);
      return 1;
    }
    std::vector<double> rates, reads;
    for (int round = 0; round < rounds; ++round) { // interleaved
      PackedWeight packed = layout->allocate();
      rates.push_back(quantizeOnce(*layout, {w.data(), rows, columns, columns}, packed));
      reads.push_back(bench::measureRead(w.data(), w.size() * sizeof(float), 1));
    }
    const double rate = median(rates), read = median(reads);
    fmt::print("{:<22}{:8.0f} Mweights/s   {:5.1f} of {:5.1f} GB/s read: {:.2f}\n", c.name,
               rate / 1e6, rate * 4e-9, read / 1e9, rate * 4 / read);
    json += fmt::format("{}\"{}\": {:.0f}", json.empty() ? "" : ", ", c.name, rate);
  }
  fmt::print("{{{}}}\n", json);
}
